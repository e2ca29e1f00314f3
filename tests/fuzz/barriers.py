"""Where a right program needs barriers: a rule of the generator's own, conservative and simple.

Accesses of shared memory (and of parameters that are written) since the last barrier are kept with
their elements and with who makes them, thread by thread where that is known. Two that touch one
element, one of them a write, need a barrier of the least scope that holds both; what is
asynchronous is waited for first. A loop is gone through until nothing more is put in.
"""

from __future__ import annotations

import copy
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from tests.fuzz.ir import WARP, Array, Buf, Ex, Program, Reg, RejectError, St, holders

LEVELS = ("", "warp", "warpgroup", "cta")
STARTED = ("copy", "gemm", "tma_store")  # what goes on beside the threads, until it is waited for


@dataclass(frozen=True, eq=False)
class Access:
    """Elements of a buffer, who touches them, and what has happened since.

    ``owner``: the thread of each element, or -1. ``warp``: likewise. ``level``: the widest barrier
    since. ``pending``: ("copy", "gemm", "tma_store", or a barrier's name) until it is waited for.
    """

    buf: str
    mask: Array
    write: bool
    owner: Array
    warp: Array
    level: int = 0
    pending: str = ""
    group: int = -1
    parity: Any = None


@dataclass
class State:
    """What has been accessed, and the groups that are under way."""

    accesses: list[Access] = field(default_factory=list)
    committed: dict[str, int] = field(default_factory=lambda: dict.fromkeys(STARTED, 0))
    registers: dict[str, int] = field(default_factory=dict)  # accumulators under way: their group


