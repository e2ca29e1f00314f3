"""Rates of kernels over problem sizes, with the ceilings drawn in."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

from matplotlib.figure import Figure

from layoutalg.draw.scene.output import checked_path
from layoutalg.errors import LayoutError

# Colours that remain apart for all kinds of colour vision (Okabe, Ito 2008), and markers.
_STYLES = (("#0072B2", "o"), ("#D55E00", "s"), ("#009E73", "^"), ("#CC79A7", "D"))
SUFFIXES = (".pdf", ".png", ".svg")
Points = Sequence[tuple[float, float]]


def rates(
    series: Mapping[str, Points],
    ceilings: Mapping[str, Points],
    title: str = "",
    path: str | Path | None = None,
) -> Figure:
    """Draw TFLOP/s over size: kernels as lines with markers, ceilings dashed.

    Args:
        series: name -> (size, TFLOP/s) of each kernel.
        ceilings: likewise.
        title: of the figure.
        path: where it is written; the suffix says what.

    Raises:
        LayoutError: nothing to draw, or the suffix of the path is unknown.

    >>> figure = rates({"ours": [(1024, 300.0), (2048, 450.0)]}, {"mma.sync": [(1024, 600.0)]})
    >>> [line.get_label() for line in figure.axes[0].lines]
    ['ours', 'mma.sync']
    """
    checked = None if path is None else checked_path(path, "rates", SUFFIXES)
    if not any(series.values()):
        raise LayoutError("rates: needs at least one kernel with a point; got none")
    figure = Figure(figsize=(6.4, 4.0), layout="constrained")
    axes = figure.add_subplot()
    for (name, points), (color, marker) in zip(series.items(), _STYLES, strict=False):
        axes.plot(*zip(*points, strict=True), color=color, marker=marker, markersize=5, label=name)
    for (name, points), style in zip(ceilings.items(), ("--", ":"), strict=False):
        axes.plot(*zip(*points, strict=True), color="0.35", linestyle=style, label=name)
    sizes = sorted({size for points in series.values() for size, _ in points})
    axes.set_xscale("log", base=2)
    axes.set_xticks(sizes, [f"{size:g}" for size in sizes], minor=False)
    axes.set_ylim(bottom=0)
    axes.set_xlabel("M = N = K")
    axes.set_ylabel("TFLOP/s")
    axes.set_title(title, fontsize=10, parse_math=False)
    axes.spines[["top", "right"]].set_visible(False)
    axes.grid(axis="y", color="0.9")
    axes.legend(frameon=False, fontsize=9)
    if checked is not None:
        figure.savefig(checked)
    return figure
