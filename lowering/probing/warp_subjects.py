"""Subjects of one warp: mma, ldmatrix, stmatrix and movmatrix, compared with their fragments.

What can be seen:

- An mma: which place of A meets which place of B, and in which place of D the product lands. That
  is the three fragments up to one common relabelling of M, one of N and one of K, and no more.
- ``ldmatrix``, ``stmatrix``, ``movmatrix``: everything, against addresses. They tie the labels of a
  16-bit mma to memory.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import numpy as np

from layoutalg import LayoutError, TileLayout
from layoutalg import fragments as table
from layoutalg.algebra.axis import WARP
from layoutalg.fragments import Fragment
from lowering.isa import ptx
from lowering.isa.mma import MMA_EXTENDED, MMA_FAMILY, MMA_INSTRUCTIONS, MmaInst
from lowering.probing.claims import Claim, claimed_tables, words_of, wrong_claims
from lowering.probing.mma import (
    RANDOM,
    in_both_orders,
    measure_load,
    measure_move,
    measure_product,
    measure_sparse,
    measure_store,
)
from lowering.probing.raw import NOWHERE, Ints, Measurement, ProbeError, Run
from lowering.probing.subject import Conclusion, Subject

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

    >>> from lowering.probing.claims import claimed_products
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


# -- subjects -------------------------------------------------------------------------------------


def names() -> tuple[str, ...]:
    """Return the instructions that are probed together; :func:`family` names more.

    >>> names()[1], names()[-1]
    ('mma.m16n8k16.f16', 'movmatrix.m8n8.trans.b16')
    """
    verbs = ("ldmatrix.m8n8", "stmatrix.m8n8", "movmatrix.m8n8")
    matrices = [name for name in table.names() if name.startswith(verbs)]
    return (*map(str, MMA_INSTRUCTIONS), *matrices)


def family() -> tuple[str, ...]:
    """Return every mma that can be probed: all but b1 xor and the block-scaled.

    >>> family()[1], family()[-1]
    ('mma.m16n8k16.f16 f16', 'mma.sp.m16n8k16.bf16')
    """
    rows = (*MMA_FAMILY, *MMA_EXTENDED)
    return tuple(str(row) for row in rows if row.modifier != "xor" and "SFA" not in row.extras)


def _mma(instruction: str) -> MmaInst | None:
    return next((row for row in (*MMA_FAMILY, *MMA_EXTENDED) if str(row) == instruction), None)


def _operands(instruction: str) -> tuple[Fragment, ...]:
    """Return the operands of an instruction that can be probed, in the order of the claims."""
    row = _mma(instruction)
    if row is not None:
        return tuple(row.fragment(role) for role in ("A", "B", "D", *row.extras))
    if instruction not in names():
        raise LayoutError(
            f"probe: no instruction is named {instruction!r}; known: {', '.join(names())}, and the "
            "other mma of the fragment table but the block-scaled"
        )
    return table.rows(instruction)


def _measured(instruction: str) -> tuple[str, Callable[[Run], Measurement]]:
    """Return the PTX of an instruction, and what measures it."""
    row = _mma(instruction)
    if row is not None:
        measure = measure_sparse if row.kind == "sp" else measure_product
        return ptx.mma(row).text, lambda run: measure(row, run)
    parts = instruction.split(".")
    if parts[0] == "movmatrix":
        return ptx.movmatrix().text, measure_move
    count, trans = int(parts[2][1:]), "trans" in parts
    if parts[0] == "ldmatrix":
        return ptx.ldmatrix(count, trans).text, lambda run: measure_load(count, trans, run)
    return ptx.stmatrix(count, trans).text, lambda run: measure_store(count, trans, run)


def _role(fragment: Fragment) -> str:
    return {"C/D": "D"}.get(fragment.operand.split(".")[0], fragment.operand.split(".")[0])


def warp_subject(instruction: str, layouts: Mapping[str, TileLayout]) -> Subject:
    """Return an instruction of one warp with the claims of its fragments.

    Args:
        instruction: one of :func:`names` or :func:`family`.
        layouts: operand ("A", "B", "D", "dst", "src") -> layout over laneid and m, claimed in place
            of the fragment's own.

    Raises:
        LayoutError: no such instruction or operand, or a layout of another size.
    """
    by_role = {_role(fragment): fragment for fragment in _operands(instruction)}
    if not set(layouts) <= set(by_role):
        raise LayoutError(
            f"probe: {instruction} has the operands {', '.join(by_role)}; got {', '.join(layouts)}"
        )
    own = {role: Claim.of(fragment) for role, fragment in by_role.items()}
    given = {role: Claim.of(by_role[role], layout) for role, layout in layouts.items()}
    slots = {role: fragment.slots for role, fragment in by_role.items()}
    text, measure = _measured(instruction)
    return Subject(
        text,
        {role: str(layouts.get(role, fragment.layout)) for role, fragment in by_role.items()},
        measure,
        claimed_tables(instruction, own | given),
        {
            f"{role}: {name}": claimed_tables(instruction, own | {role: wrong})
            for role in (next(iter(by_role)), *({"E"} & set(by_role)))
            for name, wrong in wrong_claims(by_role[role]).items()
        },
        words_of(slots),
        lambda found, run: _conclude(instruction, found, slots, run),
    )


def rows_text(values: Ints, slots: int) -> tuple[str, ...]:
    """Return a table of pairs as text: one row per lane."""
    pairs = [":".join(map(str, pair)) for pair in values.reshape(-1, 2).tolist()]
    return tuple(" ".join(pairs[at : at + slots]) for at in range(0, len(pairs), slots))


def _conclude(
    instruction: str, measurement: Measurement, slots: Mapping[str, int], run: Run
) -> Conclusion:
    """Return what was measured, what is convention, and the tables as text."""
    inst = _mma(instruction)
    if inst is None:
        ((key, values),) = measurement.tables.items()
        width = list(slots.values())[-1]
        if key == "moved":
            return Conclusion(
                ("everything: which slot of which lane comes out in each lane and slot",),
                ("that the source is laid out as ldmatrix gives it; then its transpose comes out",),
                {key: rows_text(values, width)},
            )
        where = "the lane whose address gives the row, and the column"
        return Conclusion(
            (
                f"everything: for each lane and slot {where}, with the addresses in "
                f"{measurement.experiments} orders",
            ),
            ("none: addresses are memory",),
            {key: rows_text(values, width)},
        )
    relation = measurement.tables["products"]
    met = (relation != NOWHERE).any(axis=0)
    found = labels(relation[:, met], WARP * slots["D"])
    every = np.full((relation.shape[1], 2), NOWHERE, dtype=np.int64)
    every[met] = found["B"]
    found["B"] = every
    measured = [
        "which A slot meets which B slot, and in which D slot the product lands: "
        f"{relation.size} pairs, {'A and B' if in_both_orders(inst) else 'B'} slot by slot",
        f"D starts from C, slot by slot; {RANDOM} products of random integers are exact",
    ]
    convention = [
        f"which numbers the {inst.m} rows, {inst.n} columns and {inst.k} k have: a permutation "
        "common to A and D, to B and D, or to A and B shows in no product"
    ]
    if inst.kind == "sp":
        measured.append(
            "which slot of E, in which lane, places which slot of A, and in which B slot it meets "
            f"then; {RANDOM} products of random integers at random positions are exact"
        )
    if inst in MMA_FAMILY and inst.a.bits == inst.b.bits == 16:
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
    rows = {role: rows_text(values, slots[role]) for role, values in found.items()}
    return Conclusion(tuple(measured), tuple(convention), rows)
