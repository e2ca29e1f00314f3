"""The pictures, one file each."""
