"""``metricfit doctor``."""

from __future__ import annotations

import textwrap
from collections import Counter
from pathlib import Path
from typing import Annotated, Any

import pandas as pd
import typer
from rich.table import Table

from metricfit.cli import options
from metricfit.cli.column_choice import ColumnChoice
from metricfit.cli.command_rows import (
    check_metric_options,
    choose_positive_label,
    describe_classes,
    name_data,
    read_data,
)
from metricfit.cli.exit_codes import UserError
from metricfit.cli.terminal import print_result
from metricfit.data.column_names import did_you_mean
from metricfit.data.table_sources import STANDARD_INPUT
from metricfit.data.text_format import TextOptions
from metricfit.errors import quote
from metricfit.tabular.doctor.examination import Examination, examine_table
from metricfit.tabular.doctor.finding import SEVERITIES

#: Columns of characters of the printed findings.
WIDTH = 80


def doctor(
    data: Annotated[
        list[Path],
        typer.Argument(
            help="The table to train on, and further ones, such as the rows to test on, which are compared with it. "
            "Each is a file, a folder or a pattern; - is standard input.",
        ),
    ],
    target: options.Target,
    subject_to: options.Requirements = None,
    confidence: options.Confidence = None,
    positive: options.Positive = None,
    group: options.Group = None,
    time: options.Time = None,
    drop: options.Drop = None,
    category: options.Category = None,
    sep: options.Separator = None,
    decimal: options.Decimal = None,
    encoding: options.Encoding = None,
    as_json: options.AsJson = False,
) -> None:
    """Say what looks wrong in a table before anything is trained, the most serious first."""
    check_metric_options("f1", subject_to, confidence)
    if [str(path) for path in data].count(STANDARD_INPUT) > 1:
        raise UserError("Standard input (-) is one table; give the others as files.")
    written, choice = TextOptions(sep, decimal, encoding), ColumnChoice.of(drop, category)
    read = [(name_data([path]), read_data([path], target, written, choice.category)) for path in data]
    choice.check(list(read[0][1].columns), read[0][0], {"--target": target, "--group": group, "--time": time})
    (name, table), *further = [(source, choice.apply(frame, target, source)) for source, frame in read]
    for option, column in (("--time", time), ("--group", group)):
        if column is not None and column not in table.columns:
            raise UserError(f"{name} has no column {quote(column)} for {option}.{did_you_mean(column, table.columns)}")
        if column == target:
            raise UserError(f"{option} and --target both name {quote(target)}; choose another column.")
    examination = examine_table(
        table,
        target,
        further=dict(further),
        time=time,
        groups=group,
        subject_to=subject_to,
        confidence=confidence,
        pos_label=None if positive is None else choose_positive_label(table[target].dropna(), positive),
        name=name,
    )
    result = {"table": name, "further": [other for other, _ in further]} | examination.to_dict()
    print_result(result, as_json, _lines(examination, name))


def _lines(examination: Examination, name: str) -> list[str | Table]:
    """Write the findings as numbered paragraphs, each with what to do."""
    counts = pd.Series(dict(examination.classes))
    lines: list[str | Table] = [
        f"{name}: {examination.rows:,} rows, {examination.columns:,} columns to learn from.",
        describe_classes(counts, examination.positive),
    ]
    for number, finding in enumerate(examination.findings, start=1):
        lines += ["", *_paragraph(f"{number}. {finding.severity.upper()}: ", finding.message)]
        if finding.remedy:
            lines += _paragraph("   What to do: ", finding.remedy)
    return [*lines, "", _summary(Counter[Any](finding.severity for finding in examination.findings))]


def _paragraph(opening: str, text: str) -> list[str]:
    return textwrap.wrap(
        text,
        WIDTH,
        initial_indent=opening,
        subsequent_indent="   ",
        break_long_words=False,
        break_on_hyphens=False,
    )


def _summary(counts: Counter[Any]) -> str:
    if not counts:
        return "Nothing looks wrong."
    names = {"serious": ("serious", "serious"), "warning": ("warning", "warnings"), "note": ("note", "notes")}
    return ", ".join(f"{counts[each]} {names[each][counts[each] != 1]}" for each in SEVERITIES if counts[each]) + "."
