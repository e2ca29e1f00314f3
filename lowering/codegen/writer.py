"""A body as kernel text, in one traversal for both languages: Python for numba.cuda, CUDA C++.

A :class:`Dialect` says how a language writes a call, an assignment, a branch and a loop; what is
computed is decided here alone, so the two texts cannot disagree.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from itertools import groupby
from typing import Protocol

from layoutalg import LayoutError
from layoutalg.algebra.axis import WARP
from lowering.codegen import tcgen05
from lowering.codegen.register_words import (
    Part,
    access_bits,
    pack,
    part,
    parts,
    space,
    variables,
    words,
)
from lowering.ir.index import Digit, Index, Style
from lowering.ir.kernel_ir import BARRIER_BYTES, KernelIR
from lowering.ir.ops import (
    Arrive,
    Blend,
    Commit,
    Guard,
    Let,
    Load,
    LoadMatrix,
    Loop,
    MbarrierWait,
    Mma,
    Move,
    MoveMatrix,
    Op,
    Phase,
    ProxyFence,
    Registers,
    SharedMatrix,
    Store,
    StoreMatrix,
    Sync,
    TmaLoad,
    TmaStore,
    TmaStoreWait,
    Transfer,
    TryWait,
    Wait,
    WarpSpecialize,
    Wgmma,
    WgmmaCommit,
    WgmmaFence,
    WgmmaWait,
    When,
    Zero,
    walk,
)
from lowering.ir.readers import unknown
from lowering.ir.register_map import WARPGROUP
from lowering.ir.tmem_ops import Issued, TensorOp
from lowering.isa import ptx, wgmma
from lowering.isa.mma import MmaInst
from lowering.isa.ptx import Asm
from lowering.isa.smem_descriptor import CHUNK

MmaCall = tuple[MmaInst, tuple[int, ...]]  # with the selectors of its scales

BYTE = 8
WORD = 0xFFFFFFFF
# Of each thread: two warpgroups of the one kind and one of the other fill a register file.
CONSUMER_REGISTERS, PRODUCER_REGISTERS = 240, 24
FIRST_OF_WARPGROUPS = 2  # named barriers: 0 is that of the CTA, 1 that of a role
LEADER = f"thread & {WARPGROUP - 1}"  # 0 in the first thread of a warpgroup


class Dialect(Protocol):
    """How one language writes the statements of a kernel."""

    style: Style

    def call(self, asm: Asm, outputs: tuple[str, ...], inputs: tuple[str, ...]) -> str:
        """Call the function of an asm statement; one in place gets its outputs as inputs too."""

    def mma(self, call: MmaCall, d: tuple[str, ...], inputs: tuple[str, ...]) -> str:
        """Call an mma in place on D, with A, B and what else it takes."""

    def assign(self, variable: str, value: str) -> str:
        """Assign."""

    def number(self, value: int, token: str) -> str:
        """Write a constant of a register's type."""

    def word(self, value: str) -> str:
        """Write an integer expression as a 32-bit word."""

    def address(self, space: str, base: str, offset: str) -> str:
        """Add a byte offset to a base address."""

    def begin_if(self, condition: str) -> str:
        """Open a branch."""

    def begin_else(self) -> str:
        """Turn to the other branch."""

    def begin_loop(self, variable: str, extent: str) -> str:
        """Open a loop."""

    def let(self, variable: str, value: str) -> str:
        """Name an integer."""

    def choice(self, conditions: list[str], one: str, other: str) -> str:
        """Write one value where all conditions hold, else the other."""

    def end(self) -> str | None:
        """Close a branch or a loop; None where the indentation does."""

    def sync(self, scope: str) -> str:
        """Write a barrier."""

    def all_of(self, conditions: list[str]) -> str:
        """Join conditions."""