class Placer:
    """Puts the barriers into a program's statements."""

    def __init__(self, program: Program, rng: Any, mbarriers: float) -> None:
        """Take a program whose body lacks them; ``mbarriers``: how often instead of a barrier."""
        self.program, self.rng, self.mbarriers = program, rng, mbarriers
        self.names = 0
        self.written = {
            b for each in _all(program.body) for b in _written(each)
            if program.bufs[b].scope == "global"
        }  # fmt: skip
        self.nest: list[tuple[str, int]] = []

    def place(self) -> None:
        """Change the program."""
        state = State()
        self.program.body = self.block(self.program.body, state, False)
        tail: list[St] = []
        for kind in ("copy", "gemm"):
            if any(each.pending == kind for each in state.accesses) or (
                kind == "gemm" and state.registers
            ):
                self.wait_all(kind, state, tail)
        for each in list(state.accesses):
            if each.pending not in ("", *STARTED) and each in state.accesses:
                self.complete(each, state, tail)
        if state.committed["tma_store"]:
            tail.append(St("tma_store_wait", args={"pending": 0}))
        self.program.body += tail

    def block(self, body: list[St], state: State, branch: bool) -> list[St]:
        """Return statements with barriers; the state goes on."""
        out: list[St] = []
        for st in body:
            if st.op == "loop" and not st.args["unroll"]:
                self.loop(st, state, out, branch)
            elif st.op == "loop":
                self.nest.append((st.args["var"], st.args["extent"]))
                self.repeat(st, state, out, branch)
                self.nest.pop()
            elif st.op == "when":
                self.when(st, state, out, branch)
            elif st.op == "block":
                self.full_stop(state, out)
                out.append(st)
                for each in _all(st.body):
                    if each.op in ("tma_store",):
                        state.committed["tma_store"] += 1
                self.after_block(st, state)
            elif st.op in ("sync", "wait", "tma_store_wait", "mbarrier_wait"):
                self.already(st, state)
                out.append(st)
            else:
                for access in self.accesses(st, state):
                    self.need(access, st, state, out, branch)
                self.own_effects(st, state, out)
                out.append(st)
        return out

    def already(self, st: St, state: State) -> None:
        """Note what a statement orders that was put in before."""
        name = st.args.get("barrier", "")
        if st.op == "sync":
            self.raise_to(LEVELS.index(st.args["scope"]), state)
        elif st.op == "mbarrier_wait" and name.startswith("met"):
            self.raise_to(3, state)
        elif st.op == "mbarrier_wait":
            self.landed(name, state)
        else:
            self.wait_groups(st.args.get("of", "tma_store"), st.args["pending"], state, [])

    def loop(self, st: St, state: State, out: list[St], branch: bool) -> None:
        self.nest.append((st.args["var"], st.args["extent"]))
        self.repeat(st, state, out, branch)
        self.nest.pop()

    def repeat(self, st: St, state: State, out: list[St], branch: bool) -> None:
        """Place barriers in a loop's body until a further step needs no more."""
        for step in range(6):
            before = _count(st.body)
            entry = State(list(state.accesses), dict(state.committed), dict(state.registers))
            st.body = self.block(st.body, state, branch)
            known = {each.pending for each in entry.accesses}
            for each in list(state.accesses):
                if each.pending and each.pending not in known and each in state.accesses:
                    self.complete(each, state, st.body)
            if set(state.registers) - set(entry.registers):
                self.wait_all("gemm", state, st.body)
            state.accesses = _merged(entry.accesses, state.accesses)
            if step and _count(st.body) == before:  # the second step meets what the first left
                break
        else:
            raise RejectError("barriers without an end")
        out.append(st)

    def when(self, st: St, state: State, out: list[St], branch: bool) -> None:
        """Place barriers before a branch, and those of warps inside."""
        a = st.args
        for _ in range(4):
            trial = State(list(state.accesses), dict(state.committed), dict(state.registers))
            try:
                body = self.block(copy.deepcopy(st.body), trial, True)
            except _TooWideError as wide:
                if not wide.outer or branch:
                    raise RejectError("a barrier inside a branch") from None
                self.sync(wide.level, state, out, None)
                continue
            if a["number"] == "lane" and _count(body) != _count(st.body):
                raise RejectError("a barrier inside a branch of lanes")
            st.body = body
            state.accesses, state.registers = trial.accesses, trial.registers
            out.append(st)
            return
        raise RejectError("barriers before a branch without an end")

    # -- needs -------------------------------------------------------------------------------------

    def need(self, access: Access, st: St, state: State, out: list[St], branch: bool) -> None:
        """Put in what an access needs, and note it."""
        for _ in range(40):
            found = self.conflict(access, state)
            if found is None:
                if not any(_alike(access, each) for each in state.accesses):
                    state.accesses.append(access)
                return
            other, level = found
            if other.pending:
                if branch:
                    raise RejectError("a wait inside a branch")
                self.complete(other, state, out)
            else:
                if branch and level > 1:
                    raise _TooWideError(level, True)
                self.sync(level, state, out, access.pending in ("gemm", "tma_store"))
        raise RejectError("barriers without an end")

    def conflict(self, access: Access, state: State) -> tuple[Access, int] | None:
        """Return an access that one must be ordered after, and the least scope that does."""
        found = None
        for other in state.accesses:
            if other.buf != access.buf or not (other.write or access.write):
                continue
            overlap = other.mask & access.mask
            if not overlap.any():
                continue
            if other.pending:
                return other, 0
            level = self.level(other, access, overlap)
            if other.level < level and (found is None or level > found[1]):
                found = (other, level)
        return found

    def level(self, one: Access, other: Access, overlap: Array) -> int:
        """Return the least scope whose barrier orders two accesses."""
        a, b = one.owner[overlap], other.owner[overlap]
        if (a >= 0).all() and (a == b).all():
            return 0
        a, b = one.warp[overlap], other.warp[overlap]
        known = (a >= 0).all() and (b >= 0).all()
        if self.program.warps == 1 or (known and (a == b).all()):
            return 1
        if self.program.warps % 4 == 0 and known and (a // 4 == b // 4).all():
            return 2
        return 3

    def sync(self, level: int, state: State, out: list[St], apart: bool | None) -> None:
        """Put in a barrier of a scope, or of a wider one."""
        rng, program = self.rng, self.program
        if apart and program.warps % 4 == 0:
            level = max(level, 2)
        if program.warps == 1:
            level = 1 if rng.random() < 0.7 and not apart else 3
        elif (level == 1 and rng.random() < 0.1) or (
            level == 2 and (rng.random() < 0.3 or program.warps % 4)
        ):
            level = 3
        if apart:
            level = max(level, 3)
        if level == 3 and apart is not None and not apart and rng.random() < self.mbarriers:
            out += self.meeting()
        else:
            out.append(St("sync", args={"scope": LEVELS[level]}))
        self.raise_to(level, state)

    def meeting(self) -> list[St]:
        """Return an mbarrier at which all warps arrive, and which all await: a barrier."""
        name = f"met{_letters(self.names)}"
        self.names += 1
        self.program.barriers[name] = (1, self.program.warps)
        count = Ex()
        for var, extent in self.nest:
            count = Ex(count.const * extent, tuple((v, c * extent) for v, c in count.terms))
            count = count + Ex(0, ((var, 1),))
        return [
            St("sync", args={"scope": "warp"}),
            St("arrive", args={"barrier": name, "slot": 0}),
            St("mbarrier_wait", args={"barrier": name, "slot": 0, "parity": count}),
        ]

    def raise_to(self, level: int, state: State) -> None:
        """Note a barrier."""
        kept = []
        for each in state.accesses:
            if each.pending:
                kept.append(each)
            elif level < 3:
                kept.append(replace(each, level=max(level, each.level)))
        state.accesses = kept

    def complete(self, other: Access, state: State, out: list[St]) -> None:
        """Wait for what is asynchronous."""
        kind = other.pending
        if kind in STARTED:
            self.close(kind, other.group, state, out)
            newer = state.committed[kind] - 1 - other.group
            if kind == "gemm" or self.nest:
                newer = 0
            self.wait_groups(kind, newer, state, out)
        else:
            where = {"barrier": kind, "slot": 0, "parity": other.parity}
            out.append(St("mbarrier_wait", args=where))
            self.landed(kind, state)

    def landed(self, name: str, state: State) -> None:
        """Note that all have awaited bulk copies: before the next, all must have come so far."""
        state.accesses = [
            replace(each, pending="", write=False, level=0) if each.pending == name else each
            for each in state.accesses
        ]

    def close(self, kind: str, group: int, state: State, out: list[St]) -> None:
        """Commit a group that is still open."""
        if kind == "copy" and group >= state.committed[kind]:
            out.append(St("commit", args={"of": "copy"}))
            state.committed[kind] += 1

    def wait_all(self, kind: str, state: State, out: list[St]) -> None:
        """Wait for all groups of a kind."""
        last = max((e.group for e in state.accesses if e.pending == kind), default=-1)
        self.close(kind, last, state, out)
        self.wait_groups(kind, 0, state, out)

    def wait_groups(self, kind: str, newer: int, state: State, out: list[St]) -> None:
        """Wait until so many groups are under way; those that are complete are as if just done."""
        if kind == "tma_store":
            out.append(St("tma_store_wait", args={"pending": newer}))
        else:
            out.append(St("wait", args={"pending": newer, "of": kind}))
        last = state.committed[kind] - newer
        state.accesses = [
            replace(each, pending="", level=0)
            if each.pending == kind and each.group < last
            else each
            for each in state.accesses
        ]
        if kind == "gemm":
            state.registers = {n: g for n, g in state.registers.items() if g >= last}

    def full_stop(self, state: State, out: list[St]) -> None:
        """Let everything be complete and ordered, before statements that mind themselves."""
        for kind in STARTED:
            if any(each.pending == kind for each in state.accesses):
                self.wait_all(kind, state, out)
        for each in list(state.accesses):
            if each.pending:
                self.complete(each, state, out)
        if state.accesses:
            self.sync(3, state, out, None)

    def after_block(self, st: St, state: State) -> None:
        """Note what such statements leave: accesses by anybody."""
        for each in _all(st.body):
            for access in self.accesses(each, state):
                state.accesses.append(replace(access, pending="", group=-1))

    def own_effects(self, st: St, state: State, out: list[St]) -> None:
        """Count groups; wait for accumulators that a statement touches."""
        if st.op == "commit":
            state.committed[st.args["of"]] += 1
        elif st.op == "tma_store":
            state.committed["tma_store"] += 1
        touched = {r.buf for r in _regions(st)} & set(state.registers)
        if st.op == "gemm_async":
            touched.discard(st.dst.buf)
            for each in (st.dst, st.args["A"]):
                if self.scope(each) == "local":
                    state.registers[each.buf] = state.committed["gemm"]
        if touched:
            self.wait_all("gemm", state, out)

    # -- accesses ----------------------------------------------------------------------------------

    def accesses(self, st: St, state: State) -> list[Access]:
        """Return a statement's accesses of memory that may be in conflict."""
        a = st.args
        if st.op == "copy":
            exact = a.get("dispatch") == "vec_auto"
            reg = next((r for r in (st.dst, st.src) if self.scope(r) == "local"), None)
            found = []
            for region, write in ((st.src, False), (st.dst, True)):
                if self.matters(region):
                    pending = "copy" if write and a.get("asynchronous") else ""
                    found.append(self.access(region, write, reg, exact, pending, state))
            return found
        if st.op == "gemm_async":
            return [
                self.access(a[role], False, None, False, "gemm", state)
                for role in "AB"
                if self.matters(a[role])
            ]
        if st.op == "tma_store":
            read = [self.access(src, False, None, False, st.op, state) for _, src in a["copies"]]
            return read + [
                self.access(dst, True, None, False, "", state)
                for dst, _ in a["copies"]
                if self.matters(dst)
            ]
        if st.op == "tma_load":
            found = []
            for dst, _ in a["copies"]:
                each = self.access(dst, True, None, False, a["barrier"], state)
                found.append(replace(each, parity=a.get("parity")))
            return found
        return []

    def scope(self, region: Reg) -> str:
        """Return where a region is."""
        return self.program.bufs[region.buf].scope

    def matters(self, region: Reg) -> bool:
        """Say whether accesses of a region can be in conflict."""
        scope = self.scope(region)
        return scope == "shared" or (scope == "global" and region.buf in self.written)

    def access(
        self,
        region: Reg,
        write: bool,
        reg: Reg | None,
        exact: bool,
        pending: str,
        state: State,
    ) -> Access:
        """Return an access: of a region in registers against it, its owners are known."""
        buf = self.program.bufs[region.buf]
        mask = np.zeros(buf.shape, dtype=bool)
        owner = np.full(buf.shape, -1)
        warp = np.full(buf.shape, -1)
        fixed = all(not each.terms for each in region.begin)
        if fixed:
            where = region.slices({})
            mask[where] = True
            if reg is not None and all(not each.terms for each in reg.begin):
                own, warps = owners(self.program.bufs[reg.buf], reg, self.program.threads)
                warp[where] = warps.reshape(region.size)
                if exact:
                    owner[where] = own.reshape(region.size)
        else:
            where = tuple(
                slice(None) if each.terms else slice(each.const, each.const + n)
                for each, n in zip(region.begin, region.size, strict=True)
            )
            mask[where] = True
        group = state.committed.get(pending, -1)
        return Access(region.buf, mask, write, owner, warp, 0, pending, group)


def owners(buf: Buf, region: Reg, threads: int) -> tuple[Array, Array]:
    """Return the one thread, and the one warp, that hold each element of a region; else -1."""
    held = holders(buf.bits, buf.shape, threads)[(slice(None), *region.slices({}))]
    one = np.where(held.sum(axis=0) == 1, held.argmax(axis=0), -1)
    warps = held.reshape(-1, WARP, *held.shape[1:]).any(axis=1)
    warp = np.where(warps.sum(axis=0) == 1, warps.argmax(axis=0), -1)
    return one, warp


class _TooWideError(Exception):
    """A barrier of more than a warp would have to stand inside a branch."""

    def __init__(self, level: int, outer: bool) -> None:
        super().__init__()
        self.level, self.outer = level, outer


def _all(body: list[St]) -> list[St]:
    found = []
    for each in body:
        found.append(each)
        found += _all(each.body)
    return found


def _count(body: list[St]) -> int:
    return len(_all(body))


def _written(st: St) -> set[str]:
    found = set() if st.dst is None else {st.dst.buf}
    if st.op in ("tma_store", "tma_load"):
        found |= {dst.buf for dst, _ in st.args["copies"]}
    return found


def _regions(st: St) -> list[Reg]:
    found = [each for each in (st.dst, st.src) if each is not None]
    found += [each for each in st.args.values() if isinstance(each, Reg)]
    if st.op == "assign":
        found += [leaf.arguments[0] for leaf in st.args["value"].leaves() if leaf.what == "tile"]
    return found


def _alike(one: Access, other: Access) -> bool:
    """Say whether two accesses that are complete say the same."""
    return (
        one.pending == other.pending == ""
        and (one.buf, one.write, one.level) == (other.buf, other.write, other.level)
        and np.array_equal(one.mask, other.mask)
        and np.array_equal(one.owner, other.owner)
        and np.array_equal(one.warp, other.warp)
    )


def _merged(one: list[Access], other: list[Access]) -> list[Access]:
    known = set(map(id, one))
    return [*one, *(each for each in other if id(each) not in known)]


def _letters(number: int) -> str:
    text = ""
    while True:
        text = chr(ord("a") + number % 26) + text
        number = number // 26 - 1
        if number < 0:
            return text
