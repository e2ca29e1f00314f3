"""Probing: what a machine alone shows of an instruction, compared with what our layouts say.

No layout takes part in the measurement: registers are loaded from plain images, ``image[experiment,
lane, slot]``, and stored to such images; a *place* is ``lane * slots + slot``. What can be seen:

- An mma: which place of A meets which place of B, and in which place of D the product lands. That
  is the three fragments up to one common relabelling of M, one of N and one of K, and no more.
- ``ldmatrix``, ``stmatrix``, ``movmatrix``: everything, against addresses. They tie the labels of a
  16-bit mma to memory.

A certificate says which part was measured and which is convention. Known wrong claims run along: a
certificate that does not refute each of them is vacuous, and says so.
"""

from __future__ import annotations

import datetime
import hashlib
import json
import shutil
import subprocess
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from layoutalg import LayoutError, S, TileLayout, tx
from layoutalg import fragments as table
from layoutalg.fragments import WARP, Fragment
from lowering import ptx
from lowering.address import Index
from lowering.body import Body
from lowering.dtypes import DType
from lowering.executable import numba_machine
from lowering.instructions import MMA_FAMILY, MMA_INSTRUCTIONS, MmaInst
from lowering.ops import (
    Elements,
    Load,
    LoadMatrix,
    Loop,
    Mma,
    MoveMatrix,
    Op,
    Store,
    StoreMatrix,
    Sync,
    Transfer,
)
from lowering.tile import Buffer
from lowering.verification import as_machine
from lowering.warp import execute, logical

WARPS = 32  # experiments that run side by side in one CTA
RANDOM = 32  # products of random integers that the measured relation must predict
LARGE = 1 << 24  # cells of an image; above it only B's places are taken one by one
ACCESS = 128  # bits of the widest load and store
NOWHERE, TWICE = -1, -2  # entries of a table: nothing is there; a claim says two things
ROW = 8  # 16-bit cells of the rows that matrix instructions move
TILE = 768  # cells of shared memory that they are probed in

Ints = npt.NDArray[np.int64]
Image = npt.NDArray[np.int8]
Array = npt.NDArray[Any]
Run = Callable[[Body, str, Mapping[str, Array]], Mapping[str, Array]]


class ProbeError(LayoutError):
    """A machine shows what no instruction of the kind can show."""


def simulator(body: Body, name: str, matrices: Mapping[str, Array]) -> Mapping[str, Array]:
    """Run a body on the NumPy warp; return the parameters that it writes."""
    machine = execute(body, matrices)
    return {b.name: logical(b, machine.memory[b.name].values) for b in body.written}


def device(body: Body, name: str, matrices: Mapping[str, Array]) -> Mapping[str, Array]:
    """Run a body on the GPU; return the parameters that it writes."""
    written: Mapping[str, Array] = numba_machine().run(body, name, matrices)
    return written


# -- raw kernels ----------------------------------------------------------------------------------


def _image(name: str, shape: tuple[int, ...], dtype: DType | str) -> Buffer:
    return Buffer(name, shape, dtype, "global")


def _registers(name: str, threads: int, slots: int, dtype: DType | str) -> Buffer:
    """Return the registers of all threads as they are: element ``[thread, slot]``."""
    return Buffer(
        name, (threads, slots), dtype, layout=TileLayout(S[(threads, slots) : (1 @ tx, 1)])
    )


