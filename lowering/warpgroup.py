"""What is under way in the asynchronous tensor core while the NumPy warp runs a body.

A ``wgmma`` reads shared memory and registers, and writes its accumulator, at any time between its
start and the wait that completes it. On a GPU a program that does not order this is a silent race;
here each rule is checked and the text names the operation and the place:

- registers touched since the last ``wgmma.fence`` are no operands; there is a fence before the
  first ``wgmma``; accumulators pass from one to the next of the same shape without one;
- what is under way must be complete before its registers are touched or its cells overwritten;
- cells that threads wrote are read after a barrier and a ``fence.proxy.async``.

Source: PTX ISA, "Async Proxy", "wgmma.fence", "wgmma.commit_group", "wgmma.wait_group".
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

from layoutalg import LayoutError
from lowering.ops import Elements, Op, Wgmma, WgmmaWait, line
from lowering.registers import WARPGROUP

SEEN = -2  # the clock of what the asynchronous proxy wrote itself: before any fence
UNDER_WAY = np.iinfo(np.int64).max  # the clock of a read that no wait has completed

Ints = npt.NDArray[np.int64]
Register = tuple[str, int]


class SimulationError(LayoutError):
    """A program reads what nothing wrote, or races: the text names the operation and the place."""


def registers(elements: Elements) -> set[Register]:
    """Return elements as (buffer, number).

    >>> sorted(registers(Elements("A", (0, 1))))
    [('A', 0), ('A', 1)]
    """
    return {(elements.buffer, number) for number in elements.numbers}


@dataclass(frozen=True, eq=False)
class Started:
    """A wgmma that was started, and the cells that each warpgroup reads: per buffer."""

    op: Wgmma
    cells: dict[str, Ints] = field(default_factory=dict)


@dataclass
class Warpgroups:
    """The state of the asynchronous tensor core of a CTA.

    ``groups``: what is under way; the last is open. ``accumulating``: accumulators that no wait has
    completed. ``touched``: registers, and what touched them, since the last fence. ``reads``: when
    each warpgroup last read each cell of a buffer.
    """

    threads: int
    groups: list[list[Started]] = field(default_factory=lambda: [[]])
    accumulating: dict[Register, Wgmma] = field(default_factory=dict)
    touched: dict[Register, Op] = field(default_factory=dict)
    fenced: bool = False
    visible: int = -1
    reads: dict[str, Ints] = field(default_factory=dict)

    @property
    def under_way(self) -> list[Started]:
        """What was started and is not complete."""
        return [each for group in self.groups for each in group]

    def earliest(self, synced: Ints) -> Ints:
        """Return when all of each warpgroup had met each thread: (warpgroups, threads).

        A thread needs no barrier with itself.

        Args:
            synced: when each thread, by row, last met each other, by column.
        """
        met = synced[: self.threads].copy()
        np.fill_diagonal(met, UNDER_WAY)
        found: Ints = met.reshape(-1, WARPGROUP, met.shape[1]).min(axis=1)
        return found

    # -- registers ----------------------------------------------------------------------------

    def touch(self, op: Op) -> None:
        """Note the registers that an operation of the threads themselves touches."""
        for elements in vars(op).values():
            if not isinstance(elements, Elements):
                continue
            each = registers(elements)
            for other in self.under_way:
                self.check_read(op, each, other.op)
            if each & self.accumulating.keys():
                first = min(each & self.accumulating.keys())
                self.refuse(op, first, self.accumulating[first], "accumulates")
            self.touched.update(dict.fromkeys(each, op))

    def check_read(self, op: Op, each: set[Register], other: Wgmma) -> None:
        """Refuse an access to the registers of A of something that is under way."""
        source = registers(other.a) if isinstance(other.a, Elements) else set()
        if each & source:
            self.refuse(op, min(each & source), other, "reads")

    def refuse(self, op: Op, register: Register, other: Wgmma, verb: str) -> None:
        """Refuse an access to a register of something that is under way."""
        raise SimulationError(
            f"simulate: {line(op)} touches {register[0]}[{register[1]}], which {line(other)} "
            f"still {verb}: commit, and wait for it (naming what it completes)"
        )

    def start(self, op: Wgmma) -> None:
        """Check the registers of a wgmma, and note that it is under way."""
        if not self.fenced:
            raise SimulationError(
                f"simulate: {line(op)} is the first of its warpgroup: a wgmma.fence must precede it"
            )
        into = registers(op.d)
        source = registers(op.a) if isinstance(op.a, Elements) else set()
        stale = (into | source) & self.touched.keys()
        if stale:
            first = min(stale)
            raise SimulationError(
                f"simulate: {line(op)} uses {first[0]}[{first[1]}] after "
                f"{line(self.touched[first])} with no wgmma.fence in between"
            )
        for register in sorted((into | source) & self.accumulating.keys()):
            other = self.accumulating[register]
            shapes = {each.instruction.shape for each in (op, other)}
            if register in source or len(shapes) > 1:
                self.refuse(op, register, other, "accumulates")
        for running in self.under_way:
            self.check_read(op, into, running.op)
        self.accumulating.update(dict.fromkeys(into, op))
        self.groups[-1].append(Started(op))

    def fence(self) -> None:
        """Order what the threads did to registers before what follows."""
        self.fenced = True
        self.touched.clear()

    def commit(self) -> None:
        """Close the open group."""
        self.groups.append([])

    def wait(self, op: WgmmaWait, clock: int) -> None:
        """Complete all but the newest closed groups; what was not committed never completes."""
        closed = self.groups[:-1]
        done = closed[: max(0, len(closed) - op.pending)]
        self.groups = self.groups[len(done) :]
        self.release([each for group in done for each in group], clock)
        running = {
            register: each.op for each in self.under_way for register in registers(each.op.d)
        }
        for elements in op.complete:
            for register in sorted(registers(elements)):
                if register in running:
                    other = running[register]
                    raise SimulationError(
                        f"simulate: {line(op)} does not complete {register[0]}[{register[1]}], "
                        f"which {line(other)} still accumulates: commit it, and let fewer groups "
                        "be pending"
                    )
                self.accumulating.pop(register, None)

    def finish(self) -> None:
        """Refuse to end while something is under way."""
        if self.under_way:
            raise SimulationError(
                f"simulate: {line(self.under_way[0].op)} is under way at the end: commit, and wait "
                "for it"
            )

    # -- memory -------------------------------------------------------------------------------

    def read(self, name: str, cell: Ints, count: int) -> None:
        """Note the cells that the wgmma started last reads.

        Args:
            name: the buffer.
            cell: (warpgroups, cells).
            count: cells of the buffer.
        """
        wanted = self.threads // WARPGROUP, count
        clocks = self.reads.setdefault(name, np.full(wanted, -1, dtype=np.int64))
        np.put_along_axis(clocks, cell, UNDER_WAY, axis=1)
        before = self.groups[-1][-1].cells.get(name, cell[:, :0])
        self.groups[-1][-1].cells[name] = np.concatenate([before, cell], axis=1)

    def release(self, done: list[Started], clock: int) -> None:
        """Note that reads are complete, but for cells that something else still reads."""
        for each in done:
            for name, cell in each.cells.items():
                np.put_along_axis(self.reads[name], cell, clock, axis=1)
        for each in self.under_way:
            for name, cell in each.cells.items():
                np.put_along_axis(self.reads[name], cell, UNDER_WAY, axis=1)

    def check_visible(
        self,
        op: Op,
        name: str,
        cell: Ints,
        writer: Ints,
        stamp: Ints,
        engine: npt.NDArray[np.bool_],
        synced: Ints,
    ) -> None:
        """Refuse to read cells that are not ordered after their writers, or not yet visible.

        Args:
            op: for the message.
            name: the buffer.
            cell: (warpgroups, cells) that are read.
            writer: which thread wrote each; -1 for none.
            stamp: when.
            engine: whether the copy engine did, which is of the asynchronous proxy itself.
            synced: when what each thread did was last ordered before each other, by column.
        """
        group = np.arange(len(cell))[:, None]
        met = self.earliest(synced.T)[group, np.maximum(writer, 0)]
        race = (writer >= 0) & (stamp >= met)
        if race.any():
            at = tuple(np.argwhere(race)[0])
            raise SimulationError(
                f"simulate: {line(op)} races: warpgroup {at[0]} reads {name} at {int(cell[at])}, "
                f"which thread {int(writer[at])} wrote with no barrier in between: sync first"
            )
        self.check_fenced(op, name, cell, writer, np.where(engine, SEEN, stamp))

    def check_fenced(self, op: Op, name: str, cell: Ints, writer: Ints, stamp: Ints) -> None:
        """Refuse an asynchronous read of cells that threads wrote since the last proxy fence."""
        hidden = (writer >= 0) & (stamp >= self.visible)
        if hidden.any():
            at = tuple(np.argwhere(hidden)[0])
            raise SimulationError(
                f"simulate: {line(op)} reads {name} at {int(cell[at])}, which thread "
                f"{int(writer[at])} wrote with no fence.proxy.async in between"
            )

    def check_free(self, op: Op, name: str, cell: Ints, thread: Ints, synced: Ints) -> None:
        """Refuse to overwrite cells that a wgmma reads, or read with no barrier since.

        Args:
            op: for the message.
            name: the buffer.
            cell: what is overwritten.
            thread: by whom, broadcast against ``cell``.
            synced: when each pair of threads last met at a barrier.
        """
        if name not in self.reads:
            return
        who = np.broadcast_to(thread, cell.shape)
        for group, met in enumerate(self.earliest(synced)):
            stamp = self.reads[name][group, cell]
            race = (stamp >= 0) & (stamp >= met[who])
            if race.any():
                at = tuple(np.argwhere(race)[0])
                what = (
                    "still reads: commit, and wait for it"
                    if stamp[at] == UNDER_WAY
                    else "read with no barrier in between: sync first"
                )
                raise SimulationError(
                    f"simulate: {line(op)} overwrites {name} at {int(cell[at])} in thread "
                    f"{int(who[at])}, which a wgmma of warpgroup {group} {what}"
                )
