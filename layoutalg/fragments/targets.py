"""Which target has which instruction: the targets' names, and the rule of a row's ``min_arch``.

A target is what PTX writes after ``.target``: ``sm_90``, or with a suffix ``sm_90a`` and
``sm_120f``, which have what a plain target of their number has and more besides. ``min_arch`` says
where an instruction is, in the same words:

- ``sm_80``: on every target of this number or a larger one, suffix or not;
- ``sm_120a`` or ``sm_120f``: on the targets with a suffix, of this number or a larger one of the
  same family. ``sm_90a`` has no relatives, so it is the only one;
- ``=sm_100a``: on this target alone;
- ``sm_100a, sm_110a``: where either is.

Source: PTX ISA, PTX Module Directives: ``.target``, family-specific features; that nvJitLink agrees
is a test.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from functools import cache

from layoutalg.errors import LayoutError

# What nvJitLink 13.5 assembles for.
TARGETS: tuple[str, ...] = (
    "sm_75", "sm_80", "sm_86", "sm_87", "sm_88", "sm_89", "sm_90", "sm_90a",
    "sm_100", "sm_100a", "sm_100f", "sm_103", "sm_103a", "sm_103f", "sm_107", "sm_107a", "sm_107f",
    "sm_110", "sm_110a", "sm_110f", "sm_120", "sm_120a", "sm_120f", "sm_121", "sm_121a", "sm_121f",
)  # fmt: skip

# Numbers whose targets with a suffix share instructions; others share with none.
FAMILIES: tuple[tuple[int, ...], ...] = ((100, 103, 107), (110,), (120, 121))

NEAR = 3  # targets that a refusal names beside an unknown one
LISTED = 4  # targets that a message lists one by one


def parts(target: object) -> tuple[int, str]:
    """Return the number and the suffix of a target's name; no such target need exist.

    Raises:
        LayoutError: not of that form.

    >>> parts("sm_90a"), parts("sm_120")
    ((90, 'a'), (120, ''))
    """
    found = (
        re.fullmatch(r"sm_([1-9][0-9]{1,2})([af]?)", target) if isinstance(target, str) else None
    )
    if found is None:
        raise LayoutError(f"target: must look like sm_90 or sm_90a; got {target!r}")
    return int(found[1]), found[2]


def check(target: object) -> str:
    """Return the target.

    Raises:
        LayoutError: not of the form of a target, or none that is known; the nearest are named.

    >>> check("sm_90a")
    'sm_90a'
    """
    number, _ = parts(target)
    if isinstance(target, str) and target in TARGETS:
        return target
    distance = {each: abs(parts(each)[0] - number) for each in TARGETS}
    near = sorted(sorted(TARGETS, key=distance.__getitem__)[:NEAR], key=TARGETS.index)
    raise LayoutError(f"target: {target} is unknown; near it are {_joined(near)}")


@cache
def targets_of(min_arch: str) -> tuple[str, ...]:
    """Return the targets that have an instruction, oldest first.

    Args:
        min_arch: where it is, in the words of this file.

    Raises:
        LayoutError: not of that form, or no known target has it.

    >>> targets_of("sm_90a"), targets_of("sm_120a")
    (('sm_90a',), ('sm_120a', 'sm_120f', 'sm_121a', 'sm_121f'))
    >>> targets_of("sm_70") == TARGETS
    True
    """
    wanted = min_arch.split(", ")
    having = tuple(target for target in TARGETS if any(_is_from(target, each) for each in wanted))
    if not having:
        raise LayoutError(
            f"target: no known target is {min_arch} or newer; the last is {TARGETS[-1]}"
        )
    return having


def _is_from(target: str, wanted: str) -> bool:
    """Say whether a target lies on or after one that an instruction asks for."""
    if wanted.startswith("="):
        return target == wanted[1:]
    (number, own), (first, suffix) = parts(target), parts(wanted)
    if not suffix:
        return number >= first
    family = next((each for each in FAMILIES if first in each), (first,))
    return own != "" and number in family and number >= first


def has(min_arch: str, target: str) -> bool:
    """Say whether a target has an instruction.

    Raises:
        LayoutError: the target is unknown, or ``min_arch`` is not of its form.

    >>> has("sm_80", "sm_75"), has("sm_80", "sm_90a"), has("sm_90a", "sm_100a")
    (False, True, False)
    """
    return check(target) in targets_of(min_arch)


def written(min_arch: str) -> str:
    """Return the targets of :func:`targets_of` as words; a long list is shortened.

    >>> written("sm_80"), written("sm_90a")
    ('sm_80 and newer', 'sm_90a')
    >>> written("sm_100a, sm_110a")
    'sm_100, sm_103, sm_107 and sm_110 with suffix a or f'
    >>> written("=sm_100a, =sm_110a")
    'sm_100a and sm_110a'
    """
    having = targets_of(min_arch)
    if re.fullmatch(r"sm_\d+", min_arch):
        return f"{min_arch} and newer"
    numbers = dict.fromkeys(f"sm_{parts(target)[0]}" for target in having)
    if len(having) <= LISTED or len(having) != len(numbers) * len("af"):
        return _joined(having)
    return f"{_joined(numbers)} with suffix a or f"


def lacking(what: str, min_arch: str, target: str) -> str:
    """Return the sentence that refuses an instruction on a target: who lacks it, and who has it.

    Args:
        what: the instruction, as PTX writes it.
        min_arch: where it is.
        target: what was asked for.

    >>> lacking("mma.sync.aligned.m16n8k16", "sm_80", "sm_75")
    'sm_75 lacks mma.sync.aligned.m16n8k16; sm_80 and newer have it'
    >>> lacking("wgmma", "sm_90a", "sm_100a")
    'sm_100a lacks wgmma; sm_90a has it'
    """
    verb = "has" if len(targets_of(min_arch)) == 1 else "have"
    return f"{target} lacks {what}; {written(min_arch)} {verb} it"


def _joined(words: Iterable[str]) -> str:
    *rest, last = words
    return f"{', '.join(rest)} and {last}" if rest else last
