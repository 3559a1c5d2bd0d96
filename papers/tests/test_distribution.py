"""The two distributions are released together, with one version."""

import re
from pathlib import Path

import metricfit
from metricfit_papers._version import __version__

PROJECT = Path(__file__).parents[1] / "pyproject.toml"


def test_the_versions_of_both_distributions_agree():
    """Change both files called ``_version.py``, and the dependency in papers/pyproject.toml."""
    needed = re.search(r'"metricfit\[cli,torch\]==([^"]+)"', PROJECT.read_text(encoding="utf-8"))
    assert needed is not None
    assert metricfit.__version__ == __version__ == needed[1]
