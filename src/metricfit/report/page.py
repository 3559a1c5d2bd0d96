"""The page: a title, a headline, a verdict and sections, in one HTML file that loads nothing from the network."""

from __future__ import annotations

import base64
import hashlib
import itertools
import os
import platform
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import datetime
from importlib import resources
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

import jinja2
from markupsafe import Markup

from metricfit._files import new_file
from metricfit._version import __version__
from metricfit.errors import printable
from metricfit.metrics import Requirement
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
        first_screen: What the decisions and alternatives do, in counts of rows.
        judges: Whether the page compares something, so that ``verdict`` is one; otherwise it has no title.

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
    judges: bool = True


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


def title_page(metric: str, data: str | None, target: str | None) -> str:
    """Return the title of a page: what is predicted, where, and what it is judged by.

    Args:
        metric: What people call the metric.
        data: Name of the table, if it is known.
        target: Name of the column that is predicted, if it is known.

    Returns:
        The title.

    Example:
        >>> title_page("F1", "transactions.csv", "fraud")
        'Predicting “fraud” in transactions.csv, judged by F1'
        >>> title_page("F1", None, None)
        'A classifier judged by F1'
    """
    if data is None and target is None:
        return f"A classifier judged by {metric}"
    what = "Predictions" if target is None else f"Predicting “{target}”"
    return f"{what}{'' if data is None else f' in {data}'}, judged by {metric}"


def facts_of_page(
    facts: Mapping[str, str], *, data: str | None, target: Any, subject_to: Any, command: str | None
) -> dict[str, str]:
    """Return the facts at the end of a page, among those about its data, its requirements and how it was made.

    Args:
        facts: The facts that only this page has.
        data: Name of the table, if it is known.
        target: Name of the column that is predicted, if it is known.
        subject_to: The requirements, or None.
        command: The command that made the page, if there was one.

    Returns:
        The facts.

    Example:
        >>> facts = facts_of_page({"Rows": "160"}, data="t.csv", target="churn", subject_to=None, command=None)
        >>> list(facts), facts["Data"]
        (['Data', 'Rows', 'Versions', 'Made'], 't.csv, column “churn”')
    """
    names = [*([] if data is None else [data]), *([] if target is None else [f"column “{target}”"])]
    required = [subject_to] if isinstance(subject_to, (str, Requirement)) else list(subject_to or ())
    packages = [f"metricfit {__version__}"]
    for package in ("numpy", "scikit-learn", "lightgbm", "torch"):
        with suppress(PackageNotFoundError):
            packages.append(f"{package} {version(package)}")
    return {
        **({"Data": ", ".join(names)} if names else {}),
        **facts,
        **({"Required": " and ".join(map(str, required))} if required else {}),
        **({} if command is None else {"Command": command}),
        "Versions": f"{', '.join(packages)}, Python {platform.python_version()}",
        "Made": datetime.now().astimezone().strftime("%Y-%m-%d %H:%M %Z"),
    }


def positive_class_fact(classes: Sequence[str]) -> dict[str, str]:
    """Say which of two classes is the positive one, the second; nothing for several classes."""
    return {"Positive class": f"“{classes[1]}”; the other class is “{classes[0]}”"} if len(classes) == 2 else {}


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
