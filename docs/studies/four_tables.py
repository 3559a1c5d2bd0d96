"""metricfit compare on four real tables, and metricfit fit on the largest: results, time and memory on two cores.

    python docs/studies/four_tables.py --data ../shared/data               # all of it; finished cells are kept
    python docs/studies/four_tables.py --data ../shared/data --only adult  # one of them
    python docs/studies/four_tables.py                                     # write the page from what was measured

The commands are run as a user would run them, on Parquet files written from `metricfit.data.load`; the time and the
memory (the sum over the command and its workers, looked at twice a second) are the whole command's.
"""

from __future__ import annotations

import argparse
import json
import os
import shlex
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

from common import DOCS, fill, table

RESULTS = DOCS / "studies" / "results" / "four_tables"
PAGE = DOCS / "four-tables.md"
COMMANDS = {
    "mammography": "compare mammography.parquet --target target --metric f1 --jobs 2",
    "adult": "compare adult.parquet --target target --metric f1 --jobs 2",
    "cocktailparty": "compare cocktailparty.parquet --target target --metric f1 --group frame --jobs 2",
    "creditcard": "compare creditcard.parquet --target target --metric f1 --folds 3 --jobs 2",
    "creditcard-fit": "fit creditcard.parquet --target target --metric f1",
}


def write_table(name: str, data: Path, folder: Path) -> None:
    """The features, the label, and the group where there is one, as Parquet."""
    from metricfit.data import load

    rows = load(name, data)
    frame = rows.X.assign(target=rows.y)
    if rows.groups is not None:
        frame = frame.assign(frame=rows.groups)
    frame.to_parquet(folder / f"{name}.parquet")


def measure(name: str, folder: Path) -> None:
    """Run a command to its end; keep what it printed, its seconds and its peak memory."""
    command = f"{COMMANDS[name]} --out {name} --json"
    began, peak = time.perf_counter(), 0.0
    line = [sys.executable, "-m", "metricfit.cli.app", *shlex.split(command)]
    with subprocess.Popen(line, cwd=folder, stdout=subprocess.PIPE, start_new_session=True, text=True) as process:
        while process.poll() is None:
            peak = max(peak, _memory(process.pid))
            time.sleep(0.5)
        printed = process.stdout.read() if process.stdout is not None else ""
    if process.returncode:
        raise RuntimeError(f"metricfit {command} ended with {process.returncode}")
    found = json.loads(printed)
    found |= {"seconds": time.perf_counter() - began, "peak_gib": peak, "cores": len(os.sched_getaffinity(0))}
    RESULTS.mkdir(parents=True, exist_ok=True)
    (RESULTS / f"{name}.json").write_text(json.dumps(found, indent=1) + "\n", encoding="utf-8")


def _memory(session: int) -> float:
    """GiB resident in all processes of a session."""
    pages = 0
    for entry in Path("/proc").iterdir():
        try:
            if entry.name.isdigit() and os.getsid(int(entry.name)) == session:
                pages += int((entry / "statm").read_text().split()[1])
        except OSError:  # it has ended
            continue
    return pages * os.sysconf("SC_PAGE_SIZE") / 2**30


def methods(found: dict[str, Any]) -> str:
    """A comparison's methods, best first."""
    rows = []
    for method in found["methods"]:
        low, high = method["interval"]
        cells = [method["name"], f"{method['mean']:.3f} ({low:.3f} to {high:.3f})"]
        versus = method["versus_reference"]
        if versus is None:
            cells += ["", ""]
        else:
            low, high = versus["interval"]
            cells += [f"{versus['difference']:+.3f} ({low:+.3f} to {high:+.3f})", f"{versus['p_value']:.2g}"]
        seconds = method["seconds"]
        rows.append([*cells, "paused in between" if seconds is None else f"{seconds:.0f}"])
    head = ["method", "F1 (95 %)", "against tuned cross-entropy (95 %)", "p", "seconds of training"]
    return table(head, rows) + f"\n\n> {found['verdict']}"


def costs(found: dict[str, dict[str, Any]]) -> str:
    """What each command took."""
    rows = []
    for name, of in found.items():
        effort = ", ".join(f"{key} {value}" for key, value in of.get("effort", {}).items())
        rows.append([f"`metricfit {COMMANDS[name]}`", f"{of['seconds'] / 60:.1f}", f"{of['peak_gib']:.2f}", effort])
    return table(["command", "minutes", "peak GiB", "every network"], rows)


def main(arguments: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, help="the folder with the datasets")
    parser.add_argument("--folder", type=Path, default=Path("runs/four-tables"), help="where the commands run")
    parser.add_argument("--only", nargs="*", choices=COMMANDS, default=list(COMMANDS))
    given = parser.parse_args(arguments)
    if given.data is not None:
        given.folder.mkdir(parents=True, exist_ok=True)
        for name in given.only:
            write_table(name.removesuffix("-fit"), given.data, given.folder)
            measure(name, given.folder)
        return
    found = {name: json.loads((RESULTS / f"{name}.json").read_text()) for name in COMMANDS}
    parts = {"costs": costs(found)} | {name: methods(of) for name, of in found.items() if "methods" in of}
    PAGE.write_text(fill(PAGE.read_text(encoding="utf-8"), parts), encoding="utf-8")


if __name__ == "__main__":
    main()