@dataclass
class Writer:
    """Writes the operations of one body in one dialect."""

    body: KernelIR
    dialect: Dialect
    lines: list[str] = field(default_factory=list)
    functions: dict[str, Asm] = field(default_factory=dict)
    instructions: dict[str, MmaCall] = field(default_factory=dict)
    indent: int = 1
    temporaries: int = 0
    role: bool = False
    producing: bool = False

    def emit(self, text: str) -> None:
        """Add a line."""
        self.lines.append("  " * self.indent + text)

    def call(self, asm: Asm, outputs: tuple[str, ...], inputs: tuple[str, ...]) -> None:
        """Add a call, and remember the function that it needs."""
        self.functions[asm.name] = asm
        self.emit(self.dialect.call(asm, outputs, inputs))

    def token(self, buffer: str) -> str:
        """Return the PTX type of a buffer's elements."""
        return self.body.buffer(buffer).dtype.token

    def at(self, name: str, index: Index) -> str:
        """Return the byte address of an element in memory."""
        bits = self.body.buffer(name).dtype.bits
        offset = index * bits // BYTE
        return self.dialect.address(space(self.body, name), f"{name}_base", self.text(offset))

    def calls(self) -> list[Asm]:
        """Return the asm statements that the text calls, each once."""
        products = (ptx.mma(*call) for call in self.instructions.values())
        return [*self.functions.values(), *products]

    def made(self, kernel: str) -> Iterator[tuple[str, str]]:
        """Yield every name in the text with what it stands for."""
        body = self.body
        yield kernel, f"the kernel {kernel}"
        for asm in self.calls():
            yield asm.name, f"the instruction {asm.mnemonic}"
        for each in body.params:
            yield f"{each.name}_", f"the argument {each.name}"
            yield f"{each.name}_base", f"the address of {each.name}"
        for scalar in body.scalars:
            yield scalar.name, f"the scalar {scalar.name}"
            yield f"{scalar.name}_", f"the argument {scalar.name}"
        for place in body.shared_places:
            yield f"{place}_base", f"the address of {place}"
        for barrier, variable in barriers_elsewhere(body).items():
            yield variable, f"the address of {barrier} elsewhere"
        for variable in shared_operands(body):
            yield variable, f"the descriptor {variable}"
        for buffer in body.registers:
            yield from ((each, f"a register of {buffer.name}") for each in variables(buffer))
        yield from ((f"t{number}", "a temporary") for number in range(self.temporaries))
        for op in walk(body.ops):
            if isinstance(op, (Let, Loop)):
                yield op.var, f"the variable {op.var}"

    def text(self, value: Index | Guard) -> str:
        """Return an index or a condition as text."""
        return value.render(self.dialect.style, self.wide)

    @cached_property
    def wide(self) -> frozenset[str]:
        """The variables that have 64 bits: all but threads and those of loops of known extent."""
        named = {
            op.var
            for op in walk(self.body.ops)
            if isinstance(op, Let) or (isinstance(op, Loop) and isinstance(op.extent, Index))
        }
        return frozenset({each.name for each in self.body.scalars} | named)

    def temporary(self) -> str:
        """Return a new variable."""
        self.temporaries += 1
        return f"t{self.temporaries - 1}"

    def run_all(self) -> None:
        """Write the whole body."""
        if self.body.barriers:
            self.initialise()
        lane = Index.of("thread", self.body.threads) % self.body.cluster
        for name, there in barriers_elsewhere(self.body).items():
            rank = self.dialect.word(self.text(lane))
            self.call(ptx.barrier_of(), (there,), (self.barrier(name, 0), rank))
        for name, (operand, fixed) in shared_operands(self.body).items():
            start = self.dialect.address("shared", f"{operand.memory}_base", "0")
            self.call(wgmma.matrix_descriptor(operand.descriptor), (name,), (start,))
            if fixed.terms:
                moved = self.dialect.address("shared", name, self.text(fixed))
                self.call(wgmma.same_in_warp(), (name,), (moved,))
        if self.body.pdl:
            self.call(ptx.after_the_kernel_before(), (), ())
        self.run(self.body.ops)

    def run(self, ops: tuple[Op, ...]) -> None:
        """Write operations in order; neighbouring products of one kind as one statement."""
        for _, same in groupby(ops, key=_product_kind):
            first, *rest = same
            if isinstance(first, Wgmma):
                self.products((first, *(op for op in rest if isinstance(op, Wgmma))))
            elif isinstance(first, Issued):
                tcgen05.issue(self, (first, *(op for op in rest if isinstance(op, Issued))))
            else:
                for op in (first, *rest):
                    self.step(op)

    def products(self, ops: Sequence[Wgmma]) -> None:
        """Write products that share D and all but the addresses of A and B."""
        first = ops[0]
        a = first.a.descriptor if isinstance(first.a, SharedMatrix) else None
        source = [name for op in ops for each in (op.a, op.b) for name in self.operand(each)]
        adds = first.accumulate
        if isinstance(adds, Index):
            source.append(self.dialect.word(self.text(adds)))
        known = None if isinstance(adds, Index) else adds
        asm = wgmma.multiply_in_turn(first.instruction, a, first.b.descriptor, known, len(ops))
        self.call(asm, words(self.body, first.d), tuple(source))

    def guarded(self, guards: tuple[Guard, ...]) -> bool:
        """Open the branch that guards ask for; say whether there is one."""
        if not guards:
            return False
        conditions = [self.text(guard) for guard in guards]
        self.emit(self.dialect.begin_if(self.dialect.all_of(conditions)))
        self.indent += 1
        return True

    def close(self) -> None:
        """Close a branch or a loop."""
        self.indent -= 1
        end = self.dialect.end()
        if end is not None:
            self.emit(end)

    def step(self, op: Op) -> None:
        """Write one operation."""
        if isinstance(op, Zero):
            self.zero(op.into)
        elif isinstance(op, Move):
            self.move(op)
        elif isinstance(op, Blend):
            self.blend(op)
        elif isinstance(op, Mma):
            inputs = [name for e in (op.a, op.b) for name in words(self.body, e)]
            extra = [part(self.body, each) for each in op.extra]
            selectors = tuple(each.shift // BYTE for each in extra)
            inputs += [each.variable for each in extra]
            call = op.instruction, selectors
            self.instructions.setdefault(ptx.mma_name(*call), call)
            self.emit(self.dialect.mma(call, words(self.body, op.d), tuple(inputs)))
        elif isinstance(op, Load):
            if self.guarded(op.guards):
                self.load(op)
                self.indent -= 1
                self.emit(self.dialect.begin_else())
                self.indent += 1
                self.zero(op.into)
                self.close()
            else:
                self.load(op)
        elif isinstance(op, Store):
            opened = self.guarded(op.guards)
            self.store(op)
            if opened:
                self.close()
        elif isinstance(op, LoadMatrix):
            asm = ptx.ldmatrix(op.count, op.trans)
            self.call(asm, words(self.body, op.into), (self.at(op.memory, op.address),))
        elif isinstance(op, StoreMatrix):
            asm = ptx.stmatrix(op.count, op.trans)
            self.call(asm, (), (self.at(op.memory, op.address), *words(self.body, op.source)))
        elif isinstance(op, MoveMatrix):
            pairs = zip(words(self.body, op.into), words(self.body, op.source), strict=True)
            for into, source in pairs:
                self.call(ptx.movmatrix(), (into,), (source,))
        elif isinstance(op, Transfer):
            self.transfer(op)
        elif isinstance(op, Commit):
            self.call(ptx.commit(), (), ())
        elif isinstance(op, Wait):
            self.call(ptx.wait(op.pending), (), ())
        elif isinstance(op, Sync):
            self.sync(op)
        elif isinstance(op, WarpSpecialize):
            self.roles(op)
        elif isinstance(op, TmaLoad):
            self.fill(op)
        elif isinstance(op, TmaStore):
            self.alone(LEADER, lambda: self.drain(op))
        elif isinstance(op, TmaStoreWait):
            self.alone(LEADER, lambda: self.call(ptx.bulk_wait(op.pending), (), ()))
        elif isinstance(op, Arrive):
            self.arrive(op)
        elif isinstance(op, TryWait):
            self.call(ptx.barrier_peek(), ("peeked",), self.asked(op.phase))
        elif isinstance(op, MbarrierWait):
            if op.tried:
                self.alone("peeked", lambda: self.wait_for(op.phase))
            else:
                self.wait_for(op.phase)
        elif isinstance(op, Let):
            self.emit(self.dialect.let(op.var, self.text(op.value)))
        elif isinstance(op, When):
            self.guarded(op.guards)
            self.run(op.body)
            self.close()
        elif isinstance(op, Loop):
            self.loop(op)
        elif isinstance(op, TensorOp):
            tcgen05.write(self, op)
        elif isinstance(op, (WgmmaFence, WgmmaCommit, WgmmaWait, ProxyFence)):
            self.warpgroup(op)
        else:  # boxes are of a Fill or a Drain, products are written together
            raise unknown(op, "text")

    def alone(self, number: str, write: Callable[[], None]) -> None:
        """Write what one thread does: where a number is zero."""
        self.emit(self.dialect.begin_if(f"({number}) == 0"))
        self.indent += 1
        write()
        self.close()

    def barrier(self, name: str, slot: int | Index, base: str = "") -> str:
        """Return the address of an mbarrier, of this CTA or from another base on."""
        place = slot * BARRIER_BYTES
        text = self.text(place) if isinstance(place, Index) else str(place)
        return self.dialect.address("shared", base or f"{name}_base", text)

    def initialise(self) -> None:
        """Write what makes the barriers ready for all threads."""
        self.alone("thread", self.initialise_alone)
        self.emit(self.dialect.sync("cta"))

    def initialise_alone(self) -> None:
        """Write the initialisation of every barrier, and early requests for the tensor maps."""
        for name in self.body.boxes:
            self.call(ptx.prefetch_map(), (), (f"{name}_base",))
        for each in self.body.barriers:
            arrivals = self.dialect.number(each.arrivals, "u32")
            for slot in range(each.slots):
                self.call(ptx.barrier_init(), (), (self.barrier(each.name, slot), arrivals))
        self.call(ptx.barriers_ready(), (), ())
        if self.body.cluster > 1:
            self.call(ptx.barriers_ready_everywhere(), (), ())

    def arrive(self, op: Arrive) -> None:
        """Write one arrival per warp; where guards decide too, without a branch.

        In every CTA of a cluster: by one lane each, at what :func:`barriers_elsewhere` names.
        """
        if not op.guards and not op.everywhere:
            barrier = self.barrier(op.barrier, op.slot)
            first = "thread & 31"
            self.alone(first, lambda: self.call(ptx.barrier_arrive(), (), (barrier,)))
            return
        there = barriers_elsewhere(self.body)[op.barrier] if op.everywhere else ""
        lanes = self.body.cluster if op.everywhere else 1
        lane = Guard(Index.of("thread", self.body.threads) % WARP, 0, lanes)
        conditions = [self.text(guard) for guard in (lane, *op.guards)]
        yes, no = (self.dialect.number(value, "u32") for value in (1, 0))
        taking = self.dialect.choice(conditions, yes, no)
        asm = ptx.barrier_arrive_there() if op.everywhere else ptx.barrier_arrive_where()
        self.call(asm, (), (self.barrier(op.barrier, op.slot, there), taking))

    def asked(self, phase: Phase) -> tuple[str, str]:
        """Return the address of a phase's barrier and its parity."""
        parity = self.dialect.word(self.text(phase.parity))
        return self.barrier(phase.barrier, phase.slot), parity

    def wait_for(self, phase: Phase) -> None:
        """Write the wait for a phase."""
        self.call(ptx.barrier_wait(), (), self.asked(phase))

    def fill(self, op: TmaLoad) -> None:
        """Write the loads of boxes by thread 0."""

        def write() -> None:
            if op.free is not None:
                self.wait_for(op.free)
            barrier = self.barrier(op.barrier, op.slot)
            size = self.dialect.number(op.size, "u32")
            self.call(ptx.barrier_expect(), (), (barrier, size))
            for load in op.loads:
                row, col = (self.dialect.word(self.text(i)) for i in load.place)
                into = self.at(load.into, load.into_address)
                asm = ptx.bulk_load()
                if load.multicast:
                    asm = ptx.bulk_load_everywhere(self.body.cluster)
                self.call(asm, (), (into, f"{load.memory}_base", col, row, barrier))

        if self.producing:
            write()
        else:
            self.alone("thread", write)

    def drain(self, op: TmaStore) -> None:
        """Write the stores of boxes, by the thread that is here."""
        for store in op.stores:
            row, col = (self.dialect.word(self.text(i)) for i in store.place)
            source = self.at(store.source, store.source_address)
            self.call(ptx.bulk_store(), (), (f"{store.memory}_base", col, row, source))
        self.call(ptx.bulk_commit(), (), ())

    def sync(self, op: Sync) -> None:
        """Write a barrier: of a cluster, of the threads that share a role, or of a warpgroup."""
        if op.scope == "warpgroup":
            number = Index.of("thread", self.body.threads) // WARPGROUP + FIRST_OF_WARPGROUPS
            name = self.dialect.word(self.text(number))
            self.call(ptx.sync_warpgroup(WARPGROUP), (), (name,))
        elif op.scope == "cluster":
            self.call(ptx.sync_cluster(op.memory), (), ())
        elif op.scope == "cta" and self.role:
            self.call(ptx.sync_some(self.body.threads), (), ())
        else:
            self.emit(self.dialect.sync(op.scope))

    def roles(self, op: WarpSpecialize) -> None:
        """Write two programs in the branches of one condition."""
        threads = self.body.threads
        self.role = True
        shared_out = threads == 2 * WARPGROUP
        self.emit(self.dialect.begin_if(f"thread < {threads}"))
        self.indent += 1
        if shared_out:
            self.call(ptx.registers(CONSUMER_REGISTERS, True), (), ())
        self.run(op.consume)
        self.indent -= 1
        self.emit(self.dialect.begin_else())
        self.indent += 1
        if shared_out:
            self.call(ptx.registers(PRODUCER_REGISTERS, False), (), ())
        self.producing = True
        self.alone(f"thread - {threads}", lambda: self.run(op.produce))
        self.close()
        self.role = self.producing = False

    def loop(self, op: Loop) -> None:
        """Write a loop that stays."""
        extent = self.text(op.extent) if isinstance(op.extent, Index) else op.extent
        self.emit(self.dialect.begin_loop(op.var, str(extent)))
        self.indent += 1
        self.run(op.body)
        self.close()

    def warpgroup(self, op: WgmmaFence | WgmmaCommit | WgmmaWait | ProxyFence) -> None:
        """Write an operation of the asynchronous tensor core that is no product."""
        if isinstance(op, WgmmaWait):
            names = [name for each in op.complete for name in words(self.body, each)]
            letters = [
                ptx.letter(self.token(each.buffer)) * len(words(self.body, each))
                for each in op.complete
            ]
            self.call(wgmma.wait(op.pending, "".join(letters)), tuple(names), ())
        elif isinstance(op, WgmmaFence):
            self.call(wgmma.fence(), (), ())
        elif isinstance(op, WgmmaCommit):
            self.call(wgmma.commit(), (), ())
        else:
            self.call(wgmma.proxy_fence(), (), ())

    def operand(self, operand: Registers | SharedMatrix) -> tuple[str, ...]:
        """Return the words of an operand, or the low word of its descriptor."""
        if isinstance(operand, Registers):
            return words(self.body, operand)
        return (self.low_word(operand),)

    def low_word(self, operand: SharedMatrix) -> str:
        """Return the low word of an operand's descriptor: that of its buffer, moved.

        That of the buffer's first cell, or the warpgroup's, was made first; its low bits count
        units of 16 bytes, which the address adds to, and shared memory ends before they do.
        """
        name, _, moving = descriptor_variable(operand)
        return self.dialect.address("shared", name, self.text(moving))

    def zero(self, into: Registers) -> None:
        """Set elements to zero: whole words at once, else bit by bit."""
        token = self.token(into.buffer)
        try:
            names = words(self.body, into)
        except LayoutError:
            for each in parts(self.body, into):
                self.insert(each, self.dialect.number(0, "u32"))
            return
        for name in names:
            self.emit(self.dialect.assign(name, self.dialect.number(0, token)))

    def insert(self, place: Part, value: str) -> None:
        """Put a narrow value, in the low bits of a word, into its place."""
        keep = self.dialect.number(WORD & ~place.mask, "u32")
        if place.shift:
            value = f"({value} << {self.dialect.number(place.shift, 'u32')})"
        self.emit(self.dialect.assign(place.variable, f"({place.variable} & {keep}) | {value}"))

    def extract(self, place: Part) -> str:
        """Return a narrow value in the low bits of a word; higher bits are not cleared."""
        if not place.shift:
            return place.variable
        return f"({place.variable} >> {self.dialect.number(place.shift, 'u32')})"

    def move(self, op: Move) -> None:
        """Copy registers, or convert them between f32 and f16 or bf16.

        Raises:
            LayoutError: one element is written before it is read.
        """
        if op.into == op.source:
            return
        if op.into.buffer == op.source.buffer and set(op.into.numbers) & set(op.source.numbers):
            raise LayoutError(f"text: {op} overwrites registers that it reads")
        into, source = self.token(op.into.buffer), self.token(op.source.buffer)
        if into == "f32" and source != "f32":
            self.widen(op, source)
        elif into != source:
            self.narrow(op, into, source)
        elif pack(self.body.buffer(op.into.buffer).dtype) == 1:
            names = zip(words(self.body, op.into), words(self.body, op.source), strict=True)
            for name, value in names:
                self.emit(self.dialect.assign(name, value))
        else:
            pairs = zip(parts(self.body, op.into), parts(self.body, op.source), strict=True)
            for place, from_place in pairs:
                mask = self.dialect.number(from_place.mask >> from_place.shift, "u32")
                self.insert(place, f"({self.extract(from_place)} & {mask})")

    def widen(self, op: Move, source: str) -> None:
        """Convert elements of 16 bits to f32: both of a word that is read whole, else one."""
        asm, wide = ptx.split_pair(source), words(self.body, op.into)
        numbers, at = op.source.numbers, 0
        while at < len(numbers):
            place = part(self.body, Registers(op.source.buffer, numbers[at : at + 1]))
            if whole_pair(numbers, at):
                self.call(asm, wide[at : at + 2], (place.variable,))
                at += 2
                continue
            pair = self.temporary(), self.temporary()
            self.call(asm, pair, (place.variable,))
            self.emit(self.dialect.assign(wide[at], pair[place.shift > 0]))
            at += 1

    def narrow(self, op: Move, into: str, source: str) -> None:
        """Convert f32 to elements of 16 bits: two that fill a word together, else one."""
        asm, values = ptx.convert_pair(into, source), words(self.body, op.source)
        numbers, at = op.into.numbers, 0
        while at < len(numbers):
            place = part(self.body, Registers(op.into.buffer, numbers[at : at + 1]))
            if whole_pair(numbers, at):
                self.call(asm, (place.variable,), (values[at + 1], values[at]))
                at += 2
                continue
            low = self.temporary()
            self.call(asm, (low,), (self.dialect.number(0, "f32"), values[at]))
            self.insert(place, low)
            at += 1

    def blend(self, op: Blend) -> None:
        """Write ``alpha * into + beta * source`` for each f32."""
        into = words(self.body, op.into)
        source = into if op.source is None else words(self.body, op.source)
        for name, other in zip(into, source, strict=True):
            more = "" if op.source is None else f" + {op.beta} * {other}"
            self.emit(self.dialect.assign(name, f"{op.alpha} * {name}{more}"))

    def load(self, op: Load) -> None:
        """Load one vector."""
        bits = access_bits(self.body, op)
        asm = ptx.load(space(self.body, op.memory), self.token(op.into.buffer), bits)
        address = (self.at(op.memory, op.address),)
        if bits >= 32:
            self.call(asm, words(self.body, op.into), address)
            return
        value = self.temporary()
        self.call(asm, (value,), address)
        self.insert(part(self.body, op.into), value)

    def store(self, op: Store) -> None:
        """Store one vector."""
        bits = access_bits(self.body, op)
        asm = ptx.store(space(self.body, op.memory), self.token(op.source.buffer), bits)
        if bits >= 32:
            values = words(self.body, op.source)
        else:
            values = (self.extract(part(self.body, op.source)),)
        self.call(asm, (), (self.at(op.memory, op.address), *values))

    def transfer(self, op: Transfer) -> None:
        """Copy from memory to memory: ``cp.async``, or a load and a store."""
        bits = op.count * self.body.buffer(op.into).dtype.bits
        target, source = self.at(op.into, op.into_address), self.at(op.memory, op.address)
        if op.fill:
            conditions = [self.text(guard) for guard in op.guards]
            whole, nothing = (self.dialect.number(size, "u32") for size in (bits // BYTE, 0))
            size = self.dialect.choice(conditions, whole, nothing)
            self.call(ptx.cp_async_or_zero(), (), (target, source, size))
            return
        opened = self.guarded(op.guards)
        if op.asynchronous:
            self.call(ptx.cp_async(bits // 8), (), (target, source))
        else:
            load = ptx.load(space(self.body, op.memory), self.token(op.memory), bits)
            store = ptx.store(space(self.body, op.into), self.token(op.into), bits)
            values = tuple(self.temporary() for _ in load.outputs)
            self.call(load, values, (source,))
            self.call(store, (), (target, *values))
        if opened:
            self.close()


def _product_kind(op: Op) -> tuple[object, ...]:
    """Return what neighbouring products must share to be written as one; () for anything else.

    With A in registers, which D must not share, one that overwrites D stands alone.
    """
    if isinstance(op, Issued):
        return (op.issuer,)
    if not isinstance(op, Wgmma):
        return ()
    a = op.a.descriptor if isinstance(op.a, SharedMatrix) else None
    return op.instruction, op.d, a, op.b.descriptor, a is not None or op.accumulate


def whole_pair(numbers: tuple[int, ...], at: int) -> bool:
    """Say whether two neighbours of 16 bits from a place on are the halves of one word, in order.

    >>> whole_pair((2, 3, 5), 0), whole_pair((2, 3, 5), 1), whole_pair((2, 3, 5), 2)
    (True, False, False)
    """
    return numbers[at] % 2 == 0 and numbers[at + 1 : at + 2] == (numbers[at] + 1,)


def descriptor_variable(operand: SharedMatrix) -> tuple[str, Index, Index]:
    """Return a variable for what descriptors of an operand's buffer share, and the rest.

    The variable's name, what the thread adds to the buffer's start, and what else the address does;
    both in units of 16 bytes.
    """
    units = operand.address * operand.descriptor.element_bits // (CHUNK * BYTE)
    own = [(c, a) for c, a in units.terms if isinstance(a, Digit) and a.var == "thread"]
    fixed = Index(tuple(own))
    place = "".join(f"_{c}x{atom.stride}" for c, atom in own if isinstance(atom, Digit))
    low, high = operand.descriptor.words
    name = f"{operand.memory}_{operand.descriptor.major}_{high:x}_{low:x}{place}"
    return name, fixed, units - fixed


def shared_operands(body: KernelIR) -> dict[str, tuple[SharedMatrix, Index]]:
    """Return by variable an operand in shared memory, and what the thread adds to its start."""
    found = {}
    for op in walk(body.ops):
        for _, operand in op.parts:
            if isinstance(operand, SharedMatrix):
                name, fixed, _ = descriptor_variable(operand)
                found[name] = operand, fixed
    return found


def barriers_elsewhere(body: KernelIR) -> dict[str, str]:
    """Return by barrier a variable for its address in the CTA whose rank is the lane's.

    Of those at which arrivals are everywhere; lanes beyond the cluster begin again at rank 0.
    """
    names = (op.barrier for op in walk(body.ops) if isinstance(op, Arrive) and op.everywhere)
    return {name: f"{name}_elsewhere" for name in names}


def register_variables(body: KernelIR) -> tuple[tuple[str, str], ...]:
    """Return (variable, constraint letter) of every register, in order of declaration."""
    return tuple(
        (name, ptx.letter(buffer.dtype.token))
        for buffer in body.registers
        for name in variables(buffer)
    )
