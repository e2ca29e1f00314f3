"""Dispatch on an operation of its own: order, predicates, refusals, the report."""

from __future__ import annotations

import pickle
from typing import Any

import numpy as np
import pytest

import lowering as lw
from layoutalg import LayoutError
from lowering.dispatch import registry
from lowering.dispatch.registry import Context, Lowered, context_of, scope_axes

OP = "test_dispatch.scale"
BUFFER = lw.Buffer("X", (4,), "float32", scope="global")
CALL = lw.TilePrimitiveCall(OP, {"X": BUFFER.region()})


@pytest.fixture(autouse=True)
def _own_registry(monkeypatch: pytest.MonkeyPatch) -> None:
    """Give each test a registry of its own, so that gemm's stays as it is."""
    copied = {key: list(rows) for key, rows in registry._VARIANTS.items()}
    monkeypatch.setattr(registry, "_VARIANTS", copied)


def lower(call: lw.TilePrimitiveCall, **given: Any) -> Lowered:
    return registry.dispatch(context_of(call, **given))


def accepts(context: Context) -> Lowered:
    return Lowered(())


def declines(reason: str) -> Any:
    def decline(context: Context) -> Any:
        lw.fail(reason)

    return decline


def add(name: str, function: Any, priority: int = 0, when: Any = ()) -> None:
    lw.register_dispatch(OP, "cuda", variant=name, priority=priority, when=when)(function)


def test_variants_are_tried_by_priority_then_name() -> None:
    tried: list[str] = []

    def named(name: str) -> Any:
        def decline(context: Context) -> Any:
            tried.append(name)
            lw.fail(f"{name} declines")

        return decline

    for name, priority in (("b", 1), ("d", 10), ("a", 1), ("c", 10), ("e", -1)):
        add(name, named(name), priority)
    assert lw.list_variants(OP, "cuda") == ["c", "d", "a", "b", "e"]
    with pytest.raises(lw.DispatchError) as caught:
        lower(CALL)
    assert tried == ["c", "d", "a", "b", "e"]
    assert caught.value.reasons == tuple((n, "lowering", f"{n} declines") for n in tried)


def test_the_first_that_accepts_wins() -> None:
    add("first", declines("not today"), 2)
    add("second", accepts, 1)
    add("third", lambda context: pytest.fail("a variant after the first success ran"), 0)
    assert lower(CALL) == Lowered((), variant="second")


def test_all_predicates_are_asked_and_all_failures_reported() -> None:
    asked: list[str] = []

    def answers(name: str, answer: Any) -> Any:
        def ask(context: Context) -> Any:
            asked.append(name)
            return answer

        return lw.predicate(name, ask)

    when = [
        answers("yes", True),
        answers("no", False),
        answers("why", (False, "because")),
        answers("also_yes", (True, "unused")),
        answers("nothing", None),
    ]
    add("picky", lambda context: pytest.fail("a variant with a failed predicate ran"), when=when)
    with pytest.raises(lw.DispatchError) as caught:
        lower(CALL)
    assert asked == ["yes", "no", "why", "also_yes", "nothing"]
    assert caught.value.reasons == (
        ("picky", "no", "does not hold"),
        ("picky", "why", "because"),
        ("picky", "nothing", "does not hold"),
    )


def test_predicates_see_the_call_and_its_threads() -> None:
    seen: list[Context] = []

    def ask(context: Context) -> bool:
        seen.append(context)
        return True

    received: list[Context] = []

    def keep(context: Context) -> Lowered:
        received.append(context)
        return Lowered(())

    add("open", keep, when=[lw.predicate("look", ask)])
    call = lw.TilePrimitiveCall(OP, {"X": BUFFER.region()}, scope="cta")
    lower(call, threads=256, active={"laneid": (0, 16)})
    (context,) = seen
    assert received == [context]
    assert (context.call, context.target, context.threads) == (call, "cuda", 256)
    assert context.active == {"laneid": (0, 16), "warpid": (0, 8)}
    assert context.whole() == {"laneid": (0, 32), "warpid": (0, 8)}


def test_the_report_is_a_table() -> None:
    never = lw.predicate("never", lambda context: (False, "the moon is full"))
    add("wide", declines("too wide"), 2)
    add("a_long_name", lambda context: None, 1, [never])
    with pytest.raises(lw.DispatchError) as caught:
        lower(CALL)
    assert str(caught.value) == (
        "test_dispatch.scale: no variant fits test_dispatch.scale(X[0:4], scope=warp)\n"
        "  wide         lowering  too wide\n"
        "  a_long_name  never     the moon is full"
    )
    assert isinstance(caught.value, RuntimeError)
    assert not isinstance(caught.value, LayoutError)
    copied = pickle.loads(pickle.dumps(caught.value))
    assert (str(copied), copied.reasons) == (str(caught.value), caught.value.reasons)


