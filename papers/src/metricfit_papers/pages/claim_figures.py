"""The figures that decide a claim, with their uncertainty: computed from stored results.

A figure of ``papers/verdicts/claims.toml`` names a kind, a table and a protocol, and what the kind needs:

- ``values``: mean and standard deviation over trials of ``rows`` in ``column``. If two rows have equally many trials,
  six or more, Wilcoxon's p of the pairs follows.
- ``agreement``: how many published numbers are within two published deviations.
- ``sets``: two ``rows`` compared over all sets in ``column``: mean and deviation of the difference, wins and p.
- ``constraint``: what the constraint changed in ``column``, over the losses of each dataset.
- ``exceptions``: of the pairs in which ``column`` does not rise with the constraint, in how many the FPR falls.
- ``above``: in how many of the ``rows`` a ``column`` is above its value in the row ``than``, or above the column
  ``than_column`` of the same row.
- ``published``: mean, smallest and largest difference between measured and published numbers of ``column``.
- ``page``: a ``text`` about numbers that another page shows, with its address.

``datasets`` restricts a figure to some datasets; ``rows`` restricts an agreement. ``label`` replaces the names of
column and rows at the beginning of ``values``, ``sets`` and ``above``.
"""

from __future__ import annotations

import statistics
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from typing import Any

import metricfit_papers as papers
from metricfit.stats import compare
from metricfit_papers.pages.agreement import count_agreeing
from metricfit_papers.pages.constraint_effects import constraint_pairs
from metricfit_papers.pages.stored_results import Results
from metricfit_papers.results.markdown import count_trials, format_values
from metricfit_papers.specs.column_names import FPR_AT
from metricfit_papers.specs.table_spec import TableSpec
from metricfit_papers.specs.toml_section import Section, SpecError

#: Number of rows of each kind: fewest and most.
ROWS = {
    "values": (1, 99),
    "agreement": (0, 99),
    "sets": (2, 2),
    "constraint": (0, 0),
    "exceptions": (0, 0),
    "above": (0, 99),
    "published": (0, 0),
    "page": (0, 0),
}
LABELLED = ("values", "sets", "above")
TWO = 2
#: Pairs from which Wilcoxon's p can be below 0.05.
PAIRS = 6
LEVEL = 0.05


@dataclass(frozen=True)
class Figure:
    """What a figure shows; see the module."""

    kind: str
    table: str = ""
    protocol: str = ""
    rows: tuple[str, ...] = ()
    column: str = ""
    datasets: tuple[str, ...] = ()
    than: str = ""
    than_column: str = ""
    label: str = ""
    page: str = ""
    text: str = ""


@cache
def table_spec(name: str) -> TableSpec:
    """Return a table of the package, read once."""
    return papers.find_table(name)


def read_figure(section: Section) -> Figure:
    """Read a figure; an error if its table, protocol, rows, column or datasets are not known."""
    kind = section.one_of("kind", tuple(ROWS))
    if kind == "page":
        figure = Figure(kind, page=section.take("page", str), text=section.take("text", str))
        section.done()
        return figure
    table = section.one_of("table", papers.table_names())
    spec = table_spec(table)
    needs_column = {} if kind != "agreement" else {"default": ""}
    rows, datasets = (tuple(section.take(key, list, [])) for key in ("rows", "datasets"))
    columns = tuple(spec.columns)
    figure = Figure(
        kind,
        table,
        section.one_of("protocol", tuple(spec.protocols)),
        rows,
        section.one_of("column", ("", *columns) if needs_column else columns, **needs_column),
        datasets,
        section.one_of("than", ("", *spec.rows), "") if kind == "above" else "",
        section.one_of("than_column", ("", *columns), "") if kind == "above" else "",
        section.take("label", str, "") if kind in LABELLED else "",
    )
    section.done()
    fewest, most = ROWS[kind]
    if not fewest <= len(rows) <= most:
        raise section.error("rows", f"a figure of kind {kind!r} has {fewest} to {most} rows, got {len(rows)}")
    for key, names, known in (("rows", rows, spec.rows), ("datasets", datasets, spec.datasets)):
        for name in names:
            if name not in known:
                raise section.error(key, f"{table} has no {name!r}; it has {', '.join(known)}")
    if kind == "above" and bool(figure.than) == bool(figure.than_column):
        raise section.error("than", "a figure of kind 'above' has either than, a row, or than_column")
    return figure


