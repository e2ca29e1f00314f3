"""The rule of a fragment: row and column of a slot as sums in g, t and w, found from its table."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt


def index_formula(values: npt.NDArray[np.int64]) -> str | None:
    """Write an index as ``16w + 8g + 2t + c``, or None where it is no such sum.

    Args:
        values: (lanes, elements): the index of some elements for each lane. The elements of one
            lane are equal, or count up by one: then the constant is a range.

    The letters are ``g = lane mod 32 // 4``, ``t = lane mod 4`` and ``w = lane // 32``.

    >>> lane = np.arange(32)[:, None]
    >>> index_formula(lane // 4 + 8), index_formula(lane % 4 * 4 + np.arange(4))
    ('g + 8', '4t + 0..3')
    """
    lanes, elements = values.shape
    lane = np.arange(lanes)
    start = int(values[0, 0])
    weights = {
        letter: int(values[step, 0]) - start if step < lanes else 0
        for letter, step in (("w", 32), ("g", 4), ("t", 1))
    }
    grown = values[:, -1] - values[:, 0]
    extra = int(grown[0])
    if extra not in (0, elements - 1):
        return None
    rule = (
        start
        + weights["w"] * (lane // 32)
        + weights["g"] * (lane % 32 // 4)
        + weights["t"] * (lane % 4)
    )
    steps = np.arange(elements) if extra else np.zeros(elements, dtype=np.int64)
    if (values != rule[:, None] + steps).any():
        return None
    terms = [
        letter if weight == 1 else f"{weight}{letter}"
        for letter, weight in weights.items()
        if weight
    ]
    if extra:
        terms.append(f"{start}..{start + extra}")
    elif start or not terms:
        terms.append(str(start))
    return " + ".join(terms)


def index_range(values: Sequence[int]) -> str:
    """Write one index, or the first and last of a range: ``8..11``."""
    first, last = values[0], values[-1]
    return str(first) if first == last else f"{first}..{last}"
