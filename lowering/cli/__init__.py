"""The command ``layoutalg``: a file for each group of verbs."""
