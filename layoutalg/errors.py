"""The two errors of the algebra, and the place in a text that an error points at."""

from unicodedata import category, east_asian_width

_MOST = 80  # characters of a line that a message shows


class LayoutError(ValueError):
    """A request that no layout can meet: the text says what came and what would fit."""


class Undecided(LayoutError):  # noqa: N818 (the name that DESIGN fixes)
    """A question that the free symbols leave open: the text says what would settle it."""


def pointed(source: str, start: int, length: int = 1, most: int = _MOST) -> str:
    r"""Return the line of a text that holds a place, and below it carets under the place.

    The caret stands in the column where a terminal shows the character: a tab, like any control
    character, is shown as one blank, wide characters take two columns, combining ones none.

    Args:
        source: the text, of one line or several.
        start: the offset of the place.
        length: of the place, in characters; it is cut where the line ends.
        most: characters of a longer line that are shown, those around the place.

    >>> print(pointed("one,\n\tSS[8:1]", 6))
       SS[8:1]
       ^
    """
    begin = source.rfind("\n", 0, start) + 1
    line, at = source[begin:].split("\n", 1)[0], start - begin
    if len(line) > most:
        cut = max(0, min(at - most // 2, len(line) - most))
        line, at = line[cut : cut + most], at - cut
    shown = "".join(" " if category(c) in ("Cc", "Zl", "Zp") else c for c in line)
    under = _columns(shown[at : at + length])
    return f"  {shown}\n  {' ' * _columns(shown[:at])}{'^' * max(1, under)}"


def _columns(text: str) -> int:
    """Return how many columns of a terminal a text takes."""
    return sum(
        0 if category(c) in ("Mn", "Me", "Cf") else 2 if east_asian_width(c) in "WF" else 1
        for c in text
    )
