"""The cost of an operation grows like the number of iters, not like its square.

Python's calls are counted, which is exact; and the processor's time is measured, with room for a
loaded machine, to see what one call hides: a scan of a list, a number written as text.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any

import pytest

from layoutalg import Iter, TileLayout
from layoutalg.proofs.verdict import Certificate, ProofDigit, Verdict, late
from tests.bench.growth import NUMBERS, OPERATIONS, ladder, spent

ALL = {**OPERATIONS, **NUMBERS}
CALLS_LIMIT = 10.0  # for eight times the iters
TIME_LIMIT = 24.0  # for eight times the iters, which have eight times the digits: 8 to 16 as it is


def calls_of(run: Callable[[], Any]) -> int:
    """Return how many functions a run calls, Python's and C's."""
    count = 0

    def see(frame: Any, event: str, arg: Any) -> None:
        nonlocal count
        count += event in ("call", "c_call")

    before = sys.getprofile()
    sys.setprofile(see)
    try:
        run()
    finally:
        sys.setprofile(before)
    return count


@pytest.mark.parametrize("name", ALL)
def test_calls_grow_like_the_iters(name: str) -> None:
    call, small, large = ALL[name], (ladder(32), ladder(32)), (ladder(256), ladder(256))
    few, many = calls_of(lambda: call(*small, 32)), calls_of(lambda: call(*large, 256))
    assert many <= CALLS_LIMIT * few


@pytest.mark.slow
@pytest.mark.parametrize(
    "name",
    [name for name in OPERATIONS if name.startswith(("align", "inv", "is_i", "group_m", "eq"))],
)
def test_time_grows_like_the_iters(name: str) -> None:
    few, many = (spent(OPERATIONS[name], n) for n in (160, 1280))
    assert many <= TIME_LIMIT * few


def test_a_proof_is_written_when_it_is_read() -> None:
    written: list[str] = []

    class Told:
        def __str__(self) -> str:
            written.append("once")
            return "n"

    verdict = Verdict(True, late("{} is {}", Told(), 1), Certificate("as it is"))
    assert not written
    assert verdict.claim == "n is 1"
    assert (verdict.claim, written) == ("n is 1", ["once"])
    assert verdict == Verdict(True, "n is 1", Certificate("as it is"))
    assert repr(Certificate(late("{}", 3))) == "Certificate(argument='3', digits=())"


def test_text_that_is_no_longer_late_is_what_it_was() -> None:
    layout = TileLayout.from_iters([Iter(2, 1), Iter(3, 2)])
    digits = layout.is_injective().reason
    assert isinstance(digits, Certificate)
    assert [digit.note for digit in digits.digits] == ["2 > 1", "1 > 0"]
    assert all(isinstance(digit, ProofDigit) and type(digit.note) is str for digit in digits.digits)
