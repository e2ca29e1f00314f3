"""``copy`` between registers and shared memory by ``ldmatrix`` and ``stmatrix``.

The address of each lane is solved: lane 8j+i must give the address of the 16-byte row i of matrix
j. Which row that is follows from the register layout (who receives it) and the layout in shared
memory, swizzle included. The solution is then checked for every thread and every value of the loop
variables.
"""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

from layoutalg import LayoutError
from layoutalg.algebra.axis import WARP
from lowering.dispatch.addresses import environment, memory_address, placed
from lowering.dispatch.holders import ControlFlow, Holders, firsts, named, only, uniform_holders
from lowering.dispatch.predicates import full_lanes, one_side_in_registers
from lowering.dispatch.registry import Answer, Context, Lowered, fail, predicate, register_dispatch
from lowering.ir.index import Index
from lowering.ir.ops import LoadMatrix, Op, Registers, StoreMatrix
from lowering.ir.tiles import BufferRegion
from lowering.isa import ptx

ROW_BITS = 128
COUNTS = (4, 2, 1)

Coordinate = tuple[Index, ...]
Ints = npt.NDArray[np.int64]


@dataclass(frozen=True)
class Problem:
    """A copy between a region of registers and one of shared memory, ready to be solved.

    ``offsets`` gives for each register the constant part of its coordinate, the thread part being
    common to all registers. ``owned`` keeps the coordinates of the threads that were asked for.
    """

    part: Holders
    shared: BufferRegion
    offsets: Mapping[int, tuple[int, ...]]
    addresses: Mapping[int, Index]
    words: tuple[tuple[int, ...], ...]
    owned: dict[Index, Mapping[int, Coordinate]] = field(default_factory=dict)

    @property
    def registers(self) -> BufferRegion:
        """The region in registers."""
        return self.part.region

    @property
    def threads(self) -> int:
        """Threads of the CTA."""
        return self.part.threads

    @property
    def bits(self) -> int:
        """Width of an element."""
        return self.registers.buffer.dtype.bits

    @property
    def pack(self) -> int:
        """Elements per 32-bit register."""
        return self.registers.buffer.dtype.pack

    def address(self, thread: Index, register: int, steps: Sequence[tuple[Index, int]]) -> Index:
        """Return the address of another thread's element, steps away from ``register``.

        Args:
            thread: whose element is meant.
            register: the first register.
            steps: (index, other register): where the index is 1, the other register is meant
                instead; several steps add up.
        """
        if thread not in self.owned:
            self.owned[thread] = self.part.places(thread)
        coordinate = list(self.owned[thread][register])
        for index, other in steps:
            for dim, (a, b) in enumerate(
                zip(self.offsets[register], self.offsets[other], strict=True)
            ):
                coordinate[dim] += index * (b - a)
        where = placed(self.shared, coordinate, self.registers.shape)
        return memory_address(self.shared.buffer, where)


def pose(part: Holders, shared: BufferRegion) -> Problem:
    """Return the problem of a copy.

    Args:
        part: who holds the region in registers: whole warps, all in the same registers.
        shared: the region in shared memory.

    Raises:
        LayoutError: a layout has no digit form or lies on other axes.
    """
    registers, places = part.region, part.places()
    addresses = {
        register: memory_address(shared.buffer, placed(shared, c, registers.shape))
        for register, c in places.items()
    }
    first = next(iter(places))
    offsets = {
        register: tuple((a - b).constant for a, b in zip(c, places[first], strict=True))
        for register, c in places.items()
    }
    pack = registers.buffer.dtype.pack
    numbers = sorted(addresses)
    words = tuple(tuple(numbers[at : at + pack]) for at in range(0, len(numbers), pack))
    if len(numbers) % pack or any(
        word[0] % pack or word != tuple(range(word[0], word[0] + pack)) for word in words
    ):
        raise LayoutError(f"the registers of {registers} do not fill whole 32-bit words")
    return Problem(part, shared, offsets, addresses, words)


