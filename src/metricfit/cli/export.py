"""``metricfit export``."""

from __future__ import annotations

from dataclasses import dataclass

from metricfit.cli.command_rows import name_data, read_data, title_data
from metricfit.cli.options import Export
from metricfit.cli.output_paths import check_file
from metricfit.cli.scored_data import load_any_model
from metricfit.cli.terminal import UserError, print_result, status
from metricfit.export.onnx import OnnxExport, export_onnx
from metricfit.tabular import TunedDecisionClassifier
from metricfit.tabular.checks import columns_of_fit


@dataclass(frozen=True)
class Result(OnnxExport):
    """What ``export --json`` prints.

    Attributes:
        different_labels: The number of rows with another label.
    """

    different_labels: int


def run(options: Export) -> None:
    """Write a saved model as an ONNX graph; ``options.Export`` lists the options."""
    check_file(options.onnx, "--onnx", options.overwrite)
    classifier = load_any_model(options.model)
    rows, data = None, options.data
    if data:
        table = read_data(data, None, options.text)
        rows = columns_of_fit(classifier, table, name_data(data))
    elif isinstance(classifier, TunedDecisionClassifier):
        raise UserError("This model does not know what its columns look like: give rows of them with --data TABLE.")
    with status("Exporting ...", options.quiet):
        result = export_onnx(classifier, options.onnx, rows, rows_from=f"rows of {title_data(data)}" if data else "")
    lines = str(result).splitlines()
    if result.made_up:
        lines.append("--data TABLE compares the labels on the rows of a table, such as the training table.")
    print_result(result.to_dict(), options.as_json, lines)
