"""Charts: drawn by matplotlib, embedded as SVG whose colours are the page's and whose marks the page can move."""

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
import numpy as np
import numpy.typing as npt
from markupsafe import Markup
from matplotlib.axes import Axes
from matplotlib.backends.backend_svg import FigureCanvasSVG
from matplotlib.figure import Figure

from metricfit.errors import printable
from metricfit.report.formatting import shortened

Floats = npt.NDArray[np.float64]
SVG = "http://www.w3.org/2000/svg"
THINNEST = 1.0


@dataclass(frozen=True)
class Mark:
    """What the threshold explorer moves: a point (x, y), or without y a vertical line.

    ``x`` and ``y`` are names of metrics; None as ``x`` is the threshold. ``at`` is where it stands first. ``role`` is
    "mark" for the threshold in effect, "chosen" for the one that was chosen, and "cost" for the best one at the costs
    that are typed.
    """

    x: str | None
    y: str | None
    at: tuple[float, float]
    role: str = "mark"


@dataclass(frozen=True)
class Curve:
    """A curve through all stops, which the threshold explorer draws again for another method.

    ``x`` and ``y`` are names of metrics; None as ``x`` is the threshold. ``points`` are where it goes first, with NaN
    for a gap. ``looks`` are classes of the page's style. A step has the value of a stop up to the stop, from the one
    before it. The feasible part is where all requirements hold.
    """

    x: str | None
    y: str
    points: tuple[Floats, Floats]
    looks: str = "first"
    step: bool = False
    feasible_only: bool = False


@dataclass(frozen=True)
class Ranges:
    """Ranges of thresholds, shaded: "feasible" or "interval"."""

    role: str
    ranges: Sequence[tuple[float, float]]


Overlay = Mark | Curve | Ranges


@dataclass(frozen=True)
class Frame:
    """The axes of a chart: for each of them its limits, and where these are in the picture."""

    x: tuple[float, float, float, float]
    y: tuple[float, float, float, float]

    def element(self, overlay: Overlay) -> ElementTree.Element:
        """Draw an overlay."""
        if isinstance(overlay, Curve):
            return self._curve(overlay)
        return self._mark(overlay) if isinstance(overlay, Mark) else self._ranges(overlay)

    def _mark(self, mark: Mark) -> ElementTree.Element:
        x, y = float(_place(mark.at[0], self.x)), float(_place(mark.at[1], self.y))
        attributes = {"class": mark.role} | self._axes(mark.x, mark.y)
        if mark.y is None:
            start, end = self.y[2:]
            ends = {"x1": f"{x:.2f}", "x2": f"{x:.2f}", "y1": f"{start:.2f}", "y2": f"{end:.2f}"}
            return ElementTree.Element(f"{{{SVG}}}line", attributes | ends)
        return ElementTree.Element(f"{{{SVG}}}circle", attributes | {"cx": f"{x:.2f}", "cy": f"{y:.2f}", "r": "5"})

    def _curve(self, curve: Curve) -> ElementTree.Element:
        xs, ys = _place(curve.points[0], self.x), _place(curve.points[1], self.y)
        attributes = {"class": f"curve {curve.looks}"} | self._axes(curve.x, curve.y)
        if curve.step:
            attributes["data-step"] = ""
        if curve.feasible_only:
            attributes["data-feasible"] = ""
        path = step_path(xs, ys, self.x[2]) if curve.step else line_path(xs, ys)
        return ElementTree.Element(f"{{{SVG}}}path", attributes | {"d": path})

    def _ranges(self, ranges: Ranges) -> ElementTree.Element:
        top, bottom = sorted(self.y[2:])
        group = ElementTree.Element(f"{{{SVG}}}g", {"class": ranges.role} | self._axes(None, None))
        group.set("data-box", f"{top:.2f} {bottom - top:.2f}")
        for ends in ranges.ranges:
            start, end = (float(_place(at, self.x)) for at in ends)
            width = max(end - start, THINNEST)
            box = {
                "x": f"{end - width:.2f}",
                "y": f"{top:.2f}",
                "width": f"{width:.2f}",
                "height": f"{bottom - top:.2f}",
            }
            ElementTree.SubElement(group, f"{{{SVG}}}rect", box)
        return group

    def _axes(self, x: str | None, y: str | None) -> dict[str, str]:
        left, right, x0, x1 = self.x
        bottom, top, y0, y1 = self.y
        attributes = {"data-x-range": f"{left!r} {right!r} {x0:.2f} {x1:.2f}"}
        if x is not None:
            attributes["data-x"] = printable(x)
        if y is not None:
            attributes |= {"data-y": printable(y), "data-y-range": f"{bottom!r} {top!r} {y0:.2f} {y1:.2f}"}
        return attributes


def step_path(xs: Floats, ys: Floats, start: float) -> str:
    """Write the path of a step: the value of each point from the point before up to itself.

    >>> step_path(np.array([1.0, 2.0]), np.array([5.0, 7.0]), 0.0)
    'M0 5H1V7H2'
    """
    texts = [f"{y:.1f}".removesuffix(".0") for y in ys]
    parts, before = [f"M{start:.1f}".removesuffix(".0") + f" {texts[0]}"], texts[0]
    for number, y in enumerate(texts):
        if y != before:
            parts.append(f"H{xs[number - 1]:.1f}".removesuffix(".0") + f"V{y}")
            before = y
    return "".join([*parts, f"H{xs[-1]:.1f}".removesuffix(".0")])


def line_path(xs: Floats, ys: Floats) -> str:
    """Write the path of a line, with a gap where a point is NaN.

    >>> line_path(np.array([0.0, 1.0, 2.0]), np.array([3.0, np.nan, 4.5]))
    'M0 3M2 4.5'
    """
    parts, pen, before = [], "M", ""
    for x, y in zip(xs.tolist(), ys.tolist(), strict=True):
        if np.isnan(x) or np.isnan(y):
            pen, before = "M", ""
            continue
        point = f"{x:.1f}".removesuffix(".0") + " " + f"{y:.1f}".removesuffix(".0")
        if point != before:
            parts.append(pen + point)
        pen, before = "L", point
    return "".join(parts)


def _place(values: float | Floats, axis: tuple[float, float, float, float]) -> Floats:
    low, high, start, end = axis
    placed: Floats = start + np.clip((np.asarray(values) - low) / (high - low), 0.0, 1.0) * (end - start)
    return placed


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
