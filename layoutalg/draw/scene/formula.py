"""The rule of a fragment: row and column of a slot as sums in g, t and w, found from its table."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence

import numpy as np
import numpy.typing as npt

_BITS = 5  # of a lane's number; those above are the warp's
# The digits of a thread's number: letter -> (what it is, first bit, bits). Those of whole groups
# come first: a sum takes the first letter that fits.
_LETTERS = {
    "lane": ("{} mod 32", 0, 5), "r": ("{} mod 16", 0, 4), "g": ("{} // 4", 2, 3),
    "q": ("g mod 4", 2, 2), "h": ("g // 4", 4, 1), "t": ("{} mod 4", 0, 2),
    "t0": ("t mod 2", 0, 1), "t1": ("t // 2", 1, 1),
}  # fmt: skip
_ORDER = ("w", "lane", "h", "r", "g", "q", "t", "t1", "t0")


def index_formula(values: npt.NDArray[np.int64]) -> str | None:
    """Write an index as ``16w + 8g + 2t + c``, or None where it is no such sum.

    Args:
        values: (lanes, elements): the index of some elements for each lane. The elements of one
            lane are equal, or count up by one: then the constant is a range.

    The letters are ``g = lane mod 32 // 4``, ``t = lane mod 4`` and ``w = lane // 32``; where lanes
    work in other groups, those of :func:`digit_rules`.

    >>> lane = np.arange(32)[:, None]
    >>> index_formula(lane // 4 + 8), index_formula(lane % 4 * 4 + np.arange(4))
    ('g + 8', '4t + 0..3')
    >>> index_formula(lane % 16), index_formula(8 * (lane % 2) + lane // 16)
    ('r', 'h + 8t0')
    """
    lanes, elements = values.shape
    lane = np.arange(lanes)
    start = int(values[0, 0])
    grown = values[:, -1] - values[:, 0]
    extra = int(grown[0])
    if extra not in (0, elements - 1):
        return None
    weights = [
        int(values[1 << bit, 0]) - start for bit in range(min(_BITS, lanes.bit_length() - 1))
    ]
    weights += [0] * (_BITS - len(weights))
    warp = int(values[1 << _BITS, 0]) - start if lanes > 1 << _BITS else 0
    rule = start + warp * (lane >> _BITS)
    for bit, weight in enumerate(weights):
        rule = rule + weight * (lane >> bit & 1)
    steps = np.arange(elements) if extra else np.zeros(elements, dtype=np.int64)
    if min(weights) < 0 or warp < 0 or (values != rule[:, None] + steps).any():
        return None
    found = dict(_terms(weights)) | ({"w": warp} if warp else {})
    terms = [
        letter if found[letter] == 1 else f"{found[letter]}{letter}"
        for letter in _ORDER
        if letter in found
    ]
    if extra:
        terms.append(f"{start}..{start + extra}")
    elif start or not terms:
        terms.append(str(start))
    return " + ".join(terms)


def _terms(weights: list[int]) -> Iterator[tuple[str, int]]:
    """Yield the letters of a lane whose bits have these weights, with the weight of each."""
    left = list(weights)
    for letter, (_, first, bits) in _LETTERS.items():
        if (weight := left[first]) and all(
            left[first + bit] == weight << bit for bit in range(bits)
        ):
            yield letter, weight
            left[first : first + bits] = [0] * bits


def digit_rules(rules: Iterable[str], warps: bool) -> tuple[str, ...]:
    """Say what the letters of some rules are.

    Args:
        rules: made by :func:`index_formula`.
        warps: whether threads are counted over several warps.

    >>> digit_rules(["h + 8t0"], False)
    ('g = lane // 4', 't = lane mod 4', 'h = g // 4', 't0 = t mod 2')
    """
    used = {letter for rule in rules for letter in re.findall(r"[a-z]+\d?", rule)}
    shown = [letter for letter in ("g", "t", "r", "q", "h", "t1", "t0") if letter in used | {*"gt"}]
    thread, lane = ("thread", "thread mod 32") if warps else ("lane", "lane")
    names = {"g": lane}
    return (
        *(("w = thread // 32",) if warps else ()),
        *(
            f"{letter} = {_LETTERS[letter][0].format(names.get(letter, thread))}"
            for letter in shown
        ),
    )


def digit_values(lane: int, rules: Sequence[str]) -> tuple[str, ...]:
    """Return the digits of a lane that :func:`digit_rules` defined.

    >>> digit_values(21, digit_rules(["h + 8t0"], False))
    ('g = 5', 't = 1', 'h = 1', 't0 = 1')
    """
    values = []
    for rule in rules:
        letter = rule.split(" ")[0]
        if letter == "w":
            value = lane >> _BITS
        else:
            _, first, bits = _LETTERS[letter]
            value = lane >> first & (1 << bits) - 1
        values.append(f"{letter} = {value}")
    return tuple(values)


def index_range(values: Sequence[int]) -> str:
    """Write one index, or the first and last of a range: ``8..11``."""
    first, last = values[0], values[-1]
    return str(first) if first == last else f"{first}..{last}"
