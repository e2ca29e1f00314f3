"""Runs many kernels and faults, over processes, and counts."""

from __future__ import annotations

import random
import re
import time
import traceback
from collections import Counter
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, field, fields
from typing import Any

import numpy as np

from tests.fuzz import faults, machines
from tests.fuzz.faults import REFUSALS
from tests.fuzz.ir import Array, Program, count_statements, features, source
from tests.fuzz.kernels import generate

STRIDE = 1000  # seeds of a task
KERNELS, FAULTS = 40, 20  # of a task
PLANTED = 5  # faults tried in a kernel
MOST_STEPS = 60  # statements of a kernel in which faults are planted


@dataclass
class Found:
    """What a task found."""

    kernels: int = 0
    statements: list[int] = field(default_factory=list)
    features: Counter[str] = field(default_factory=Counter)
    refused: Counter[str] = field(default_factory=Counter)
    refused_at: dict[str, int] = field(default_factory=dict)
    failures: list[dict[str, Any]] = field(default_factory=list)
    judged: Counter[str] = field(default_factory=Counter)
    seen_by: Counter[str] = field(default_factory=Counter)
    shown: Counter[str] = field(default_factory=Counter)
    unseen: Counter[str] = field(default_factory=Counter)
    at_lowering: Counter[str] = field(default_factory=Counter)
    missed: list[dict[str, Any]] = field(default_factory=list)
    seconds: Counter[str] = field(default_factory=Counter)

    def add(self, other: Found) -> None:
        """Add what another task found."""
        self.kernels += other.kernels
        self.statements += other.statements
        self.failures += other.failures
        self.missed += other.missed
        for name in (
            "features", "refused", "judged", "seen_by", "shown", "unseen", "at_lowering", "seconds"
        ):  # fmt: skip
            getattr(self, name).update(getattr(other, name))
        for name, seed in other.refused_at.items():
            self.refused_at.setdefault(name, seed)


def plain(text: str) -> str:
    """Return a message without its numbers, to count alike ones together."""
    lines = text.splitlines()
    last = lines[-1].strip() if len(lines) > 1 else ""
    return re.sub(r"-?\d+", "N", f"{lines[0][:60]} … {last}"[:240])


def wrong(found: dict[str, Array], want: dict[str, Array]) -> str:
    """Return what differs; "" where nothing does."""
    for name, value in found.items():
        value = np.asarray(value)
        bad = np.argwhere(value != want[name])
        if len(bad):
            at = tuple(int(i) for i in bad[0])
            return f"{name}{list(at)} is {value[at]}, not {want[name][at]}; {len(bad)} differ"
    return ""


def check(seed: int, found: Found) -> tuple[Program, Any, dict[str, Array]] | None:
    """Run one kernel on every machine; return it where all agree."""
    clock = time.process_time
    start = clock()
    program, want, _ = generate(seed)
    found.seconds["generate"] += clock() - start
    start = clock()
    try:
        made = machines.lower(program)
    except REFUSALS as error:
        name = plain(str(error))
        found.refused[name] += 1
        found.refused_at.setdefault(name, seed)
        return None
    except Exception:
        note(found, seed, "lower", traceback.format_exc(limit=-4), program)
        return None
    finally:
        found.seconds["lower"] += clock() - start
    good = True
    steps = (
        ("simulate", lambda: machines.simulate(program, made)),
        ("python", lambda: machines.run_text(program, made, made.kernel_source())),
        ("c++", lambda: machines.run_text(program, made, machines.python_of(made))),
    )
    for name, run in steps:
        start = clock()
        try:
            what = wrong(program.given | run(), want)
        except Exception as error:
            what = f"{type(error).__name__}: {error}"
            if not isinstance(error, (*REFUSALS, AssertionError)):
                what += "\n" + traceback.format_exc(limit=-4)
        found.seconds[name] += clock() - start
        if what:
            note(found, seed, name, what, program)
            good = False
    found.kernels += 1
    found.statements.append(count_statements(program))
    found.features.update(name for name, has in features(program).items() if has)
    return (program, made, want) if good else None


def note(found: Found, seed: int, machine: str, what: str, program: Program) -> None:
    """Keep a failure."""
    text = machines.reproducer(program)
    found.failures.append({"seed": seed, "machine": machine, "what": what, "reproducer": text})


def kernels(first: int, count: int) -> Found:
    """Run kernels from a seed on, until so many were accepted."""
    found = Found()
    for seed in range(first, first + STRIDE):
        if found.kernels >= count:
            break
        check(seed, found)
    return found


