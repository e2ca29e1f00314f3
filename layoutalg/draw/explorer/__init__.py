"""The explorer: an interactive page, and the same as a widget of a notebook."""
