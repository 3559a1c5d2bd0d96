"""Whether the value that fit estimates for a large table is that on other rows.

    python -m studies.large_estimates FOLDER             # fits what is not yet fitted; half a minute for each fit
    python -m studies.large_estimates                    # write the page's table from the results

Pairs of tables of a million rows are drawn by ``many_rows.py``. A model is fitted on each table and evaluated on the
other one of its pair. The model is boosted trees of 20 rounds.
"""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path
from statistics import fmean

from metricfit import MetricClassifier
from metricfit.data.reading import ParquetTable
from metricfit.tabular.classifier import ScoredRows
from metricfit.tabular.families import boosting
from studies.common import fill, table
from studies.many_rows import write_tables

RESULTS = Path(__file__).resolve().parent / "results" / "large_estimates.json"
PAGE = RESULTS.parents[2] / "docs" / "evidence" / "tables.md"
ROWS, ROUNDS, TABLES = 1_000_000, 20, 6


def measure(fitted: Path, other: Path) -> dict[str, object]:
    """Fit on one table, and evaluate on the other."""
    boosting.MAXIMUM_ROUNDS = ROUNDS
    train, test = ParquetTable([fitted]), ParquetTable([other])
    model = MetricClassifier("f1", models=["boosting"], time_budget=None, random_state=0)
    model.fit(train.without(["fraud"]), train["fraud"].to_numpy())
    scored = [ScoredRows.of(model, part) for part in test.without(["fraud"]).batches(100_000)]
    value = model.score(ScoredRows.join(scored), test["fraud"].to_numpy())
    return {"estimate": model.value_, "interval": list(model.value_interval_), "other_rows": value}


def run(folder: Path) -> None:
    """Fit what is not in the results yet."""
    folder.mkdir(parents=True, exist_ok=True)
    paths = [folder / f"{number}-{ROWS}.parquet" for number in range(TABLES)]
    write_tables(paths, ROWS)
    results = json.loads(RESULTS.read_text()) if RESULTS.exists() else {}
    for number, path in enumerate(paths):
        if str(number) not in results:
            results[str(number)] = measure(path, paths[number ^ 1])
            print(number, results[str(number)], flush=True)
            RESULTS.write_text(json.dumps(results, indent=1) + "\n")


def write_page() -> None:
    """Write the table of the page."""
    rows = []
    for name, found in sorted(json.loads(RESULTS.read_text()).items()):
        low, high = found["interval"]
        rows.append(
            [
                str(int(name) + 1),
                str((int(name) ^ 1) + 1),
                f"{found['estimate']:.3f} ({low:.3f} to {high:.3f})",
                f"{found['other_rows']:.3f}",
                f"{found['estimate'] - found['other_rows']:+.3f}",
            ]
        )
    differences = [found["estimate"] - found["other_rows"] for found in json.loads(RESULTS.read_text()).values()]
    rows.append(["mean", "", "", "", f"{fmean(differences):+.3f}"])
    heads = [
        "fitted on table",
        "evaluated on table",
        "F1 estimated (95 % interval)",
        "F1 on the other table",
        "difference",
    ]
    PAGE.write_text(fill(PAGE.read_text(), {"estimates": table(heads, rows)}))


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("folder", nargs="?", type=Path, help="where the tables are written")
    chosen = parser.parse_args().folder
    sys.exit(write_page() if chosen is None else run(chosen))
