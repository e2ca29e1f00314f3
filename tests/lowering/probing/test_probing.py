"""Probing: what a machine shows, what it cannot show, and which claims it refutes."""

from __future__ import annotations

import dataclasses
import json
import shutil
import subprocess
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from click.testing import CliRunner

from layoutalg import Axis, Iter, LayoutError, TileLayout, fragments, laneid, m, parse
from lowering.cli.main import main
from lowering.codegen import numba_cuda
from lowering.ir.kernel_ir import KernelIR
from lowering.ir.ops import LoadMatrix, Loop, Mma, Op, Registers, StoreMatrix
from lowering.isa import nvjitlink
from lowering.isa.mma import MMA_FAMILY, MMA_INSTRUCTIONS, MmaInst
from lowering.probing import mma, prober
from lowering.probing.claims import (
    TWICE,
    Claim,
    claimed_products,
    words_of,
    wrong_claims,
)
from lowering.probing.mma import (
    in_both_orders,
    load_body,
    measure_load,
    measure_move,
    measure_product,
    measure_store,
    product_body,
)
from lowering.probing.prober import probe
from lowering.probing.raw import NOWHERE, ProbeError, Run, simulator
from lowering.probing.record import ProbeRecord, digest, from_json, to_json
from lowering.probing.subject import first_difference
from lowering.probing.warp_subjects import family, is_tied, labels, memory_labels, names
from lowering.verification.checker import swap_a
from tests.support.paths import HARDWARE

K16, K8 = MMA_INSTRUCTIONS[1], MMA_INSTRUCTIONS[3]
Array = npt.NDArray[Any]
Change = Callable[[Mma], Mma]


# -- the ISA's own formulas, written here again ---------------------------------------------------


