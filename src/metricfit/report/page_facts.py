"""The title of a page and the facts at its end: the data, the classes, the requirements, and how it was made."""

from __future__ import annotations

import platform
from collections.abc import Sequence
from datetime import datetime
from importlib.metadata import version

from metricfit._version import __version__

#: Labels that only say yes; the name of the column says to what.
YES = {"1", "1.0", "True", "true", "TRUE", "yes", "Yes", "YES"}


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


def name_rows(label: str, target: str | None) -> str:
    """Return what to call the rows of a class.

    Args:
        label: The label of the class.
        target: Name of the column with the labels, if it is known.

    Returns:
        The words.

    Example:
        >>> name_rows("1", "fraud"), name_rows("leaves", "churn"), name_rows("1", None)
        ('rows with fraud = 1', '“leaves” rows', '“1” rows')
    """
    return f"rows with {target} = {label}" if label in YES and target is not None else f"“{label}” rows"


def made_by(command: str | None = None) -> dict[str, str]:
    """Return the command if there was one, the versions of the packages, and the time.

    >>> list(made_by("metricfit fit t.csv"))
    ['Command', 'Versions', 'Made']
    """
    packages = ", ".join(f"{name} {version(name)}" for name in ("torch", "scikit-learn", "skrub"))
    return ({} if command is None else {"Command": command}) | {
        "Versions": f"metricfit {__version__}, {packages}, Python {platform.python_version()}",
        "Made": datetime.now().astimezone().strftime("%Y-%m-%d %H:%M %Z"),
    }


def data_fact(data: str | None, target: str | None) -> dict[str, str]:
    """Return the names of the table and of its target column, as far as they are known.

    >>> data_fact("t.csv", "churn"), data_fact(None, None)
    ({'Data': 't.csv, column “churn”'}, {})
    """
    names = [*([] if data is None else [data]), *([] if target is None else [f"column “{target}”"])]
    return {"Data": ", ".join(names)} if names else {}


def positive_class_fact(classes: tuple[str, str]) -> dict[str, str]:
    """Say which class is the positive one; it is the second of ``classes``."""
    return {"Positive class": f"“{classes[1]}”; the other class is “{classes[0]}”"}


def requirements_fact(subject_to: Sequence[object]) -> dict[str, str]:
    """Return the requirements, if there are any."""
    return {"Required": " and ".join(map(str, subject_to))} if subject_to else {}
