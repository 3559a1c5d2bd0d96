"""The extra is an extra: without it the library imports, and the statistics say what to install."""

import subprocess
import sys

import pytest


@pytest.mark.parametrize(
    ("missing", "user", "call"),
    [
        ("scipy", "metricfit.stats", ""),
        ("baycomp", "the signed-rank test", ".compare([0.1, 0.2, 0.4, 0.3, 0.5], [0.2, 0.3, 0.3, 0.5, 0.7])"),
    ],
)
def test_the_missing_package_is_named(missing, user, call):
    code = f"""
import sys
sys.modules[{missing!r}] = None
import metricfit
try:
    import metricfit.stats
    metricfit.stats{call}
except ModuleNotFoundError as error:
    print(error)
"""
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    expected = f"{user} needs {missing}, which is not installed: pip install metricfit[tabular]"
    assert run.stdout.strip() == expected
