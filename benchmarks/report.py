"""Results for the terminal: the table of bars and the measured tables; the description of a run; stored results."""

from __future__ import annotations

import json
import platform
import subprocess
from collections.abc import Mapping, Sequence
from importlib import metadata
from pathlib import Path
from typing import Any

import torch

from benchmarks.load import cores, is_high
from benchmarks.verdicts import Verdict

Results = dict[str, Any]

RESULTS = Path(__file__).parent / "results"
HEADER = ("work", "bar", "before", "measured", "repeats", "holds")
LINE_HEADER = ("", "time", "ratio", "memory beyond inputs", "repeats", "note")
PACKAGES = ("torch", "triton", "scikit-learn", "skorch", "lightning", "monai", "segmentation_models_pytorch", "libauc")
UNDER_LOAD, UNJUDGED = "measured under load", "unjudged: tiny"


def describe(command: str) -> Results:
    """Describe the measurement: the command, the machine and the versions."""
    from metricfit import __version__

    return {
        "command": command,
        "machine": _machine(),
        "versions": {"python": platform.python_version(), "metricfit": __version__} | _versions(),
        "threads": torch.get_num_threads(),
    }


def current_commit() -> str:
    """Return the commit that is measured, or nothing outside of a repository."""
    command = ["git", "-C", str(RESULTS), "rev-parse", "--short", "HEAD"]
    try:
        return subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()
    except (OSError, subprocess.CalledProcessError):
        return ""


def _machine() -> str:
    processor = f"{cores()} CPU cores"
    return f"one {torch.cuda.get_device_name()}, {processor}" if torch.cuda.is_available() else processor


def _versions() -> dict[str, str]:
    versions = {}
    for package in PACKAGES:
        try:
            versions[package] = metadata.version(package)
        except metadata.PackageNotFoundError:
            continue
    return versions | {"torch": str(torch.__version__)}


def load_results(folder: Path = RESULTS) -> list[Results]:
    """Read the stored results, one file per machine."""
    return [
        json.loads(path.read_text(encoding="utf-8")) | {"file": path.name} for path in sorted(folder.glob("*.json"))
    ]


def as_text(
    verdicts: Sequence[Verdict], tables: Sequence[Results], load_before: float | None, is_everything: bool
) -> str:
    """Format the measured tables, the bars, and a warning if the machine was busy before.

    Bars that were not measured are listed only if everything was asked for.
    """
    parts = []
    for table in tables:
        lines = [line_cells(line, table["lines"][0]) for line in table["lines"]]
        parts.append(f"{titled(table)}:\n" + (_aligned(LINE_HEADER, lines) if lines else f"  {table['reason']}"))
    shown = [bar_cells(verdict) for verdict in verdicts if verdict.value is not None or is_everything]
    parts += [_aligned(HEADER, shown)] if shown else []
    if is_high(load_before):
        parts.append(f"All of it {UNDER_LOAD}: the load average was {load_before} before it began.")
    return "\n\n".join(parts)


def bar_cells(verdict: Verdict) -> list[str]:
    """Return a bar as cells of ``HEADER``."""
    bar = verdict.bar
    if verdict.value is None:
        return [bar.work, bar.bound, bar.before, "-", "", verdict.table.get("reason") or "not measured"]
    lines = [verdict.lines[name] for name in (bar.ours, bar.baseline) if name]
    measured = f"{verdict.value:.3g}{bar.unit.name}"
    if bar.baseline:
        measured += f" ({' v '.join(amount(line[bar.quantity], bar.quantity) for line in lines)})"
    holds = "yes" if verdict.holds else f"no, {verdict.excess:.2f} times the bar"
    holds = UNJUDGED if verdict.table.get("tiny") else holds
    if verdict.table.get("under_load") and bar.quantity == "seconds":
        holds += f", {UNDER_LOAD}"
    repeats = "1" if bar.quantity == "bytes" else str(min(line["repeats"] or 1 for line in lines))
    return [bar.work, bar.bound, bar.before, measured, repeats, holds]


def line_cells(line: Mapping[str, Any], first: Mapping[str, Any]) -> list[str]:
    """Return a line of a measured table as cells of ``LINE_HEADER``."""
    memory = "" if line["bytes"] is None else amount(line["bytes"], "bytes")
    ratio = f"{line['seconds'] / first['seconds']:.3g}x"
    return [line["name"], amount(line["seconds"], "seconds"), ratio, memory, str(line["repeats"] or ""), line["note"]]


def titled(table: Mapping[str, Any]) -> str:
    """Return the title of a table; it says if other processes disturbed the measurement."""
    title = f"{table['title'][:1].upper()}{table['title'][1:]}"
    return f"{title}, {UNDER_LOAD}" if table.get("under_load") else title


def amount(value: float, quantity: str) -> str:
    """Return seconds or bytes with three digits in a suitable unit."""
    scales = _BYTES if quantity == "bytes" else _SECONDS
    return next(f"{value / scale:.3g} {name}" for scale, name in scales if value >= scale or scale == scales[-1][0])


_BYTES = ((2**30, "GiB"), (2**20, "MiB"), (2**10, "KiB"), (1, "B"))
_SECONDS = ((1.0, "s"), (1e-3, "ms"), (1e-6, "us"))


def _aligned(header: Sequence[str], lines: Sequence[Sequence[str]]) -> str:
    widths = [max(map(len, column)) for column in zip(header, *lines, strict=True)]
    shown = [header, ["-" * width for width in widths], *lines]
    return "\n".join(" | ".join(cell.ljust(w) for cell, w in zip(line, widths, strict=True)).rstrip() for line in shown)
