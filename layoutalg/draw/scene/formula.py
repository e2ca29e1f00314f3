"""The rule of a slot, read from its fragment's formula: row and column as sums of lane digits."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence

from layoutalg.fragments import Fragment
from layoutalg.fragments.fragment import LANE_DIGITS

# What each digit of a lane is, in the order of their definitions; sums have an order of their own.
_MEANING = {
    "w": "thread // 32", "g": "{lane} // 4", "t": "{thread} mod 4", "r": "{thread} mod 16",
    "q": "g mod 4", "h": "g // 4", "t1": "t // 2", "t0": "t mod 2",
}  # fmt: skip
_ORDER = ("w", "lane", "h", "r", "g", "q", "t", "t1", "t0")


def slot_rules(fragment: Fragment, first: int, count: int = 1) -> tuple[str, str] | None:
    """Write row and column of neighbouring slots as ``16w + 8g + 2t + c``, for every lane.

    Where an index counts up with the slots its constant is a range. None where the slots neither
    share an index nor count it up: then they do not lie in a row.

    >>> from layoutalg.fragments import get
    >>> slot_rules(get("mma.m16n8k16.f16", "A"), 3), slot_rules(get("mma.m16n8k32.s8", "A"), 4, 4)
    (('g + 8', '2t + 1'), ('g + 8', '4t + 0..3'))
    """
    formula = fragment.formula
    weights, extents = formula.slot_weights(), dict(formula.digits)
    rules = []
    for side in (formula.row, formula.col):
        start, *more = (
            sum(side.get(name, 0) * (slot // weights[name] % extents[name]) for name in weights)
            for slot in range(first, first + count)
        )
        last = more[-1] if more else start
        if more not in ([start] * len(more), [start + n for n in range(1, count)]):
            return None
        terms = [
            letter if side[letter] == 1 else f"{side[letter]}{letter}"
            for letter in _ORDER
            if side.get(letter)
        ]
        if start or last > start or not terms:
            terms.append(index_range(start, last))
        rules.append(" + ".join(terms))
    return rules[0], rules[1]


def digit_rules(rules: Iterable[str], warps: bool) -> tuple[str, ...]:
    """Say what the letters of some rules are: g and t always, the others where they are used.

    Args:
        rules: made by :func:`slot_rules`.
        warps: whether threads are counted over several warps.

    >>> digit_rules(["h + 8t0"], False)
    ('g = lane // 4', 't = lane mod 4', 'h = g // 4', 't0 = t mod 2')
    """
    used = {letter for rule in rules for letter in re.findall(r"[a-z]+\d?", rule)} | {*"gt"}
    shown = used | {"w"} if warps else used - {"w"}
    thread, lane = ("thread", "thread mod 32") if warps else ("lane", "lane")
    return tuple(
        f"{letter} = {meaning.format(thread=thread, lane=lane)}"
        for letter, meaning in _MEANING.items()
        if letter in shown
    )


def digit_values(lane: int, rules: Sequence[str]) -> tuple[str, ...]:
    """Return the digits of a lane that :func:`digit_rules` defined.

    >>> digit_values(21, digit_rules(["h + 8t0"], False))
    ('g = 5', 't = 1', 'h = 1', 't0 = 1')
    """
    letters = [rule.split(" ")[0] for rule in rules]
    return tuple(
        f"{letter} = {lane // weight % extent}"
        for letter in letters
        for weight, extent in [LANE_DIGITS[letter]]
    )


def index_range(first: int, last: int) -> str:
    """Write one index, or the first and last of a range: ``8..11``."""
    return str(first) if first == last else f"{first}..{last}"
