"""The page: a title, the finding in plain words, sections; one HTML file that asks the network for nothing."""

from __future__ import annotations

import base64
import hashlib
import itertools
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from importlib import resources
from pathlib import Path
from typing import Any

import jinja2
from markupsafe import Markup

from metricfit._files import write_file
from metricfit._version import __version__
from metricfit.report import formatting as words
from metricfit.report.charts.drawing import Chart


@dataclass(frozen=True)
class Section:
    """A part of the page, made by ``comparison``, ``learning_curves``, ``scores`` or ``multiclass``."""

    title: str
    template: str
    context: Mapping[str, Any]
    #: A sentence or two under the title.
    lead: str = ""


@dataclass(frozen=True)
class Report:
    """What the page says.

    Args:
        title: of the page, such as the data's name.
        headline: the one thing to know, in a sentence.
        verdict: what to do, in a sentence or a few.
        sections: the evidence.
        facts: how it was made: data, rows, seed, command; shown as a list at the end.

    >>> report = Report("churn.csv", "F1 is 0.71 on rows the model has not seen.", "Use the tuned threshold.")
    >>> "<h1>churn.csv</h1>" in render(report)
    True
    """

    title: str
    headline: str
    verdict: str
    sections: Sequence[Section] = ()
    facts: Mapping[str, str] = field(default_factory=dict)


def render(report: Report) -> str:
    """The page as text. All that comes from the data is escaped, and a security policy in the page lets no script run
    but the page's own and nothing be loaded.
    """
    script = _asset("explorer.js")
    digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    numbers = itertools.count(1)

    def draw(chart: Chart) -> Markup:
        return chart.html(next(numbers))

    html = (
        _environment()
        .get_template("page.html")
        .render(
            report=report,
            draw=draw,
            style=Markup(_asset("page.css")),
            script=Markup(script),
            policy=f"default-src 'none'; style-src 'unsafe-inline'; img-src data:; script-src 'sha256-{digest}'",
            version=__version__,
        )
    )
    return words.printable(html)


def write(report: Report, path: str | os.PathLike[str]) -> Path:
    """Write the page, whole or not at all, and return its path. Folders that are missing are made.

    >>> import tempfile
    >>> folder = tempfile.mkdtemp()
    >>> write(Report("a", "b", "c"), f"{folder}/report.html").name
    'report.html'
    """
    place = Path(path)
    if place.is_dir():
        raise IsADirectoryError(f"{place} is a folder; give the page a file name, such as {place / 'report.html'}")
    write_file(place, render(report).encode())
    return place


def _asset(name: str) -> str:
    return (resources.files("metricfit.report") / "assets" / name).read_text(encoding="utf-8")


def _environment() -> jinja2.Environment:
    environment = jinja2.Environment(
        loader=jinja2.PackageLoader("metricfit.report"),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.globals["words"] = words
    return environment
