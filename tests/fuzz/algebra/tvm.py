"""Differential fuzz against TVM: ``python -m tests.fuzz.algebra.tvm --cases 20000 [--op slice]``.

Per operation, random cases are drawn and run on both until ``--cases`` of them fall outside TVM's
known faults. Each is equal, refused by both, explained by a fault (``tests.fuzz.algebra.faults``),
or unexplained: then it is printed, and the exit status is 1. On a sample of the cases that are
equal, the law is checked too ("law"). Where ours answers None to a recogniser's case that was put
together from two layouts, the answer is "missed". TVM runs in a worker process, which is replaced
when it dies or hangs.

Needs apache-tvm 0.27.0.post1: the extra ``oracle``. Each case is drawn from its own seed, so that
``--op slice --first 1234 --cases 1`` repeats one.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import sys
import time
from collections import Counter
from dataclasses import dataclass, field
from multiprocessing.connection import Connection
from typing import Any

from tests.fuzz.algebra import laws
from tests.fuzz.algebra.cases import STREAMS, case_of
from tests.fuzz.algebra.faults import MEANING, Answer, explained

BATCH = 250
PATIENCE = 60.0  # seconds that one batch may take
CHECKED = 25  # one equal case in so many is held against the law


@dataclass
class Tally:
    """What came of some cases of one operation."""

    counts: Counter[str] = field(default_factory=Counter)
    checked: int = 0
    unexplained: list[tuple[int, str]] = field(default_factory=list)
    missed: list[tuple[int, str]] = field(default_factory=list)
    examples: dict[str, int] = field(default_factory=dict)

    def add(self, other: Tally) -> None:
        self.counts.update(other.counts)
        self.checked += other.checked
        self.unexplained += other.unexplained
        self.missed += other.missed
        self.examples = other.examples | self.examples

    @property
    def outside(self) -> int:
        """How many cases lie outside the known faults."""
        return sum(self.counts[kind] for kind in ("equal", "both refuse", "unexplained"))


# -- the worker -------------------------------------------------------------------------------


class Judge:
    """Runs cases on both sides and says what each is; lives in the worker."""

    def __init__(self) -> None:
        from layoutalg import LayoutError, Undecided
        from tests.fuzz.algebra.tvm_side import Tvm
        from tests.layoutalg.algebra.test_conformance import RUN

        self.tvm, self.run = Tvm(), RUN
        self.error, self.undecided = LayoutError, Undecided

    def ours(self, op: str, case: dict[str, Any]) -> Answer:
        try:
            return Answer(self.run[op](case))
        except self.undecided:
            raise
        except self.error as refusal:
            return Answer(None, str(refusal))

    def theirs(self, op: str, case: dict[str, Any]) -> Answer:
        try:
            return Answer(self.tvm.answer(op, case))
        except Exception as refusal:  # whatever TVM raises is its refusal
            return Answer(None, f"{type(refusal).__name__}: {refusal}".splitlines()[0])

    def kind(self, drawn: dict[str, Any], check: bool) -> tuple[str, str, bool]:
        """Return the kind of a case, what to print of it, and whether ours misses an answer."""
        op, case = drawn["op"], drawn["in"]
        theirs = self.theirs(op, case)
        try:
            ours = self.ours(op, case)
        except Exception as crash:  # ours may refuse by LayoutError alone
            return "unexplained", f"ours raises {crash!r}\n  TVM  {said(theirs)}", False
        if ours.refusal is not None and theirs.refusal is not None:
            return "both refuse", "", False
        missed = ours == Answer(None) and made_holds(drawn)
        if ours == theirs:
            if check and ours.value is not None and not laws.holds(op, case, ours.value):
                return "unexplained", f"both break the law: {ours.value}", False
            return "equal", "", missed
        fault = explained(op, case, ours, theirs)
        return fault or "unexplained", f"ours {said(ours)}\n  TVM  {said(theirs)}", missed


def made_holds(drawn: dict[str, Any]) -> bool:
    """Say whether the layout from which a recogniser's case was made is an answer to it."""
    made, case = drawn.get("made"), drawn["in"]
    if made is None or any("swizzle" in each for each in case.values()):
        return False
    if drawn["op"].startswith("is_tile"):
        return laws.is_tile_of(drawn["op"], case, made)
    plain = made["shard"], made.get("replica", []), made.get("offset", {})
    return laws.holds(drawn["op"], case, plain)


def said(answer: Answer) -> str:
    return str(answer.value) if answer.refusal is None else f"refuses: {answer.refusal[:250]}"


