"""``metricfit export``."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from metricfit.cli.command_rows import name_data, read_data, title_data
from metricfit.cli.exit_codes import UserError
from metricfit.cli.output_paths import check_file
from metricfit.cli.saved_model import load_any_model, model_columns
from metricfit.cli.terminal import print_result, status
from metricfit.export.onnx import export_onnx
from metricfit.tabular import TunedDecisionClassifier


def run_export(
    model: Path, onnx: Path, data: Sequence[Path], text: dict[str, str | None], *, as_json: bool, quiet: bool
) -> None:
    """Write a saved model as an ONNX graph; the options are those of ``commands.export``."""
    check_file(onnx, "--onnx")
    classifier = load_any_model(model)
    rows = None
    if data:
        table = read_data(data, None, text)
        rows = model_columns(classifier, table, name_data(data))
    elif isinstance(classifier, TunedDecisionClassifier):
        raise UserError("This model does not know what its columns look like: give rows of them with --data TABLE.")
    with status("Exporting ...", quiet):
        result = export_onnx(classifier, onnx, rows, rows_from=f"rows of {title_data(data)}" if data else "")
    lines = str(result).splitlines()
    if result.made_up:
        lines.append("--data TABLE compares the labels on the rows of a table, such as that of training.")
    print_result(result.to_dict(), as_json, lines)
