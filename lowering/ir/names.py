"""Names: what a user may call things in a kernel, and what the kernel texts make of them.

One name means one thing in Python, in C++ and in the script. What a user names is checked here,
once; what the texts make of it (``x_0``, ``x_base``) must be none of the other names there.
"""

from __future__ import annotations

import keyword
import re
from collections.abc import Collection, Iterable, Mapping, Sequence

from layoutalg import LayoutError
from lowering.ir.ops import Let, Loop, Op, indices

# What a kernel text says itself, in Python or in C++.
_TEXTS = frozenset(
    """thread shared base bx by tried cuda range tensor_base tensor_cell cells_address
    shared_address float32 float64 uint8 uint16 uint32 uint64 int32 int64 int8_t int16_t int32_t
    int64_t uint8_t uint16_t uint32_t uint64_t""".split()
)
_KEYWORDS = frozenset(
    (
        *keyword.kwlist,
        *"""alignas alignof and_eq asm auto bitand bitor bool case catch char char8_t char16_t
        char32_t compl concept const consteval constexpr constinit const_cast co_await co_return
        co_yield decltype default delete do double dynamic_cast enum explicit export extern false
        float friend goto inline int long main mutable namespace new noexcept not_eq nullptr
        operator or_eq private protected public register reinterpret_cast requires short signed
        sizeof static static_assert static_cast struct switch template this thread_local throw true
        typedef typeid typename union unsigned using virtual void volatile wchar_t xor
        xor_eq""".split(),
    )
)
# What CUDA C++ has without being told: macros, variables, and functions that cannot be hidden.
_BUILT_IN = frozenset(
    """NULL EOF INFINITY NAN assert errno stdin stdout stderr printf malloc memcpy memset threadIdx
    blockIdx blockDim gridDim warpSize dim3 cudaStream_t""".split()
)
# Functions of CUDA C++: a variable may hide them, a kernel may not be one of them.
_FUNCTIONS = frozenset(
    """free abs labs div exit abort clock clock64 min max floor ceil trunc round rint exp exp2 expm1
    log log2 log10 log1p sin cos tan asin acos atan atan2 sinh cosh tanh sqrt rsqrt cbrt pow fabs
    fma fmod fmin fmax erf erfc tgamma lgamma hypot ldexp frexp modf signbit isnan isinf isfinite
    memcmp memmove strlen strcpy strcmp atoi rand srand time puts putchar""".split()
)
_READERS = frozenset({"self", "grid", "compiler"})  # what run takes beside matrices and scalars
VARIABLES = ("thread", "bx", "by")  # that every kernel has


def plain(name: object) -> bool:
    """Say whether a name is an identifier of Python and of C++ alike.

    >>> plain("A_stages"), plain("größe"), plain("a b"), plain("__a")
    (True, False, False, False)
    """
    return (
        isinstance(name, str)
        and name.isascii()
        and name.isidentifier()
        and "__" not in name
        and re.match(r"_[A-Z]", name) is None
    )


def reserved(name: str, kernel: bool = False) -> bool:
    """Say whether a name has a meaning of its own in a kernel text.

    Args:
        name: an identifier.
        kernel: whether the kernel itself is to be called so.

    >>> reserved("threadIdx"), reserved("int"), reserved("round"), reserved("round", kernel=True)
    (True, True, False, True)
    """
    words = (_TEXTS, _KEYWORDS, _BUILT_IN, _FUNCTIONS if kernel else _READERS)
    return any(name in each for each in words)


def check_kernel(name: object) -> None:
    """Refuse what no kernel can be called.

    Raises:
        LayoutError: no plain identifier, or a name with a meaning of its own.

    >>> check_kernel("k")
    >>> check_kernel("a-b")
    Traceback (most recent call last):
    layoutalg.errors.LayoutError: Kernel: the name must be an identifier; got 'a-b'
    """
    if not plain(name) or not isinstance(name, str) or name in _KEYWORDS:
        raise LayoutError(f"Kernel: the name must be an identifier; got {name!r}")
    if reserved(name, kernel=True):
        raise LayoutError(f"Kernel: {name!r} has a meaning of its own in CUDA; take another name")