def describe_figure(figure: Figure, results: Mapping[str, Results | None], address: str) -> str:
    """Describe a figure in Markdown, with a link to ``address``, the page of its table.

    Raises:
        SpecError: Nothing is stored for the figure's table, protocol, datasets and rows.
    """
    if figure.kind == "page":
        return f"{figure.text} ([page]({figure.page}))"
    spec = table_spec(figure.table)
    datasets = figure_datasets(figure, results)
    if not datasets or not set(figure.datasets) <= set(datasets):
        raise SpecError(
            f"papers/results/{figure.table}.json has no such rows and datasets under {figure.protocol!r}: {figure}; "
            "correct the figure in papers/verdicts/claims.toml, or run the table"
        )
    link = f"[{figure.table}, {figure.protocol}]({address}#{figure.table}-{figure.protocol})"
    return f"{DESCRIBE[figure.kind](figure, spec, datasets)} ({link})"


def figure_datasets(figure: Figure, results: Mapping[str, Results | None]) -> dict[str, Any]:
    """Return the stored rows of the datasets that a figure uses; empty for a figure of another page."""
    if figure.kind == "page":
        return {}
    stored = (results[figure.table] or {"protocols": {}})["protocols"].get(figure.protocol, {})
    needed = {*figure.rows, figure.than} - {""}
    return {
        name: stored[name]
        for name in figure.datasets or table_spec(figure.table).datasets
        if name in stored and (figure.kind == "agreement" or needed <= set(stored[name]))
    }


def _values(figure: Figure, spec: TableSpec, datasets: dict[str, Any]) -> str:
    parts = "; ".join(_of_dataset(figure, spec, name, datasets[name]) for name in datasets)
    return f"{_subject(figure, spec)}: {parts}"


def _subject(figure: Figure, spec: TableSpec) -> str:
    rows = " v ".join(spec.rows[row].title for row in figure.rows)
    return figure.label or f"{spec.columns[figure.column].title} of {rows}".replace("*", r"\*")


def _of_dataset(figure: Figure, spec: TableSpec, dataset: str, rows: dict[str, Any]) -> str:
    trials = [rows[row]["values"][figure.column] for row in figure.rows]
    counts = [len(values) for values in trials]
    alike = len(set(counts)) == 1
    notes = [count_trials(counts[0]) if alike else f"{' v '.join(map(str, counts))} trials"]
    if any("epochs" in rows[row]["run"]["smaller"] for row in figure.rows):
        notes.append("smaller")
    if len(trials) == TWO and alike and counts[0] >= PAIRS:
        notes.append(f"p = {compare(trials[0], trials[1], samples=1).p_value:.2g}")
    return f"{spec.datasets[dataset].title} {' v '.join(map(format_values, trials))} ({', '.join(notes)})"


def _agreement(figure: Figure, spec: TableSpec, datasets: dict[str, Any]) -> str:
    parts, within, total = [], 0, 0
    for dataset, rows in datasets.items():
        chosen = {row: rows[row] for row in rows if not figure.rows or row in figure.rows}
        agreeing, published = count_agreeing(spec, dataset, chosen)
        if published:
            parts.append(f"{agreeing} of {published} on {spec.datasets[dataset].title}")
            within, total = within + agreeing, total + published
    of_rows = f" of {', '.join(spec.rows[row].title for row in figure.rows)}" if figure.rows else ""
    together = f"{within} of {total} published numbers{of_rows} are within two published deviations"
    return together + (f": {'; '.join(parts)}" if len(parts) > 1 else f", on {parts[0].split(' on ')[1]}")


def _sets(figure: Figure, spec: TableSpec, datasets: dict[str, Any]) -> str:
    means = [
        [statistics.fmean(rows[row]["values"][figure.column]) for rows in datasets.values()] for row in figure.rows
    ]
    result = compare(means[0], means[1], samples=1)
    spread = statistics.stdev(a - b for a, b in zip(*means, strict=True))
    both = " v ".join(f"{statistics.fmean(values):.3f}" for values in means)
    return (
        f"{_subject(figure, spec)}: {both}, difference {result.difference:+.3f} ± {spread:.3f} between {len(datasets)} "
        f"sets, better : worse {result.wins} : {result.losses}, p = {result.p_value:.2g}"
    )


