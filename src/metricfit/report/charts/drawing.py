"""Charts: drawn by matplotlib, embedded as SVG whose colours are the page's and whose marks the page can move.

Matplotlib rather than plotly: its SVGs need no script, print, follow the light and dark colours through CSS and take
kilobytes, where plotly's wheel brings one script of 4.8 MB, which every page would carry.
"""

from __future__ import annotations

import copy
import io
import re
import warnings
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple
from xml.etree import ElementTree

import matplotlib as mpl
from markupsafe import Markup
from matplotlib.axes import Axes
from matplotlib.backends.backend_svg import FigureCanvasSVG
from matplotlib.figure import Figure

from metricfit.errors import printable
from metricfit.report.charts.overlays import SVG, Frame, Overlay
from metricfit.report.formatting import shortened

LINK = "{http://www.w3.org/1999/xlink}href"
POINTS_PER_INCH = 72
#: Colours that stand for the page's variables, and are replaced by them.
INK, MUTED, LINE, FIRST, SECOND, GOOD = "#000001", "#000002", "#000003", "#000004", "#000005", "#000006"
VARIABLES = {INK: "--ink", MUTED: "--muted", LINE: "--line", FIRST: "--first", SECOND: "--second", GOOD: "--good"}
STYLE: dict[Any, Any] = {
    "svg.fonttype": "none",
    "svg.hashsalt": "metricfit",
    "text.parse_math": False,
    "font.size": 9.5,
    "text.color": INK,
    "axes.edgecolor": MUTED,
    "axes.labelcolor": INK,
    "axes.titlecolor": INK,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.grid": True,
    "axes.axisbelow": True,
    "grid.color": LINE,
    "grid.linewidth": 0.7,
    "xtick.color": MUTED,
    "ytick.color": MUTED,
    "xtick.labelcolor": INK,
    "ytick.labelcolor": INK,
    "legend.frameon": False,
    "legend.fontsize": 8.5,
    "lines.linewidth": 1.8,
}

#: For functions that draw: matplotlib reads the style as each thing is drawn.
styled = mpl.rc_context(STYLE)


class Widths(NamedTuple):
    """One chart drawn twice: for wide screens and paper, and for narrow screens, where the wide one is too small."""

    wide: Chart
    narrow: Chart


@dataclass(frozen=True)
class Chart:
    """A drawn chart: what it is called, what it shows in words, and the picture."""

    title: str
    description: str
    picture: ElementTree.Element
    #: The share of the width to the left and to the right of the axes: for a slider below to be in line with them.
    margins: tuple[float, float]

    def html(self, number: int) -> Markup:
        """The SVG, with ids of its own by the number it has in the page."""
        picture = copy.deepcopy(self.picture)
        prefix = f"chart{number}-"
        for element in picture.iter():
            for name, value in element.attrib.items():
                if name == "id":
                    element.set(name, prefix + value)
                elif name == "href":
                    element.set(name, f"#{prefix}{value.removeprefix('#')}")
                else:
                    element.set(name, value.replace("url(#", f"url(#{prefix}"))
        return Markup(ElementTree.tostring(picture, encoding="unicode"))


class Drawing:
    """A figure with one pair of axes, drawn in by a ``styled`` function; ``finished`` makes the Chart."""

    def __init__(self, width: float = 4.6, height: float = 3.3) -> None:
        self.figure = Figure(figsize=(width, height), layout="constrained")
        FigureCanvasSVG(self.figure)
        self.axes: Axes = self.figure.add_subplot()
        self.figure.patch.set_visible(False)
        self.axes.patch.set_visible(False)

    def unit_square(self, x: str, y: str) -> None:
        """Both axes from 0 to 1, with room for a mark at the edge."""
        self.axes.set(xlim=(-0.02, 1.02), ylim=(-0.02, 1.02), xlabel=x, ylabel=y)

    def finished(self, title: str, description: str, overlays: Sequence[Overlay] = ()) -> Chart:
        """The chart, for the page; overlays are what the page's script can move or draw again."""
        written = io.BytesIO()
        with warnings.catch_warnings():
            # The reader's browser draws the text, with its own fonts.
            warnings.filterwarnings("ignore", message="Glyph .* missing from", category=UserWarning)
            self.figure.savefig(written, format="svg", metadata={"Date": None, "Creator": None}, transparent=True)
        root = ElementTree.fromstring(written.getvalue())
        _clean(root)
        box = self.axes.get_position()
        frame = self._frame()
        for overlay in overlays:
            root.append(frame.element(overlay))
        heading = ElementTree.Element(f"{{{SVG}}}title")
        heading.text = printable(f"{title}. {description}")
        root.insert(0, heading)
        root.attrib |= {"role": "img", "class": "chart", "aria-label": printable(f"{title}. {description}")}
        return Chart(title, description, root, (box.x0, 1 - box.x1))

    def _frame(self) -> Frame:
        width, height = (float(side) * POINTS_PER_INCH for side in self.figure.get_size_inches())
        box = self.axes.get_position()
        left, right, bottom, top = map(float, (*self.axes.get_xlim(), *self.axes.get_ylim()))
        return Frame(
            (left, right, box.x0 * width, box.x1 * width),
            (bottom, top, (1 - box.y0) * height, (1 - box.y1) * height),
        )


def label(text: str, length: int = 34) -> str:
    """A text of the user's for a chart: short, and of characters that an SVG may hold."""
    return printable(shortened(text, length))


def _clean(root: ElementTree.Element) -> None:
    """Colours as the page's variables, no fonts, no sizes, no ids but those that are referred to."""
    ElementTree.register_namespace("", SVG)
    for parent in list(root.iter()):
        for child in list(parent):
            if child.tag == f"{{{SVG}}}metadata":
                parent.remove(child)
    used = set()
    for element in root.iter():
        if LINK in element.attrib:
            element.set("href", element.attrib.pop(LINK))
        for name, value in element.attrib.items():
            used.update(re.findall(r"url\(#([^)]+)\)", value))
            if name == "href":
                used.add(value.removeprefix("#"))
    for element in root.iter():
        if element.get("id") not in used:
            element.attrib.pop("id", None)
        for name in ("style", "fill", "stroke"):
            if name in element.attrib:
                element.set(name, _themed(element.attrib[name]))
    for name in ("width", "height", "version"):
        root.attrib.pop(name, None)


def _themed(style: str) -> str:
    for colour, variable in VARIABLES.items():
        style = style.replace(colour, f"var({variable})")
    size = re.search(r"font:[^;]*?([\d.]+px)[^;]*", style)
    return style.replace(size[0], f"font-size: {size[1]}") if size else re.sub(r"font-family:[^;]*;?", "", style)
