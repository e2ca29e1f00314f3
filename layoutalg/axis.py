"""Axes: the named coordinates of a machine, and terms such as ``4 @ laneid`` on them."""

from __future__ import annotations

import difflib
from dataclasses import dataclass
from typing import Any, ClassVar

from layoutalg.errors import LayoutError
from layoutalg.size import Size, as_size, equal

SCOPES = ("thread", "warp", "warpgroup", "cta", "cluster")  # narrow to wide


@dataclass(frozen=True, eq=False)
class Axis:
    """A named coordinate: a thread axis counts units inside a scope, a memory axis counts cells.

    ``laneid`` counts threads in a warp: ``subscope`` is ``"thread"``, ``scope`` is ``"warp"``.
    A memory axis has neither. There is one object per name: axes compare by identity.

    >>> Axis.get("laneid").scope
    'warp'
    >>> 4 @ Axis.get("laneid")
    4@laneid
    """

    name: str
    subscope: str | None = None
    scope: str | None = None
    registry: ClassVar[dict[str, Axis]] = {}

    @property
    def thread(self) -> bool:
        """Whether the axis counts threads, or groups of threads."""
        return self.scope is not None

    @property
    def memory(self) -> bool:
        """Whether the axis counts cells: registers, addresses, tensor-memory lanes and columns."""
        return self.scope is None

    @classmethod
    def get(cls, name: str | Axis) -> Axis:
        """Return the axis of this name.

        Raises:
            LayoutError: no axis bears the name; the nearest names are given.

        >>> Axis.get("landid")
        Traceback (most recent call last):
        layoutalg.errors.LayoutError: axis: no axis is named 'landid'; did you mean laneid? \
(Axis.register makes a new one)
        """
        if isinstance(name, Axis):
            return name
        axis = cls.registry.get(name)
        if axis is None:
            near = difflib.get_close_matches(str(name), cls.registry, n=3) or sorted(cls.registry)
            raise LayoutError(
                f"axis: no axis is named {name!r}; did you mean {', '.join(near)}? "
                "(Axis.register makes a new one)"
            )
        return axis

    @classmethod
    def register(cls, name: str, subscope: str | None = None, scope: str | None = None) -> Axis:
        """Make a new axis: a memory axis, or a thread axis when both scopes are given.

        Raises:
            LayoutError: the name is taken by a different axis or is no identifier, or the scopes
                are not two of ``SCOPES``, narrow to wide.

        >>> Axis.register("laneid", "thread", "warp") is Axis.get("laneid")
        True
        """
        known = cls.registry.get(name)
        if known is not None:
            if (known.subscope, known.scope) == (subscope, scope):
                return known
            raise LayoutError(f"axis: {name!r} is taken: {known.describe()}")
        if not name.isidentifier():
            raise LayoutError(f"axis: a name must be an identifier; got {name!r}")
        if (subscope, scope) != (None, None) and not (
            subscope in SCOPES and scope in SCOPES and SCOPES.index(subscope) < SCOPES.index(scope)
        ):
            raise LayoutError(
                f"axis: {name!r} must count a narrower unit inside a wider scope of "
                f"{', '.join(SCOPES)}; got {subscope!r} inside {scope!r}"
            )
        axis = cls.registry[name] = cls(name, subscope, scope)
        return axis

    def describe(self) -> str:
        """Say in words what the axis counts."""
        if self.memory:
            return f"{self.name} is a memory axis"
        return f"{self.name} counts each {self.subscope} in the {self.scope}"

    def __rmatmul__(self, value: object) -> Term:
        """Build ``value @ axis``."""
        return Term(as_size(value, f"{value!r} @ {self.name}"), self)

    def __str__(self) -> str:
        """Return the name."""
        return self.name

    def __repr__(self) -> str:
        """Return the name: that is how it is written."""
        return self.name

    def __reduce__(self) -> Any:
        """Pickle and copy to the one object of this name."""
        return Axis.register, (self.name, self.subscope, self.scope)


@dataclass(frozen=True)
class Term:
    """A size on an axis, ``4 @ laneid``: a stride, or one term of an offset.

    >>> Term(4, Axis.get("laneid")) + 1
    4@laneid + 1@m
    """

    value: Size
    axis: Axis

    def __add__(self, other: object) -> Terms:
        """Add another term, or an int on axis m."""
        return Terms((self,)) + other

    __radd__ = __add__

    def __eq__(self, other: object) -> bool:
        """Compare value and axis: ``2@laneid`` is not ``2@m``."""
        return (
            isinstance(other, Term)
            and self.axis is other.axis
            and equal(self.value, other.value) is True
        )

    def __hash__(self) -> int:
        """Hash as compared."""
        return hash((self.value, self.axis))

    def __repr__(self) -> str:
        """Return ``4@laneid``."""
        return f"{self.value if type(self.value) is int else f'({self.value})'}@{self.axis}"


@dataclass(frozen=True)
class Terms:
    """A sum of terms; repeated axes add up.

    >>> 1 @ laneid + 2 @ laneid + 5
    3@laneid + 5@m
    """

    terms: tuple[Term, ...]

    def __add__(self, other: object) -> Terms:
        """Add a term, a sum, or an int on axis m."""
        if isinstance(other, Terms):
            result = self
            for term in other.terms:
                result = result + term
            return result
        if not isinstance(other, Term):
            if isinstance(other, (str, bytes, tuple, list)) or hasattr(other, "shard"):
                return NotImplemented
            other = Term(as_size(other, "offset"), m)
        for index, term in enumerate(self.terms):
            if term.axis is other.axis:
                total = Term(as_size(term.value + other.value), term.axis)
                return Terms((*self.terms[:index], total, *self.terms[index + 1 :]))
        return Terms((*self.terms, other))

    def __radd__(self, other: object) -> Terms:
        """Add from the left; ``sum`` starts with 0, which adds nothing."""
        return self if other == 0 and type(other) is int else self + other

    def __repr__(self) -> str:
        """Return the sum as it is written."""
        return " + ".join(map(repr, self.terms))


m = Axis.register("m")
P = Axis.register("P")
F = Axis.register("F")
Bank = Axis.register("Bank")
TLane = Axis.register("TLane")
TCol = Axis.register("TCol")
laneid = Axis.register("laneid", "thread", "warp")
tid_in_wg = Axis.register("tid_in_wg", "thread", "warpgroup")
tx = Axis.register("tx", "thread", "cta")
wid_in_wg = Axis.register("wid_in_wg", "warp", "warpgroup")
warpid = Axis.register("warpid", "warp", "cta")
wgid = Axis.register("wgid", "warpgroup", "cta")
# TVM names the scope of a grid "thread"; scope pairs are kept equal to its own.
bx, by, bz = (Axis.registry.setdefault(n, Axis(n, "cta", "thread")) for n in ("bx", "by", "bz"))
cbx, cby, cbz = (Axis.register(name, "cta", "cluster") for name in ("cbx", "cby", "cbz"))
