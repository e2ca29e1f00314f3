"""The explorer as a notebook widget: Python reads and sets the chosen element.

Needs anywidget (``pip install 'layoutalg[jupyter]'``). Without it, or without a kernel, a layout
displays as a page in a frame: see :mod:`layoutalg.layouts.html`.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from typing import Any

from layoutalg.draw.explorer.page import layout_document, resource
from layoutalg.draw.scene.ownership import DEFAULT_LANE
from layoutalg.errors import LayoutError
from layoutalg.front_door import LayoutLike

_RENDER = """
export default {
  render({ model, el }) {
    const root = el.appendChild(document.createElement("div"));
    let telling = false; // changes that we send to Python are not applied again
    const tell = ({ chosen, state, spaces: [space] }) => {
      telling = true;
      model.set({ hovered: chosen, pinned: state.pinned ? chosen : null });
      model.set({ layout: space.text, shape: space.shape });
      model.save_changes();
      telling = false;
    };
    const explorer = mount(root, model.get("document"), { change: tell });
    const on = (name, set) => model.on(`change:${name}`, () => telling || set(model.get(name)));
    on("pinned", (place) => explorer.choose(place, true));
    on("hovered", (place) => explorer.state.pinned || explorer.choose(place, false));
    const show = () => {
      const [space] = explorer.spaces;
      const { text, shape } = space.fields;
      text.value = model.get("layout");
      shape.value = model.get("shape").join(", ");
      explorer.typed(space, text.value, shape.value);
    };
    on("layout", show);
    on("shape", show);
    if (model.get("pinned")) explorer.choose(model.get("pinned"), true);
  },
};
"""


def module_text() -> str:
    """Return the JavaScript module that anywidget loads: the engine, and its link to the traits.

    >>> module_text().count("export default")
    1
    """
    return resource("explorer.js") + _RENDER


@cache
def _widget_type() -> Any:
    """Return the class of the widget; anywidget is imported here."""
    try:
        import anywidget
        import traitlets
    except ImportError as error:
        raise LayoutError(
            f"widget: needs anywidget ({error}): pip install 'layoutalg[jupyter]'. Without it "
            "layout.to_html() and the display of a layout show the same page, not linked to Python"
        ) from None

    class ExplorerWidget(anywidget.AnyWidget):  # type: ignore[misc]
        """A layout in a notebook; ``hovered`` and ``pinned`` are coordinates, or None."""

        _esm = module_text()
        _css = resource("explorer.css")
        document = traitlets.Dict().tag(sync=True)
        layout = traitlets.Unicode().tag(sync=True)
        shape = traitlets.List(traitlets.Int()).tag(sync=True)
        hovered = traitlets.List(traitlets.Int(), None, allow_none=True).tag(sync=True)
        pinned = traitlets.List(traitlets.Int(), None, allow_none=True).tag(sync=True)

        @traitlets.validate("hovered", "pinned")  # type: ignore[untyped-decorator]
        def _element(self, proposal: Any) -> Any:
            """Accept a coordinate inside the shape, or None."""
            place, name = proposal["value"], proposal["trait"].name
            if place is None:
                return None
            inside = len(place) == len(self.shape) and all(
                0 <= index < extent for index, extent in zip(place, self.shape, strict=True)
            )
            if not inside:
                raise LayoutError(
                    f"widget: {name} is an element of shape {tuple(self.shape)}, or None; got "
                    f"{tuple(place)}"
                )
            return place

    return ExplorerWidget


def widget(
    layout: LayoutLike,
    shape: Sequence[int] | None = None,
    *,
    lane: int = DEFAULT_LANE,
    title: str | None = None,
    bits: int | None = None,
) -> Any:
    """Return a notebook widget that shows a layout and is linked to Python both ways.

    Traits: ``hovered`` and ``pinned`` (an element's coordinate as a list, or None), ``layout`` (its
    text) and ``shape``. Each changes when the reader points, clicks or types, and changes the
    picture when it is set: ``widget(L).observe(print, "pinned")``.

    Args:
        layout: as for :func:`layoutalg.draw.layout_html`.
        shape: likewise.
        lane: likewise.
        title: likewise.
        bits: likewise.

    Raises:
        LayoutError: anywidget is not installed, or as :func:`layoutalg.draw.layout_html`.
    """
    document = layout_document(layout, shape, lane=lane, title=title, bits=bits)
    (space,) = document["spaces"]
    shown = {"layout": space["layout"], "shape": list(space["shape"])}
    return _widget_type()(document=document, **shown)
