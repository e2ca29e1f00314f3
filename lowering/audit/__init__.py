"""Other people's kernels and tables: a linter, and the table of targets."""
