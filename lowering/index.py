"""Index arithmetic as text: the expressions that layouts' inverse maps become in a kernel."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from layoutalg import Axis, Iter, LayoutError, TileLayout, m
from layoutalg.size import Size
from lowering.registers import thread_coordinate

_ADD, _MUL, _ATOM = range(3)


@dataclass(frozen=True)
class Index:
    """A nonnegative integer expression, printed for Python and for C++ alike.

    ``below`` is an exclusive upper bound where one is known, ``source`` what a remainder was taken
    of: both serve to leave out operations that do nothing.

    >>> t = Index("thread", below=128)
    >>> str(t % 32 // 4 * 8 + 3), str(t % 32 % 4), str(t % 128), str(t // 128)
    ('thread % 32 // 4 * 8 + 3', 'thread % 4', 'thread', '0')
    """

    text: str
    rank: int = _ATOM
    below: int | None = None
    source: tuple[Index, int] | None = None

    def wrap(self, rank: int) -> str:
        """Return the text, in parentheses where it binds less tightly than ``rank``."""
        return self.text if self.rank >= rank else f"({self.text})"

    def __floordiv__(self, other: int) -> Index:
        """Divide by a positive constant."""
        if other == 1:
            return self
        if self.below is not None and self.below <= other:
            return ZERO
        below = None if self.below is None else -(-self.below // other)
        return Index(f"{self.wrap(_MUL)} // {other}", _MUL, below)

    def __mod__(self, other: int) -> Index:
        """Take the remainder by a positive constant."""
        if other == 1:
            return ZERO
        if self.below is not None and self.below <= other:
            return self
        if self.source is not None and self.source[1] % other == 0:
            return self.source[0] % other
        return Index(f"{self.wrap(_MUL)} % {other}", _MUL, other, (self, other))

    def __mul__(self, other: int) -> Index:
        """Multiply by a constant."""
        if other == 0 or self == ZERO:
            return ZERO
        return self if other == 1 else Index(f"{self.wrap(_MUL)} * {other}", _MUL)

    __rmul__ = __mul__

    def __add__(self, other: int | Index) -> Index:
        """Add a constant or an expression."""
        right = other if isinstance(other, Index) else Index(str(other))
        if right.text == "0":
            return self
        return right if self == ZERO else Index(f"{self.text} + {right.text}", _ADD)

    __radd__ = __add__

    def __sub__(self, other: int) -> Index:
        """Subtract a constant."""
        return self if other == 0 else Index(f"{self.text} - {other}", _ADD)

    def __str__(self) -> str:
        """Return the expression in Python."""
        return self.text

    def c(self) -> str:
        """Return the expression in C++."""
        return self.text.replace("//", "/")


ZERO = Index("0", below=1)


@dataclass(frozen=True)
class Guard:
    """A condition ``0 <= value < limit`` that some threads do not meet: they hold nothing."""

    value: Index
    limit: int

    def python(self) -> str:
        """Return the condition in Python."""
        return f"0 <= {self.value.wrap(_ADD)} < {self.limit}"

    def c(self) -> str:
        """Return the condition in C++."""
        text = f"({self.value.c()})"
        return f"0 <= {text} && {text} < {self.limit}"


@dataclass(frozen=True)
class Place:
    """The element that a register holds: its flat index in the buffer, and when it holds one."""

    index: Index
    guards: tuple[Guard, ...]


def _registers_apart(layout: TileLayout) -> tuple[TileLayout, dict[int, int]]:
    """Split a layout: threads alone, and what each register adds to the flat element index.

    Register numbers may be any that differ: they are listed, not inverted. In the layout that is
    returned the registers are dense, so that its inverse asks for nothing but the threads.

    Raises:
        LayoutError: two elements share a register.
    """
    shard: list[Iter] = []
    weight = count = 1
    held = {sum(int(value) for axis, value in layout.offset.items() if axis.memory): 0}
    for it in reversed(layout.shard):
        if it.axis.memory:
            shard.append(Iter(it.extent, count, m))
            count *= int(it.extent)
            held = {
                register + step * int(it.stride): element + step * weight
                for register, element in held.items()
                for step in range(int(it.extent))
            }
        else:
            shard.append(it)
        weight *= int(it.extent)
    if len(held) != count:
        raise LayoutError(f"registers: {layout} puts two elements into one register of a thread")
    offset: dict[Axis | str, Size] = {a: v for a, v in layout.offset.items() if a.thread}
    return TileLayout.from_iters(shard[::-1], layout.replica, offset), held


def register_places(
    layout: TileLayout, threads: int, registers: tuple[int, ...]
) -> dict[int, Place]:
    """Return, per register, the flat element index as an expression of ``thread``.

    Derived from the layout's inverse map. Registers that hold no element are left out.

    Args:
        layout: thread axes and registers, replicas for copies.
        threads: threads of the CTA.
        registers: register numbers wanted.

    Raises:
        LayoutError: two elements share a register of a thread, or the threads' strides interleave.

    >>> from layoutalg import fragments
    >>> B = fragments.get("mma.m16n8k8.f16", "B")
    >>> register_places(B.layout, 32, (1,))[1].index.text
    'thread // 4 + thread % 4 * 16 + 8'
    """
    spread, held = _registers_apart(layout)
    inverse = spread.inverse((spread.size(),))
    thread = Index("thread", below=threads)
    numbers = np.arange(threads)
    varying = ZERO
    guards: list[Guard] = []
    for axis in dict.fromkeys((*inverse.axes, *inverse.offset)):
        if axis.memory:
            continue
        texts = inverse.digits(axis, thread_coordinate(axis, thread))
        values = inverse.digits(axis, thread_coordinate(axis, numbers))
        for (place, text), (_, value) in zip(texts, values, strict=True):
            limit = 1 if place is None else int(place.extent)
            if value.min() < 0 or value.max() >= limit:
                guards.append(Guard(text, limit))
            if place is not None and place.dim is not None:
                varying = varying + text * int(place.weight)
    start = int(inverse.base[0])
    return {
        register: Place(varying + (start + held[register]), tuple(guards))
        for register in registers
        if register in held
    }
