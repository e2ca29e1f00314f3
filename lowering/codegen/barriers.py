"""Barriers as kernel text: of threads, mbarriers, and the TMA copies that complete them."""

from __future__ import annotations

from layoutalg.algebra.axis import WARP
from lowering.codegen.writer import Writer, emit
from lowering.ir.index import Guard, Index
from lowering.ir.kernel_ir import BARRIER_BYTES, KernelIR
from lowering.ir.ops import (
    Arrive,
    MbarrierWait,
    Phase,
    Sync,
    TmaLoad,
    TmaStore,
    TmaStoreWait,
    TryWait,
    walk,
)
from lowering.ir.register_map import WARPGROUP
from lowering.isa import ptx

FIRST_OF_WARPGROUPS = 2  # named barriers: 0 is that of the CTA, 1 that of the consumers
LEADER = f"thread & {WARPGROUP - 1}"  # 0 in the first thread of a warpgroup


@emit.of(Sync)
def _sync(writer: Writer, op: Sync) -> None:
    """Write a barrier; inside warp specialization, that of a CTA is one of its consumers."""
    if op.scope == "warpgroup":
        number = Index.of("thread", writer.body.threads) // WARPGROUP + FIRST_OF_WARPGROUPS
        name = writer.dialect.word(writer.text(number))
        writer.call(ptx.sync_warpgroup(WARPGROUP), (), (name,))
    elif op.scope == "cluster":
        writer.call(ptx.sync_cluster(op.memory), (), ())
    elif op.scope == "cta" and writer.specialized:
        writer.call(ptx.sync_some(writer.body.threads), (), ())
    else:
        writer.line(writer.dialect.sync(op.scope))


def mbarrier(writer: Writer, name: str, slot: int | Index, base: str = "") -> str:
    """Return the address of an mbarrier, of this CTA or from another base on."""
    place = slot * BARRIER_BYTES
    text = writer.text(place) if isinstance(place, Index) else str(place)
    return writer.dialect.address("shared", base or f"{name}_base", text)


def initialise(writer: Writer) -> None:
    """Initialise the mbarriers by thread 0, and let all threads know."""
    writer.alone("thread", lambda: _initialise(writer))
    writer.line(writer.dialect.sync("cta"))


def _initialise(writer: Writer) -> None:
    """Initialise every mbarrier, and prefetch the tensor maps."""
    for name in writer.body.boxes:
        writer.call(ptx.prefetch_tensormap(), (), (f"{name}_base",))
    for each in writer.body.barriers:
        arrivals = writer.dialect.number(each.arrivals, "u32")
        for slot in range(each.slots):
            writer.call(ptx.mbarrier_init(), (), (mbarrier(writer, each.name, slot), arrivals))
    writer.call(ptx.mbarrier_init_fence(), (), ())
    if writer.body.cluster > 1:
        writer.call(ptx.fence_mbarrier_init(), (), ())


@emit.of(Arrive)
def _arrive(writer: Writer, op: Arrive) -> None:
    """Write one arrival per warp; under guards, predicated and without a branch.

    In every CTA of a cluster: one lane each, at the addresses of :func:`barriers_elsewhere`.
    """
    if not op.guards and not op.everywhere:
        barrier = mbarrier(writer, op.barrier, op.slot)
        first = "thread & 31"
        writer.alone(first, lambda: writer.call(ptx.mbarrier_arrive(), (), (barrier,)))
        return
    there = barriers_elsewhere(writer.body)[op.barrier] if op.everywhere else ""
    lanes = writer.body.cluster if op.everywhere else 1
    lane = Guard(Index.of("thread", writer.body.threads) % WARP, 0, lanes)
    conditions = [writer.text(guard) for guard in (lane, *op.guards)]
    yes, no = (writer.dialect.number(value, "u32") for value in (1, 0))
    taking = writer.dialect.choice(conditions, yes, no)
    asm = ptx.mbarrier_arrive_cluster() if op.everywhere else ptx.mbarrier_arrive_if()
    writer.call(asm, (), (mbarrier(writer, op.barrier, op.slot, there), taking))


def barriers_elsewhere(body: KernelIR) -> dict[str, str]:
    """Map each mbarrier with cluster-wide arrivals to the variable of its ``mapa`` address.

    Lane l addresses the CTA of rank l, modulo the size of the cluster.
    """
    names = (op.barrier for op in walk(body.ops) if isinstance(op, Arrive) and op.everywhere)
    return {name: f"{name}_elsewhere" for name in names}


def asked(writer: Writer, phase: Phase) -> tuple[str, str]:
    """Return the address of a phase's barrier and its parity."""
    parity = writer.dialect.word(writer.text(phase.parity))
    return mbarrier(writer, phase.barrier, phase.slot), parity


@emit.of(TryWait)
def _try_wait(writer: Writer, op: TryWait) -> None:
    writer.call(ptx.mbarrier_test_wait(), ("tried",), asked(writer, op.phase))


@emit.of(MbarrierWait)
def _mbarrier_wait(writer: Writer, op: MbarrierWait) -> None:
    """Wait; not where the last try_wait has seen the phase complete."""
    if op.tried:
        writer.alone("tried", lambda: wait_for(writer, op.phase))
    else:
        wait_for(writer, op.phase)


def wait_for(writer: Writer, phase: Phase) -> None:
    """Write the wait for a phase."""
    writer.call(ptx.mbarrier_wait(), (), asked(writer, phase))


@emit.of(TmaLoad)
def _tma_load(writer: Writer, op: TmaLoad) -> None:
    """Write the loads of boxes: by the producer thread, or by thread 0."""

    def write() -> None:
        if op.free is not None:
            wait_for(writer, op.free)
        barrier = mbarrier(writer, op.barrier, op.slot)
        size = writer.dialect.number(op.size, "u32")
        writer.call(ptx.mbarrier_arrive_expect_tx(), (), (barrier, size))
        for load in op.loads:
            row, col = (writer.dialect.word(writer.text(i)) for i in load.place)
            into = writer.at(load.into, load.into_address)
            asm = ptx.tma_load()
            if load.multicast:
                asm = ptx.tma_load_multicast(writer.body.cluster)
            writer.call(asm, (), (into, f"{load.memory}_base", col, row, barrier))

    if writer.producer:
        write()
    else:
        writer.alone("thread", write)


@emit.of(TmaStore)
def _tma_store(writer: Writer, op: TmaStore) -> None:
    """Store the boxes by the first thread of each warpgroup, as one group."""

    def write() -> None:
        for store in op.stores:
            row, col = (writer.dialect.word(writer.text(i)) for i in store.place)
            source = writer.at(store.source, store.source_address)
            writer.call(ptx.tma_store(), (), (f"{store.memory}_base", col, row, source))
        writer.call(ptx.tma_store_commit(), (), ())

    writer.alone(LEADER, write)


@emit.of(TmaStoreWait)
def _tma_store_wait(writer: Writer, op: TmaStoreWait) -> None:
    writer.alone(LEADER, lambda: writer.call(ptx.tma_store_wait(op.pending), (), ()))