def isa_products(k: int) -> Array:
    """Return (A place, B place) -> D place of m16n8k{k} with 16-bit inputs, by the PTX ISA.

    a_i: row g for 0 <= i < 2 and 4 <= i < 6, else g + 8; col 2t + (i & 1), + 8 for i >= 4.
    b_i: row 2t + (i & 1), + 8 for i >= 2; col g. c_i: row g for i < 2 else g + 8; col 2t + (i & 1).
    """
    lanes = range(32)
    a, b, d = k // 2, k // 4, 4
    found = np.full((32 * a, 32 * b), -1)
    where = {}
    for lane in lanes:
        for i in range(d):
            row = lane // 4 + (0 if i < 2 else 8)
            where[row, 2 * (lane % 4) + (i & 1)] = lane * d + i
    for la in lanes:
        for i in range(a):
            row = la // 4 + (0 if i < 2 or 4 <= i < 6 else 8)
            col = 2 * (la % 4) + (i & 1) + (8 if i >= 4 else 0)
            for lb in lanes:
                for j in range(b):
                    if 2 * (lb % 4) + (j & 1) + (8 if j >= 2 else 0) == col:
                        found[la * a + i, lb * b + j] = where[row, lb // 4]
    return found


def isa_rows(count: int, trans: bool) -> Array:
    """Return (address lane, column) of each place of ldmatrix and stmatrix, by the PTX ISA."""
    found = np.empty((32 * 2 * count, 2), dtype=int)
    for lane in range(32):
        for j in range(count):
            for p in range(2):
                row, col = lane // 4, 2 * (lane % 4) + p
                if trans:
                    row, col = col, row
                found[lane * 2 * count + 2 * j + p] = 8 * j + row, col
    return found


@pytest.mark.parametrize("inst", [K16, K8], ids=str)
def test_the_simulator_shows_the_isa_s_relation(inst: MmaInst) -> None:
    found = measure_product(inst, simulator)
    assert np.array_equal(found.tables["products"], isa_products(inst.k))
    assert np.array_equal(found.tables["accumulator"], np.arange(128))
    assert (
        found.experiments
        == {16: 256 * 8 + 128 * 9 + 128 + 32, 8: 128 * 7 + 64 * 8 + 128 + 32}[inst.k]
    )


@pytest.mark.parametrize("trans", [False, True])
@pytest.mark.parametrize("count", [1, 2, 4])
def test_the_simulator_shows_the_isa_s_rows(count: int, trans: bool) -> None:
    want = isa_rows(count, trans)
    assert np.array_equal(measure_load(count, trans, simulator).tables["received"], want)
    assert np.array_equal(measure_store(count, trans, simulator).tables["stored"], want)


@pytest.mark.parametrize("name", names())
def test_every_instruction_agrees_with_its_fragments(name: str) -> None:
    certificate = probe(name, "simulator")
    assert certificate.verdict == "agrees"
    assert len(certificate.refuted) == 3
    assert all(certificate.refuted.values())
    operands = {"mma": "A B D", "ldmatrix": "dst", "stmatrix": "src", "movmatrix": "src dst"}
    assert set(certificate.claims) == set(operands[name.split(".")[0]].split())


SMALL = (
    "mma.m16n8k8.f16 f16", "mma.m16n8k4.tf32", "mma.m8n8k16.s8.u8 satfinite", "mma.m16n8k16.u8.s8",
    "mma.m16n8k16.e4m3.e5m2 f16", "mma.m8n8k4.f64", "mma.m8n8k32.u4.s4",
)  # fmt: skip


@pytest.mark.parametrize("name", SMALL)
def test_the_rest_of_the_family_can_be_probed(name: str) -> None:
    certificate = probe(name, "simulator")
    assert certificate.verdict == "agrees"
    assert certificate.measured[0].endswith("A and B slot by slot")
    tied = name == "mma.m16n8k8.f16 f16"  # ldmatrix moves 16-bit elements
    assert certificate.convention[0].startswith("which numbers the ") is not tied


def test_where_a_has_very_many_places_b_s_are_taken_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    by_name = {str(row): row for row in MMA_FAMILY}
    assert not in_both_orders(by_name["mma.m16n8k256.b1 and"])
    assert in_both_orders(by_name["mma.m16n8k64.s4"])
    monkeypatch.setattr(mma, "LARGE", 1000)
    certificate = probe(K8.name, "simulator")
    assert certificate.verdict == "agrees"
    assert certificate.experiments == 64 * 8 + 128 + 32
    assert certificate.measured[0].endswith("8192 pairs, B slot by slot")


def test_counts_of_unequal_bits_are_no_products() -> None:
    with pytest.raises(LayoutError, match=r"probe: mma\.m8n8k128\.b1 xor counts bits"):
        probe("mma.m8n8k128.b1 xor", "simulator")
    assert not [name for name in family() if "xor" in name]


def test_the_names_are_those_of_the_fragment_table() -> None:
    assert set(names()) <= set(fragments.names())
    assert len(names()) == len(MMA_INSTRUCTIONS) + 13


def test_the_simulator_transposes_in_registers() -> None:
    """Lane 4g+t of the source holds row g, columns 2t and 2t+1; the result's rows are columns."""
    found = measure_move(simulator).tables["moved"]
    for lane in range(32):
        for p in range(2):
            row, col = 2 * (lane % 4) + p, lane // 4  # of the source
            assert found[lane * 2 + p].tolist() == [4 * row + col // 2, col % 2]


def test_a_machine_that_does_not_transpose_is_seen() -> None:
    def copy(out: Array) -> Array:
        return np.arange(64).reshape(out.shape).astype(out.dtype)

    certificate = probe("movmatrix.m8n8.trans.b16", "simulator", run=after("out", copy))
    assert certificate.difference == (
        "lane 0 slot 1: the machine has what slot 1 of lane 0 holds, the claim what slot 0 of lane "
        "4 holds; 56 of 64 places differ"
    )


def test_blocks_of_a_transposed_operand_change_places() -> None:
    """movmatrix on a0..a3 transposes the four blocks; a1 and a2 must trade places besides."""
    element = np.moveaxis(K16.fragment("A").coords, -1, 0)  # (row, col) of each lane and slot
    moved = measure_move(simulator).tables["moved"].reshape(32, 2, 2)
    lane, slot = moved[..., 0], moved[..., 1]
    blocks = element.reshape(2, 32, 4, 2)
    moved_blocks = {
        order: np.stack([blocks[:, lane, register, slot] for register in order], axis=2)
        for order in ((0, 1, 2, 3), (0, 2, 1, 3))
    }
    assert np.array_equal(moved_blocks[0, 2, 1, 3], blocks[::-1])
    assert not np.array_equal(moved_blocks[0, 1, 2, 3], blocks[::-1])


# -- machines that are wrong ----------------------------------------------------------------------


def machine(change: Callable[[Op], Op]) -> Run:
    """Return a simulator whose instructions are changed."""

    def changed(op: Op) -> Op:
        return (
            dataclasses.replace(op, body=tuple(map(changed, op.body)))
            if isinstance(op, Loop)
            else change(op)
        )

    def run(body: KernelIR, name: str, matrices: Mapping[str, Array]) -> Mapping[str, Array]:
        return simulator(
            dataclasses.replace(body, ops=tuple(map(changed, body.ops))), name, matrices
        )

    return run


def of_mma(change: Change) -> Run:
    return machine(lambda op: change(op) if isinstance(op, Mma) else op)


def reversed_k(op: Mma) -> Mma:
    a = Registers("A", (4, 5, 6, 7, 0, 1, 2, 3))
    return dataclasses.replace(op, a=a, b=Registers("B", (2, 3, 0, 1)))


def test_a_machine_that_exchanges_a1_and_a2_is_seen() -> None:
    certificate = probe(K16.name, "simulator", run=of_mma(swap_a))
    assert not certificate.agrees
    assert certificate.difference is not None
    assert certificate.difference.startswith(
        "A lane 0 slot 2 with B lane 0 slot 0: the machine multiplies nothing, the claim adds to D "
        "lane 0 slot 2; 2048 of 32768 pairs differ"
    )
    # What is known to be wrong is that machine's truth.
    assert certificate.refuted["A: registers 1 and 2 exchanged"] is None
    assert certificate.verdict == f"REFUTED: {certificate.difference}"
    believed = dataclasses.replace(certificate, difference=None)
    assert believed.vacuous
    assert believed.verdict == "VACUOUS: does not refute A: registers 1 and 2 exchanged"


def test_a_machine_that_exchanges_rows_of_d_is_seen() -> None:
    """Its A and D are relabelled apart: rows of A land in other rows of D."""

    def swap(op: Mma) -> Mma:
        return dataclasses.replace(op, d=Registers("D", (2, 3, 0, 1)))

    certificate = probe(K16.name, "simulator", run=of_mma(swap))
    assert not certificate.agrees
    assert all(certificate.refuted.values())
    assert certificate.verdict.startswith(
        "REFUTED: A lane 0 slot 0 with B lane 0 slot 0: the machine"
    )


def test_a_machine_that_permutes_k_in_both_operands_cannot_be_seen() -> None:
    """It is the same map from registers to registers: only the names of k differ."""
    run = of_mma(reversed_k)
    found = measure_product(K16, run)
    assert np.array_equal(found.tables["products"], isa_products(16))
    certificate = probe(K16.name, "simulator", run=run)
    assert certificate.agrees


def test_a_machine_that_loads_other_rows_is_seen() -> None:
    def swap(op: Op) -> Op:
        if isinstance(op, LoadMatrix):
            return dataclasses.replace(op, into=Registers("held", (0, 1, 4, 5, 2, 3, 6, 7)))
        if isinstance(op, StoreMatrix):
            return dataclasses.replace(op, source=Registers("held", (0, 1, 4, 5, 2, 3, 6, 7)))
        return op

    for verb, place in (("ldmatrix", "received"), ("stmatrix", "stored")):
        certificate = probe(f"{verb}.m8n8.x4.b16", "simulator", run=machine(swap))
        assert certificate.difference == (
            "lane 0 slot 2: the machine has column 0 of the row of lane 16, the claim column 0 of "
            "the row of lane 8; 128 of 256 places differ"
        )
        assert list(certificate.tables) == [place]
        assert next(iter(certificate.refuted.values())) is None


def after(name: str, change: Callable[[Array], Array]) -> Run:
    """Return a simulator whose result is changed."""

    def run(body: KernelIR, kernel: str, matrices: Mapping[str, Array]) -> Mapping[str, Array]:
        out = dict(simulator(body, kernel, matrices))
        out[name] = change(out[name].copy())
        return out

    return run


def twice(out: Array) -> Array:
    out[0, 0, 0] = 2
    return out


def nonlinear(out: Array) -> Array:
    return np.where(np.abs(out) > 2, 0, out)


def fractions(out: Array) -> Array:
    return out * 0.5


def nothing(out: Array) -> Array:
    return out * np.nan


def everything(out: Array) -> Array:
    return np.ones_like(out)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (twice, r"B lane 0 slot 0 alone, against ones, must give 0 or 1; D lane 0 slot 0 shows 2"),
        (nonlinear, r"predicts \d+ of 32 products of random integers"),
        (fractions, r"must be integers; D shows others"),
        (nothing, r"must be integers; D shows others"),
        (everything, r"a pair of B and the other operand lands in two places of D"),
    ],
)
def test_what_no_mma_can_show_is_an_error(change: Callable[[Array], Array], message: str) -> None:
    with pytest.raises(ProbeError, match=message):
        probe(K8.name, "simulator", run=after("D_image", change))


