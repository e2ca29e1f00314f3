"""Decide or refute: equal maps, injective maps, canonical forms, what formulas say."""
