"""Seconds and memory of fit, predict and evaluate on a table of many rows.

    python -m studies.many_rows FOLDER --rows 10000000             # tables, model and predictions go to the folder
    python -m studies.many_rows FOLDER --rows 1000000 --copies 10 --steps predict evaluate   # on ten such files
    python -m studies.many_rows FOLDER --rows 600000 --steps fit evaluate whole_fit whole_evaluate
    python -m studies.many_rows                                    # write the page's tables from the results

The steps "whole_fit" and "whole_evaluate" fit the table as a small one: all of it in memory, in three folds.
It writes two Parquet tables of 20 columns with 1 % positives (numbers, counts, categories, a date, 2,000 merchants;
some values are missing), fits a model on the first with ``metricfit fit``, and applies it to the second. Every step is
a process of its own, and its peak resident memory is what the kernel reports at its end. The results go to
``results/many_rows.json`` or ``--out``.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
from joblib import Parallel, delayed

RESULTS = Path(__file__).resolve().parent / "results" / "many_rows.json"
PAGE = RESULTS.parents[2] / "docs" / "evidence" / "tables.md"
CHUNK = 500_000
POSITIVES = 0.01
COUNTRIES = [f"{first}{second}" for first in "ABCDEF" for second in "KLMNO"]
DEVICES = ["phone", "tablet", "laptop", "desktop", "watch", "tv", "console", "other"]
COMMAND = [sys.executable, "-c", "from metricfit.cli import main; main()"]
AT_ONCE = "from metricfit.tabular import row_sources as r; r.LARGE_ROWS = 10**12; "


def draw_rows(rows: int, seed: list[int]) -> tuple[pd.DataFrame, np.ndarray]:
    """Draw rows and the logit of each, without the intercept."""
    r = np.random.default_rng(seed)
    country = r.choice(len(COUNTRIES), rows, p=_falling(len(COUNTRIES)))
    channel = r.choice(5, rows, p=_falling(5))
    device = r.choice(len(DEVICES), rows, p=_falling(len(DEVICES)))
    merchant = np.minimum((r.pareto(1.1, rows) * 5).astype(np.int64), 1999)
    plan = r.choice(4, rows, p=_falling(4))
    amount = r.lognormal(3.5, 1.1, rows)
    balance = r.normal(900, 700, rows)
    age = r.integers(18, 90, rows)
    tenure = r.exponential(700, rows).astype(np.int64)
    orders = r.poisson(1 + tenure / 200)
    returns = r.binomial(orders, 0.08)
    discount = np.where(r.random(rows) < 0.3, np.nan, r.beta(1, 6, rows))
    hour = r.integers(0, 24, rows)
    latitude, longitude = r.uniform(36, 60, rows), r.uniform(-9, 30, rows)
    first, second = r.normal(size=rows), r.normal(size=rows)
    mobile, address = r.random(rows) < 0.55, r.random(rows) < 0.8
    logit = (
        0.55 * np.log(amount)
        - 0.9 * np.log1p(tenure / 30) / 2
        + 1.1 * (channel == 3)
        + 0.8 * ((device == 1) & (hour < 6))
        + 0.6 * np.sin(country)
        + 0.7 * np.cos(merchant / 7.0)
        + 0.9 * np.tanh(first * second)
        + 0.6 * first
        + 0.8 * (returns / (1 + orders))
        + 0.7 * np.isnan(discount) * (plan == 2)
        - 0.5 * address
        + 0.5 * (balance < 0)
    )
    frame = pd.DataFrame(
        {
            "amount": amount.round(2),
            "balance": np.where(r.random(rows) < 0.05, np.nan, balance.round(2)),
            "age": age,
            "tenure_days": tenure,
            "orders": orders,
            "returns": returns,
            "discount": discount.round(3),
            "hour": hour,
            "latitude": latitude,
            "longitude": longitude,
            "score_a": first,
            "score_b": second,
            "country": pd.Categorical.from_codes(country, COUNTRIES).astype(str),
            "channel": pd.Categorical.from_codes(channel, ["web", "app", "shop", "phone", "mail"]).astype(str),
            "device": pd.Series(pd.Categorical.from_codes(device, DEVICES)).astype(str).mask(r.random(rows) < 0.1),
            "plan": pd.Categorical.from_codes(plan, ["free", "basic", "plus", "pro"]).astype(str),
            "mobile": mobile,
            "address": address,
            "signup": pd.Timestamp("2015-01-01") + pd.to_timedelta(r.integers(0, 3600, rows), unit="D"),
            "merchant": pd.Series(merchant).map(lambda number: f"merchant {number}"),
        }
    )
    return frame, logit


def write_tables(paths: list[Path], rows: int) -> None:
    """Write tables, the same for the same arguments, one row group at a time."""
    intercept = find_intercept()
    sizes = [min(CHUNK, rows - first) for first in range(0, rows, CHUNK)]
    for seed, path in enumerate(paths):
        if path.exists():
            continue
        chunks = (delayed(draw_table)(size, [seed, number], intercept) for number, size in enumerate(sizes))
        writer = None
        for table in Parallel(n_jobs=-1, return_as="generator", pre_dispatch="n_jobs")(chunks):
            writer = writer or pq.ParquetWriter(path, table.schema)
            writer.write_table(table)
        writer.close()


def find_intercept() -> float:
    """Return the intercept at which the share of positives is right."""
    _, pilot = draw_rows(200_000, [99])
    low, high = -20.0, 5.0
    while high - low > 1e-6:
        middle = (low + high) / 2
        share = (1 / (1 + np.exp(-2 * (pilot + middle)))).mean()
        low, high = (low, middle) if share > POSITIVES else (middle, high)
    return low


def draw_table(rows: int, seed: list[int], intercept: float) -> pa.Table:
    """Draw rows with their labels."""
    frame, logit = draw_rows(rows, seed)
    chance = 1 / (1 + np.exp(-2 * (logit + intercept)))
    frame["fraud"] = (np.random.default_rng([*seed, 1]).random(len(frame)) < chance).astype(np.int64)
    return pa.Table.from_pandas(frame, preserve_index=False)


def measure(arguments: list[str], *, whole: bool = False) -> dict[str, Any]:
    """Run ``metricfit`` with these arguments, and return its output, seconds and peak resident memory.

    Args:
        arguments: The arguments.
        whole: Whether no table is large.
    """
    start = time.monotonic()
    command = [*COMMAND[:2], AT_ONCE + COMMAND[2]] if whole else COMMAND
    process = subprocess.Popen([*command, *arguments], stdout=subprocess.PIPE, text=True)
    output = process.stdout.read()
    _, status, usage = os.wait4(process.pid, 0)
    seconds = time.monotonic() - start
    process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode:
        raise SystemExit(f"metricfit {' '.join(arguments)} ended with {process.returncode}")
    return {
        "seconds": round(seconds, 1),
        "cpu_seconds": round(usage.ru_utime + usage.ru_stime, 1),
        "peak_gib": round(usage.ru_maxrss / 2**20, 2),
        "result": json.loads(output),
    }


def run(folder: Path, rows: int, out: Path, budget: float, steps: list[str], copies: int = 1) -> None:
    """Make the tables if they are not there, and run the steps; each result is written when it is ready."""
    folder.mkdir(parents=True, exist_ok=True)
    tables = [folder / f"{name}-{rows}.parquet" for name in ("train", "test")]
    start = time.monotonic()
    write_tables(tables, rows)
    results = json.loads(out.read_text()) if out.exists() else {}
    found = results.setdefault(str(rows * copies), {})
    applied_to = tables[1]
    if copies > 1:
        applied_to = folder / f"{copies}-copies-{rows}"
        applied_to.mkdir(exist_ok=True)
        for number in range(copies):
            (applied_to / f"part-{number}.parquet").hardlink_to(tables[1])
    found["machine"] = {"cores": len(os.sched_getaffinity(0)), "python": platform.python_version()}
    found["tables"] = {
        "seconds": round(time.monotonic() - start, 1),
        "bytes": [path.stat().st_size for path in tables],
        "columns": len(pq.read_schema(tables[0]).names) - 1,
    }
    commands = {}
    for whole in ("", "whole_"):
        model, budgeted = str(folder / f"{whole}model-{rows}"), ["--time-budget", str(budget)]
        predictions = str(folder / f"{whole}predictions-{rows}.parquet")
        commands |= {
            f"{whole}fit": ["fit", str(tables[0]), "--target", "fraud", *budgeted, "--out", model],
            f"{whole}predict": ["predict", model, str(applied_to), "--out", predictions],
            f"{whole}evaluate": ["evaluate", model, str(applied_to), "--target", "fraud"],
        }
    for step in steps:
        found[step] = measure([*commands[step], "--json"], whole=step.startswith("whole_"))
        print(f"{step}: {found[step]['seconds']} s, {found[step]['peak_gib']} GiB", flush=True)
        out.parent.mkdir(parents=True, exist_ok=True)
        out.write_text(json.dumps(results, indent=1) + "\n")


def write_page(results: dict[str, Any]) -> None:
    """Write the tables of the page."""
    from studies.common import fill, table  # draws figures too, which needs a package that measuring does not

    steps, families = [], []
    for rows, found in sorted(results.items(), key=lambda item: int(item[0])):
        for step in ("fit", "predict", "evaluate"):
            if step in found:
                measured = found[step]
                times = f"{measured['seconds']:.0f} s", f"{measured['cpu_seconds']:.0f} s"
                steps.append([f"{int(rows):,}", f"`{step}`", *times, f"{measured['peak_gib']:.2f} GiB"])
        for model in found["fit"]["result"]["models"]:
            if model["left_out"] is None and rows == max(results, key=int):
                fitted = f"{model['fitted_rows']:,}" if model["fitted_rows"] else "all but the held-out part"
                value = f"{model['value']:.3f}"
                families.append(
                    [
                        f"{int(rows):,}",
                        model["name"],
                        fitted,
                        value,
                        f"{model['weight']:.2f}",
                        f"{model['seconds']:.0f} s",
                    ]
                )
    parts = {
        "steps": table(["rows", "command", "time", "processor time", "peak memory"], steps),
        "families": table(["rows", "family", "fitted on rows", "F1 held out", "weight", "time"], families),
    }
    PAGE.write_text(fill(PAGE.read_text(), parts))


def _falling(number: int) -> np.ndarray:
    weights = 1 / np.arange(1, number + 1)
    return weights / weights.sum()


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("folder", nargs="?", type=Path, help="where the tables and the model are written")
    parser.add_argument("--rows", type=int, default=200_000)
    parser.add_argument("--out", type=Path, default=RESULTS)
    parser.add_argument("--time-budget", type=float, default=300.0)
    parser.add_argument("--copies", type=int, default=1, help="copies of the other table to predict and evaluate")
    parser.add_argument("--steps", nargs="+", default=["fit", "predict", "evaluate"])
    options = parser.parse_args()
    if options.folder is None:
        write_page(json.loads(options.out.read_text()))
    else:
        run(options.folder, options.rows, options.out, options.time_budget, options.steps, options.copies)
