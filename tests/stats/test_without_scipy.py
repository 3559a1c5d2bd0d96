"""The extra is an extra: without it the library imports, and the statistics say what to install."""

import subprocess
import sys

import pytest


@pytest.mark.parametrize("missing", ["scipy", "baycomp"])
def test_the_missing_package_is_named(missing):
    code = f"""
import sys
sys.modules[{missing!r}] = None
import metricfit
try:
    import metricfit.stats
except ModuleNotFoundError as error:
    print(error)
"""
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    expected = f"metricfit.stats needs {missing}, which is not installed: pip install metricfit[tabular]"
    assert run.stdout.strip() == expected
