"""A table's results as plain values, and as Markdown: published and measured side by side."""

from __future__ import annotations

import hashlib
import json
import math
import os
import statistics
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from metricfit.train.folder import RunFolder
from metricfit_papers.results.table_run import Result
from metricfit_papers.specs.table_spec import ALL, HALF, MEAN, UNCONSTRAINED, Published, TableSpec

FEW = 4
SMALL = 0.01
NONE = "-"


def as_plain(result: Result, command: str) -> dict[str, Any]:
    """All that a page needs: values one a trial, seconds, epochs, the command, the kind of machine, versions."""
    datasets: dict[str, Any] = {}
    for (dataset, row), measured in result.rows.items():
        datasets.setdefault(dataset, {})[row] = {
            "values": {column: [_six_digits(each) for each in of] for column, of in measured.values.items()},
            "seconds": round(measured.seconds, 1),
            "epochs": measured.epochs,
            "machine": measured.machine,
            "versions": measured.versions,
        }
        if measured.chosen and result.spec.rows[row].own_trials:
            datasets[dataset][row]["chosen"] = _rounded(measured.chosen)
    average = {"average": average_of(datasets)} if result.spec.averaged else {}
    return {
        "table": result.spec.name,
        "protocol": result.protocol,
        "trials": result.trials,
        "smaller": result.smaller,
        "command": command,
        "datasets": datasets,
        **average,
    }


def _rounded(given: Any) -> Any:
    """Plain values with their fractions rounded."""
    if isinstance(given, dict):
        return {key: _rounded(value) for key, value in given.items()}
    if isinstance(given, list):
        return [_rounded(value) for value in given]
    return _six_digits(given) if isinstance(given, float) else given


def _six_digits(value: float) -> float:
    """Of a small p, too, all that tell anything."""
    return float(f"{value:.6g}")


def average_of(datasets: dict[str, Any]) -> dict[str, Any]:
    """For each row the mean of each column, set by set, and the seconds of all sets.

    >>> row = {"values": {"f1": [0.5, 0.7]}, "seconds": 2.0}
    >>> average_of({"one": {"BCE": row}, "two": {"BCE": row}})
    {'BCE': {'values': {'f1': [0.6, 0.6]}, 'seconds': 4.0}}
    """
    first = next(iter(datasets.values()))
    found: dict[str, Any] = {}
    for name, of_first in first.items():
        rows = [rows[name] for rows in datasets.values()]
        values = {key: [round(statistics.fmean(row["values"][key]), 6) for row in rows] for key in of_first["values"]}
        found[name] = {"values": values, "seconds": round(sum(row["seconds"] for row in rows), 1)}
    return found


def write(spec: TableSpec, plain: dict[str, Any], folder: str | os.PathLike[str]) -> Path:
    """The results as Markdown, and as JSON beside it; runs of other sizes and parts of the table have other names."""
    stem = ", ".join([plain["protocol"], *([plain["smaller"]] if plain["smaller"] else []), *_parts(spec, plain)])
    where = Path(folder) / spec.name
    where.mkdir(parents=True, exist_ok=True)
    files = RunFolder(where)
    files.write(f"{stem}.json", json.dumps(plain, indent=1, ensure_ascii=False).encode())
    files.write(f"{stem}.md", markdown(spec, plain).encode())
    return where / f"{stem}.md"


def _parts(spec: TableSpec, plain: dict[str, Any]) -> Iterator[str]:
    """Which datasets, and a hash of which rows, where they are not all."""
    datasets = list(plain["datasets"])
    if datasets != list(spec.datasets):
        yield "+".join(datasets) if len(datasets) <= FEW else f"{len(datasets)} datasets {_digest(datasets)}"
    rows = list(next(iter(plain["datasets"].values())))
    if rows != [row.name for row in spec.shown(plain["protocol"])]:
        yield f"rows {_digest(rows)}"


def _digest(names: Sequence[str]) -> str:
    return hashlib.sha256("/".join(names).encode()).hexdigest()[:8]


def mean_and_std(values: Sequence[float]) -> tuple[float, float]:
    """Of the trials; the deviation of one trial is not a number.

    >>> mean_and_std([0.0, 2.0])
    (1.0, 1.4142135623730951)
    """
    return statistics.fmean(values), statistics.stdev(values) if len(values) > 1 else math.nan