def test_the_two_orders_must_agree() -> None:
    """A machine for which B's places one by one show another relation than A's."""
    first = 64 * 8  # experiments in which B is one-hot

    def exchange(out: Array) -> Array:
        flat = out.reshape(-1, 128)
        flat[first : first + 128 * 7] = flat[first : first + 128 * 7, ::-1]
        return out

    with pytest.raises(ProbeError, match="show different relations"):
        measure_product(K8, after("D_image", exchange))


def test_a_matrix_load_must_follow_its_addresses() -> None:
    def constant(out: Array) -> Array:
        out[:] = out[0]
        return out

    with pytest.raises(ProbeError, match=r"ldmatrix.* follows its addresses differently"):
        measure_load(2, False, after("out", constant))
    with pytest.raises(ProbeError, match=r"stmatrix.* must store each of 128 slots once"):
        measure_store(2, False, after("out", lambda out: np.full_like(out, NOWHERE)))


# -- claims that are wrong, and claims that nothing can refute ------------------------------------


def test_known_wrong_claims_are_refuted_at_their_first_slot() -> None:
    refuted = probe(K16.name, "simulator").refuted
    assert [str(place).split(":")[0] for place in refuted.values()] == [
        "A lane 0 slot 2 with B lane 0 slot 0",
        "A lane 2 slot 0 with B lane 0 slot 0",
        "A lane 0 slot 0 with B lane 0 slot 0",
    ]
    assert list(refuted) == [
        "A: registers 1 and 2 exchanged",
        "A: stride of the groups halved",
        "A: lanes shifted by one",
    ]


