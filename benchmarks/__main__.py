"""``python -m benchmarks``: measure, print the table of all bars and store the results.

    make bench                                                         # everything, about 25 minutes on two cores
    make bench BENCH=--quick                                           # a few minutes: fewer repeats, nothing long
    make bench BENCH="--json benchmarks/results/cpu.json"              # everything, as stored results
    make bench BENCH="--device cuda --json benchmarks/results/h200.json"   # the stored results of a GPU, 5 minutes
    python -m benchmarks --markdown benchmarks/RESULTS.md              # the page of all stored results

``--json`` writes the file after every table, and keeps the tables of earlier runs in it that are not measured again, so
that a long run can be made in parts with ``--only``. With a file in ``benchmarks/results``, the page is written too.
"""

from __future__ import annotations

import argparse
import importlib
import json
import sys
import time
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch

from benchmarks.bars import BARS
from benchmarks.load import load
from benchmarks.page import PAGE, as_markdown
from benchmarks.report import RESULTS, as_text, current_commit, describe, load_results
from benchmarks.tables import FULL, QUICK, TINY, Setting, Table
from benchmarks.verdicts import judge

MODULES = (
    "small_batches",
    "binary_loss",
    "multiclass_loss",
    "segmentation_loss",
    "pair_losses",
    "best_threshold",
    "pointwise",
    "pointwise_twins",
    "training",
    "images",
    "classifier",
    "imports",
    "compilation",
)


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure, and return the exit status: 1 with ``--strict`` if a bar fails."""
    options = _parser().parse_args(arguments)
    if options.markdown:
        options.markdown.write_text(as_markdown(load_results()), encoding="utf-8")
        return 0
    if options.threads:
        torch.set_num_threads(options.threads)
    setting = _setting(options)
    before = load()
    chosen = choose(registered(options.module or MODULES), options)
    results = describe(_command(options)) | {"tables": _earlier_tables(options.json, chosen)}
    measured = []
    for table in _run(chosen, setting):
        measured.append(table)
        results["tables"] = _ordered([*results["tables"], table])
        if options.json:
            options.json.write_text(json.dumps(results, indent=1) + "\n", encoding="utf-8")
    if options.json and options.json.parent.resolve() == RESULTS:
        PAGE.write_text(as_markdown(load_results()), encoding="utf-8")
    verdicts = judge(BARS, [results | {"tables": measured}])
    print(as_text(verdicts, measured, before, is_everything=not options.only and not options.module))
    missed = [verdict for verdict in verdicts if verdict.holds is False]
    failed = [table for table in measured if table["reason"].startswith("failed")]
    return 1 if options.strict and ((missed and not setting.tiny) or failed) else 0


def registered(modules: Sequence[str] = MODULES) -> list[Table]:
    """Return all tables, in the order of their modules."""
    return [table for name in modules for table in importlib.import_module(f"benchmarks.{name}").TABLES]


def choose(tables: Sequence[Table], options: argparse.Namespace) -> list[Table]:
    """Return the tables whose name contains one of ``--only``, of the chosen device; without long ones if quick."""
    devices = [options.device] if options.device else ["cpu", "cuda"] if torch.cuda.is_available() else ["cpu"]
    chosen = [
        table
        for table in tables
        if table.device in devices
        and (not options.only or any(part in table.name for part in options.only))
        and not (table.is_long and (options.quick or options.tiny))
    ]
    if not chosen:
        names = ", ".join(table.name for table in tables)
        raise SystemExit(f"nothing is named {options.only} on {' or '.join(devices)}; names: {names}")
    return chosen


def _run(tables: Sequence[Table], setting: Setting) -> Iterator[dict[str, Any]]:
    commit = current_commit()
    for table in tables:
        print(f"measuring {table.name} ...", file=sys.stderr, flush=True)
        start = time.monotonic()
        _forget_compiled()
        result = table.run(setting) | {"commit": commit}
        print(f"{table.name} took {time.monotonic() - start:.0f} s", file=sys.stderr, flush=True)
        yield result


def _forget_compiled() -> None:
    """Drop the functions that earlier tables compiled, because all graphs of a loss are looked through at each call."""
    if "torch._dynamo" in sys.modules:
        torch._dynamo.reset()


def _setting(options: argparse.Namespace) -> Setting:
    setting = TINY if options.tiny else QUICK if options.quick else FULL
    given = {name: getattr(options, name) for name in ("repeats", "budget") if getattr(options, name) is not None}
    return replace(setting, **given, fewest=min(setting.fewest, given.get("repeats", setting.fewest)))


def _earlier_tables(file: Path | None, chosen: Sequence[Table]) -> list[dict[str, Any]]:
    """Return the tables of an existing file of results that are not measured now."""
    if file is None or not file.exists():
        return []
    names = {table.name for table in chosen}
    earlier: list[dict[str, Any]] = json.loads(file.read_text(encoding="utf-8"))["tables"]
    return [table for table in earlier if table["name"] not in names]


def _ordered(tables: list[dict[str, Any]]) -> list[dict[str, Any]]:
    order = [table.name for table in registered()]
    return sorted(tables, key=lambda table: order.index(table["name"]) if table["name"] in order else len(order))


def _command(options: argparse.Namespace) -> str:
    """Return the command that repeats the measurement, without the options that say where the output goes."""
    values = {name: getattr(options, name) for name in ("device", "repeats", "budget", "threads")}
    chosen = [f"--module {name}" for name in options.module or ()]
    chosen += [
        f"--{name} {value:g}" if name != "device" else f"--device {value}" for name, value in values.items() if value
    ]
    return " ".join(
        ["python -m benchmarks", *chosen, *(f"--{name}" for name in ("quick", "tiny") if getattr(options, name))]
    )


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--only", action="append", metavar="NAME", help="tables whose name contains this; may be repeated"
    )
    parser.add_argument(
        "--module", action="append", metavar="NAME", help=f"tables of benchmarks.NAME: by default {MODULES}"
    )
    parser.add_argument("--device", choices=("cpu", "cuda"), help="tables of one device; by default of all there are")
    parser.add_argument("--repeats", type=int, help=f"interleaved repeats, {FULL.repeats} by default")
    parser.add_argument(
        "--budget",
        type=float,
        metavar="SECONDS",
        help=f"a table that took so long makes no more than {FULL.fewest} repeats; {FULL.budget:g} by default",
    )
    parser.add_argument("--threads", type=int, help="torch's CPU threads: 1 on a machine shared with others")
    parser.add_argument("--quick", action="store_true", help="fewer repeats, and without the tables that take minutes")
    parser.add_argument("--tiny", action="store_true", help="tiny sizes: shows that all runs, measures nothing")
    parser.add_argument("--strict", action="store_true", help="exit with 1 where a bar fails")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the results there, after every table")
    parser.add_argument(
        "--markdown",
        type=Path,
        metavar="FILE",
        help="measure nothing: write the page of the stored benchmarks/results/",
    )
    return parser


if __name__ == "__main__":
    sys.exit(main())
