"""The conda recipe needs what the extra cli needs."""

import re
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
RENAMED = {"matplotlib-base": "matplotlib"}


def test_the_recipe_has_the_requirements_of_the_extra_cli():
    project = (ROOT / "pyproject.toml").read_text(encoding="utf-8")
    tables = re.search(r"^tabular = \[\n(.*?)^\]", project, re.MULTILINE | re.DOTALL)[1]
    command = re.search(r'^cli = \["metricfit\[tabular\]", (.*)\]', project, re.MULTILINE)[1]
    needed = set(re.findall(r'"([a-z-]+>=[\d.]+)"', tables + command)) | {"numpy>=1.26"}
    run = (ROOT / "conda" / "meta.yaml").read_text(encoding="utf-8").split("  run:")[1].split("\ntest:")[0]
    found = re.findall(r"- ([a-z-]+) (>=[\d.]+)", run)
    assert {RENAMED.get(name, name) + least for name, least in found} == needed
