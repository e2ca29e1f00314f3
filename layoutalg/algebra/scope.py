"""Scopes: what the thread axes of a layout count, and which thread axes fuse in CUDA."""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache
from types import MappingProxyType
from typing import Literal

from layoutalg.algebra.axis import SCOPES, Axis, laneid, tid_in_wg, tx, warpid, wgid, wid_in_wg
from layoutalg.errors import LayoutError

Target = Literal["cuda"] | None

# axis, (subscope, scope) of the layout -> the axis that it is part of, and its unit there
_FUSED: dict[tuple[Axis, tuple[str, str]], tuple[Axis, int]] = {
    (laneid, ("thread", "warpgroup")): (tid_in_wg, 1),
    (laneid, ("thread", "cta")): (tx, 1),
    (wid_in_wg, ("thread", "warpgroup")): (tid_in_wg, 32),
    (wid_in_wg, ("thread", "cta")): (tx, 32),
    (wid_in_wg, ("warp", "cta")): (warpid, 1),
    (warpid, ("thread", "cta")): (tx, 32),
    (tid_in_wg, ("thread", "cta")): (tx, 1),
    (wgid, ("thread", "cta")): (tx, 128),
    (wgid, ("warp", "cta")): (warpid, 4),
}

# axis, scope at which it is cut -> outer axis, inner axis, units of the inner axis
_SPLIT: dict[tuple[Axis, str], tuple[Axis, Axis, int]] = {
    (tx, "warp"): (warpid, laneid, 32),
    (tx, "warpgroup"): (wgid, tid_in_wg, 128),
    (tid_in_wg, "warp"): (wid_in_wg, laneid, 32),
    (warpid, "warpgroup"): (wgid, wid_in_wg, 4),
}


def as_target(target: str | None) -> Target:
    """Return the target that axis fusions and splits follow."""
    if target is None or (isinstance(target, str) and target == "cuda"):
        return target  # type: ignore[return-value]
    raise LayoutError(f"target: must be None or 'cuda'; got {target!r}")


@lru_cache(maxsize=1024)
def wider_axes(axes: tuple[Axis, ...], pair: tuple[str, str]) -> Mapping[Axis, tuple[Axis, int]]:
    """Return those of the axes that are part of another in a layout of this scope pair.

    Each comes with the axis that it is part of, and with its unit there.

    >>> wider_axes((laneid, warpid), ("thread", "cta"))
    mappingproxy({laneid: (tx, 1), warpid: (tx, 32)})
    """
    found = {axis: _FUSED[axis, pair] for axis in axes if (axis, pair) in _FUSED}
    return MappingProxyType(found)


def split_axis(axis: Axis, scope: str) -> tuple[Axis, Axis, int] | None:
    """Return (outer axis, inner axis, inner units) of an axis cut at a scope; None: it stays whole.

    >>> split_axis(tx, "warp")
    (warpid, laneid, 32)
    """
    return _SPLIT.get((axis, scope))


def scope_of(axes: tuple[Axis, ...], owner: object) -> tuple[str, str]:
    """Follow subscope -> scope over the thread axes; return the narrowest and the widest."""
    found = follow(axes)
    if isinstance(found, str):
        raise LayoutError(f"scope: {found}; got {owner}")
    return found


@lru_cache(maxsize=1024)
def follow(axes: tuple[Axis, ...]) -> tuple[str, str] | str:
    """Return the scope pair of thread axes, or what is wrong with them.

    >>> follow((laneid, tx))
    'laneid and tx conflict: both count each thread, one in the warp, one in the cta'
    """
    links: dict[str, Axis] = {}
    for axis in axes:
        known = links.setdefault(str(axis.subscope), axis)
        if known.scope != axis.scope:
            return (
                f"{known.name} and {axis.name} conflict: both count each {axis.subscope}, one in "
                f"the {known.scope}, one in the {axis.scope}"
            )
    narrow = wide = min(links, key=SCOPES.index)
    for _ in links:
        if wide not in links:
            names = ", ".join(axis.name for axis in links.values())
            return f"the axes {names} are disconnected: none counts each {wide}"
        wide = str(links[wide].scope)
    return narrow, wide