def work(pipe: Connection, at: Any) -> None:
    """Answer batches (stream, seed, first, stop, cases to leave out) until there is no more."""
    judge = Judge()
    while True:
        tally = Tally()
        stream, seed, first, stop, left_out = pipe.recv()
        for index in range(first, stop):
            if index in left_out:
                continue
            at.value = index
            drawn = case_of(stream, seed, index)
            check = index % CHECKED == 0
            try:
                kind, text, missed = judge.kind(drawn, check)
            except Exception as error:
                pipe.send(RuntimeError(f"the fuzz fails on {json.dumps(drawn)}: {error!r}"))
                raise
            tally.counts[kind] += 1
            tally.checked += check and kind == "equal"
            if missed:
                tally.missed.append((index, json.dumps(drawn)))
            if kind == "unexplained":
                tally.unexplained.append((index, f"{json.dumps(drawn)}\n  {text}"))
            elif kind in MEANING:
                tally.examples.setdefault(kind, index)
        pipe.send(tally)


# -- the parent -------------------------------------------------------------------------------


class Worker:
    """One worker process, replaced when it dies or takes too long."""

    def __init__(self) -> None:
        self.context = multiprocessing.get_context("spawn")
        self.at = self.context.Value("q", -1)
        self.start()

    def start(self) -> None:
        self.pipe, theirs = self.context.Pipe()
        self.process = self.context.Process(target=work, args=(theirs, self.at), daemon=True)
        self.process.start()
        theirs.close()

    def stop(self) -> None:
        self.process.kill()
        self.process.join()
        self.pipe.close()

    def batch(self, stream: str, seed: int, first: int, stop: int) -> Tally:
        """Return the tally of a batch; a case at which the worker dies is unexplained."""
        lost: list[int] = []
        while True:
            self.pipe.send((stream, seed, first, stop, lost))
            try:
                if self.pipe.poll(PATIENCE):
                    answer: Tally | RuntimeError = self.pipe.recv()
                    if isinstance(answer, RuntimeError):
                        raise answer
                    break
            except EOFError:
                pass
            lost.append(self.at.value)
            self.stop()
            self.start()
        tally = answer
        for index in lost:
            tally.counts["unexplained"] += 1
            text = f"{json.dumps(case_of(stream, seed, index))}\n  the worker died or hung"
            tally.unexplained.append((index, text))
        return tally


def fuzz(worker: Worker, stream: str, seed: int, first: int, cases: int) -> Tally:
    """Draw cases until so many lie outside TVM's faults."""
    tally = Tally()
    while tally.outside < cases:
        count = min(BATCH, cases - tally.outside)
        tally.add(worker.batch(stream, seed, first, first + count))
        first += count
    return tally


def row(name: str, tally: Tally, seconds: float) -> str:
    counts = tally.counts
    faults = {kind: n for kind, n in counts.items() if kind in MEANING}
    listed = ", ".join(f"{kind} {n}" for kind, n in sorted(faults.items(), key=lambda it: -it[1]))
    told = sum(faults.values()), counts["unexplained"], len(tally.missed), tally.checked
    return (
        f"{name:20} {sum(counts.values()):8} {counts['equal']:8} {counts['both refuse']:8} "
        f"{told[0]:9} {told[1]:11} {told[2]:6} {told[3]:6} {seconds:6.1f}  {listed}"
    )


def main(arguments: list[str] | None = None) -> int:
    """Run the fuzz; return 1 where a difference is unexplained."""
    parser = argparse.ArgumentParser(prog="python -m tests.fuzz.algebra.tvm", description=__doc__)
    parser.add_argument("--cases", type=int, default=20000, help="cases outside the faults, per op")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--op", action="append", choices=list(STREAMS), help="this operation alone")
    parser.add_argument("--first", type=int, default=0, help="number of the first case")
    parser.add_argument("--show", type=int, default=5, help="unexplained cases printed per op")
    parser.add_argument("--show-missed", type=int, default=0, help="missed answers printed per op")
    options = parser.parse_args(arguments)
    worker, total, started = Worker(), Tally(), time.monotonic()
    print(
        f"{'operation':20} {'cases':>8} {'equal':>8} {'refused':>8} {'explained':>9} "
        f"{'unexplained':>11} {'missed':>6} {'law':>6} {'s':>6}  faults"
    )
    for stream in options.op or STREAMS:
        begun = time.monotonic()
        tally = fuzz(worker, stream, options.seed, options.first, options.cases)
        print(row(stream, tally, time.monotonic() - begun), flush=True)
        for index, text in tally.unexplained[: options.show]:
            print(f"  unexplained: --op {stream} --seed {options.seed} --first {index}\n  {text}")
        for index, text in tally.missed[: options.show_missed]:
            print(f"  missed: --op {stream} --seed {options.seed} --first {index}\n  {text}")
        total.add(tally)
    worker.stop()
    print(row("total", total, time.monotonic() - started))
    for kind in sorted(set(total.counts) & set(MEANING), key=list(MEANING).index):
        print(f"{kind:4} {total.counts[kind]:8}  {MEANING[kind]}")
    return 1 if total.counts["unexplained"] else 0


if __name__ == "__main__":
    sys.exit(main())