def remade(layout: TileLayout, change: Callable[[Iter], Iter], **offset: int) -> TileLayout:
    offsets: dict[Axis | str, Any] = {name: value for name, value in offset.items()}  # noqa: C416 - other keys
    return TileLayout.from_iters([change(it) for it in layout.shard], (), offsets)


def strides(layout: TileLayout, axis: Any, other: dict[int, int]) -> TileLayout:
    """Return a layout with strides on an axis replaced."""

    def change(it: Iter) -> Iter:
        stride = other.get(int(it.stride), it.stride) if it.axis is axis else it.stride
        return Iter(it.extent, stride, it.axis)

    return remade(layout, change)


@pytest.mark.slow
@pytest.mark.parametrize("role", ["A", "B", "D"])
def test_a_claim_wrong_in_one_operand_is_refuted(role: str) -> None:
    layout = K16.fragment(role).layout
    wrong = {
        "half stride": strides(layout, laneid, {4: 2}),
        "lanes reversed": remade(
            layout,
            lambda it: Iter(it.extent, -it.stride, it.axis) if it.axis is laneid else it,
            laneid=31,
        ),
        "registers": strides(layout, m, {2: 1, 1: 2} if role == "D" else {2: 4, 4: 2, 1: 1}),
    }
    if role == "B":
        wrong["registers"] = strides(layout, m, {2: 1, 1: 2})
    for name, claim in wrong.items():
        certificate = probe(K16.name, "simulator", {role: claim})
        assert certificate.verdict.startswith("REFUTED: A lane "), name
        assert certificate.claims[role] == str(claim)


