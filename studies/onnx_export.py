"""Size, latency and agreement of exported models on real tables.

    python -m studies.onnx_export --data ../shared/data            # export; finished cells are kept in the results
    python -m studies.onnx_export --data ../shared/data --cell adult extra_trees --saved FOLDER   # train once
    python -m studies.onnx_export                                  # write the page's table from the results

Every model is trained on all rows of its table and compared with its graph on the same rows. Times are the fastest of
many calls, because other programs may run on the machine.
"""

from __future__ import annotations

import argparse
import json
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pandas as pd

from metricfit import MetricClassifier
from metricfit.export.onnx import feed, start_session
from metricfit.export.onnx.columns import inputs_of
from studies.common import fill, table

RESULTS = Path(__file__).resolve().parent / "results" / "onnx_export.json"
PAGE = RESULTS.parents[2] / "docs" / "export.md"
MODELS = {
    "auto": "default",
    "kernel": "kernel",
    "boosting": "boosting",
    "extra_trees": "extra_trees",
}
CELLS = [
    ("phoneme", "kernel"),
    ("phoneme", "boosting"),
    ("phoneme", "extra_trees"),
    ("adult", "auto"),
    ("adult", "extra_trees"),
]


def export_cell(data: Path, name: str, models: str, saved: Path | None) -> dict[str, Any]:
    """Train on a table, or load the model that was trained there, export, and return the facts."""
    frame = pd.read_parquet(data / "tabular" / f"{name}.parquet")
    X, y = frame.drop(columns=["target", "split"], errors="ignore"), frame["target"]
    if saved is not None and saved.exists():
        model = MetricClassifier.load(saved)
    else:
        model = MetricClassifier("f1", models=models, time_budget=None, random_state=0).fit(X, y)
        if saved is not None:
            model.save(saved)
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "model.onnx"
        result = model.export_onnx(path, X)
        names = model.feature_names_in_.tolist()
        session, inputs = start_session(path.read_bytes()), inputs_of(model.encoder_, names)
    few = X[:1000]
    arrays = feed(few, inputs, model.encoder_)
    one = {key: values[:1] for key, values in arrays.items()}
    return {
        "table": name,
        "models": models,
        "rows": len(X),
        "columns": X.shape[1],
        "families": [member.name for member in model.ensemble_.members],
        "bytes": result.bytes,
        "different_labels": len(result.different_rows),
        "largest_difference": result.largest_difference,
        "graph": {
            "one": fastest(lambda: session.run(None, one), 300),
            "many": fastest(lambda: session.run(None, arrays), 15),
        },
        "model": {"one": fastest(lambda: model.predict(few[:1]), 30), "many": fastest(lambda: model.predict(few), 10)},
    }


def fastest(call: Callable[[], Any], times: int) -> float:
    """Return the milliseconds of the fastest of several calls."""
    durations = []
    for _ in range(times):
        start = time.perf_counter()
        call()
        durations.append(1000 * (time.perf_counter() - start))
    return min(durations)


def page_table(cells: list[dict[str, Any]]) -> str:
    """One row per table and model."""
    header = [
        "table and models",
        "families with weight",
        "size",
        "labels that differ",
        "largest difference",
        "one row, Python",
        "one row, graph",
        "1,000 rows, Python",
        "1,000 rows, graph",
    ]
    rows = [
        [
            f"{cell['table']} ({cell['rows']:,} x {cell['columns']}), {MODELS[cell['models']]}",
            ", ".join(cell["families"]),
            f"{cell['bytes'] / 1e6:.1f} MB",
            f"{cell['different_labels']} of {cell['rows']:,}",
            f"{cell['largest_difference']:.0e}",
            f"{cell['model']['one']:.1f} ms",
            f"{cell['graph']['one']:.2f} ms",
            f"{cell['model']['many']:.0f} ms",
            f"{cell['graph']['many']:.0f} ms",
        ]
        for cell in cells
    ]
    return table(header, rows)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, help="folder with tabular/*.parquet")
    parser.add_argument("--cell", nargs=2, metavar=("TABLE", "MODELS"), help="this cell alone")
    parser.add_argument("--saved", type=Path, help="folder of the trained model of this cell; it is made if missing")
    parser.add_argument("--results", type=Path, default=RESULTS)
    options = parser.parse_args()
    cells = json.loads(options.results.read_text()) if options.results.exists() else []
    if options.data is not None:
        for name, models in [tuple(options.cell)] if options.cell else CELLS:
            if not any((cell["table"], cell["models"]) == (name, models) for cell in cells):
                cells.append(export_cell(options.data, name, models, options.saved))
                options.results.write_text(json.dumps(cells, indent=1) + "\n")
                print(cells[-1])
    if options.results == RESULTS:
        PAGE.write_text(fill(PAGE.read_text(), {"sizes": page_table(cells)}))


if __name__ == "__main__":
    main()
