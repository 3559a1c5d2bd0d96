"""``python -m benchmarks``: measure, print the table and store the results."""

from __future__ import annotations

import argparse
import importlib
import json
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch

from benchmarks.load import load
from benchmarks.report import as_markdown, as_text, describe, load_results
from benchmarks.rows import NO, PeerGroup, Row, Setting

MODULES = ("binary_loss", "multiclass_loss", "best_threshold", "hinge_sums", "training", "classifier")
QUICK_REPEATS = 1


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure, and return the exit status: 1 with ``--strict`` if a bar fails."""
    options = _parser().parse_args(arguments)
    if options.markdown:
        options.markdown.write_text(as_markdown(load_results()))
        return 0
    if options.threads:
        torch.set_num_threads(options.threads)
    repeats = options.repeats or (QUICK_REPEATS if options.quick else Setting.repeats)
    before = load()
    setting = Setting(repeats, options.quick, options.budget)
    results = run(setting, options.only, options.device, options.module or MODULES)
    print(as_text(results, before))
    if options.json:
        described = describe(_command(options), repeats, options.quick, (before, load()))
        options.json.write_text(json.dumps(described | results, indent=1) + "\n")
    missed = [row["name"] for row in results["rows"] if row["holds"].split(":")[0] == NO]
    return 1 if options.strict and missed else 0


def run(
    setting: Setting, only: str | None = None, device: str | None = None, modules: Sequence[str] = MODULES
) -> dict[str, Any]:
    """Run all rows, then all groups of peers, whose name contains ``only`` and whose device is ``device``."""
    rows, groups = registered(modules)

    def is_chosen(item: Row | PeerGroup) -> bool:
        return (only is None or only in item.name) and (device is None or item.device == device)

    chosen_rows, chosen_groups = (
        [row for row in rows if is_chosen(row)],
        [group for group in groups if is_chosen(group)],
    )
    if not chosen_rows and not chosen_groups:
        names = ", ".join([row.name for row in rows] + [group.name for group in groups])
        raise SystemExit(f"nothing is named {only!r} on {device or 'any device'}; names: {names}")
    return {
        "rows": [_run(row, setting) for row in chosen_rows],
        "peers": [_run(group, setting) for group in chosen_groups],
    }


def registered(names: Sequence[str] = MODULES) -> tuple[list[Row], list[PeerGroup]]:
    """Return all rows and groups of peers, in the order of their modules."""
    modules = [importlib.import_module(f"benchmarks.{name}") for name in names]
    return [row for module in modules for row in module.ROWS], [group for module in modules for group in module.PEERS]


def _run(item: Row | PeerGroup, setting: Setting) -> dict[str, Any]:
    print(f"measuring {item.name} ...", file=sys.stderr, flush=True)
    return item.run(setting)


def _command(options: argparse.Namespace) -> str:
    """Return the command that repeats the measurement, without the options that say where the output goes."""
    values = {name: getattr(options, name) for name in ("only", "device", "repeats", "threads")}
    chosen = [f"--module {name}" for name in options.module or ()]
    chosen += [f"--{name} {value}" for name, value in values.items() if value]
    chosen += [f"--budget {options.budget:g}"] if options.budget != Setting.budget else []
    return " ".join(["python -m benchmarks", *chosen, *(["--quick"] if options.quick else [])])


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description="Measure the speed table.")
    parser.add_argument("--only", metavar="NAME", help="rows and peers whose name contains this")
    parser.add_argument(
        "--module", action="append", metavar="NAME", help=f"rows and peers of benchmarks.NAME: by default {MODULES}"
    )
    parser.add_argument("--device", choices=("cpu", "cuda"), help="rows and peers of one device; by default of both")
    parser.add_argument("--repeats", type=int, help=f"interleaved repeats, {Setting.repeats} by default")
    parser.add_argument(
        "--budget",
        type=float,
        default=Setting.budget,
        metavar="SECONDS",
        help="a comparison that took so long makes no further repeats",
    )
    parser.add_argument("--threads", type=int, help="torch's CPU threads: 1 on a machine shared with others")
    parser.add_argument("--quick", action="store_true", help="tiny sizes: shows that all runs, measures nothing")
    parser.add_argument("--strict", action="store_true", help="exit with 1 where a bar fails")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the results there")
    parser.add_argument(
        "--markdown",
        type=Path,
        metavar="FILE",
        help="measure nothing: write the page of the stored benchmarks/results/",
    )
    return parser


if __name__ == "__main__":
    sys.exit(main())
