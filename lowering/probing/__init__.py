"""What hardware alone shows: which element each register of an instruction holds."""