def test_a_permutation_common_to_two_operands_is_not_refuted() -> None:
    """Rows in A and D, columns in B and D, k in A and B: what the certificate calls convention."""
    a, b, d = (K16.fragment(role).layout for role in "ABD")
    common = {
        "k": {"A": strides(a, m, {4: 1, 1: 4}), "B": strides(b, m, {2: 1, 1: 2})},
        "rows": {"A": strides(a, laneid, {4: 4}), "D": d},
    }
    for claims in common.values():
        assert probe(K16.name, "simulator", claims).agrees
    for role, claim in common["k"].items():
        assert not probe(K16.name, "simulator", {role: claim}).agrees
    flipped = {
        "A": remade(
            a, lambda it: Iter(it.extent, -2, m) if (it.axis, it.stride) == (m, 2) else it, m=2
        ),
        "D": remade(
            d, lambda it: Iter(it.extent, -2, m) if (it.axis, it.stride) == (m, 2) else it, m=2
        ),
    }
    assert probe(K16.name, "simulator", flipped).agrees
    assert not probe(K16.name, "simulator", {"A": flipped["A"]}).agrees


def test_the_f16_map_is_not_the_tf32_map() -> None:
    """m16n8k8 exists for f16 and for tf32, with different maps."""
    tf32 = fragments.get("mma.m16n8k8.tf32", "A").layout
    f16 = fragments.get("mma.m16n8k8.f16", "A").layout
    assert probe(K8.name, "simulator", {"A": f16}).agrees
    assert not probe(K8.name, "simulator", {"A": tf32}).agrees


def test_bad_claims_are_refused() -> None:
    for claims, message in (
        (
            {"E": K16.fragment("A").layout},
            "probe: mma.m16n8k16.f16 has the operands A, B, D; got E",
        ),
        (
            {"A": parse("S[(16,8):(1@laneid,1)]")},
            r"probe: operand A of mma.m16n8k16.f16 has 256 elements",
        ),
        ({"A": parse("S[(16,16):(1@warpid,1)]")}, r"lies on the axes laneid and m; .* is on "),
    ):
        with pytest.raises(LayoutError, match=message):
            probe(K16.name, "simulator", claims)
    with pytest.raises(LayoutError, match=r"probe: no instruction is named 'mma'; known: mma\.m16"):
        probe("mma", "simulator")
    with pytest.raises(LayoutError, match="probe: the machine must be 'device' or 'simulator'"):
        probe(K16.name, "gpu")


