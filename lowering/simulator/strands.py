"""Strands: threads of a CTA that run together, split where they diverge, joined where they meet.

A branch that holds in some threads is run by these while the others stand behind it. Where those
that run have to wait for an mbarrier, the others go on by themselves: a strand. What needs whole
warps, warpgroups or CTAs joins strands that have come to it; where the rest never comes, it is
refused.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from lowering.ir.ops import Op
from lowering.simulator.order import Bools


def as_seen_by(thread: int, env: Mapping[str, Any]) -> dict[str, Any]:
    """Return the values of variables in one thread.

    >>> as_seen_by(1, {"i": 3, "x": np.array([5, 6])})
    {'i': 3, 'x': np.int64(6)}
    """
    return {name: value[thread] if np.ndim(value) else value for name, value in env.items()}


@dataclass
class Frame:
    """A block of operations that some threads run, and where they are in it.

    ``beside``: the program that another thread runs meanwhile, and that ends before this does.
    """

    ops: Sequence[Op]
    mask: Bools
    at: int = 0
    var: str = ""
    step: int = 0
    extent: Any = 0
    beside: Strand | None = None


@dataclass(eq=False)
class Strand:
    """Threads that run together: where they are, and their values of variables.

    ``waiting``: the operation that they cannot do yet. ``met``: whether the barrier of the cluster
    at which they wait knows of them. ``producing``: whether it is the producer thread.
    """

    frames: list[Frame]
    env: dict[str, Any]
    producing: bool = False
    waiting: Op | None = None
    met: bool = field(default=False)

    @property
    def mask(self) -> Bools:
        """The threads that run."""
        return self.frames[-1].mask

    def next(self) -> Op | None:
        """Return the next operation, leaving blocks that have ended; None: at the end, or waiting.

        A loop goes on with the threads whose extent is larger.
        """
        while self.frames:
            frame = self.frames[-1]
            if frame.at < len(frame.ops):
                return frame.ops[frame.at]
            if frame.var:
                frame.step += 1
                outer = self.frames[-2].mask
                taking = outer & (frame.step < frame.extent)
                if taking.any():
                    frame.at, frame.mask = 0, taking
                    self.env[frame.var] = frame.step
                    continue
                self.env.pop(frame.var)
            if frame.beside is not None and frame.beside.frames:
                return None
            self.frames.pop()
        return None

    def enter(self, frame: Frame) -> None:
        """Enter a block, if any thread runs it."""
        if frame.mask.any():
            self.frames.append(frame)
            if frame.var:
                self.env[frame.var] = 0

    def split(self) -> list[Strand]:
        """Split off the idle threads of enclosing branches and loops, and return them as strands.

        >>> masks = np.array([True, True]), np.array([True, False])
        >>> strand = Strand([Frame((), mask) for mask in masks], {})
        >>> [other.mask.tolist() for other in strand.split()], strand.mask.tolist()
        ([[False, True]], [True, False])
        """
        found = []
        for depth in range(len(self.frames) - 1, 0, -1):
            idle = self.frames[depth - 1].mask & ~self.frames[depth].mask
            if idle.any():
                frames = [replace(each, mask=each.mask & idle) for each in self.frames[:depth]]
                found.append(Strand(frames, dict(self.env), self.producing))
        self.frames = [replace(each, mask=each.mask & self.mask) for each in self.frames]
        return found

    def same_place(self, other: Strand) -> bool:
        """Say whether another strand is at the same operation, in the same steps of loops."""
        return len(self.frames) == len(other.frames) and all(
            one.ops is two.ops and (one.at, one.step) == (two.at, two.step)
            for one, two in zip(self.frames, other.frames, strict=True)
        )

    def join(self, other: Strand) -> None:
        """Merge another strand at the same place."""
        for name, value in other.env.items():
            own = self.env.get(name)
            if own is None:
                self.env[name] = value
            elif own is not value and not np.array_equal(own, value):
                self.env[name] = np.where(other.mask, value, own)
        for one, two in zip(self.frames, other.frames, strict=True):
            one.mask = one.mask | two.mask