def number(values: Sequence[float]) -> str:
    """Mean and standard deviation of the trials; a dash where there are none, as of a test with nothing to compare.

    >>> number([0.5, 0.7]), number([0.0012, 0.0014])
    ('0.600 ± 0.141', '0.00130 ± 0.000141')
    """
    if not values:
        return NONE
    mean, std = mean_and_std(values)
    places = "#.3g" if 0 < abs(mean) < SMALL else ".3f"
    return f"{mean:{places}}" if math.isnan(std) else f"{mean:{places}} ± {std:{places}}"


def published_number(given: Published | None) -> str:
    """As the paper prints it; a dash where it has none.

    >>> published_number(Published(0.5, None)), published_number(Published(0.727, 0.01)), published_number(None)
    ('0.50', '0.727 ± 0.01', '-')
    """
    if given is None:
        return NONE
    return " ± ".join(_as_printed(each) for each in (given.mean, given.std) if each is not None)


def _as_printed(value: float) -> str:
    """With all its digits, two after the point at least."""
    return f"{value:.2f}" if round(value, 2) == value else f"{value:g}"


def decided(view: str) -> str:
    """Where decisions are made, in words."""
    words = {MEAN: "mean over thresholds 0.1 to 0.9", HALF: "threshold 0.5", UNCONSTRAINED: "before the constraint"}
    return words.get(view, f"threshold {view} on validation")


def markdown(spec: TableSpec, plain: dict[str, Any]) -> str:
    """A table for each dataset: for each row and column the measured number and the published one."""
    protocol = spec.protocols[plain["protocol"]]
    parts = [f"# {spec.title}", f"{spec.paper}, {spec.where}.", f"**{protocol.name}**: {protocol.says}"]
    smaller = f" Smaller than the table: {plain['smaller']}." if plain["smaller"] else ""
    machines = {row["machine"] for rows in plain["datasets"].values() for row in rows.values()}
    parts.append(f"{trials(plain['trials'])}, on {' and '.join(sorted(machines))}: `{plain['command']}`.{smaller}")
    parts += [table(spec, plain, dataset) for dataset in shown_sets(plain)]
    return "\n\n".join(parts) + "\n"


def shown_sets(plain: dict[str, Any]) -> list[str]:
    """The datasets; before them the mean over all, where the paper gives it."""
    return [*([ALL] if "average" in plain else []), *plain["datasets"]]


def title_of(spec: TableSpec, plain: dict[str, Any], dataset: str) -> str:
    """A dataset's title, or that of the mean over all."""
    return f"Mean over {len(plain['datasets'])} sets" if dataset == ALL else spec.datasets[dataset].title


def lines_of(spec: TableSpec, plain: dict[str, Any], dataset: str) -> Iterator[tuple[str, list[str], list[str], str]]:
    """A dataset's rows: title, published and measured numbers in the order of the columns, and seconds, as texts.

    For the mean over all sets the deviation is that between sets.
    """
    for name, measured in (plain["average"] if dataset == ALL else plain["datasets"][dataset]).items():
        published = [published_number(spec.published.get((dataset, name, column))) for column in spec.shown_columns]
        numbers = [number(measured["values"][column]) for column in spec.shown_columns]
        yield spec.rows[name].title, published, numbers, f"{measured['seconds']:.0f}"


def table(spec: TableSpec, plain: dict[str, Any], dataset: str) -> str:
    """One dataset's table in Markdown: in a cell what was measured and, in parentheses, what was published."""
    rows = list(lines_of(spec, plain, dataset))
    has_published = [any(published[at] != NONE for _, published, _, _ in rows) for at in range(len(spec.shown_columns))]
    titles = [column.title for column in spec.shown_columns.values()]
    head = [f"{title} (published)" if both else title for title, both in zip(titles, has_published, strict=True)]
    lines = [line(["row", *head, "seconds"]), line(["---", *["---"] * len(head), "---:"])]
    for title, published, measured, seconds in rows:
        cells = [one if other == NONE else f"{one} ({other})" for one, other in zip(measured, published, strict=True)]
        lines.append(line([title, *cells, seconds]))
    return "\n".join([f"**{title_of(spec, plain, dataset)}**", "", *lines])


def trials(number: int) -> str:
    """So many, in words.

    >>> trials(1), trials(10)
    ('1 trial', '10 trials')
    """
    return f"{number} trial{'' if number == 1 else 's'}"


def line(cells: Sequence[str]) -> str:
    """One of a Markdown table."""
    return "| " + " | ".join(each.replace("|", "\\|") for each in cells) + " |"
