"""The page: a title, a headline, a verdict and sections, in one HTML file that loads nothing from the network."""

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

from metricfit._files import new_file
from metricfit._version import __version__
from metricfit.errors import printable
from metricfit.report import formatting
from metricfit.report.charts import Chart
from metricfit.report.first_screen import FirstScreen

PathLike = str | os.PathLike[str]
SCRIPTS = ("page.js", "explorer.js")


@dataclass(frozen=True)
class Section:
    """A part of the page, made by ``comparison``, ``learning_curves``, ``models``, ``scores`` or ``multiclass``.

    Args:
        title: Title of the section.
        template: Name of its template.
        context: What the template shows.
        lead: A sentence or two below the title.
        folded: Whether the section opens only when its title is clicked.

    Example:
        >>> from metricfit.report import multiclass
        >>> multiclass([0, 1], [0, 1], classes=["cat", "dog"]).title
        'Decisions by class'
    """

    title: str
    template: str
    context: Mapping[str, Any]
    lead: str = ""
    folded: bool = False


@dataclass(frozen=True)
class Report:
    """The content of a page.

    Args:
        title: Title of the page, such as the name of the table.
        headline: The main result, in one sentence.
        verdict: What to do, in a few sentences.
        sections: The evidence.
        facts: How the page was made, such as data, rows, seed and command; shown as a list at the end.
        first_screen: What the decisions do, in counts of rows, beside alternatives.

    Example:
        >>> report = Report("churn.csv", "F1 is 0.71 on rows the model has not seen.", "Use the tuned threshold.")
        >>> "<h1>churn.csv</h1>" in render(report)
        True
    """

    title: str
    headline: str
    verdict: str
    sections: Sequence[Section] = ()
    facts: Mapping[str, str] = field(default_factory=dict)
    first_screen: FirstScreen | None = None


def render(report: Report) -> str:
    """Render a page as HTML.

    Everything that comes from the data is escaped. A security policy in the page allows only its own script to run,
    and nothing to be loaded.

    Args:
        report: The content of the page.

    Returns:
        The HTML text.

    Example:
        >>> render(Report("a", "b", "c")).startswith("<!DOCTYPE html>")
        True
    """
    script = "\n".join(map(_asset, SCRIPTS))
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
    return printable(html)


def write(report: Report, path: PathLike) -> Path:
    """Write a page to a file, completely or not at all.

    Args:
        report: The content of the page.
        path: The file. Missing folders are created.

    Returns:
        The path of the file.

    Raises:
        IsADirectoryError: If the path is a folder.

    Example:
        >>> import tempfile
        >>> folder = tempfile.mkdtemp()
        >>> write(Report("a", "b", "c"), f"{folder}/report.html").name
        'report.html'
    """
    file = Path(path)
    if file.is_dir():
        raise IsADirectoryError(f"{file} is a folder; give the page a file name, such as {file / 'report.html'}")
    html = render(report)
    with new_file(file) as unfinished:
        unfinished.write_bytes(html.encode())
    return file


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
    environment.globals["formatting"] = formatting
    return environment
