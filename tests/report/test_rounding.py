"""Numbers in the page and numbers that its script writes are rounded alike."""

import json
import re
import shutil
import subprocess
from importlib.resources import files

import numpy as np
import pytest

from metricfit.report import formatting as words

SCRIPT = (files("metricfit.report") / "assets" / "explorer.js").read_text()


def test_halves_go_away_from_zero():
    """As ECMAScript's Number.prototype.toFixed has it: of two nearest the larger, signs apart."""
    assert words.value(1 / 16) == "0.063"
    assert words.value(-1 / 16) == "-0.063"
    assert words.value(0.0615) == "0.061"  # the double is below the half
    assert words.value(12.25) == "12.3"
    assert words.value(-0.0) == "0.000"
    assert words.count(0.125) == "0.13"
    assert words.count(1234567.0) == "1,234,567"
    assert words.percent(0.5 + 1 / 800) == "50.1\u00a0%"
    assert words.value(1e300).startswith("1,000,000,000,000,000,052,504,760,255,204,420,248,704")


@pytest.mark.skipif(shutil.which("node") is None, reason="needs node")
def test_the_script_writes_what_python_writes():
    written = re.search(r"  const grouped =.*?\n  };\n", SCRIPT, re.DOTALL).group()
    rng = np.random.default_rng(0)
    numbers = [
        *(k / 2**n for n in range(2, 12) for k in range(1, 40)),
        *(k / 1000 for k in range(0, 1000, 7)),
        *rng.random(200),
        *(10 ** rng.uniform(-9, 9, 300)),
        *(-(10 ** rng.uniform(-5, 5, 100))),
        *(9.99e-05, 2e-08, -9.96e-05, 0.0, 1.0, 1.005, 10.05, 9.9995, 999.95, 1234567.0, 1e15),
    ]
    numbers = [float(each) for each in numbers]
    shares = [each for each in numbers if 0 <= each <= 1 and not 0 < each < 1e-6]
    program = f"""
    {written}
    const [numbers, shares] = JSON.parse(require("fs").readFileSync(0, "utf8"));
    const all = [numbers.map(written.value), numbers.map(written.count), shares.map(written.percent)];
    console.log(JSON.stringify(all));
    """
    run = subprocess.run(
        ["node", "-e", program], input=json.dumps([numbers, shares]), capture_output=True, text=True, timeout=60
    )
    assert run.returncode == 0, run.stderr
    found = json.loads(run.stdout)
    wanted = [list(map(words.value, numbers)), list(map(words.count, numbers)), list(map(words.percent, shares))]
    for given, mine, theirs in zip([numbers, numbers, shares], wanted, found, strict=True):
        assert [pair for pair in zip(given, mine, theirs, strict=True) if pair[1] != pair[2]] == []
