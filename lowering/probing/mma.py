"""What a machine shows of the instructions of one warp: mma, ldmatrix, stmatrix, movmatrix."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from layoutalg import LayoutError
from layoutalg.algebra.axis import WARP
from lowering.ir.index import Index
from lowering.ir.kernel_ir import KernelIR
from lowering.ir.ops import (
    LoadMatrix,
    Loop,
    Mma,
    MoveMatrix,
    Op,
    Registers,
    StoreMatrix,
    Sync,
    Transfer,
)
from lowering.ir.tiles import Buffer
from lowering.isa import dtypes, ptx
from lowering.isa.mma import MmaInst
from lowering.isa.semantics import PAIRS
from lowering.probing.raw import (
    NOWHERE,
    Image,
    Ints,
    Measurement,
    ProbeError,
    Run,
    as_integers,
    check_predicted,
    image_buffer,
    moves,
    place_name,
    register_buffer,
    small_integers,
)

WARPS = 32  # experiments that run side by side in one CTA
RANDOM = 32  # products of random integers that the measured relation must predict
LARGE = 1 << 24  # cells of an image; above it only B's places are taken one by one
ROW = 8  # 16-bit cells of the rows that matrix instructions move
TILE = 768  # cells of shared memory that they are probed in

# Positions of all slots of E that leave room: in each chunk, columns 0 and 2.
BASE = np.tile(np.array([0, 2], dtype=np.int8), WARP * 8)


# -- raw kernels ----------------------------------------------------------------------------------


def product_body(inst: MmaInst, steps: int) -> KernelIR:
    """Return a kernel that runs ``steps * WARPS`` independent mma on images of their registers."""
    threads = WARPS * WARP
    roles = {"A": inst.a, "B": inst.b, "C": inst.c, "D": inst.d}
    roles |= {role: dtypes.get(inst.fragment(role).dtype) for role in inst.extras}
    slots = {role: inst.fragment(role).slots for role in roles}
    images = {
        role: image_buffer(f"{role}_image", (steps, threads, slots[role]), dtype)
        for role, dtype in roles.items()
    }
    filled = ("A", "B", *inst.extras)
    held = {
        role: register_buffer(role, threads, slots[role], roles[role]) for role in (*filled, "D")
    }
    step = Index.of("step", steps)

    def at(role: str) -> Index:
        return step * (threads * slots[role])

    def all_of(role: str) -> Registers:
        return Registers(role, tuple(range(slots[role])))

    body = [op for role in filled for op in moves(held[role], f"{role}_image", at(role), True)]
    body += moves(held["D"], "C_image", at("C"), True)
    extra = tuple(all_of(role) for role in inst.extras)
    body.append(Mma(inst, all_of("D"), all_of("A"), all_of("B"), extra))
    body += moves(held["D"], "D_image", at("D"), False)
    loop = Loop("step", steps, tuple(body))
    return KernelIR(tuple(images.values()), (), tuple(held.values()), (loop,), threads)


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


def load_body(count: int, trans: bool) -> KernelIR:
    """Return a kernel that loads matrices from a tile by each pattern and stores the registers."""
    slots, patterns = 2 * count, address_patterns()
    tile = Buffer("tile", (TILE,), "float16", "shared")
    held = register_buffer("held", WARP, slots, "float16")
    params = (
        image_buffer("labels", (TILE,), "float16"),
        image_buffer("out", (len(patterns), WARP, slots), "f16"),
    )
    ops = [*_fill("tile", "labels"), Sync("cta")]
    for index, pattern in enumerate(patterns):
        elements = Registers("held", tuple(range(slots)))
        ops.append(LoadMatrix(elements, "tile", pattern, count, trans))
        ops.extend(moves(held, "out", Index((), index * WARP * slots), False))
    return KernelIR(params, (tile,), (held,), tuple(ops), WARP)


def store_body(count: int, trans: bool) -> KernelIR:
    """Return a kernel that stores registers to a blank tile by each pattern, and the tile out."""
    slots, patterns = 2 * count, address_patterns()
    tile = Buffer("tile", (TILE,), "float16", "shared")
    held = register_buffer("held", WARP, slots, "float16")
    params = (
        image_buffer("labels", (WARP, slots), "float16"),
        image_buffer("blank", (TILE,), "float16"),
        image_buffer("out", (len(patterns), TILE), "float16"),
    )
    ops = moves(held, "labels", Index(), True)
    for index, pattern in enumerate(patterns):
        elements = Registers("held", tuple(range(slots)))
        ops += [*_fill("tile", "blank"), Sync("cta")]
        ops += [StoreMatrix("tile", pattern, elements, count, trans), Sync("cta")]
        ops += [*_fill("out", "tile", into_start=index * TILE), Sync("cta")]
    return KernelIR(params, (tile,), (held,), tuple(ops), WARP)


def move_body() -> KernelIR:
    """Return a kernel that transposes a matrix in registers."""
    params = image_buffer("labels", (WARP, 2), "float16"), image_buffer("out", (WARP, 2), "float16")
    held = tuple(register_buffer(name, WARP, 2, "float16") for name in ("src", "dst"))
    ops = [
        *moves(held[0], "labels", Index(), True),
        MoveMatrix(Registers("dst", (0, 1)), Registers("src", (0, 1))),
        *moves(held[1], "out", Index(), False),
    ]
    return KernelIR(params, (), held, tuple(ops), WARP)


# -- measurements ---------------------------------------------------------------------------------


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
            f"probe: {role} {place_name(i, slots[0])} alone, against ones, must give 0 or 1; "
            f"D {place_name(d, slots[1])} shows {count[i, d]}"
        )
    one_hot, landing = np.nonzero(count == 1)
    weights = 1 << np.arange(out.shape[1] - 1)
    other = (out[one_hot, 1:, landing] * weights).sum(axis=1)
    found = np.full((out.shape[0], others), NOWHERE, dtype=np.int64)
    found[one_hot, other] = landing
    if (found[one_hot, other] != landing).any():
        raise ProbeError(f"probe: a pair of {role} and the other operand lands in two places of D")
    return found


def in_both_orders(inst: MmaInst) -> bool:
    """Say whether A's places are taken one by one too: not where that would be very many.

    >>> from lowering.isa.mma import MMA_INSTRUCTIONS
    >>> in_both_orders(MMA_INSTRUCTIONS[0])
    True
    """
    a, b = (WARP * inst.fragment(role).slots for role in "AB")
    return a * len(_codes(b)) * a <= LARGE


def measure_product(inst: MmaInst, run: Run) -> Measurement:
    """Measure an mma: one-hot operands slot by slot, in one launch.

    B's places one by one against an A of ones and against the binary digits of A's places; then the
    same with the roles exchanged; C's places one by one; and random integers, which the relation
    found must predict exactly. Sparse A has its nonzeros in columns 0 and 2 of each chunk.

    Raises:
        LayoutError: the instruction forms no products, or takes scales.
        ProbeError: the machine shows what is no bilinear map, or the two orders disagree.
    """
    if inst.modifier == "xor":
        raise LayoutError(
            f"probe: {inst} counts bits that differ, which are no products; probe and"
        )
    if "SFA" in inst.extras:
        raise LayoutError(f"probe: {inst} takes scales, which are not probed")
    slots = {role: inst.fragment(role).slots for role in "ABD"}
    a, b, d = (WARP * slots[role] for role in "ABD")
    codes = {places: _codes(places) for places in (a, b)}
    both = in_both_orders(inst)
    dense = {
        "A": small_integers((RANDOM, a), inst.a, 0),
        "B": small_integers((RANDOM, b), inst.b, RANDOM * a),
        "C": small_integers((RANDOM, d), inst.c, RANDOM * (a + b)),
    }
    by_a, by_b = (_each(a, len(codes[b])) if both else _none(0, a)), _each(b, len(codes[a]))
    blocks = {
        "A": (np.tile(codes[a], (b, 1)), by_a, _none(d, a), dense["A"]),
        "B": (by_b, np.tile(codes[b], (len(by_a) // len(codes[b]), 1)), _none(d, b), dense["B"]),
        "C": (_none(len(by_b), d), _none(len(by_a), d), _each(d, 1), dense["C"]),
    }
    counts = [len(block) for block in blocks["C"]]
    total = sum(counts)
    images = {role: np.concatenate(parts) for role, parts in blocks.items()}
    if inst.kind == "sp":
        images["E"] = np.broadcast_to(BASE, (total, BASE.size))
    out = _products(inst, images, run)
    of_b, of_a, of_c, products = np.split(out, np.cumsum(counts)[:-1])
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
    return Measurement(total, tables)


def _products(inst: MmaInst, images: Mapping[str, Image], run: Run) -> Ints:
    """Run experiments: role -> (experiment, place); return D's places, integers."""
    total = len(images["A"])
    steps = -(-total // WARPS)
    body = product_body(inst, steps)
    given = {}
    for role, image in images.items():
        buffer = body.buffer(f"{role}_image")
        rest = np.broadcast_to(image[:1], (steps * WARPS - total, image.shape[1]))
        values = np.concatenate([image, rest]).reshape(buffer.shape)
        given[buffer.name] = values.astype(buffer.dtype.numpy)
    shown = run(body, "probe", given)["D_image"].reshape(steps * WARPS, -1)
    return as_integers(shown)[:total]


def measure_sparse(inst: MmaInst, run: Run) -> Measurement:
    """Measure a sparse mma: its products, and which slot of E places which slot of A.

    Each slot of E in turn goes one further than column 0 or 2 of its chunk. Against a B that is
    zero where A was met before, A of ones and of binary digits shows which place of A moved; B of
    binary digits shows where to. Random positions and integers must then be predicted exactly.

    Raises:
        ProbeError: the machine shows what no such instruction can show.
    """
    found = measure_product(inst, run)
    relation = found.tables["products"]
    a, b = relation.shape
    d = len(found.tables["accumulator"])
    unmet = ((relation == NOWHERE).all(axis=0)).astype(np.int8)
    places = BASE.size
    a_codes, b_codes = _codes(a), _codes(b) * unmet
    further = np.repeat(BASE[None] + np.eye(places, dtype=np.int8), len(a_codes) + len(b_codes), 0)
    experiments = len(further)
    one_b = np.broadcast_to(unmet, (len(a_codes), b))
    one_a = np.ones((len(b_codes), a), dtype=np.int8)
    images = {
        "A": np.tile(np.concatenate([a_codes, one_a]), (places, 1)),
        "B": np.tile(np.concatenate([one_b, b_codes]), (places, 1)),
        "C": _none(experiments, d),
        "E": further,
    }
    out = _products(inst, images, run).reshape(places, -1, d)
    positions = np.full(places, NOWHERE, dtype=np.int64)
    moved = np.full_like(relation, NOWHERE)
    a_weights, b_weights = (1 << np.arange(len(codes) - 1) for codes in (a_codes, b_codes))
    for e in range(places):
        landing = np.flatnonzero(out[e, 0])
        if not landing.size:
            continue
        which = (out[e, 1 : len(a_codes), landing] * a_weights).sum(axis=1)
        if (out[e, 0, landing] != 1).any() or (which != which[0]).any():
            raise ProbeError(f"probe: slot {e % 16} of E in lane {e // 16} moves several of A")
        where = (out[e, len(a_codes) + 1 :, landing] * b_weights).sum(axis=1)
        positions[e] = which[0]
        moved[which[0], where] = landing
    _check_sparse(inst, relation, moved, positions, run)
    tables = {**found.tables, "products moved": moved, "positions": positions}
    total = found.experiments + experiments + RANDOM
    return Measurement(total, tables)


def _check_sparse(inst: MmaInst, relation: Ints, moved: Ints, positions: Ints, run: Run) -> None:
    """Refuse tables that do not predict random positions and integers."""
    a, b = relation.shape
    d = WARP * inst.fragment("D").slots
    chosen = small_integers((RANDOM, BASE.size // 2), inst.a, 12345).astype(np.int64) % len(PAIRS)
    images = {
        "A": small_integers((RANDOM, a), inst.a, 1),
        "B": small_integers((RANDOM, b), inst.b, RANDOM * a),
        "C": _none(RANDOM, d),
        "E": PAIRS[chosen].reshape(RANDOM, -1).astype(np.int8),
    }
    out = _products(inst, images, run)
    want = np.zeros_like(out)
    read = np.flatnonzero(positions != NOWHERE).reshape(-1, 2)  # first and second of each chunk
    for first, second in positions[read]:
        # B's places of the chunk's four columns: where each of the two is, and one further
        columns = (relation[first], moved[first], relation[second], moved[second])
        at = [np.flatnonzero(column != NOWHERE) for column in columns]
        landing = [column[j] for column, j in zip(columns, at, strict=True)]
        for row in range(RANDOM):
            for place in (first, second):
                value = images["E"][row, np.flatnonzero(positions == place)[0]]
                products = images["A"][row, place].astype(np.int64) * images["B"][row, at[value]]
                np.add.at(want[row], landing[value], products)
    check_predicted(want, out, "the tables found predict", " at random positions")


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
    rest = "; the instruction is no sum of the products found"
    check_predicted(want, out, "the relation found predicts", rest)


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
    cells = out.reshape(len(out), -1).astype(np.int64)
    table = _matrix_table(cells, ptx.ldmatrix(count, trans).text)
    return Measurement(len(out), {"received": table})


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
    return Measurement(len(out), {"stored": _matrix_table(cells, text)})


def measure_move(run: Run) -> Measurement:
    """Measure ``movmatrix``: every slot of the source holds its place's number."""
    given = {"labels": np.arange(WARP * 2).reshape(WARP, 2).astype(np.float16)}
    out = run(move_body(), "probe", given)["out"].reshape(-1).astype(np.int64)
    moved = np.stack([out // 2, out % 2], axis=-1)
    return Measurement(1, {"moved": moved})
