"""``metricfit doctor``."""

from __future__ import annotations

import textwrap
from collections import Counter
from typing import Any, TypedDict

import pandas as pd
from rich.table import Table

from metricfit.cli.command_rows import (
    check_aim,
    check_columns,
    choose_columns,
    choose_positive_label,
    describe_classes,
    name_data,
    read_data,
)
from metricfit.cli.options import Doctor
from metricfit.cli.terminal import UserError, print_result
from metricfit.data.files import STANDARD_INPUT
from metricfit.tabular.doctor.examination import Examination, examine_table
from metricfit.tabular.doctor.finding import SEVERITIES, Finding

#: Columns of characters of the printed findings.
WIDTH = 80


class Result(TypedDict):
    """What ``doctor --json`` prints.

    Attributes:
        table: The table to train on.
        further: The tables that were compared with it.
        rows: Number of rows.
        columns: Number of columns to learn from.
        classes: Number of rows of each class, by its label.
        positive: The positive class of two; null for several classes.
        findings: What looks wrong, the most serious first; [the page of doctor](doctor.md) lists the kinds.
    """

    table: str
    further: list[str]
    rows: int
    columns: int
    classes: dict[str, int]
    positive: Any
    findings: list[Finding]


def run(options: Doctor) -> None:
    """Say what looks wrong in a table; ``options.Doctor`` lists the options."""
    check_aim(options)
    if [str(path) for path in options.data].count(STANDARD_INPUT) > 1:
        raise UserError("Standard input (-) is one table; give the others as files.")
    read = [
        (name_data([path]), read_data([path], options.target, options.text, options.category)) for path in options.data
    ]
    check_columns(options, list(read[0][1].columns), read[0][0])
    (name, table), *further = [(source, choose_columns(options, frame, source)) for source, frame in read]
    positive = options.positive
    examination = examine_table(
        table,
        options.target,
        further=dict(further),
        time=options.time,
        groups=options.group,
        subject_to=list(options.subject_to) or None,
        confidence=options.confidence,
        pos_label=None if positive is None else choose_positive_label(table[options.target].dropna(), positive),
        name=name,
    )
    result = {"table": name, "further": [other for other, _ in further], **vars(examination)}
    print_result(result, options.as_json, _lines(examination, name))


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