def plant_in(seed: int, found: Found, room: int) -> None:
    """Plant some faults in the kernel of a seed."""
    program, want, _ = generate(seed)
    if program.grid > 1 or count_statements(program) > MOST_STEPS:
        return
    program = program.clone()  # in which every tile is declared before the statements
    try:
        made = machines.lower(program)
    except REFUSALS:
        return
    if faults.refused(program, made, want):
        return  # a fault of the package, which the kernels show
    rng = random.Random(seed)
    planted = 0
    for kind in faults.in_turn(rng):
        if planted >= PLANTED or sum(found.judged.values()) >= room:
            break
        try:
            result = faults.plant(program, made, kind, seed)
        except Exception:
            miss(found, seed, kind, "lowering", traceback.format_exc(limit=-4), source(program))
            continue
        if result is None:
            continue
        planted += 1
        if isinstance(result, str):
            found.at_lowering[kind] += 1
            continue
        other, lowered = result
        start = time.process_time()
        verdict = faults.judge(other, lowered, want)
        found.seconds["judge"] += time.process_time() - start
        if not verdict.seen:
            found.unseen[kind] += 1
            continue
        found.judged[kind] += 1
        found.seen_by[verdict.by] += 1
        start = time.process_time()
        try:
            shown = faults.refused(other, lowered, want)
        except Exception:
            shown = ""
            verdict = faults.Verdict(True, "raw error", traceback.format_exc(limit=-4))
        found.seconds["refuse"] += time.process_time() - start
        if shown:
            found.shown[shown.split(":")[0]] += 1
        else:
            miss(found, seed, kind, verdict.by, verdict.what, source(other))


def miss(found: Found, seed: int, kind: str, by: str, what: str, text: str) -> None:
    """Keep a fault that the package does not show."""
    found.missed.append({"seed": seed, "kind": kind, "by": by, "what": what, "program": text})


def planted(first: int, count: int) -> Found:
    """Plant faults from a seed on, until so many were judged."""
    found = Found()
    for seed in range(first, first + STRIDE):
        if sum(found.judged.values()) >= count:
            break
        plant_in(seed, found, count)
    return found


def run(kernel_count: int, fault_count: int, seed: int, jobs: int, say: Any = print) -> Found:
    """Run a campaign: the same kernels and faults for a seed, whatever the jobs."""
    total = Found()
    base = seed * 100_000_000
    tasks = []
    for at in range(0, kernel_count, KERNELS):
        tasks.append((kernels, base + at // KERNELS * STRIDE, min(KERNELS, kernel_count - at)))
    for at in range(0, fault_count, FAULTS):
        first = base + 50_000_000 + at // FAULTS * STRIDE
        tasks.append((planted, first, min(FAULTS, fault_count - at)))
    start = time.time()
    if jobs == 1:
        for function, first, count in tasks:
            total.add(function(first, count))
        return total
    with ProcessPoolExecutor(jobs) as pool:
        waiting = [pool.submit(*task) for task in tasks]
        for number, each in enumerate(waiting):
            total.add(each.result())
            if number % 50 == 49:
                judged = sum(total.judged.values())
                say(
                    f"{time.time() - start:6.0f} s: {total.kernels} kernels, {judged} faults, "
                    f"{len(total.failures)} failures, {len(total.missed)} missed",
                    flush=True,
                )
    return total


def summary(found: Found) -> dict[str, Any]:
    """Return the counts as data."""
    data = {each.name: getattr(found, each.name) for each in fields(found)}
    numbers = sorted(data.pop("statements"))
    data["median statements"] = numbers[len(numbers) // 2] if numbers else 0
    data["refused"] = dict(found.refused.most_common())
    data["failures"], data["missed"] = len(found.failures), len(found.missed)
    return data


def table(found: Found) -> str:
    """Return the counts as text."""
    data = summary(found)
    n = max(1, found.kernels)
    refused = sum(found.refused.values())
    lines = [
        f"right kernels             {found.kernels:6d}, median {data['median statements']} steps"
    ]
    lines.append(f"  refused when lowered    {refused:6d}")
    for name in features(Program(0, 1)):
        count = found.features[name]
        lines.append(f"  {name:24s}{count:6d}  {100 * count / n:5.1f} %")
    machines_of = Counter(each["machine"] for each in found.failures)
    lines.append(f"  wrong or false alarms   {len(found.failures):6d}  {dict(machines_of) or ''}")
    lines.append("faults by kind              judged  missed  unseen  refused when lowered")
    missed = Counter(each["kind"] for each in found.missed)
    for kind in faults.KINDS:
        counts = (found.judged[kind], missed[kind], found.unseen[kind], found.at_lowering[kind])
        lines.append(f"  {kind:28s}" + "".join(f"{count:6d}  " for count in counts))
    sums = (found.judged, missed, found.unseen, found.at_lowering)
    lines.append(
        "  all                         " + "".join(f"{sum(c.values()):6d}  " for c in sums)
    )
    lines.append(f"  seen by {dict(found.seen_by)}; shown as {dict(found.shown)}")
    seconds = {name: round(value, 1) for name, value in found.seconds.items()}
    lines.append(f"CPU seconds: {seconds}")
    return "\n".join(lines)