def propose(problem: Problem, words: Sequence[tuple[int, ...]], trans: bool) -> Index | None:
    """Return the address that each lane must give to move these words; None: no address does.

    ``words`` are 1, 2 or 4 registers; the fourth must be where the second and third lead together.
    """
    thread = Index.of("thread", problem.threads)
    count = len(words)
    matrix = thread % WARP // 8 % count
    row = thread % 8
    warp = thread // WARP * WARP
    steps = [
        (matrix // (1 << bit) % 2, words[1 << bit][0]) for bit in range(count.bit_length() - 1)
    ]
    if trans:
        # Row 2t+p of a transposed matrix is what lane t of group 0 receives as its element p.
        owner = warp + row // 2
        steps.append((row % 2, words[0][1]))
    else:
        # Row g of a matrix is what the four lanes of group g receive.
        owner = warp + row * 4
    address = problem.address(owner, words[0][0], steps)
    return address if _right(problem, words, address, trans) else None


def _right(problem: Problem, words: Sequence[tuple[int, ...]], address: Index, trans: bool) -> bool:
    """Check a proposal: rows aligned, and every lane receives what its registers hold."""
    wanted = [problem.addresses[register] for word in words for register in word]
    env = environment([address, *wanted], problem.threads)
    here = problem.part.taking[env["thread"]].reshape(-1, WARP)[:, 0]  # of each warp
    rows = np.broadcast_to(address.value(env), env["thread"].shape).reshape(-1, WARP)[here]
    if (rows * problem.bits % ROW_BITS).any():
        return False
    lane = np.arange(WARP)
    for j, word in enumerate(words):
        for p, register in enumerate(word):
            want = problem.addresses[register].value(env)
            if trans:
                got = rows[:, 8 * j + 2 * (lane % 4) + p] + lane // 4
            else:
                got = rows[:, 8 * j + lane // 4] + lane % 4 * problem.pack + p
            want = np.broadcast_to(want, env["thread"].shape).reshape(-1, WARP)[here]
            if (want != got).any():
                return False
    return True


def _fits(problem: Problem, word: tuple[int, ...], trans: bool) -> bool:
    """Say whether rows give a word to all lanes, whatever gives the rows' addresses to the lanes.

    Row 2t+p of a transposed matrix begins with what lane t receives as its element p; each other
    row with what lane 4g receives of group g.
    """
    wanted = [problem.addresses[register] for register in word]
    env = environment(wanted, problem.threads)
    here = problem.part.taking[env["thread"]].reshape(-1, WARP)[:, 0]  # of each warp
    lane = np.arange(WARP)
    first = None
    for p, index in enumerate(wanted):
        held = np.broadcast_to(index.value(env), env["thread"].shape).reshape(-1, WARP)[here]
        if trans:
            row, within = held[:, lane % 4], lane // 4
        else:
            first = held if first is None else first
            row, within = first[:, lane // 4 * 4], lane % 4 * problem.pack + p
        if (row * problem.bits % ROW_BITS).any() or (held != row + within).any():
            return False
    return True


def solve(problem: Problem, trans: bool) -> list[tuple[tuple[tuple[int, ...], ...], Index]] | None:
    """Cover all words by matrix instructions, widest first; None where some word fits none."""
    if not all(_fits(problem, word, trans) for word in problem.words):
        return None
    left = list(problem.words)
    found = []
    while left:
        for count in COUNTS:
            group = _group(problem, left, count, trans)
            if group is not None:
                found.append(group)
                left = [word for word in left if word not in group[0]]
                break
        else:
            return None
    return found


def _group(
    problem: Problem, left: Sequence[tuple[int, ...]], count: int, trans: bool
) -> tuple[tuple[tuple[int, ...], ...], Index] | None:
    """Return a group of ``count`` words that starts with the first left over, and its address."""
    first, rest = left[0], left[1:]
    bits = count.bit_length() - 1
    by_offset = {problem.offsets[word[0]]: word for word in left}
    start = problem.offsets[first[0]]
    for chosen in itertools.combinations(rest, bits):
        words = [first, *chosen]
        if count == 4:
            second, third = (problem.offsets[word[0]] for word in chosen)
            fourth = by_offset.get(
                tuple(b + c - a for a, b, c in zip(start, second, third, strict=True))
            )
            if fourth is None or fourth in words:
                continue
            words.append(fourth)
        address = propose(problem, words, trans)
        if address is not None:
            return tuple(words), address
    return None


def in_shared_memory(context: Context) -> Answer:
    """Hold where the side that is not in registers lies in shared memory."""
    have = context.spaces.values()
    if "shared" in have:
        return True
    return False, f"the other side must be in shared memory; got {' and '.join(have)}"


@register_dispatch(
    "copy",
    "cuda",
    variant="ldstmatrix",
    priority=10,
    when=[
        predicate("one_side_in_registers", one_side_in_registers),
        predicate("in_shared_memory", in_shared_memory),
        full_lanes,
    ],
)
def lower_matrices(context: Context) -> Lowered:
    """Lower a copy between registers and shared memory to ldmatrix or stmatrix."""
    found = matrices(context)
    operands = context.call.operands.values()
    (registers,) = (side.buffer for side in operands if side.buffer.scope == "local")
    if ptx.letter(registers.dtype.token) != "r":
        fail(f"moves words of bits; registers of {registers.dtype} hold numbers")
    return found


def matrices(context: Context) -> Lowered:
    """Lower a copy to ldmatrix or stmatrix, of registers of any type.

    Raises:
        DispatchFail: no addresses give the lanes what they hold.
    """
    dst, src = context.call.operands["dst"], context.call.operands["src"]
    load = dst.buffer.scope == "local"
    registers, shared = (dst, src) if load else (src, dst)
    if context.threads % WARP:
        fail(f"needs whole warps; got {context.threads} threads")
    bits = registers.buffer.dtype.bits
    if bits > 32:
        fail(f"moves 32-bit registers; {registers.buffer} has elements of {bits} bits")
    first = (ptx.ldmatrix if load else ptx.stmatrix)(1, False)
    refusal = context.lacks("ldmatrix" if load else "stmatrix", first.min_arch)
    if refusal is not None:
        fail(refusal)
    flow = context.flow
    try:
        part = uniform_holders(registers, context.threads, "warp", flow.active)
        if not load:
            part = _storing(part, flow, shared)
        problem = pose(part, shared)
    except LayoutError as error:
        fail(str(error))
    for trans in (False, True):
        if trans and bits != 16:
            fail(
                f"no 16-byte row of {shared.buffer.name} holds what four lanes hold in order, and "
                f".trans transposes 16-bit units: neighbours of {bits} bits would stay together; "
                f"store {shared.buffer.name} with the other dimension contiguous"
            )
        found = solve(problem, trans)
        if found is not None:
            aliases = context.call.config.get("aliases", False)
            ops = [_op(problem, words, a, trans, load, aliases, part.copies) for words, a in found]
            return Lowered(only(part.taking, ops, flow.active))
    fail(
        f"no 16-byte aligned rows of {shared.buffer.name} ({shared.buffer.layout}) give the lanes "
        f"what {registers.buffer.layout} says, neither straight nor by .trans"
    )


def _storing(part: Holders, flow: ControlFlow, shared: BufferRegion) -> Holders:
    """Return the holders whose warps store: of copies, the first.

    Raises:
        LayoutError: copies lie in one warp.
    """
    (stored,) = firsts([part], flow, shared)
    copies = part.taking & ~stored.taking
    if flow.active is not None:
        copies &= flow.active
    both = [each.reshape(-1, WARP).any(axis=1) for each in (stored.taking, copies)]
    if (both[0] & both[1]).any():
        raise LayoutError(
            f"{named(copies)} hold copies in {part.region}; stmatrix would write them in a race"
        )
    return stored


def _op(
    problem: Problem,
    words: Sequence[tuple[int, ...]],
    address: Index,
    trans: bool,
    load: bool,
    aliases: bool,
    copies: int,
) -> Op:
    numbers = tuple(register for word in words for register in word)
    elements = Registers(problem.registers.buffer.name, numbers)
    name = problem.shared.buffer.name
    if load:
        return LoadMatrix(elements, name, address, len(words), trans)
    return StoreMatrix(name, address, elements, len(words), trans, aliases, copies)
