"""A table's results as plain values, and as Markdown: published and measured side by side."""

from __future__ import annotations

import math
import os
import platform
import statistics
from collections.abc import Iterator, Sequence
from typing import Any

import torch

from metricfit._version import __version__
from metricfit.experiments.reproduce.running import Result
from metricfit.experiments.reproduce.spec import HALF, MEAN, Published, TableSpec


def as_plain(result: Result, command: str) -> dict[str, Any]:
    """All that a page needs: values one a trial, seconds, epochs, the command, the kind of machine, versions."""
    datasets: dict[str, Any] = {}
    for (dataset, row), measured in result.rows.items():
        datasets.setdefault(dataset, {})[row] = {
            "values": {column: [round(each, 6) for each in of] for column, of in measured.values.items()},
            "seconds": round(measured.seconds, 1),
            "epochs": measured.epochs,
            "device": measured.device,
        }
    return {
        "table": result.spec.name,
        "protocol": result.protocol,
        "trials": result.trials,
        "smaller": result.smaller,
        "command": command,
        "machine": machine(),
        "versions": {"metricfit": __version__, "torch": torch.__version__, "python": platform.python_version()},
        "datasets": datasets,
    }


def machine() -> str:
    """The kind of machine, in words."""
    cores = f"{len(os.sched_getaffinity(0)) if hasattr(os, 'sched_getaffinity') else os.cpu_count()} CPU cores"
    return f"{torch.cuda.get_device_name()}, {cores}" if torch.cuda.is_available() else cores


def mean_and_std(values: Sequence[float]) -> tuple[float, float]:
    """Of the trials; the deviation of one trial is not a number.

    >>> mean_and_std([0.0, 2.0])
    (1.0, 1.4142135623730951)
    """
    return statistics.fmean(values), statistics.stdev(values) if len(values) > 1 else math.nan


def number(values: Sequence[float]) -> str:
    """Mean and standard deviation of the trials.

    >>> number([0.5, 0.7])
    '0.600 ± 0.141'
    """
    mean, std = mean_and_std(values)
    return f"{mean:.3f}" if math.isnan(std) else f"{mean:.3f} ± {std:.3f}"


def published_number(given: Published | None) -> str:
    """As the paper prints it; a dash where it has none.

    >>> published_number(Published(0.5, None)), published_number(None)
    ('0.50', '-')
    """
    if given is None:
        return "-"
    return f"{given.mean:.2f}" if given.std is None else f"{given.mean:.2f} ± {given.std:.2f}"


def decided(view: str) -> str:
    """Where decisions are made, in words."""
    return {MEAN: "mean over thresholds 0.1 to 0.9", HALF: "threshold 0.5"}.get(view, f"threshold {view} on validation")


def markdown(spec: TableSpec, plain: dict[str, Any]) -> str:
    """A table for each dataset: for each row and column the published number and the measured one."""
    protocol = spec.protocols[plain["protocol"]]
    parts = [f"# {spec.title}", f"{spec.paper}, {spec.where}.", f"**{protocol.name}**: {protocol.says}"]
    smaller = f" Smaller than the table: {plain['smaller']}." if plain["smaller"] else ""
    parts.append(f"{plain['trials']} trials, on {plain['machine']}: `{plain['command']}`.{smaller}")
    parts += [table(spec, plain, dataset) for dataset in plain["datasets"]]
    return "\n\n".join(parts) + "\n"


def lines_of(spec: TableSpec, plain: dict[str, Any], dataset: str) -> Iterator[tuple[str, list[str], list[str], str]]:
    """A dataset's rows: title, published and measured numbers in the order of the columns, and seconds, as texts."""
    for name, measured in plain["datasets"][dataset].items():
        published = [published_number(spec.published.get((dataset, name, column))) for column in spec.columns]
        numbers = [number(measured["values"][column]) for column in spec.columns]
        yield spec.rows[name].title, published, numbers, f"{measured['seconds']:.0f}"


def table(spec: TableSpec, plain: dict[str, Any], dataset: str) -> str:
    """One dataset's table in Markdown, published and measured side by side."""
    head = ["row"]
    for column in spec.columns.values():
        head += [f"{column.title}, published", "measured"]
    lines = [_line([*head, "seconds"]), _line(["---", *["---:"] * len(head)])]
    for title, published, measured, seconds in lines_of(spec, plain, dataset):
        pairs = [text for pair in zip(published, measured, strict=True) for text in pair]
        lines.append(_line([title, *pairs, seconds]))
    return "\n".join([f"**{spec.datasets[dataset].title}**", "", *lines])


def _line(cells: Sequence[str]) -> str:
    return "| " + " | ".join(each.replace("|", "\\|") for each in cells) + " |"
