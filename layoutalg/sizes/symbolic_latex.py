"""Sizes with symbols as LaTeX; imported when a layout shows itself as mathematics."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from sympy.printing.latex import LatexPrinter

from layoutalg.sizes.symbolic import DigitFunction


class _Latex(LatexPrinter):  # type: ignore[misc]
    """Print floors and remainders as factors without a second pair of brackets."""

    def _needs_mul_brackets(self, expr: Any, first: bool = False, last: bool = False) -> bool:
        if isinstance(expr, DigitFunction):
            return False
        return bool(super()._needs_mul_brackets(expr, first, last))


def latex(expr: Any, names: Mapping[Any, str]) -> str:
    r"""Print an expression as LaTeX; ``names`` says how symbols are written.

    >>> from layoutalg.sizes.symbolic import Mod, nonnegative
    >>> print(latex(2 * Mod(nonnegative("i"), 4), {}))
    2 \left(i \bmod 4\right)
    """
    return str(_Latex({"symbol_names": dict(names)}).doprint(expr))
