"""Axes: the named coordinates of a machine, and terms such as ``4 @ laneid`` on them."""

from __future__ import annotations

import difflib
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, ClassVar

from layoutalg.errors import LayoutError, did_you_mean
from layoutalg.sizes.size import Size, as_size

WARP = 32  # lanes of a warp
SCOPES = ("thread", "warp", "warpgroup", "cta", "cluster")  # narrow to wide


def breadth(scope: str) -> int:
    """Return how wide a scope is, narrow to wide.

    Nothing is counted inside one thread: as a scope, ``"thread"`` is TVM's name for the grid, the
    widest of all (``bx`` counts each cta in it).

    >>> breadth("warp") < breadth("cluster") < breadth("thread")
    True
    """
    return SCOPES.index(scope) or len(SCOPES)


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

    def __post_init__(self) -> None:
        """Check, then enter the registry.

        Raises:
            LayoutError: the name is taken or is no identifier, or the scopes are not two of
                ``SCOPES``, narrow to wide.
        """
        name, subscope, scope = self.name, self.subscope, self.scope
        if not (isinstance(name, str) and name.isidentifier()):
            raise LayoutError(f"axis: a name must be an identifier; got {name!r}")
        fits = isinstance(subscope, str) and isinstance(scope, str)
        fits = fits and subscope in SCOPES and scope in SCOPES
        if (subscope is not None or scope is not None) and not (
            fits and SCOPES.index(str(subscope)) < breadth(str(scope))
        ):
            raise LayoutError(
                f"axis: {name!r} must count a narrower unit inside a wider scope of "
                f"{', '.join(SCOPES)}; got {subscope!r} inside {scope!r}"
            )
        known = self.registry.setdefault(name, self)
        if known is not self:
            raise LayoutError(f"axis: {name!r} is taken: {known.describe()}; Axis.get returns it")

    @property
    def thread(self) -> bool:
        """Whether the axis counts threads, or groups of threads.

        >>> laneid.thread, m.thread
        (True, False)
        """
        return self.scope is not None

    @property
    def memory(self) -> bool:
        """Whether the axis counts cells: registers, addresses, tensor-memory lanes and columns.

        >>> laneid.memory, m.memory
        (False, True)
        """
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
        axis = cls.registry.get(name) if isinstance(name, str) else None
        if axis is None:
            meant = did_you_mean(name, cls.registry, 3) or f"; there are {_listed(cls)}"
            raise LayoutError(
                f"axis: no axis is named {name!r}{meant} (Axis.register makes a new one)"
            )
        return axis

    @classmethod
    def register(cls, name: str, subscope: str | None = None, scope: str | None = None) -> Axis:
        """Return the axis of this name and kind; make it if there is none.

        Args:
            name: an identifier.
            subscope: for a thread axis, the unit that it counts.
            scope: for a thread axis, inside what it counts; a memory axis has neither.

        Raises:
            LayoutError: an axis of another kind bears the name, or as the constructor.

        >>> Axis.register("laneid", "thread", "warp") is Axis.get("laneid")
        True
        """
        known = cls.registry.get(name) if isinstance(name, str) else None
        kind = isinstance(subscope, str | None) and isinstance(scope, str | None)
        if known is not None and kind and (known.subscope, known.scope) == (subscope, scope):
            return known
        return cls(name, subscope, scope)

    def describe(self) -> str:
        """Say in words what the axis counts.

        >>> laneid.describe()
        'laneid counts each thread in the warp'
        """
        if self.memory:
            return f"{self.name} is a memory axis"
        return f"{self.name} counts each {self.subscope} in the {self.scope}"

    def __rmatmul__(self, value: object) -> Term:
        """Build ``value @ axis``."""
        if type(value) is not int:
            value = as_readable(value, f"{value!r} @ {self.name}")
        return Term(value, self)

    __array_ufunc__ = None  # NumPy integers on the left defer to __rmatmul__

    def __str__(self) -> str:
        """Return the name."""
        return self.name

    def __repr__(self) -> str:
        """Return the name: that is how it is written."""
        return self.name

    def __reduce__(self) -> Any:
        """Pickle and copy to the one object of this name."""
        return Axis.register, (self.name, self.subscope, self.scope)


def _listed(axes: type[Axis]) -> str:
    return ", ".join(sorted(axes.registry))


def misread(name: str) -> str:
    """Say why text would misread a symbol of this name; "" if it reads as a size.

    >>> misread("lanid"), misread("Mt")
    ('reads as the axis laneid: write 1@laneid', '')
    """
    if name in ("S", "R"):
        return f"stands before its bracket, as {name}[8:1]; it is no size"
    near = _resembled(name, tuple(Axis.registry))
    return f"reads as the axis {near}: write 1@{near}" if near else ""


@lru_cache(maxsize=1024)  # asked for every symbolic iter, of few names
def _resembled(name: str, axes: tuple[str, ...]) -> str:
    """Return the name of the axis that this equals or resembles; "" for none."""
    known = [axis for axis in axes if len(axis) > 3]
    near = [name] if name in axes else difflib.get_close_matches(name, known, 1, 0.8)
    return near[0] if near else ""


def as_readable(value: object, what: str) -> Size:
    """Return a size whose symbols text can tell from axes.

    Raises:
        LayoutError: no integer, or a symbol that bears the name of an axis or is no identifier.

    >>> as_readable(8, "stride")
    8
    """
    size = as_size(value, what)
    if type(size) is not int:
        for name in sorted(symbol.name for symbol in size.free_symbols):  # type: ignore[union-attr]
            if not name.isidentifier() or misread(name):
                raise LayoutError(
                    f"{what}: the symbol {name!r} must have a name that text can tell from an "
                    f"axis: an identifier, unlike S, R, {', '.join(Axis.registry)}"
                )
    return size


@dataclass(frozen=True, slots=True)
class Term:
    """A size on an axis, ``4 @ laneid``: a stride, or one term of an offset.

    >>> Term(4, laneid) + 1
    4@laneid + 1@m
    >>> 2 @ laneid == 2 @ m
    False
    """

    value: Size
    axis: Axis

    def __add__(self, other: object) -> Terms:
        """Add another term, or an int on axis m."""
        return Terms((self,)) + other

    def __radd__(self, other: object) -> Terms:
        """Add from the left; ``sum`` starts with 0, which adds nothing."""
        return other + Terms((self,))

    def __repr__(self) -> str:
        """Return ``4@laneid``."""
        return f"{self.value if type(self.value) is int else f'({self.value})'}@{self.axis}"


@dataclass(frozen=True, slots=True)
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
            if isinstance(other, str | bytes | tuple | list) or hasattr(other, "shard"):
                return NotImplemented
            other = Term(as_readable(other, "offset"), m)
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
bx, by, bz = (Axis.register(name, "cta", "thread") for name in ("bx", "by", "bz"))
cbx, cby, cbz = (Axis.register(name, "cta", "cluster") for name in ("cbx", "cby", "cbz"))
