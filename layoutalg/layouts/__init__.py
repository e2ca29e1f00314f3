"""The classes that users hold, and how they are written and read."""
