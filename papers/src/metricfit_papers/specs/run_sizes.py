"""How much of each table was run for the pages: ``run_sizes.json``, which ``pages.build`` writes from the results."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from importlib import resources
from pathlib import Path

FILE = Path(str(resources.files("metricfit_papers"))) / "tables" / "run_sizes.json"


@dataclass(frozen=True)
class RunSize:
    """What was run of a table beside its published size, in words; empty where nothing was run."""

    protocols: str = ""
    datasets: str = ""
    trials: str = ""
    epochs: str = ""
    smaller: str = ""
    minutes: str = ""


def read_sizes(path: Path = FILE) -> dict[str, RunSize]:
    """Return the size of the runs of each table.

    >>> read_sizes()["btg-3"].trials
    '10 of 10'
    """
    return {name: RunSize(**size) for name, size in json.loads(path.read_text(encoding="utf-8")).items()}


def write_sizes(sizes: dict[str, RunSize], path: Path = FILE) -> None:
    """Write the sizes of all tables."""
    plain = {name: asdict(size) for name, size in sizes.items()}
    path.write_text(json.dumps(plain, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
