"""``copy`` between register tiles of two layouts, within warps and without memory.

:mod:`layoutalg.conversions` finds the recipe from what each thread holds before and after: moves,
selects, ``prmt``, ``shfl`` or ``movmatrix``. Here its numbers for each thread become indices.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np

from layoutalg import LayoutError, S, TileLayout, tx
from layoutalg.algebra.axis import WARP
from layoutalg.conversions.by_thread import formula
from layoutalg.conversions.conversion import BITS, cheapest
from layoutalg.conversions.instructions import Instruction
from layoutalg.conversions.recipe import built
from layoutalg.conversions.search import Task
from lowering.dispatch.holders import Holders, Ints, Mask, check_reached, holders_of, only
from lowering.dispatch.predicates import in_registers
from lowering.dispatch.registry import Context, Lowered, fail, register_dispatch
from lowering.ir.index import Index
from lowering.ir.ops import Agree, Move, MoveMatrix, Op, Permute, Registers, Select, Shuffle
from lowering.ir.tiles import Buffer, BufferRegion, cells, copied_shape

TABLE_BITS = WARP.bit_length() - 1  # of a thread's number that a constant of 32 bits tells apart


def table_of(parts: Sequence[Holders], active: Mask | None) -> Ints:
    """Return the element of a region in each register of each active thread; -1: none."""
    buffer, threads = parts[0].region.buffer, parts[0].threads
    table = np.full((threads, cells(buffer)), -1, dtype=np.int64)
    for part in parts:
        rows = np.flatnonzero(part.within(active))
        table[rows[:, None], list(part.registers)] = part.elements[rows]
    return table


def posed(context: Context) -> tuple[Ints, Ints]:
    """Return what each thread holds of the source, and what it is to hold of the destination.

    Raises:
        DispatchFail: the sides overlap, an element has another width, or no active thread has it.
        LayoutError: as :func:`lowering.dispatch.holders.holders_of`.
    """
    dst, src = context.call.operands["dst"], context.call.operands["src"]
    copied_shape(dst, src)
    bits = src.buffer.dtype.bits
    if bits not in BITS:
        fail(f"moves elements of {', '.join(map(str, BITS))} bits; {src.buffer} has {bits}")
    active = context.flow.active
    sides = [holders_of(side, context.threads) for side in (src, dst)]
    for parts in sides:
        check_reached(parts, active)
    held, wanted = (table_of(parts, active) for parts in sides)
    if dst.buffer == src.buffer:
        both = np.flatnonzero(((held >= 0) & (wanted >= 0)).any(axis=0))
        if both.size and dst != src:
            fail(
                f"{dst} and {src} overlap in register {both[0]}: it would read what it has written"
            )
    return held, wanted


def index_of(column: Sequence[int], threads: int) -> Index | None:
    """Return a number for each thread as an index; None where there is no short one.

    Args:
        column: the numbers; below 0 where any will do. One entry stands for all threads.
        threads: of the CTA.

    >>> str(index_of([0, 2, 4, 6], 4)), str(index_of([4, 5, 6, 7, 0, 1, 2, 3], 8))
    ('thread * 2', '(thread ^ 4)')
    >>> str(index_of([0, 1, 1, 1], 4))
    '((14 >> thread) % 2)'
    """
    if len(column) == 1:
        return Index((), max(column[0], 0))
    found = formula(column)
    thread = Index.of("thread", threads)
    if found is None:
        return _looked_up(column, thread)
    added, mixed, start = found.runs
    runs = (*added, *mixed)
    terms = [thread // (1 << run.low) % (1 << run.bits) * run.weight for run in runs]
    return _joined(terms, [run.reach for run in runs], start)


def _joined(terms: Sequence[Index], reach: Sequence[int], start: int) -> Index:
    """Return the XOR of terms and a constant, as a sum where they have no bit in common.

    ``reach``: the bits that each term may have.
    """
    total, used = Index(), 0
    for term, bits in zip(terms, reach, strict=True):
        total = total ^ term if used & bits else total + term
        used |= bits
    return total ^ Index((), start) if used & start else total + start


def _looked_up(column: Sequence[int], thread: Index) -> Index | None:
    """Return a number for each thread by a constant for each bit; None where that has no room."""
    values = np.array(column)
    number = np.arange(len(values))
    width = (len(values) - 1).bit_length()
    depends = []
    for bit in range(width):
        other = number ^ (1 << bit)
        inside = other < len(values)
        pair = values[inside], values[other[inside]]
        if ((pair[0] != pair[1]) & (pair[0] >= 0) & (pair[1] >= 0)).any():
            depends.append(bit)
    place, at = Index(), np.zeros_like(number)
    for position, bit in enumerate(depends):
        place += thread // (1 << bit) % 2 * (1 << position)
        at |= (number >> bit & 1) << position
    chosen = np.full(1 << len(depends), -1)
    known = values >= 0
    chosen[at[known]] = values[known]
    if len(depends) > TABLE_BITS or (chosen[at] != values)[known].any():
        return None
    total = Index()
    for bit in range(int(values.max()).bit_length()):
        constant = sum(
            1 << int(i) for i in np.flatnonzero((chosen >= 0) & (chosen >> bit & 1 == 1))
        )
        if constant:
            total += Index.table(constant, place) * (1 << bit)
    return total


class Recipe:
    """The instructions of a conversion as operations, their registers in a new buffer."""

    def __init__(
        self,
        context: Context,
        task: Task,
        made: Sequence[Instruction],
        results: Sequence[int],
        direct: bool,
    ) -> None:
        """Name the registers; ``direct``: results may be written where they are to be."""
        operands = context.call.operands
        self.dst, self.src, self.threads = operands["dst"], operands["src"].buffer, context.threads
        self.task, self.made, self.results = task, made, results
        self.used: Mask = np.any(task.held >= 0, axis=0)
        self.buffers: tuple[Buffer, ...] = ()
        self.place: dict[int, Registers] = {}
        taken = {number for each in made for number in each.sources}
        pack = task.pack
        if direct:
            for d, number in enumerate(results):
                whole = (task.wanted[:, d * pack : (d + 1) * pack] >= 0).all()
                alone = results.count(number) == 1 and number not in taken
                if number >= task.sources and whole and alone:
                    mine = tuple(range(d * pack, (d + 1) * pack))
                    self.place[number] = Registers(self.dst.buffer.name, mine)
        temporary = [
            n for n in range(task.sources, task.sources + len(made)) if n not in self.place
        ]
        if temporary:
            count = len(temporary) * pack
            layout = TileLayout(S[(self.threads, count) : (1 @ tx, 1)])
            buffer = context.fresh(
                Buffer(
                    f"{self.dst.buffer.name}_from_{self.src.name}",
                    (self.threads, count),
                    self.src.dtype,
                    layout=layout,
                )
            )
            self.buffers = (buffer,)
            for at, number in enumerate(temporary):
                own = tuple(range(at * pack, (at + 1) * pack))
                self.place[number] = Registers(buffer.name, own)

    def register(self, number: int) -> Registers:
        """Return a register by its number in the recipe."""
        if number >= self.task.sources:
            return self.place[number]
        pack = self.task.pack
        numbers = range(number * pack, (number + 1) * pack)
        return Registers(self.src.name, tuple(n for n in numbers if self.used[n]))

    def operations(self) -> Iterator[Op]:
        """Yield the instructions.

        Raises:
            DispatchFail: a number of the thread has no short form.
        """
        for at, each in enumerate(self.made, self.task.sources):
            into, sources = self.place[at], [self.register(number) for number in each.sources]
            first, second = sources[0], sources[-1]
            if each.verb == "select":
                yield Select(into, first, second, self.index(each.numbers[0]))
            elif each.verb == "prmt":
                yield Permute(into, first, second, self.selector(each.numbers))
            elif each.verb == "shfl":
                yield Shuffle(into, first, self.index(each.numbers[0]))
            else:
                yield MoveMatrix(into, first)

    def index(self, column: Sequence[int]) -> Index:
        """Return a number of each thread."""
        found = index_of(column, self.threads)
        if found is None:
            fail("needs a number for each thread that is no function of five bits of its number")
        return found

    def selector(self, picks: Sequence[Sequence[int]]) -> Index:
        """Return the selector of a prmt: bits of the thread times constants, XORed."""
        units = max(1, self.src.dtype.bits // 8)
        total = [0] * max(map(len, picks))
        for element, column in enumerate(picks):
            for thread in range(len(total)):
                pick = column[thread] if len(column) > 1 else column[0]
                pick = element if pick < 0 else pick
                for unit in range(units):
                    total[thread] |= (pick * units + unit) << 4 * (element * units + unit)
        found = formula(total)
        if len(total) == 1 or found is None:
            return self.index(total)
        return _joined(
            [Index.of("thread", self.threads) // (1 << bit) % 2 * step
             for bit, step in enumerate(found.steps)],
            found.steps,
            found.start,
        )  # fmt: skip

    def moves(self, part: Holders, taking: Mask) -> Iterator[Op]:
        """Yield the moves of results to where threads hold them."""
        pack, found = self.task.pack, list[tuple[int, Registers, int]]()
        for register in part.registers:
            number = self.results[register // pack]
            if (self.task.wanted[taking, register] < 0).all():
                continue
            source = self.register(number)
            base = source.numbers[0] // pack * pack
            found.append((register, source, base + register % pack))
        for name in dict.fromkeys(source.buffer for _, source, _ in found):
            mine = [(register, at) for register, source, at in found if source.buffer == name]
            mine = [each for each in mine if (name, each[0]) != (self.dst.buffer.name, each[1])]
            if mine:
                yield Move(
                    Registers(self.dst.buffer.name, tuple(register for register, _ in mine)),
                    Registers(name, tuple(at for _, at in mine)),
                )


def _copies(src: BufferRegion, held: Ints) -> Iterator[Op]:
    """Yield what must be so where several threads hold an element: their copies agree."""
    _, counts = np.unique(held[held >= 0], return_counts=True)
    if (counts > 1).any():
        numbers = np.flatnonzero((held >= 0).any(axis=0))
        rows = tuple(tuple(map(int, row)) for row in held[:, numbers])
        yield Agree(Registers(src.buffer.name, tuple(map(int, numbers))), rows)


@register_dispatch("copy", "cuda", variant="convert_registers", priority=10, when=[in_registers])
def lower_registers(context: Context) -> Lowered:
    """Lower a copy between register tiles to the cheapest recipe within warps."""
    dst: BufferRegion = context.call.operands["dst"]
    src: BufferRegion = context.call.operands["src"]
    active, bits = context.flow.active, src.buffer.dtype.bits
    via = context.call.config.get("via")
    if context.flow.unknown:
        fail(f"which threads take part under {context.flow.unknown} is not known")
    try:
        held, wanted = posed(context)
        shape = tuple(int(extent) for extent in src.shape)
        task = Task.of(held, wanted, bits, shape)
        kind, (steps, words), why = cheapest(task, via)
        if kind == "shared":
            fail(
                "stays within warps; " + (why[-1] if via is None else "the copy says via='shared'")
            )
        made, results = built(steps, words, task.sources, task.pack)
        parts = holders_of(dst, context.threads)
        direct = dst.buffer != src.buffer and active is None
        recipe = Recipe(context, task, made, results, direct)
        ops = [*_copies(src, held), *recipe.operations()]
        for part in parts:
            taking = part.within(active)
            if taking.any():
                ops.extend(only(part.taking, list(recipe.moves(part, taking)), active))
    except LayoutError as error:
        fail(str(error))
    return Lowered(tuple(ops), buffers=recipe.buffers)
