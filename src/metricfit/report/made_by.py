"""How a page was made: the command, the versions and the time, for the list at its end."""

from __future__ import annotations

import platform
import shlex
import sys
from datetime import datetime
from importlib.metadata import version

from metricfit._version import __version__


def made_by() -> dict[str, str]:
    """The running command, what it ran with, and when.

    >>> list(made_by())
    ['Command', 'Versions', 'Made']
    """
    packages = ", ".join(f"{name} {version(name)}" for name in ("torch", "scikit-learn", "skrub"))
    return {
        "Command": shlex.join(["metricfit", *sys.argv[1:]]),
        "Versions": f"metricfit {__version__}, {packages}, Python {platform.python_version()}",
        "Made": datetime.now().astimezone().strftime("%Y-%m-%d %H:%M %Z"),
    }