def _move(registers: Buffer, image: str, start: Index, load: bool) -> list[Op]:
    """Load registers from an image, or store them to it, in the widest accesses."""
    threads, slots = registers.shape
    width = max(1, ACCESS // registers.dtype.bits)
    ops: list[Op] = []
    for first in range(0, slots, width):
        elements = Elements(registers.name, tuple(range(first, min(first + width, slots))))
        at = start + Index.of("thread", threads) * slots + first
        ops.append(Load(elements, image, at) if load else Store(image, at, elements))
    return ops


def product_body(inst: MmaInst, steps: int) -> Body:
    """Return a kernel that runs ``steps * WARPS`` independent mma on images of their registers."""
    threads = WARPS * WARP
    roles = {"A": inst.a, "B": inst.b, "C": inst.c, "D": inst.d}
    slots = {role: inst.fragment(role).slots for role in roles}
    images = {
        role: _image(f"{role}_image", (steps, threads, slots[role]), dtype)
        for role, dtype in roles.items()
    }
    held = {role: _registers(role, threads, slots[role], roles[role]) for role in "ABD"}
    step = Index.of("step", steps)

    def at(role: str) -> Index:
        return step * (threads * slots[role])

    body = [
        *_move(held["A"], "A_image", at("A"), True),
        *_move(held["B"], "B_image", at("B"), True),
        *_move(held["D"], "C_image", at("C"), True),
        Mma(inst, *(Elements(role, tuple(range(slots[role]))) for role in "DAB")),
        *_move(held["D"], "D_image", at("D"), False),
    ]
    loop = Loop("step", steps, tuple(body))
    return Body(tuple(images.values()), (), tuple(held.values()), (loop,), threads)


def address_patterns() -> tuple[Index, ...]:
    """Return ways to hand 32 rows of the tile to the lanes: no two lanes share one.

    In order, spread, reversed, and scrambled across the matrices.

    >>> [str(pattern) for pattern in address_patterns()]
    ['thread * 8', 'thread * 24', 'thread * -8 + 248', '(thread ^ 21) * 8']
    """
    lane = Index.of("thread", WARP)
    last = Index((), (WARP - 1) * ROW)
    return lane * ROW, lane * (3 * ROW), last - lane * ROW, (lane ^ Index((), 21)) * ROW


def _fill(into: str, memory: str, start: int = 0, into_start: int = 0) -> list[Op]:
    """Copy the cells of a tile."""
    lane = Index.of("thread", WARP)
    return [
        Transfer(into, lane * ROW + (into_start + at), memory, lane * ROW + (start + at), ROW)
        for at in range(0, TILE, WARP * ROW)
    ]


def load_body(count: int, trans: bool) -> Body:
    """Return a kernel that loads matrices from a tile by each pattern and stores the registers."""
    slots, patterns = 2 * count, address_patterns()
    tile = Buffer("tile", (TILE,), "float16", "shared")
    held = _registers("held", WARP, slots, "float16")
    params = (
        _image("labels", (TILE,), "float16"),
        _image("out", (len(patterns), WARP, slots), "f16"),
    )
    ops = [*_fill("tile", "labels"), Sync("cta")]
    for index, pattern in enumerate(patterns):
        elements = Elements("held", tuple(range(slots)))
        ops.append(LoadMatrix(elements, "tile", pattern, count, trans))
        ops.extend(_move(held, "out", Index((), index * WARP * slots), False))
    return Body(params, (tile,), (held,), tuple(ops), WARP)


def store_body(count: int, trans: bool) -> Body:
    """Return a kernel that stores registers to a blank tile by each pattern, and the tile out."""
    slots, patterns = 2 * count, address_patterns()
    tile = Buffer("tile", (TILE,), "float16", "shared")
    held = _registers("held", WARP, slots, "float16")
    params = (
        _image("labels", (WARP, slots), "float16"),
        _image("blank", (TILE,), "float16"),
        _image("out", (len(patterns), TILE), "float16"),
    )
    ops = _move(held, "labels", Index(), True)
    for index, pattern in enumerate(patterns):
        elements = Elements("held", tuple(range(slots)))
        ops += [*_fill("tile", "blank"), Sync("cta")]
        ops += [StoreMatrix("tile", pattern, elements, count, trans), Sync("cta")]
        ops += [*_fill("out", "tile", into_start=index * TILE), Sync("cta")]
    return Body(params, (tile,), (held,), tuple(ops), WARP)


def move_body() -> Body:
    """Return a kernel that transposes a matrix in registers."""
    params = _image("labels", (WARP, 2), "float16"), _image("out", (WARP, 2), "float16")
    held = tuple(_registers(name, WARP, 2, "float16") for name in ("src", "dst"))
    ops = [
        *_move(held[0], "labels", Index(), True),
        MoveMatrix(Elements("dst", (0, 1)), Elements("src", (0, 1))),
        *_move(held[1], "out", Index(), False),
    ]
    return Body(params, (), held, tuple(ops), WARP)


# -- measurements ---------------------------------------------------------------------------------


@dataclass(frozen=True)
class Measurement:
    """What a machine showed: integer tables by name, and how many experiments it took."""

    ptx: str
    experiments: int
    tables: Mapping[str, Ints]


def _place(place: int, slots: int) -> str:
    return f"lane {place // slots} slot {place % slots}"


def _codes(places: int) -> Image:
    """Return a row of ones, then a row per binary digit of the place's number."""
    digits = np.arange(places) >> np.arange((places - 1).bit_length())[:, None] & 1
    return np.concatenate([np.ones((1, places), dtype=np.int8), digits.astype(np.int8)])


def _each(places: int, repeats: int) -> Image:
    """Return one-hot rows: each place in turn, so many times."""
    return np.repeat(np.eye(places, dtype=np.int8), repeats, axis=0)


def _none(rows: int, places: int) -> Image:
    return np.zeros((rows, places), dtype=np.int8)


def _decoded(out: Ints, role: str, slots: tuple[int, int], others: int) -> Ints:
    """Return where each one-hot place meets each place of the other operand.

    Args:
        out: D's places, (one-hot place, code, D place): how many of the other operand's places
            reach it, then the binary digits of their numbers.
        role: the one-hot operand.
        slots: slots of that operand and of D.
        others: places of the other operand.
    """
    count = out[:, 0]
    strange = np.argwhere((count != 0) & (count != 1))
    if strange.size:
        i, d = (int(v) for v in strange[0])
        raise ProbeError(
            f"probe: {role} {_place(i, slots[0])} alone, against ones, must give 0 or 1; "
            f"D {_place(d, slots[1])} shows {count[i, d]}"
        )
    one_hot, landing = np.nonzero(count == 1)
    weights = 1 << np.arange(out.shape[1] - 1)
    other = (out[one_hot, 1:, landing] * weights).sum(axis=1)
    found = np.full((out.shape[0], others), NOWHERE, dtype=np.int64)
    found[one_hot, other] = landing
    if (found[one_hot, other] != landing).any():
        raise ProbeError(f"probe: a pair of {role} and the other operand lands in two places of D")
    return found


def _integers(shape: tuple[int, ...], dtype: DType, start: int) -> Image:
    """Return small integers, exact in the type, by a formula."""
    index = np.arange(start, start + int(np.prod(shape)), dtype=np.uint64)
    mixed = (index * np.uint64(0x9E3779B97F4A7C15)) >> np.uint64(40)
    low, high = (0, 1) if dtype.token == "b1" else (-3, 3)
    if dtype.token in ("u8", "u4"):
        low = 0
    small: Image = (mixed % np.uint64(high - low + 1)).astype(np.int8).reshape(shape)
    small += np.int8(low)
    return small


def in_both_orders(inst: MmaInst) -> bool:
    """Say whether A's places are taken one by one too: not where that would be very many.

    >>> in_both_orders(MMA_INSTRUCTIONS[0])
    True
    """
    a, b = (WARP * inst.fragment(role).slots for role in "AB")
    return a * len(_codes(b)) * a <= LARGE


def measure_product(inst: MmaInst, run: Run) -> Measurement:
    """Measure an mma: one-hot operands slot by slot, in one launch.

    B's places one by one against an A of ones and against the binary digits of A's places; then the
    same with the roles exchanged; C's places one by one; and random integers, which the relation
    found must predict exactly.

    Raises:
        LayoutError: the instruction forms no products.
        ProbeError: the machine shows what is no bilinear map, or the two orders disagree.
    """
    if inst.modifier == "xor":
        raise LayoutError(
            f"probe: {inst} counts bits that differ, which are no products; probe and"
        )
    slots = {role: inst.fragment(role).slots for role in "ABD"}
    a, b, d = (WARP * slots[role] for role in "ABD")
    codes = {places: _codes(places) for places in (a, b)}
    both = in_both_orders(inst)
    dense = {
        "A": _integers((RANDOM, a), inst.a, 0),
        "B": _integers((RANDOM, b), inst.b, RANDOM * a),
        "C": _integers((RANDOM, d), inst.c, RANDOM * (a + b)),
    }
    by_a, by_b = (_each(a, len(codes[b])) if both else _none(0, a)), _each(b, len(codes[a]))
    blocks = {
        "A": (np.tile(codes[a], (b, 1)), by_a, _none(d, a), dense["A"]),
        "B": (by_b, np.tile(codes[b], (len(by_a) // len(codes[b]), 1)), _none(d, b), dense["B"]),
        "C": (_none(len(by_b), d), _none(len(by_a), d), _each(d, 1), dense["C"]),
    }
    counts = [len(block) for block in blocks["C"]]
    total = sum(counts)
    steps = -(-total // WARPS)
    body = product_body(inst, steps)
    given = {}
    for role, parts in blocks.items():
        image = _none(steps * WARPS, parts[0].shape[1])
        np.concatenate(parts, out=image[:total])
        buffer = body.buffer(f"{role}_image")
        given[buffer.name] = image.reshape(buffer.shape).astype(buffer.dtype.numpy)
    shown = run(body, "probe", given)["D_image"].reshape(steps * WARPS, d).astype(np.float64)
    if (shown != np.rint(shown)).any():
        raise ProbeError("probe: sums of products of integers must be integers; D shows others")
    out = shown.astype(np.int64)
    of_b, of_a, of_c, products = np.split(out[:total], np.cumsum(counts)[:-1])
    relation = _decoded(of_b.reshape(b, -1, d), "B", (slots["B"], slots["D"]), a).T
    if both:
        exchanged = _decoded(of_a.reshape(a, -1, d), "A", (slots["A"], slots["D"]), b)
        if (relation != exchanged).any():
            raise ProbeError(
                "probe: A's places one by one and B's one by one show different relations"
            )
    accumulator = np.where((of_c == 1).sum(1) == 1, (of_c == 1).argmax(1), NOWHERE)
    _check_prediction(relation, accumulator, dense, products)
    tables = {"products": relation, "accumulator": accumulator}
    return Measurement(ptx.mma(inst).text, total, tables)


def _check_prediction(
    relation: Ints, accumulator: Ints, inputs: Mapping[str, Image], out: Ints
) -> None:
    """Refuse a relation that does not predict products of random integers."""
    a, b, c = (inputs[role].astype(np.int64) for role in "ABC")
    want = np.zeros_like(out)
    i, j = np.nonzero(relation != NOWHERE)
    held = accumulator != NOWHERE
    for row in range(len(out)):
        np.add.at(want[row], relation[i, j], a[row, i] * b[row, j])
        np.add.at(want[row], accumulator[held], c[row, held])
    if (want != out).any():
        raise ProbeError(
            f"probe: the relation found predicts {int((want == out).all(1).sum())} of {len(out)} "
            "products of random integers; the instruction is no sum of the products found"
        )


def _matrix_table(cells: Ints, what: str) -> Ints:
    """Return (address lane, column) of each place, from the tile's cell of each place and pattern.

    Args:
        cells: (pattern, place) -> cell of the tile, or NOWHERE.
        what: the instruction, for the message.
    """
    found = []
    for pattern, each in zip(address_patterns(), cells, strict=True):
        starts = np.asarray(pattern.value({"thread": np.arange(WARP)}))
        owner = np.full((TILE, 2), NOWHERE, dtype=np.int64)
        owner[starts[:, None] + np.arange(ROW)] = np.moveaxis(np.indices((WARP, ROW)), 0, -1)
        found.append(np.where((each == NOWHERE)[:, None], NOWHERE, owner[each]))
    if any((other != found[0]).any() for other in found):
        raise ProbeError(
            f"probe: {what} follows its addresses differently from one order to another"
        )
    return found[0]


def measure_load(count: int, trans: bool, run: Run) -> Measurement:
    """Measure ``ldmatrix``: every cell of the tile holds its own number."""
    labels = np.arange(TILE).astype(np.float16)
    out = run(load_body(count, trans), "probe", {"labels": labels})["out"]
    text = ptx.ldmatrix(count, trans).text
    cells = out.reshape(len(out), -1).astype(np.int64)
    return Measurement(text, len(out), {"received": _matrix_table(cells, text)})


def measure_store(count: int, trans: bool, run: Run) -> Measurement:
    """Measure ``stmatrix``: every slot holds its place's number, the tile is blank before."""
    places = WARP * 2 * count
    given = {
        "labels": np.arange(places).reshape(WARP, -1).astype(np.float16),
        "blank": np.full(TILE, NOWHERE, dtype=np.float16),
    }
    out = run(store_body(count, trans), "probe", given)["out"].astype(np.int64)
    cells = np.full((len(out), places), NOWHERE, dtype=np.int64)
    for row, stored in zip(cells, out, strict=True):
        where = np.flatnonzero(stored != NOWHERE)
        row[stored[where]] = where
    text = ptx.stmatrix(count, trans).text
    if (np.count_nonzero(out != NOWHERE, axis=1) != places).any():
        raise ProbeError(f"probe: {text} must store each of {places} slots once")
    return Measurement(text, len(out), {"stored": _matrix_table(cells, text)})


def measure_move(run: Run) -> Measurement:
    """Measure ``movmatrix``: every slot of the source holds its place's number."""
    given = {"labels": np.arange(WARP * 2).reshape(WARP, 2).astype(np.float16)}
    out = run(move_body(), "probe", given)["out"].reshape(-1).astype(np.int64)
    moved = np.stack([out // 2, out % 2], axis=-1)
    return Measurement(ptx.movmatrix().text, 1, {"moved": moved})


# -- claims ---------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Claim:
    """Where a layout says that an operand's elements are: (rows, cols) -> place, or NOWHERE."""

    operand: str
    slots: int
    places: Ints

    @classmethod
    def of(cls, fragment: Fragment, layout: TileLayout | None = None) -> Claim:
        """Return the claim of a layout for a fragment's tile; by default the fragment's own.

        Raises:
            LayoutError: the layout is of another size, or on other axes than laneid and m.
        """
        chosen = fragment.layout if layout is None else layout
        name = f"probe: operand {fragment.operand} of {fragment.instruction}"
        if chosen.size() != fragment.layout.size():
            raise LayoutError(
                f"{name} has {fragment.layout.size()} elements {fragment.shape}; "
                f"{chosen} has {chosen.size()}"
            )
        cells = chosen.table(fragment.shape)
        if not set(cells) <= {"laneid", "m"}:
            raise LayoutError(f"{name} lies on the axes laneid and m; {chosen} is on {set(cells)}")
        none = np.zeros(fragment.shape, dtype=np.int64)
        lane, slot = cells.get("laneid", none), cells.get("m", none)
        inside = (lane >= 0) & (lane < WARP) & (slot >= 0) & (slot < fragment.slots)
        places = np.where(inside, lane * fragment.slots + slot, NOWHERE)
        return cls(fragment.operand, fragment.slots, places)

    def moved(self, change: Callable[[Ints, Ints], tuple[Ints, Ints]]) -> Claim:
        """Return the claim with every (lane, slot) changed."""
        lane, slot = change(self.places // self.slots, self.places % self.slots)
        inside = (lane >= 0) & (lane < WARP)
        places = np.where(inside, lane * self.slots + slot, NOWHERE)
        return Claim(self.operand, self.slots, places)

    def elements(self) -> Ints:
        """Return the element that each place holds: (places, 2), NOWHERE where none, TWICE two."""
        found = np.full((WARP * self.slots, 2), NOWHERE, dtype=np.int64)
        for coordinate in np.ndindex(self.places.shape):
            place = self.places[coordinate]
            if place != NOWHERE:
                found[place] = TWICE if found[place][0] != NOWHERE else coordinate
        return found


def claimed_products(a: Claim, b: Claim, d: Claim) -> Ints:
    """Return the relation that three fragments claim: (A place, B place) -> D place.

    >>> A, B, D = (Claim.of(table.get("mma.m16n8k8.f16", role)) for role in "ABD")
    >>> claimed_products(A, B, D)[0, :4].tolist()  # lane 0 of A is k 0 and 1 of row 0
    [0, -1, -1, -1]
    """
    i = np.broadcast_to(a.places[:, :, None], (*a.places.shape, b.places.shape[1]))
    j = np.broadcast_to(b.places[None], i.shape)
    where = np.broadcast_to(d.places[:, None, :], i.shape)
    held = (i != NOWHERE) & (j != NOWHERE)
    i, j, where = i[held], j[held], where[held]
    found = np.full((WARP * a.slots, WARP * b.slots), NOWHERE, dtype=np.int64)
    found[i, j] = where
    twice = found[i, j] != where
    found[i[twice], j[twice]] = TWICE
    return found


def _tables(instruction: str, claims: Mapping[str, Claim]) -> dict[str, Ints]:
    """Return the tables that claims imply, named as the measurement names them."""
    if instruction.startswith("mma"):
        a, b, d = (claims[role] for role in "ABD")
        return {
            "products": claimed_products(a, b, d),
            "accumulator": np.arange(WARP * d.slots),
        }
    if instruction.startswith("ldmatrix"):
        return {"received": claims["dst"].elements()}
    if instruction.startswith("movmatrix"):
        row, col = claims["dst"].elements().T
        places = np.where(row < 0, NOWHERE, claims["src"].places[row, col])
        missing = (places == NOWHERE)[:, None]
        return {"moved": np.where(missing, NOWHERE, np.stack([places // 2, places % 2], -1))}
    return {"stored": claims["src"].elements()}


def first_difference(
    measured: Mapping[str, Ints], claimed: Mapping[str, Ints], slots: Mapping[str, int]
) -> str | None:
    """Return the first place at which a claim is refuted, in words; None where there is none."""
    for name, seen in measured.items():
        said = claimed[name]
        if name == "products":
            pairs = np.argwhere(seen != said)
            if pairs.size:
                i, j = (int(v) for v in pairs[0])
                return (
                    f"A {_place(i, slots['A'])} with B {_place(j, slots['B'])}: the machine "
                    f"{_landing(int(seen[i, j]), slots['D'])}, the claim "
                    f"{_landing(int(said[i, j]), slots['D'])}; {len(pairs)} of {seen.size} pairs "
                    "differ"
                )
            continue
        places = np.flatnonzero((seen != said).reshape(len(seen), -1).any(axis=1))
        if places.size:
            first = int(places[0])
            width = list(slots.values())[-1]
            return (
                f"{_place(first, width)}: the machine has {_cell(name, seen[first])}, the claim "
                f"{_cell(name, said[first])}; {len(places)} of {len(seen)} places differ"
            )
    return None


def _landing(place: int, slots: int) -> str:
    if place == NOWHERE:
        return "multiplies nothing"
    return "says two things" if place == TWICE else f"adds to D {_place(place, slots)}"


def _cell(name: str, cell: Ints) -> str:
    if name == "accumulator":
        return f"what place {cell} of C holds"
    if cell[0] == NOWHERE:
        return "nothing"
    if name == "moved":
        return f"what slot {cell[1]} of lane {cell[0]} holds"
    return "two elements" if cell[0] == TWICE else f"column {cell[1]} of the row of lane {cell[0]}"


def wrong_claims(fragment: Fragment) -> dict[str, Claim]:
    """Return known wrong claims for an operand: what a certificate must refute.

    Two registers exchanged (a1 and a2 where there are four), or two slots of one register; lanes
    4g + t at 2g + t; the lanes shifted by one.

    >>> list(wrong_claims(table.get("mma.m16n8k16.f16", "A")))
    ['registers 1 and 2 exchanged', 'stride of the groups halved', 'lanes shifted by one']
    """
    right = Claim.of(fragment)
    kind, unit, count = "registers", fragment.pack, fragment.registers
    if count == 1:
        kind, unit, count = "slots", 1, fragment.slots
    one, two = (1, 2) if count > 2 and kind == "registers" else (0, 1)

    def exchanged(lane: Ints, slot: Ints) -> tuple[Ints, Ints]:
        place = slot // unit
        other = np.where(place == one, two, np.where(place == two, one, place))
        return lane, other * unit + slot % unit

    found = {f"{kind} {one} and {two} exchanged": right.moved(exchanged)} if count > 1 else {}
    return found | {
        "stride of the groups halved": right.moved(
            lambda lane, slot: (lane // 4 * 2 + lane % 4, slot)
        ),
        "lanes shifted by one": right.moved(lambda lane, slot: (lane + 1, slot)),
    }


# -- labels ---------------------------------------------------------------------------------------


def labels(relation: Ints, d: int) -> dict[str, Ints]:
    """Return A, B and D as (m, k), (k, n) and (m, n) labels, from the measured relation alone.

    Labels are numbers of classes in the order in which A's places, then B's, show them: two places
    of A share k where they meet the same places of B, and m where they reach the same places of D.

    Args:
        relation: (A place, B place) -> D place.
        d: places of D.

    Raises:
        ProbeError: the relation is not that of a matrix product.

    >>> A, B, D = (Claim.of(table.get("mma.m16n8k8.f16", role)) for role in "ABD")
    >>> found = labels(claimed_products(A, B, D), WARP * D.slots)
    >>> found["A"][:4].tolist(), found["B"][0].tolist(), found["D"][:2].tolist()
    ([[0, 0], [0, 1], [1, 0], [1, 1]], [0, 0], [[0, 0], [0, 1]])
    """
    met = relation != NOWHERE
    k_a = _classes([row.tobytes() for row in met])
    m_a = _classes([bytes(np.unique(row[row != NOWHERE])) for row in relation])
    n_b = _classes([bytes(np.unique(col[col != NOWHERE])) for col in relation.T])
    k_b = k_a[met.argmax(0)]
    found = {"A": np.stack([m_a, k_a], -1), "B": np.stack([k_b, n_b], -1)}
    found["D"] = np.full((d, 2), NOWHERE, dtype=np.int64)
    i, j = np.nonzero(met)
    found["D"][relation[i, j]] = np.stack([m_a[i], n_b[j]], -1)
    place = np.full((m_a.max() + 1, n_b.max() + 1), NOWHERE, dtype=np.int64)
    place[found["D"][:, 0], found["D"][:, 1]] = np.arange(d)
    product = np.where(k_a[:, None] == k_b, place[m_a[:, None], n_b], NOWHERE)
    if (found["D"] == NOWHERE).any() or (product != relation).any():
        raise ProbeError("probe: what the machine shows is not the relation of a matrix product")
    return found


def _classes(keys: Sequence[bytes]) -> Ints:
    """Number equal keys alike, in the order of their first appearance."""
    numbers: dict[bytes, int] = {}
    return np.array([numbers.setdefault(key, len(numbers)) for key in keys])


def memory_labels(inst: MmaInst, run: Run) -> dict[str, Ints]:
    """Return (row, column) in memory of what ldmatrix gives each place of A and B: measured.

    A comes from a row-major 16 x K tile, lane l pointing at row l mod 16, column 8*(l // 16); B by
    ``.trans`` from a row-major K x 8 tile, lane l pointing at row l mod K.
    """
    lane = np.arange(WARP)
    starts = {
        "A": np.stack([lane % 16, lane // 16 * 8], -1),
        "B": np.stack([lane % inst.k, 0 * lane], -1),
    }
    found = {}
    for role, start in starts.items():
        count = inst.fragment(role).registers
        cells = measure_load(count, role == "B", run).tables["received"]
        found[role] = start[cells[:, 0]] + np.stack([0 * cells[:, 1], cells[:, 1]], -1)
    return found


def is_tied(relation: Ints, memory: Mapping[str, Ints]) -> bool:
    """Say whether the relation is the product of the two tiles in memory.

    Columns of A's tile meet rows of B's of the same number, and D's place follows from the row of
    the one and the column of the other.
    """
    a, b = memory["A"], memory["B"]
    met = a[:, None, 1] == b[None, :, 0]
    if (met != (relation != NOWHERE)).any():
        return False
    i, j = np.nonzero(met)
    place = np.full((a[:, 0].max() + 1, b[:, 1].max() + 1), NOWHERE, dtype=np.int64)
    place[a[i, 0], b[j, 1]] = relation[i, j]
    return bool((place[a[i, 0], b[j, 1]] == relation[i, j]).all())


# -- certificates ---------------------------------------------------------------------------------


def digest(name: str, values: Ints) -> str:
    """Return the sha256 of a table: its name and shape, then 16-bit little-endian entries."""
    head = f"{name} {values.shape}\n".encode()
    return hashlib.sha256(head + np.ascontiguousarray(values, dtype="<i2").tobytes()).hexdigest()


@dataclass(frozen=True)
class Certificate:
    """What was measured of an instruction, where, and whether the claims agree.

    ``tables`` gives the sha256 of each measured table, ``rows`` the tables themselves as text, one
    row per lane. ``refuted`` lists the known wrong claims with the first place that refutes each;
    None means that one got through.
    """

    instruction: str
    ptx: str
    machine: str
    device: str
    driver: str
    date: str
    experiments: int
    claims: Mapping[str, str]
    tables: Mapping[str, str]
    rows: Mapping[str, tuple[str, ...]]
    measured: tuple[str, ...]
    convention: tuple[str, ...]
    difference: str | None
    refuted: Mapping[str, str | None]

    @property
    def agrees(self) -> bool:
        """Whether the machine shows what the claims say."""
        return self.difference is None

    @property
    def vacuous(self) -> bool:
        """Whether a claim known to be wrong agrees as well, so that agreement means nothing."""
        return self.agrees and None in self.refuted.values()

    @property
    def is_hardware(self) -> bool:
        """Whether a GPU was asked."""
        return self.machine == "device"

    @property
    def verdict(self) -> str:
        """``agrees``, ``REFUTED`` with the first place, or ``VACUOUS``."""
        if not self.agrees:
            return f"REFUTED: {self.difference}"
        passed = [name for name, place in self.refuted.items() if place is None]
        return f"VACUOUS: does not refute {', '.join(passed)}" if passed else "agrees"

    def report(self) -> str:
        """Return the certificate as text, to read."""
        where = (
            f"{self.device}, driver {self.driver}, {self.date}"
            if self.is_hardware
            else "SIMULATION on the NumPy warp: no hardware was asked"
        )
        lines = [self.instruction, f"  {self.ptx}", f"  {where}; {self.experiments} experiments"]
        lines += [f"  claim      {operand}: {layout}" for operand, layout in self.claims.items()]
        lines += [f"  measured   {text}" for text in self.measured]
        lines += [f"  convention {text}" for text in self.convention]
        lines += [f"  sha256     {name} {value[:16]}…" for name, value in self.tables.items()]
        lines += [f"  refutes    {name}: {place}" for name, place in self.refuted.items()]
        return "\n".join([*lines, f"  {self.verdict}"])


def to_json(certificates: Sequence[Certificate]) -> str:
    """Return certificates as one JSON list."""
    return json.dumps([asdict(each) for each in certificates], indent=1, ensure_ascii=False) + "\n"


def from_json(text: str) -> tuple[Certificate, ...]:
    """Read the certificates of a JSON list.

    Raises:
        LayoutError: the text is no list of certificates.
    """
    try:
        return tuple(_certificate(data) for data in json.loads(text))
    except (ValueError, TypeError, KeyError, AttributeError) as error:
        raise LayoutError(f"certificates: the text holds none: {error}") from None


def _certificate(data: Mapping[str, Any]) -> Certificate:
    rows = {name: tuple(rows) for name, rows in data["rows"].items()}
    listed = {name: tuple(data[name]) for name in ("measured", "convention")}
    return Certificate(**{**data, "rows": rows, **listed})


def _where(machine: str) -> tuple[str, str]:
    """Return the names of the device and of its driver."""
    if machine != "device":
        return "NumPy warp", "none"
    smi = shutil.which("nvidia-smi")
    if smi is None:
        return "CUDA device (nvidia-smi is not there to name it)", "unknown"
    query = [smi, "--query-gpu=name,driver_version", "--format=csv,noheader"]
    answer = subprocess.run(query, capture_output=True, text=True, check=True).stdout
    name, driver = answer.splitlines()[0].split(",")
    return name.strip(), driver.strip()


def _rows(values: Ints, slots: int) -> tuple[str, ...]:
    """Return a table of pairs as text: one row per lane."""
    pairs = [":".join(map(str, pair)) for pair in values.reshape(-1, 2).tolist()]
    return tuple(" ".join(pairs[at : at + slots]) for at in range(0, len(pairs), slots))


def names() -> tuple[str, ...]:
    """Return the instructions that are probed together; :func:`family` names more.

    >>> names()[1], names()[-1]
    ('mma.m16n8k16.f16', 'movmatrix.m8n8.trans.b16')
    """
    verbs = ("ldmatrix.m8n8", "stmatrix.m8n8", "movmatrix.m8n8")
    matrices = [name for name in table.names() if name.startswith(verbs)]
    return (*map(str, MMA_INSTRUCTIONS), *matrices)


def family() -> tuple[str, ...]:
    """Return every dense mma that can be probed.

    >>> family()[1]
    'mma.m16n8k16.f16 f16'
    """
    return tuple(str(row) for row in MMA_FAMILY if row.modifier != "xor")


def _mma(instruction: str) -> MmaInst | None:
    return next((row for row in MMA_FAMILY if str(row) == instruction), None)


def _operands(instruction: str) -> tuple[Fragment, ...]:
    """Return the operands of an instruction that can be probed, in the order of the claims."""
    row = _mma(instruction)
    if row is not None:
        return tuple(row.fragment(role) for role in "ABD")
    if instruction not in names():
        raise LayoutError(
            f"probe: no instruction is named {instruction!r}; known: {', '.join(names())}, and the "
            "other dense mma of the fragment table"
        )
    return table.rows(instruction)


def _measure(instruction: str, run: Run) -> Measurement:
    row = _mma(instruction)
    if row is not None:
        return measure_product(row, run)
    parts = instruction.split(".")
    if parts[0] == "movmatrix":
        return measure_move(run)
    measure = measure_load if parts[0] == "ldmatrix" else measure_store
    return measure(int(parts[2][1:]), "trans" in parts, run)


def _role(fragment: Fragment) -> str:
    return "D" if fragment.operand.startswith("C/D") else fragment.operand


def probe(
    instruction: str,
    machine: str | None = None,
    claims: Mapping[str, TileLayout] | None = None,
    run: Run | None = None,
) -> Certificate:
    """Measure an instruction and compare it with layouts; by default with our fragments.

    Args:
        instruction: one of :func:`names` or :func:`family`, such as ``mma.m16n8k16.f16``.
        machine: "device" or "simulator"; by default the GPU where there is one.
        claims: operand ("A", "B", "D", "dst", "src") -> layout over laneid and m, to be compared in
            place of our own.
        run: what runs the kernels, in place of the machine's own.

    Raises:
        LayoutError: no such instruction, machine or operand.
        ProbeError: the machine shows what no such instruction can show.

    >>> certificate = probe("ldmatrix.m8n8.x2.b16", "simulator")
    >>> certificate.verdict, certificate.is_hardware
    ('agrees', False)
    """
    machine = as_machine(machine, "probe")
    run = run or (device if machine == "device" else simulator)
    by_role = {_role(fragment): fragment for fragment in _operands(instruction)}
    given = dict(claims or {})
    if not set(given) <= set(by_role):
        raise LayoutError(
            f"probe: {instruction} has the operands {', '.join(by_role)}; got {', '.join(given)}"
        )
    own = {role: Claim.of(fragment) for role, fragment in by_role.items()}
    held = {role: Claim.of(by_role[role], layout) for role, layout in given.items()}
    measurement = _measure(instruction, run)
    slots = {role: fragment.slots for role, fragment in by_role.items()}
    first = next(iter(by_role))
    refuted = {
        f"{first}: {name}": first_difference(
            measurement.tables, _tables(instruction, own | {first: wrong}), slots
        )
        for name, wrong in wrong_claims(by_role[first]).items()
    }
    measured, convention, rows = _statements(instruction, measurement, slots, run)
    name, driver = _where(machine)
    layouts = {role: given.get(role, fragment.layout) for role, fragment in by_role.items()}
    return Certificate(
        instruction,
        measurement.ptx,
        machine,
        name,
        driver,
        datetime.datetime.now(datetime.timezone.utc).date().isoformat(),
        measurement.experiments,
        {role: str(layout) for role, layout in layouts.items()},
        {key: digest(key, values) for key, values in measurement.tables.items()},
        rows,
        measured,
        convention,
        first_difference(measurement.tables, _tables(instruction, own | held), slots),
        refuted,
    )


def _statements(
    instruction: str, measurement: Measurement, slots: Mapping[str, int], run: Run
) -> tuple[tuple[str, ...], tuple[str, ...], dict[str, tuple[str, ...]]]:
    """Return what was measured, what is convention, and the tables as text."""
    inst = _mma(instruction)
    if inst is None:
        ((key, values),) = measurement.tables.items()
        width = list(slots.values())[-1]
        if key == "moved":
            return (
                ("everything: which slot of which lane comes out in each lane and slot",),
                ("that the source is laid out as ldmatrix gives it; then its transpose comes out",),
                {key: _rows(values, width)},
            )
        where = "the lane whose address gives the row, and the column"
        return (
            (
                f"everything: for each lane and slot {where}, with the addresses in "
                f"{measurement.experiments} orders",
            ),
            ("none: addresses are memory",),
            {key: _rows(values, width)},
        )
    relation = measurement.tables["products"]
    found = labels(relation, WARP * slots["D"])
    measured = [
        "which A slot meets which B slot, and in which D slot the product lands: "
        f"{relation.size} pairs, {'A and B' if in_both_orders(inst) else 'B'} slot by slot",
        f"D starts from C, slot by slot; {RANDOM} products of random integers are exact",
    ]
    convention = [
        f"which numbers the {inst.m} rows, {inst.n} columns and {inst.k} k have: a permutation "
        "common to A and D, to B and D, or to A and B shows in no product"
    ]
    if inst.a.bits == inst.b.bits == 16:
        memory = memory_labels(inst, run)
        if is_tied(relation, memory):
            measured.append(
                "with A by ldmatrix from a row-major 16 x K tile (lane l at row l mod 16, column "
                "8*(l // 16)) and B by ldmatrix.trans from a row-major K x 8 tile (lane l at row "
                "l mod K), D is the product of the two tiles in memory"
            )
            convention = [
                "the order of the addresses; with it, the numbers of rows, columns and k are those "
                "of memory"
            ]
    rows = {role: _rows(values, slots[role]) for role, values in found.items()}
    return tuple(measured), tuple(convention), rows
