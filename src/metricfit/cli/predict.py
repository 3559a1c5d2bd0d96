"""``metricfit predict``."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import pandas as pd
import typer

from metricfit._files import new_file
from metricfit.cli import options
from metricfit.cli.command_rows import name_data, read_data
from metricfit.cli.exit_codes import UserError
from metricfit.cli.output_paths import check_file
from metricfit.cli.saved_model import load_model, model_columns
from metricfit.cli.terminal import print_result, status
from metricfit.data.text_format import TextOptions

WRITERS = {
    ".csv": lambda frame, path: frame.to_csv(path, index=False),
    ".parquet": lambda frame, path: frame.to_parquet(path, index=False, write_page_checksum=True),
}


def predict(
    model: options.ModelFolder,
    data: options.Data,
    out: Annotated[Path, typer.Option("--out", help="A new file for the predictions, .csv or .parquet.")],
    sep: options.Separator = None,
    decimal: options.Decimal = None,
    encoding: options.Encoding = None,
    as_json: options.AsJson = False,
    quiet: options.Quiet = False,
) -> None:
    """Predict labels and probabilities of new rows with a saved model."""
    check_file(out, "--out")
    write = WRITERS.get(out.suffix.lower())
    if write is None:
        raise UserError(f"Predictions are written as {' or '.join(WRITERS)}; {out.name!r} ends in neither.")
    classifier = load_model(model)
    table = read_data(data, None, TextOptions(sep, decimal, encoding))
    X = model_columns(classifier, table, name_data(data))
    with status("Predicting ...", quiet):
        probabilities = classifier.predict_proba(X)
        labels = classifier.predict(X)
        # A column of a file has one type, and the label of referred rows may be of another than the classes.
        predictions = pd.DataFrame({"predicted": labels.astype(str) if labels.dtype == object else labels})
    for label, column in zip(classifier.classes_, probabilities.T, strict=True):
        predictions[f"probability of {label}"] = column
    with new_file(out) as unfinished:
        write(predictions, unfinished)
    result = {"rows": len(predictions), "file": str(out)}
    print_result(result, as_json, [f"{len(predictions)} rows: {out}"])
