"""The two errors of the algebra, what their messages suggest, and the place that they point at."""

import difflib
from collections.abc import Iterable
from unicodedata import category, east_asian_width

_MOST = 80  # characters of a line that a message shows


class LayoutError(ValueError):
    """A request that no layout can meet: the text says what came and what would fit."""


class Undecided(LayoutError):  # noqa: N818 (the name that DESIGN fixes)
    """A question that the free symbols leave open: the text says what would settle it."""


def did_you_mean(name: object, known: Iterable[str], most: int = 4, cutoff: float = 0.6) -> str:
    """Return what a message suggests in place of an unknown name; "" where no name is near.

    Names that begin with it come first, then those that have it between dots, then those that look
    like it.

    Args:
        name: what was given.
        known: the names that there are.
        most: names that are suggested.
        cutoff: how much a name must look like it, from 0 to 1, as ``difflib`` counts.

    >>> did_you_mean("m16n8k16", ["mma.m16n8k8.f16", "mma.m16n8k16.f16", "wgmma.m64n8"])
    '; did you mean mma.m16n8k16.f16, mma.m16n8k8.f16?'
    >>> did_you_mean("nothing", ["mma.m16n8k8.f16"])
    ''
    """
    text, names = str(name), list(known)
    begin = [each for each in names if text and each.startswith(text)]
    inside = [each for each in names if text and f".{text}." in f".{each}."]
    near = difflib.get_close_matches(text, names, most, cutoff)
    found = list(dict.fromkeys([*begin, *inside, *near]))[:most]
    return f"; did you mean {', '.join(found)}?" if found else ""


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
