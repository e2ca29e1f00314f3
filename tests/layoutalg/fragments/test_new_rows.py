"""What a new row of the fragment table still asks for, each with the command that gives it."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from layoutalg import LayoutError, fragments
from layoutalg.draw import gallery
from layoutalg.fragments.rows import TABLE, _dense
from lowering.audit.target_matrix import forms
from lowering.isa.mma import instructions_of
from tests.support.paths import ROOT

ASKED = {form.instruction for form in forms()}
PAGE = (ROOT / "figures" / gallery.PAGE).read_text(encoding="utf-8")


def missing(instruction: str) -> Iterator[str]:
    """Yield what an instruction of the table lacks."""
    if instruction not in ASKED:
        yield "its PTX in lowering.audit.target_matrix.forms, by which nvJitLink names its targets"
    for row in fragments.rows(instruction):
        if row.certificate.kind == "none":
            yield (
                f"a certificate of {row.operand}: on a machine that has it, layoutalg probe "
                f"{instruction} -o tests/data/hardware/NAME.json (what no H200 has, nvJitLink "
                "assembles); then python -m tests.hardware.collect_certificates"
            )
    if f'id="{instruction}"' not in PAGE:
        yield "its line in figures/gallery.html: python -m layoutalg draw --all"


@pytest.mark.parametrize("instruction", fragments.names())
def test_a_row_has_all_that_a_new_one_asks_for(instruction: str) -> None:
    assert not list(missing(instruction))


@pytest.fixture
def added(monkeypatch: pytest.MonkeyPatch) -> str:
    """Add a row of a new kind to the table."""
    name = "mma.m16n8k32.made_up.e4m3"
    made = _dense(name, (16, 32), ("e4m3", "e4m3"), ("f32",), "sm_120a")
    monkeypatch.setitem(TABLE, name, lambda: made)
    return name


def test_a_new_row_is_asked_for_its_target_certificates_and_picture(added: str) -> None:
    asked = [text.partition(":")[0] for text in missing(added)]
    assert asked == [
        "its PTX in lowering.audit.target_matrix.forms, by which nvJitLink names its targets",
        *(f"a certificate of {operand}" for operand in ("A", "B", "C/D.f32")),
        "its line in figures/gallery.html",
    ]


def test_a_row_of_a_new_kind_is_asked_for_its_ptx(added: str) -> None:
    with pytest.raises(LayoutError, match=f"^instruction {added}: KINDS has no PTX of .* made_up$"):
        next(instructions_of(added))
