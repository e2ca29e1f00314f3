"""The two errors of the algebra."""


class LayoutError(ValueError):
    """A request that no layout can meet: the text says what came and what would fit."""


class Undecided(LayoutError):  # noqa: N818 (the name that DESIGN fixes)
    """A question that the free symbols leave open: the text says what would settle it."""
