"""A table's results as Markdown: published and measured numbers side by side."""

from __future__ import annotations

import math
import statistics
from collections.abc import Iterator, Sequence
from typing import Any

from metricfit_papers.specs.table_spec import ALL, PublishedNumber, TableSpec

SMALL = 0.01
NONE = "-"


def format_results(spec: TableSpec, plain: dict[str, Any]) -> str:
    """Return the tables of all datasets, with the measured and the published number of each row and column."""
    protocol = spec.protocols[plain["protocol"]]
    parts = [f"# {spec.title}", f"{spec.paper}, {spec.where}.", f"**{protocol.name}**: {protocol.says}"]
    smaller = f" Smaller than the table: {plain['smaller']}." if plain["smaller"] else ""
    machines = {row["machine"] for rows in plain["datasets"].values() for row in rows.values()}
    parts.append(
        f"{count_trials(plain['trials'])}, on {' and '.join(sorted(machines))}: `{plain['command']}`.{smaller}"
    )
    parts += [format_table(spec, plain, dataset) for dataset in shown_datasets(plain)]
    return "\n\n".join(parts) + "\n"


def shown_datasets(plain: dict[str, Any]) -> list[str]:
    """Return the datasets, preceded by the mean over all if the paper gives it."""
    return [*([ALL] if "average" in plain else []), *plain["datasets"]]


def dataset_title(spec: TableSpec, plain: dict[str, Any], dataset: str) -> str:
    """Return the title of a dataset, or of the mean over all."""
    return f"Mean over {len(plain['datasets'])} sets" if dataset == ALL else spec.datasets[dataset].title


def format_rows(
    spec: TableSpec, plain: dict[str, Any], dataset: str
) -> Iterator[tuple[str, list[str], list[str], str]]:
    """Yield the rows of a dataset as text: title, published and measured numbers of the columns, and seconds.

    For the mean over all sets, the deviation is that between sets.
    """
    for name, measured in (plain["average"] if dataset == ALL else plain["datasets"][dataset]).items():
        published = [format_published(spec.published.get((dataset, name, column))) for column in spec.shown_columns]
        # a column may be newer than the results
        numbers = [format_values(measured["values"].get(column, [])) for column in spec.shown_columns]
        yield spec.rows[name].title, published, numbers, f"{measured['seconds']:.0f}"


def format_table(spec: TableSpec, plain: dict[str, Any], dataset: str) -> str:
    """Return the table of one dataset in Markdown: measured numbers, with the published ones in parentheses."""
    rows = list(format_rows(spec, plain, dataset))
    positions = range(len(spec.shown_columns))
    has_published = [any(published[index] != NONE for _, published, _, _ in rows) for index in positions]
    titles = [column.title for column in spec.shown_columns.values()]
    head = [f"{title} (published)" if both else title for title, both in zip(titles, has_published, strict=True)]
    lines = [markdown_line(["row", *head, "seconds"]), markdown_line(["---", *["---"] * len(head), "---:"])]
    for title, published, measured, seconds in rows:
        pairs = zip(measured, published, strict=True)
        cells = [ours if theirs == NONE else f"{ours} ({theirs})" for ours, theirs in pairs]
        lines.append(markdown_line([title, *cells, seconds]))
    return "\n".join([f"**{dataset_title(spec, plain, dataset)}**", "", *lines])


def mean_and_std(values: Sequence[float]) -> tuple[float, float]:
    """Return mean and standard deviation over the trials; the deviation of a single trial is NaN.

    >>> mean_and_std([0.0, 2.0])
    (1.0, 1.4142135623730951)
    """
    return statistics.fmean(values), statistics.stdev(values) if len(values) > 1 else math.nan


def format_values(values: Sequence[float]) -> str:
    """Return mean and standard deviation over the trials as text; a dash if there are no values.

    >>> format_values([0.5, 0.7]), format_values([0.0012, 0.0014])
    ('0.600 ± 0.141', '0.00130 ± 0.000141')
    """
    if not values:
        return NONE
    mean, std = mean_and_std(values)
    places = "#.3g" if 0 < abs(mean) < SMALL else ".3f"
    return f"{mean:{places}}" if math.isnan(std) else f"{mean:{places}} ± {std:{places}}"


def format_published(number: PublishedNumber | None) -> str:
    """Return a published number as the paper prints it; a dash if there is none.

    >>> numbers = PublishedNumber(0.5, None), PublishedNumber(0.727, 0.01), None
    >>> [format_published(number) for number in numbers]
    ['0.50', '0.727 ± 0.01', '-']
    """
    if number is None:
        return NONE
    return " ± ".join(_as_printed(value) for value in (number.mean, number.std) if value is not None)


def _as_printed(value: float) -> str:
    """Return a number with all its digits, at least two after the decimal point."""
    return f"{value:.2f}" if round(value, 2) == value else f"{value:g}"


def count_trials(number: int) -> str:
    """Return the number of trials as text.

    >>> count_trials(1), count_trials(10)
    ('1 trial', '10 trials')
    """
    return f"{number} trial{'' if number == 1 else 's'}"


def markdown_line(cells: Sequence[str]) -> str:
    """Return one line of a Markdown table."""
    return "| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |"
