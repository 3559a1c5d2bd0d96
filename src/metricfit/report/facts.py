"""The facts at the end of a page: the data, the classes, the requirements, and how the page was made."""

from __future__ import annotations

import platform
from collections.abc import Sequence
from datetime import datetime
from importlib.metadata import version

from metricfit._version import __version__


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
