"""Python 3.10 reads no hints of a class that has a ``ClassVar`` without a type; hints are the schema of models."""

import re
from pathlib import Path

SOURCE = Path(__file__).resolve().parents[2] / "src" / "metricfit"


def test_class_variables_have_a_type():
    found = [
        f"{path.relative_to(SOURCE)}: {line.strip()}"
        for path in SOURCE.rglob("*.py")
        for line in path.read_text(encoding="utf-8").splitlines()
        if re.search(r": ClassVar(?: =|$)", line)
    ]
    assert found == []