@pytest.mark.parametrize("error", [KeyError("bug"), LayoutError("slice: bug"), AssertionError()])
@pytest.mark.parametrize("where", ["lower", "predicate"])
def test_other_exceptions_pass_through(error: Exception, where: str) -> None:
    def raises(context: Context) -> Any:
        raise error

    when = [lw.predicate("buggy", raises)] if where == "predicate" else []
    add("buggy", raises, 2, when)
    add("fine", accepts, 1)
    with pytest.raises(type(error)) as caught:
        lower(CALL)
    assert caught.value is error


def test_fail_raises_dispatch_fail() -> None:
    with pytest.raises(lw.DispatchFail, match=r"^no room$"):
        lw.fail("no room")
    assert not issubclass(lw.DispatchFail, (LayoutError, lw.DispatchError))


def test_a_named_variant_is_the_only_one_tried() -> None:
    add("first", lambda context: pytest.fail("another variant than the named one ran"), 2)
    add("second", accepts, 1)
    named = lw.TilePrimitiveCall(OP, {"X": BUFFER.region()}, dispatch="second")
    assert lower(named).variant == "second"
    unknown = lw.TilePrimitiveCall(OP, {"X": BUFFER.region()}, dispatch="third")
    with pytest.raises(lw.DispatchError) as caught:
        lower(unknown)
    reason = "unknown variant; test_dispatch.scale on cuda has first, second"
    assert caught.value.reasons == (("third", "lookup", reason),)


def test_an_unknown_operation_or_target() -> None:
    other = lw.TilePrimitiveCall("frobnicate", {"X": BUFFER.region()})
    known = ", ".join(f"{op} on {target}" for op, target in sorted(registry._VARIANTS))
    with pytest.raises(lw.DispatchError) as caught:
        lower(other)
    assert str(caught.value) == (
        f"frobnicate: no variant is registered for target 'cuda'; registered: {known}\n"
        "  (none)  lookup  frobnicate on 'cuda' is not registered"
    )
    add("only", accepts)
    with pytest.raises(lw.DispatchError, match=r"scale: no variant is registered for target 'x'"):
        lower(CALL, target="x")
    assert lw.list_variants("frobnicate") == []
    assert lw.list_variants(OP, "x") == []


def test_a_variant_is_registered_once_and_on_a_known_target() -> None:
    add("only", accepts)
    with pytest.raises(LayoutError) as caught:
        add("only", declines("no"))
    assert str(caught.value) == f"register_dispatch: {OP} on cuda has a variant 'only'"
    with pytest.raises(LayoutError) as caught:
        lw.register_dispatch(OP, "metal", variant="v")
    assert str(caught.value) == (
        "register_dispatch: the target must be one of ('cuda',); got 'metal'"
    )
    assert lower(CALL).variant == "only"


def test_the_decorator_returns_the_function() -> None:
    assert lw.register_dispatch(OP, "cuda", variant="v")(accepts) is accepts


@pytest.mark.parametrize(
    ("scope", "axes"),
    [
        ("thread", ()),
        ("warp", (("laneid", 32),)),
        ("warpgroup", (("laneid", 32), ("wid_in_wg", 4))),
        ("cta", (("laneid", 32), ("warpid", 8))),
    ],
)
def test_the_axes_of_a_scope(scope: str, axes: tuple[tuple[str, int], ...]) -> None:
    assert scope_axes(scope, 256) == axes


def test_a_cluster_spans_its_ctas_too() -> None:
    names = [name for name, _ in scope_axes("cluster", 64)]
    assert names == ["laneid", "warpid", "cta_id"]


def test_gemm_has_its_variant() -> None:
    assert lw.list_variants("gemm", "cuda")[0] == "mma.m16n8k*"


def test_default_threads_are_those_of_the_scope() -> None:
    def threads(scope: str, **given: Any) -> int:
        return context_of(lw.TilePrimitiveCall(OP, {"X": BUFFER.region()}, scope), **given).threads

    assert threads("warp") == threads("cta") == threads("thread") == 32
    assert threads("warpgroup") == threads("wg") == 128
    assert threads("thread", threads=5) == 5
    assert type(threads("warp", threads=np.int64(64))) is int
