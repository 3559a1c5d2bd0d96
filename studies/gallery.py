"""Three problems from start to end, as a user would solve them on the command line: docs/gallery.md.

    python -m studies.gallery --data ../shared/data --folder runs/gallery --jobs 2   # tables, commands, outputs
    python -m studies.gallery --folder runs/gallery --pictures                       # pictures of the reports
    python -m studies.gallery                                                        # outputs to the page

A problem is a folder: its tables, and after every command what it printed and how long it took. A finished command is
not run again. ``--jobs`` is the number of processes of each command. The pictures need Chromium.
"""

from __future__ import annotations

import argparse
import io
import json
import os
import shlex
import shutil
import subprocess
import sys
import textwrap
import time
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pandas as pd

from studies.common import write_page

DOCS = Path(__file__).resolve().parents[1] / "docs"
RESULTS = Path(__file__).resolve().parent / "results" / "gallery.json"
PICTURES = DOCS / "img"
WIDTH = 88
Tables = dict[str, pd.DataFrame]


class Problem(NamedTuple):
    """The tables, the commands after ``metricfit``, by name, and the report that the page shows."""

    tables: Callable[[Path], Tables]
    commands: dict[str, str]
    report: str


def fraud(data: Path) -> Tables:
    """Card payments of two days: the first 70 % in time to learn from, the others to check."""
    rows = pd.read_parquet(data / "tabular" / "creditcard.parquet").rename(columns={"target": "fraud"})
    rows = rows.sort_values("Time", kind="stable")
    cut = int(0.7 * len(rows))
    return {"payments.parquet": rows[:cut], "later.parquet": rows[cut:]}


def screening(data: Path) -> Tables:
    """Spots on mammograms, 2.3 % of them cancers: half to learn from, half to check."""
    rows = pd.read_parquet(data / "tabular" / "mammography.parquet").rename(columns={"target": "cancer"})
    rows = rows.sample(frac=1, random_state=0)
    return {"spots.csv": rows[: len(rows) // 2], "new.csv": rows[len(rows) // 2 :]}


def grading(data: Path) -> Tables:
    """The level of education in Adult, from 1 to 5, from what else the census says."""
    rows = pd.read_parquet(data / "tabular" / "adult.parquet").sample(8000, random_state=0)
    years = rows["education-num"].astype(int)
    rows = rows.drop(columns=["education", "education-num", "fnlwgt", "split", "target"])
    rows["level"] = 1 + np.digitize(years, [9, 10, 13, 14])
    return {"census.csv": rows[:4000], "new.csv": rows[4000:]}


PROBLEMS = {
    "fraud": Problem(
        fraud,
        {
            "doctor": "doctor payments.parquet --target fraud",
            "fit": "fit payments.parquet --target fraud --metric f1 --out fitted",
            "evaluate": "evaluate fitted/model later.parquet --target fraud",
        },
        "fitted/report.html",
    ),
    "screening": Problem(
        screening,
        {
            "doctor": 'doctor spots.csv --target cancer --subject-to "recall >= 0.9" --confidence 0.9',
            "fit": 'fit spots.csv --target cancer --metric precision --subject-to "recall >= 0.9" --confidence 0.9 '
            "--out fitted",
            "evaluate": "evaluate fitted/model new.csv --target cancer",
        },
        "fitted/report.html",
    ),
    "grading": Problem(
        grading,
        {
            "doctor": "doctor census.csv --target level",
            "compare": 'compare census.csv --target level --metric "weighted_kappa(power=2)" '
            '--method metricfit --method "boosted trees" --method "logistic regression" --out compared',
            "fit": 'fit census.csv --target level --metric "weighted_kappa(power=2)" --out fitted',
            "evaluate": "evaluate fitted/model new.csv --target level",
        },
        "fitted/report.html",
    ),
}


def solve(name: str, data: Path, folder: Path, jobs: int) -> None:
    """Write the tables and run the commands of one problem."""
    folder.mkdir(parents=True, exist_ok=True)
    for file, rows in PROBLEMS[name].tables(data).items():
        if not (folder / file).exists():
            rows.to_parquet(folder / file) if file.endswith(".parquet") else rows.to_csv(folder / file, index=False)
    for title, command in PROBLEMS[name].commands.items():
        path = folder / f"{title}.json"
        if path.exists():
            continue
        words = [sys.executable, "-c", "from metricfit.cli import main; main()", *shlex.split(command)]
        words += ["--jobs", str(jobs)] if title in ("compare", "fit") else []
        start = time.perf_counter()
        ended = subprocess.run(
            words, cwd=folder, capture_output=True, text=True, env=os.environ | {"COLUMNS": str(WIDTH)}, check=False
        )
        seconds = time.perf_counter() - start
        print(f"{name} {title}: {seconds:.0f} s, status {ended.returncode}", flush=True)
        if ended.returncode != 0:
            print(ended.stderr[-3000:], flush=True)
            return
        path.write_text(json.dumps({"output": ended.stdout, "seconds": round(seconds, 1)}), encoding="utf-8")


def collect(folder: Path, names: Iterable[str]) -> dict[str, Any]:
    """Return the stored outputs, with those of the commands that were run in this folder."""
    results = json.loads(RESULTS.read_text(encoding="utf-8"))
    for name in names:
        for title in PROBLEMS[name].commands:
            results[name][title] = json.loads((folder / name / f"{title}.json").read_text(encoding="utf-8"))
    return results


def take_pictures(folder: Path, names: Iterable[str]) -> None:
    """Take a picture of the first screen of each problem's report."""
    from PIL import Image
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=shutil.which("chromium"), args=["--no-sandbox"])
        page = browser.new_page(viewport={"width": 1100, "height": 800}, device_scale_factor=1.3, color_scheme="light")
        for name in names:
            page.goto((folder / name / PROBLEMS[name].report).resolve().as_uri())
            picture = Image.open(io.BytesIO(page.screenshot())).convert("RGB")
            picture.save(PICTURES / f"gallery-{name}.webp", quality=80, method=6)
        browser.close()


def parts_of_page(results: dict[str, Any]) -> dict[str, str]:
    """Each command with its output, by the name of its place in the page."""
    return {
        f"{name} {title}": f"```console\n$ metricfit {PROBLEMS[name].commands[title]}\n"
        f"{_wrapped(entry['output'].rstrip())}\n```"
        for name, found in results.items()
        for title, entry in found.items()
    }


def _wrapped(output: str) -> str:
    """Break long sentences, as a terminal does, and leave tables as they are."""
    return "\n".join(
        textwrap.fill(line, WIDTH) if len(line) > WIDTH and line[0].isascii() else line for line in output.splitlines()
    )


def main(arguments: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, help="the folder with the datasets: run what is not finished")
    parser.add_argument("--folder", type=Path, default=Path("runs/gallery"), help="where tables and outputs are kept")
    parser.add_argument("--only", nargs="*", default=list(PROBLEMS))
    parser.add_argument("--pictures", action="store_true", help="take pictures of the reports")
    parser.add_argument("--jobs", type=int, default=2)
    options = parser.parse_args(arguments)
    if options.data is not None:
        for name in options.only:
            solve(name, options.data, options.folder / name, options.jobs)
    elif options.pictures:
        RESULTS.write_text(json.dumps(collect(options.folder, options.only), indent=1) + "\n", encoding="utf-8")
        take_pictures(options.folder, options.only)
    else:
        write_page(DOCS.parent, "gallery.md", parts_of_page(json.loads(RESULTS.read_text(encoding="utf-8"))))


if __name__ == "__main__":
    main()