def _constraint(figure: Figure, spec: TableSpec, datasets: dict[str, Any]) -> str:
    column, lower_is_better = figure.column, "fpr" in figure.column
    parts, better, significant, total = [], 0, 0, 0
    for dataset, rows in datasets.items():
        pairs = constraint_pairs(spec, rows)
        without, with_ = ([statistics.fmean(rows[pair[side]]["values"][column]) for pair in pairs] for side in (0, 1))
        result = compare(with_, without, samples=1, minimize=lower_is_better)
        change = statistics.fmean(with_) - statistics.fmean(without)
        spread = statistics.stdev(a - b for a, b in zip(with_, without, strict=True))
        better, total = better + result.wins, total + len(pairs)
        significant += sum(
            a > b and rows[row]["values"][column.replace("auc", "p")][0] < LEVEL
            for a, b, (_, row) in zip(with_, without, pairs, strict=True)
            if "auc" in column
        )
        parts.append(
            f"{spec.datasets[dataset].title} {change:+.3f} ± {spread:.3f} ({result.wins} : {result.losses}, "
            f"p = {result.p_value:.2g})"
        )
    delong = f", {significant} of them with DeLong's p below {LEVEL}" if "auc" in column else ""
    title = spec.columns[column].title
    return (
        f"{title} is better with the constraint for {better} of {total} pairs{delong}. Mean change ± "
        f"deviation between losses (better : worse, p): {'; '.join(parts)}"
    )


def _exceptions(figure: Figure, spec: TableSpec, datasets: dict[str, Any]) -> str:
    fprs = [key for key, column in spec.shown_columns.items() if column.metric in FPR_AT]
    changes = [
        {key: rows[row]["values"][key][0] - rows[base]["values"][key][0] for key in (figure.column, *fprs)}
        for rows in datasets.values()
        for base, row in constraint_pairs(spec, rows)
    ]
    exceptions = [change for change in changes if change[figure.column] <= 0]
    falls = [f"{sum(change[key] < 0 for change in exceptions)} in {spec.columns[key].title}" for key in fprs]
    title = spec.columns[figure.column].title
    return f"{title} does not rise in {len(exceptions)} of {len(changes)} pairs; of these fall {', '.join(falls)}"


def _above(figure: Figure, spec: TableSpec, datasets: dict[str, Any]) -> str:
    parts = [f"{sum(above)} of {len(above)} on {spec.datasets[name].title}" for name, above in _each(figure, datasets)]
    columns = [spec.columns[column].title for column in (figure.column, figure.than_column) if column]
    subject = f"{columns[0]} above {spec.rows[figure.than].title}'s" if figure.than else " above ".join(columns)
    return f"{figure.label or subject}: {'; '.join(parts)}"


def _each(figure: Figure, datasets: dict[str, Any]) -> Iterator[tuple[str, list[bool]]]:
    for name, rows in datasets.items():
        means = {
            row: {column: statistics.fmean(values) for column, values in rows[row]["values"].items() if values}
            for row in rows
        }
        chosen = [row for row in figure.rows or means if row != figure.than]
        yield (
            name,
            [
                means[row][figure.column]
                > (means[figure.than][figure.column] if figure.than else means[row][figure.than_column])
                for row in chosen
            ],
        )


def from_published(spec: TableSpec, dataset: str, rows: Mapping[str, Any], column: str) -> list[float]:
    """Return the difference of each row's mean from the published number of a column."""
    return [
        statistics.fmean(rows[row]["values"][key]) - number.mean
        for (name, row, key), number in spec.published.items()
        if (name, key) == (dataset, column) and row in rows
    ]


def _published(figure: Figure, spec: TableSpec, datasets: dict[str, Any]) -> str:
    parts = []
    for name, rows in datasets.items():
        apart = from_published(spec, name, rows, figure.column)
        span = f"{min(apart):+.3f} to {max(apart):+.3f}"
        parts.append(f"{spec.datasets[name].title} {statistics.fmean(apart):+.3f} ({span}, {len(apart)} rows)")
    return f"{spec.columns[figure.column].title}, measured minus published, mean over the rows: {'; '.join(parts)}"


DESCRIBE = {"values": _values, "agreement": _agreement, "sets": _sets, "constraint": _constraint}
DESCRIBE |= {"exceptions": _exceptions, "above": _above, "published": _published}
