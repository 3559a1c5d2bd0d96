"""What lies over a chart: marks, curves and ranges that the page's script can move or draw again.

``assets/explorer.js`` places them by the same rules, from the numbers in the attributes.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from xml.etree import ElementTree

import numpy as np
import numpy.typing as npt

from metricfit.errors import printable

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
