"""Groups of asynchronous copies and products by name: how many a wait for one leaves in flight.

Hardware counts groups: a wait says how many of the newest may be unfinished. Which group is meant
follows from the statements between its commit and the wait, where their number is the same on all
paths.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from layoutalg import LayoutError
from lowering.ir.ops import Commit, Loop, Op, WgmmaCommit, walk

Closing = Commit | WgmmaCommit


@dataclass(frozen=True, eq=False)
class Group:
    """What one ``commit`` closes; ``Kernel.wait`` takes it.

    Attributes:
        of: "copy" or "gemm".
        number: which commit of its kernel, from 0 on.
        statement: the commit.
        block: the statements among which it stands.
    """

    of: str
    number: int
    statement: Closing = field(repr=False)
    block: list[Op] = field(repr=False)

    def __str__(self) -> str:
        return f"group {self.number} ({self.of})"


def pending_after(group: Group, blocks: Sequence[tuple[list[Op], str]]) -> int:
    """Return how many groups of its kind are closed between a group and here.

    Args:
        group: the one to wait for.
        blocks: those that are open here, the outermost first, and of each why groups closed before
            it cannot be waited for in it; "": they can.

    Raises:
        LayoutError: the group is of a block that has ended, the wait in a loop or a producer that
            the group is not in, or a branch between them closes groups.
    """
    depth = next((at for at, (body, _) in enumerate(blocks) if body is group.block), None)
    if depth is None:
        raise LayoutError(
            f"wait: {group} is of a block that has ended, or of another kernel: whether it was "
            "closed, and how many after it, is not known here; wait inside, or wait(pending)"
        )
    apart = next((why for _, why in blocks[depth + 1 :] if why), "")
    if apart:
        raise LayoutError(
            f"wait: {group} was closed before {apart}: wait before that, or wait(pending)"
        )
    own = blocks[depth][0]
    start = next(at for at, op in enumerate(own) if op is group.statement)
    after = [*own[start + 1 :], *(op for body, _ in blocks[depth + 1 :] for op in body)]
    return _closed(group, after)


def _closed(group: Group, ops: Sequence[Op]) -> int:
    """Count the groups of a kind that statements close.

    Raises:
        LayoutError: the number depends on a branch or on the extent of a loop.
    """
    kind = type(group.statement)
    total = 0
    for op in ops:
        if isinstance(op, kind):
            total += 1
        elif isinstance(op, Loop) and isinstance(op.extent, int):
            total += op.extent * _closed(group, op.body)
        elif any(isinstance(inner, kind) for inner in walk((op,))):
            what = "a loop of no fixed extent" if isinstance(op, Loop) else "a branch"
            raise LayoutError(
                f"wait: {what} after {group} closes groups as well: how many are in flight is not "
                "the same on all paths; wait(pending)"
            )
    return total