def test_claims_of_places() -> None:
    fragment = fragments.get("ldmatrix.m8n8.x1.b16", "dst")
    claim = Claim.of(fragment)
    assert claim.elements()[5].tolist() == [0, 5]
    shifted = wrong_claims(fragment)["lanes shifted by one"].elements()
    assert shifted[:3].tolist() == [[NOWHERE] * 2, [NOWHERE] * 2, [0, 0]]
    halved = wrong_claims(fragment)["stride of the groups halved"].elements()
    assert halved[4].tolist() == [TWICE] * 2
    a, b, d = (Claim.of(K8.fragment(role)) for role in "ABD")
    both = claimed_products(a, b, dataclasses.replace(d, places=d.places // 2 * 2))
    assert not (both == TWICE).any()
    folded = a.moved(lambda lane, slot: (lane % 16, slot))
    assert (claimed_products(folded, b, d) == TWICE).any()


def test_the_accumulator_is_compared_too() -> None:
    seen = {"accumulator": np.arange(128)}
    said = {"accumulator": np.arange(128)[::-1]}
    assert first_difference(seen, said, words_of({"A": 4, "B": 2, "D": 4})) == (
        "lane 0 slot 0: the machine has what place 0 of C holds, the claim what place 127 of C "
        "holds; 128 of 128 places differ"
    )
    assert first_difference(seen, seen, words_of({"D": 4})) is None


# -- labels and memory ----------------------------------------------------------------------------


def test_labels_follow_from_the_relation_alone() -> None:
    found = labels(isa_products(16), 128)
    coords = {role: K16.fragment(role).coords.reshape(-1, 2) for role in "ABD"}
    # One relabelling per dimension turns them into the ISA's numbers, for all operands at once.
    numbers: dict[str, dict[int, int]] = {"M": {}, "N": {}, "K": {}}
    for role, dims in (("A", "MK"), ("B", "KN"), ("D", "MN")):
        for at, dim in enumerate(dims):
            for label, number in zip(found[role][:, at], coords[role][:, at], strict=True):
                assert numbers[dim].setdefault(int(label), int(number)) == number
    assert {dim: len(set(each.values())) for dim, each in numbers.items()} == {
        "M": 16,
        "N": 8,
        "K": 16,
    }


def test_a_relation_of_no_product_has_no_labels() -> None:
    relation = isa_products(8)
    relation[0, 0] = relation[0, 0] + 1
    with pytest.raises(ProbeError, match="not the relation of a matrix product"):
        labels(relation, 128)


@pytest.mark.parametrize("inst", [K16, K8], ids=str)
def test_ldmatrix_ties_the_labels_to_memory(inst: MmaInst) -> None:
    memory = memory_labels(inst, simulator)
    for role in "AB":
        assert np.array_equal(memory[role], inst.fragment(role).coords.reshape(-1, 2))
    relation = isa_products(inst.k)
    assert is_tied(relation, memory)
    assert not is_tied(relation, {**memory, "B": memory["B"][::-1]})
    rows = memory["A"].copy()
    rows[:, 0] //= 2
    assert not is_tied(relation, {**memory, "A": rows})


def test_labels_that_are_not_tied_are_called_convention() -> None:
    def swap(op: Op) -> Op:
        if isinstance(op, LoadMatrix) and not op.trans:
            numbers = op.into.numbers
            return dataclasses.replace(op, into=Registers("held", numbers[2:] + numbers[:2]))
        return op

    tied = probe(K16.name, "simulator")
    assert any("ldmatrix" in text for text in tied.measured)
    assert tied.convention[0].startswith("the order of the addresses")
    loose = probe(K16.name, "simulator", run=machine(swap))
    assert not any("ldmatrix" in text for text in loose.measured)
    assert loose.convention[0].startswith("which numbers the 16 rows, 8 columns and 16 k have")


# -- certificates ---------------------------------------------------------------------------------


def test_a_certificate_survives_json() -> None:
    certificates = [probe(name, "simulator") for name in (K8.name, "stmatrix.m8n8.x2.trans.b16")]
    assert from_json(to_json(certificates)) == tuple(certificates)
    for text in ("", "[]]", '[{"instruction": "mma"}]', "[1]"):
        with pytest.raises(LayoutError, match="certificates: the text holds none"):
            from_json(text)


def test_a_simulation_is_never_presented_as_hardware() -> None:
    certificate = probe("ldmatrix.m8n8.x4.b16", "simulator")
    assert not certificate.is_hardware
    assert (certificate.device, certificate.driver) == ("NumPy warp", "none")
    assert "SIMULATION on the NumPy warp: no hardware was asked" in certificate.report()
    real = dataclasses.replace(certificate, machine="device", device="NVIDIA H200", driver="580")
    assert "SIMULATION" not in real.report()
    assert f"NVIDIA H200, driver 580, {real.date}" in real.report()


def test_a_digest_sees_every_entry_the_shape_and_the_name() -> None:
    values = np.arange(6).reshape(3, 2)
    other = values.copy()
    other[2, 1] = -1
    same = digest("a", values.astype(np.int8))
    assert digest("a", values) == same
    assert len({same, digest("a", other), digest("b", values), digest("a", values.T)}) == 4


def test_the_device_is_named_by_nvidia_smi(monkeypatch: pytest.MonkeyPatch) -> None:
    def answer(command: list[str], **_: Any) -> Any:
        assert command[0] == "/bin/nvidia-smi"
        return type("Done", (), {"stdout": "NVIDIA H200, 580.159.04\nNVIDIA H200, 580.159.04\n"})

    monkeypatch.setattr(shutil, "which", lambda name: f"/bin/{name}")
    monkeypatch.setattr(subprocess, "run", answer)
    assert prober.machine_names("device") == ("NVIDIA H200", "580.159.04")
    monkeypatch.setattr(shutil, "which", lambda name: None)
    assert prober.machine_names("device")[1] == "unknown"


def test_the_raw_kernels_assemble() -> None:
    """For the device that will run them; no layout of an instruction is in them."""
    body = product_body(K16, 64)
    assert {str(buffer.layout) for buffer in body.registers} == {
        "S[(1024,8):(1@tx,1)]", "S[(1024,4):(1@tx,1)]",
    }  # fmt: skip
    text = numba_cuda.compile_ptx(body, "probe", "sm_90")
    assert K16.ptx in text
    assert nvjitlink.assemble(text, "sm_90")
    text = numba_cuda.compile_ptx(load_body(4, True), "probe", "sm_90")
    assert text.count("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16") == 4


def test_the_command(tmp_path: Path) -> None:
    run = CliRunner().invoke
    assert run(main, ["probe"]).stdout.split() == list(names())
    listed = run(main, ["probe", "--family"]).stdout.splitlines()
    assert set(listed) == set(prober.names(family=True))
    path = tmp_path / "certificate.json"
    done = run(main, ["probe", "ldmatrix.m8n8.x1.b16", "--machine", "simulator", "-o", str(path)])
    assert done.exit_code == 0, done.output
    assert done.stdout.splitlines()[-1] == "  agrees"
    (certificate,) = from_json(path.read_text())
    assert certificate.instruction == "ldmatrix.m8n8.x1.b16"
    assert done.stdout.rstrip() == certificate.report()
    wrong = ["probe", K8.name, "--machine", "simulator", "--layout"]
    refuted = run(main, [*wrong, "A=S[(2,8,4,2):(2,1@laneid,8@laneid,1)]"])
    assert refuted.exit_code == 1
    assert refuted.stdout.splitlines()[-1].startswith("  REFUTED: A lane ")
    bad = run(main, [*wrong, "A"])
    assert (bad.exit_code, bad.stdout) == (2, "")
    assert bad.stderr == "layoutalg: --layout: must look like NAME=VALUE; got 'A'\n"


RECORDS = sorted(HARDWARE.glob("*_probe.json"))


@pytest.mark.slow
@pytest.mark.skipif(not RECORDS, reason="no device has been probed yet")
def test_what_a_device_showed_is_what_our_layouts_say() -> None:
    for path in RECORDS:
        certificates = from_json(path.read_text())
        recorded = {certificate.instruction for certificate in certificates}
        assert recorded <= {*names(), *family()}
        assert recorded >= {name for name in names() if not name.startswith("movmatrix")}
        for c in certificates:
            assert c.is_hardware
            assert c.verdict == "agrees"
            derived = prober.subject(c.instruction).claimed
            assert c.tables == {name: digest(name, values) for name, values in derived.items()}
            assert c.rows == probe(c.instruction, "simulator").rows


@pytest.mark.gpu
@pytest.mark.parametrize("name", names())
def test_the_device_agrees(name: str) -> None:
    certificate = probe(name, "device")
    assert certificate.is_hardware
    assert certificate.verdict == "agrees"


def test_a_certificate_is_json_of_plain_values() -> None:
    (data,) = json.loads(to_json([probe("ldmatrix.m8n8.x2.trans.b16", "simulator")]))
    assert set(data) == {field.name for field in dataclasses.fields(ProbeRecord)}
    assert data["rows"]["received"][1] == "2:0 3:0 10:0 11:0"
