"""``Reader``: a function of operations with a row for each class of them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Generic, TypeVar

from layoutalg import LayoutError
from lowering.ir.ops import Op

C = TypeVar("C")
Row = TypeVar("Row", bound=Callable[..., None])


class Reader(Generic[C]):
    """What a machine, or a text, makes of each operation, in a context of its own.

    >>> from lowering.ir.ops import Commit, Wait
    >>> shout = Reader[list[str]]("shout")
    >>> @shout.of(Commit)
    ... def commit(said: list[str], op: Commit) -> None:
    ...     said.append(str(op).upper())
    >>> said: list[str] = []
    >>> shout(said, Commit())
    >>> said
    ['CP.ASYNC.COMMIT']
    >>> shout(said, Wait(0))
    Traceback (most recent call last):
    layoutalg.errors.LayoutError: shout: the operation Wait is unknown to this reader; got \
cp.async.wait(0)
    """

    def __init__(self, name: str) -> None:
        self.name = name
        self.rows: dict[type[Op], Callable[..., None]] = {}

    def of(self, *kinds: type[Op]) -> Callable[[Row], Row]:
        """Make a function the row of some classes."""

        def add(row: Row) -> Row:
            assert not self.rows.keys() & set(kinds), kinds
            self.rows.update(dict.fromkeys(kinds, row))
            return row

        return add

    def __contains__(self, op: Op) -> bool:
        return type(op) in self.rows

    def __call__(self, context: C, op: Op, *alike: Op) -> None:
        """Read an operation, or neighbours that are read as one.

        Raises:
            LayoutError: an operation that has no row.
        """
        row = self.rows.get(type(op))
        if row is None:
            raise unknown(op, self.name)
        row(context, op, *alike)


def unknown(op: Any, reader: str) -> LayoutError:
    """Return the error of a reader that comes to an operation which it does not know.

    >>> print(unknown(3, "text"))
    text: the operation int is unknown to this reader; got 3
    """
    return LayoutError(
        f"{reader}: the operation {type(op).__name__} is unknown to this reader; got {op}"
    )