def check_buffer(name: object, kernel: str, taken: Collection[str]) -> None:
    """Refuse what no buffer or barrier of a kernel can be called.

    Raises:
        LayoutError: no plain identifier, or a name that is taken or has a meaning of its own.

    >>> check_buffer("a", "k", ["b"])
    >>> check_buffer("a", "k", ["a"])
    Traceback (most recent call last):
    layoutalg.errors.LayoutError: Kernel k: the name 'a' is taken
    """
    if not plain(name) or not isinstance(name, str):
        raise LayoutError(
            f"Kernel {kernel}: a name must be an identifier of ASCII letters; got {name!r}"
        )
    if reserved(name):
        raise LayoutError(
            f"Kernel {kernel}: the name {name!r} is reserved: it has a meaning of its own in "
            "kernel texts or launches"
        )
    if name in taken:
        raise LayoutError(f"Kernel {kernel}: the name {name!r} is taken")


def check_variable(name: object, operation: str, taken: Collection[str]) -> None:
    """Refuse what no scalar, loop variable or named index can be called.

    They are of letters alone, so that they are none of the names that kernel texts make.

    Raises:
        LayoutError: other signs, or a name that is taken or has a meaning of its own.

    >>> check_variable("i", "range", [])
    >>> check_variable("i0", "range", [])
    Traceback (most recent call last):
    layoutalg.errors.LayoutError: range: the variable needs a free name of letters; got 'i0'
    """
    plain_letters = isinstance(name, str) and name.isascii() and name.isalpha()
    why = "" if plain_letters else f"{name!r}"
    if plain_letters and reserved(str(name)):
        why = f"{name!r}, which has a meaning of its own in kernel texts or launches"
    elif plain_letters and name in taken:
        why = f"{name!r}, which is taken"
    if why:
        raise LayoutError(f"{operation}: the variable needs a free name of letters; got {why}")


def check_scopes(ops: Sequence[Op], scalars: Iterable[str]) -> None:
    """Refuse variables where they have no value, and one name for two that are both in use.

    A loop's variable has values inside its loop, a named index from there to the end of its block.

    Raises:
        LayoutError: the variable and the operation are named.

    >>> from lowering.ir.index import Index
    >>> from lowering.ir.ops import Registers, Load
    >>> load = Load(Registers("r", (0,)), "a", Index.free("n"))
    >>> check_scopes([load], ["n"])
    >>> check_scopes([load], [])
    Traceback (most recent call last):
    layoutalg.errors.LayoutError: lower: r[0] = a[n] uses n, which has no value there: a loop's \
variable lives inside its loop, and what let() names inside its block
    """
    _check_scopes(ops, dict.fromkeys((*VARIABLES, *scalars), 0))


def _check_scopes(ops: Iterable[Op], known: Mapping[str, int]) -> None:
    """Check operations; ``known`` says of each variable how many values it has, 0: any."""
    inside = dict(known)
    for op in ops:
        for index in indices(op):
            for digit, _ in index.digits():
                if digit.var not in inside:
                    raise LayoutError(
                        f"lower: {op} uses {digit.var}, which has no value there: a loop's "
                        "variable lives inside its loop, and what let() names inside its block"
                    )
                if digit.limit < inside[digit.var]:
                    raise LayoutError(
                        f"lower: {op} assumes {digit.var} < {digit.limit}; it has "
                        f"{inside[digit.var]} values"
                    )
        if isinstance(op, (Let, Loop)) and op.var in inside:
            raise LayoutError(
                f"lower: {op} names {op.var}, which has a value there already; take another name"
            )
        here = inside
        if isinstance(op, Let):
            inside[op.var] = 0
        elif isinstance(op, Loop):
            here = inside | {op.var: op.extent if isinstance(op.extent, int) else 0}
        for body in op.bodies:
            _check_scopes(getattr(op, body), here)


def check_made(made: Iterable[tuple[str, str]], kernel: str) -> None:
    """Refuse a kernel in whose texts one name would mean two things.

    Args:
        made: each name with what it stands for.
        kernel: its name.

    Raises:
        LayoutError: both meanings are named.

    >>> check_made([("r_0", "a register of r"), ("r_0", "the loop r_0")], "k")
    Traceback (most recent call last):
    layoutalg.errors.LayoutError: Kernel k: in its texts r_0 would be a register of r and the loop \
r_0; rename one of them
    """
    found: dict[str, str] = {}
    for name, meaning in made:
        other = found.setdefault(name, meaning)
        if other != meaning:
            raise LayoutError(
                f"Kernel {kernel}: in its texts {name} would be {other} and {meaning}; rename one "
                "of them"
            )
