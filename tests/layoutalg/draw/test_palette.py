"""The palette keeps its promises: hues apart for every colour vision, text readable on each."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import pytest

from layoutalg.draw.scene.palette import FILLS, HUES, INK, NOTE, PAPER, WARP_HUES

colorspacious = pytest.importorskip("colorspacious")
FloatArray = npt.NDArray[np.float64]
# What CAM02-UCS says of the palette: hues on one step, any two cells of different hues.
VISIONS = {
    "normal": ("sRGB1", 13.4, 8.9),
    "deuteranopia": ({"cvd_type": "deuteranomaly"}, 10.7, 7.1),
    "protanopia": ({"cvd_type": "protanomaly"}, 10.3, 7.4),
    "tritanopia": ({"cvd_type": "tritanomaly"}, 10.9, 6.8),
}


def rgb(colors: tuple[str, ...]) -> FloatArray:
    """Return sRGB values from 0 to 1."""
    return np.array([[int(c[i : i + 2], 16) / 255 for i in (1, 3, 5)] for c in colors])


def luminance(colors: tuple[str, ...]) -> FloatArray:
    """Return the relative luminance, by the definition of WCAG 2.1."""
    values = rgb(colors)
    linear = np.where(values <= 0.04045, values / 12.92, ((values + 0.055) / 1.055) ** 2.4)
    return np.asarray(linear @ np.array([0.2126, 0.7152, 0.0722]))


def contrast(text: str, ground: tuple[str, ...]) -> float:
    """Return the smallest contrast of a text colour on some grounds."""
    one, many = luminance((text,))[0], luminance(ground)
    ratio = (np.maximum(one, many) + 0.05) / (np.minimum(one, many) + 0.05)
    return float(ratio.min())


@pytest.fixture(scope="module", params=VISIONS)
def seen(request: pytest.FixtureRequest) -> tuple[FloatArray, float, float]:
    """The 8 x 4 colours in CAM02-UCS as one kind of eye sees them, and the two promises."""
    space, hues, cells = VISIONS[request.param]
    if isinstance(space, dict):
        space = {"name": "sRGB1+CVD", "severity": 100, **space}
    ucs = colorspacious.cspace_convert(rgb(FILLS), space, "CAM02-UCS")
    return ucs.reshape(8, 4, 3), hues, cells


def test_the_eight_hues_differ_by_ten_on_every_step(
    seen: tuple[FloatArray, float, float],
) -> None:
    ucs, promised, _ = seen
    distance = np.linalg.norm(ucs[:, None] - ucs[None], axis=-1)
    nearest = distance[~np.eye(8, dtype=bool)].min(axis=0)
    assert (nearest >= 10).all(), nearest
    assert nearest.min() >= promised


def test_cells_of_different_hues_are_told_apart(seen: tuple[FloatArray, float, float]) -> None:
    ucs, _, promised = seen
    flat, hue = ucs.reshape(32, 3), np.repeat(np.arange(8), 4)
    distance = np.linalg.norm(flat[:, None] - flat[None], axis=-1)
    assert distance[hue[:, None] != hue[None]].min() >= promised


def test_steps_of_a_hue_get_darker_and_are_seen(seen: tuple[FloatArray, float, float]) -> None:
    ucs, _, _ = seen
    assert (np.diff(ucs[..., 0], axis=1) < -2.5).all()


def test_text_is_readable_on_every_cell_and_on_paper() -> None:
    assert contrast(INK, FILLS) >= 4.5
    assert contrast(INK, (PAPER,)) >= 4.5
    assert contrast(NOTE, (PAPER,)) >= 4.5


def test_contrast_is_the_definition() -> None:
    assert contrast("#000000", ("#ffffff",)) == pytest.approx(21)
    assert contrast("#777777", ("#ffffff",)) == pytest.approx(4.48, abs=0.01)


def test_no_colour_stands_twice_and_warps_use_each_hue_once() -> None:
    assert len(set(FILLS)) == 32
    assert sorted(WARP_HUES) == list(range(len(HUES)))


def test_the_first_four_warps_are_further_apart_than_any_eight(
    seen: tuple[FloatArray, float, float],
) -> None:
    ucs, _, _ = seen
    distance = np.linalg.norm(ucs[:, None, 0] - ucs[None, :, 0], axis=-1)
    four = list(WARP_HUES[:4])
    among = distance[np.ix_(four, four)][~np.eye(4, dtype=bool)].min()
    assert among > distance[~np.eye(8, dtype=bool)].min() + 3
