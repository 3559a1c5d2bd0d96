"""Write the results of all runs that the pages show, from finished cells; nothing is trained.

    metricfit reproduce --from BROUGHT --out OUT                     # cells of another run folder or machine
    python -m metricfit_papers.pages.gather --out OUT --data FOLDER  # results of every run that is listed
    python -m metricfit_papers.pages.build --from OUT                # the pages

The runs are listed in ``papers/runs.toml``. The results of a run whose cells are all in OUT are written there as
``metricfit reproduce`` would write them, with the command that makes them. Where cells are missing, the datasets with
all their cells are written, each as a run of its own. Missing cells are reported, and the exit status is then 1.
"""

from __future__ import annotations

import argparse
import math
import shlex
import sys
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import metricfit_papers as papers
from metricfit.runs import CellError
from metricfit_papers.pages.repository import RUNS
from metricfit_papers.pages.stored_results import Results, epochs_limit
from metricfit_papers.results import result_files
from metricfit_papers.results.table_run import choose_rows
from metricfit_papers.specs.toml_section import Section, read_toml


@dataclass(frozen=True)
class Run:
    """The options of one run of ``metricfit reproduce``; empty means all, None means the table's.

    A run of the queue also has the seconds that it is expected to take, and what it is for.
    """

    table: str
    protocol: str
    only: tuple[str, ...] = ()
    rows: tuple[str, ...] = ()
    without: tuple[str, ...] = ()
    trials: int | None = None
    epochs: int | None = None
    seconds: int = 0
    why: str = ""

    @property
    def command(self) -> str:
        """The command of the run.

        >>> Run("btg-1", "code", rows=("F1*",), trials=3).command
        "metricfit reproduce btg-1 --data FOLDER --protocol code --row 'F1*' --trials 3"
        """
        words = ["metricfit", "reproduce", self.table, "--data", "FOLDER"]
        if self.protocol != next(iter(papers.find_table(self.table).protocols)):
            words += ["--protocol", self.protocol]
        for option, names in (("--only", self.only), ("--row", self.rows), ("--without", self.without)):
            words += [word for name in names for word in (option, name)]
        for option, number in (("--trials", self.trials), ("--epochs", self.epochs)):
            words += [] if number is None else [option, str(number)]
        return shlex.join(words)

    @property
    def datasets(self) -> tuple[str, ...]:
        """The datasets that it runs."""
        return self.only or tuple(papers.find_table(self.table).datasets)

    def not_in(self, stored: Results) -> list[tuple[str, str]]:
        """Return the datasets and rows of the run that stored results lack, or have of fewer trials or epochs."""
        spec = papers.find_table(self.table)
        trials, epochs = self.trials or spec.trials, spec.protocols[self.protocol].limit(self.epochs) or math.inf
        rows_of = stored["protocols"].get(self.protocol, {})
        return [
            (dataset, row.name)
            for dataset in self.datasets
            for row in choose_rows(spec, self.protocol, self.rows, self.without)
            if (measured := rows_of.get(dataset, {}).get(row.name)) is None
            or measured["run"]["trials"] < trials
            or epochs_limit(measured["run"]) < epochs
        ]

    def parts(self) -> list[Run]:
        """Return one run per dataset; empty if the run has a single dataset."""
        return [replace(self, only=(dataset,)) for dataset in self.datasets] if len(self.datasets) > 1 else []


def listed(path: Path = RUNS) -> list[Run]:
    """Read the runs of a list, one per protocol of an entry."""
    file = read_toml(path)
    return [run for table in list(file.remaining) for entry in _entries(file, table) for run in _runs(table, entry)]


def _entries(file: Section, table: str) -> Iterator[Section]:
    for number, run in enumerate(file.take(table, list), start=1):
        if not isinstance(run, dict):
            raise file.error(table, f"is a list of runs, each of which starts with [[{table}]]; got {run!r}")
        yield Section(file.file, f"{table}, run {number}", run)


def _runs(table: str, entry: Section) -> Iterator[Run]:
    protocols = entry.take("protocols", list, [next(iter(papers.find_table(table).protocols))])
    settings: dict[str, Any] = {key: tuple(entry.take(key, list, [])) for key in ("only", "rows", "without")}
    settings |= {key: entry.take(key, int, None) for key in ("trials", "epochs")}
    settings |= {"seconds": entry.take("seconds", int, 0), "why": entry.take("why", str, "")}
    entry.done()
    for protocol in protocols:
        yield Run(table, protocol, **settings)


def write(run: Run, out: Path, data: Path) -> Path:
    """Write the results of a run from its cells; an error if some are missing."""
    spec = papers.find_table(run.table)
    result = papers.run_table(
        spec,
        run.protocol,
        out,
        data=data,
        trials=run.trials,
        epochs=run.epochs,
        only=run.only,
        rows=run.rows,
        without=run.without,
        train=False,
    )
    return result_files.write_results(spec, result_files.to_plain_values(result, run.command), out)


def gather(runs: Iterable[Run], out: Path, data: Path) -> tuple[list[Path], list[str]]:
    """Write every run, or its complete datasets; return the files that were written and the runs that are missing."""
    written, missing = list[Path](), list[str]()
    for run in runs:
        try:
            written.append(write(run, out, data))
            print(f"whole    {run.command}", flush=True)
        except (CellError, FileNotFoundError) as error:
            written_parts, missing_parts = gather(run.parts(), out, data)
            written += written_parts
            missing += missing_parts
            if not run.parts():
                missing.append(f"{run.command}\n           {_reason(error)}")
                print(f"missing  {missing[-1]}", flush=True)
    return written, missing


def _reason(error: Exception) -> str:
    if isinstance(error, papers.UnfinishedCellsError):
        return f"{len(error.missing)} of {error.total} cells, such as {error.missing[0]}"
    return " ".join(str(error).split())


def others(out: Path, written: Iterable[Path]) -> list[Path]:
    """Return older results in the folder, which the pages would use as well."""
    new = {path.with_suffix(".json") for path in written}
    return sorted(path for path in out.glob("*/*.json") if path not in new)


def main(arguments: list[str] | None = None) -> int:
    """Run the command line of this module, and return the exit status."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("tables", nargs="*", help="names of tables; by default all")
    parser.add_argument("--out", type=Path, required=True, help="folder with the cells, for the results too")
    parser.add_argument("--data", type=Path, required=True, help="folder with the datasets")
    parser.add_argument("--runs", type=Path, default=RUNS, help="file with the list of runs")
    options = parser.parse_args(arguments)
    runs = listed(options.runs)
    for table in options.tables:
        if not any(run.table == table for run in runs):
            parser.error(f"no run of {table} is listed; there are runs of {', '.join({run.table: 0 for run in runs})}")
    chosen = [run for run in runs if not options.tables or run.table in options.tables]
    written, missing = gather(chosen, options.out, options.data)
    print(f"{len(written)} results written in {options.out}, {len(missing)} runs lack cells")
    for path in [] if options.tables else others(options.out, written):
        print(f"older result, which pages.build uses unless you remove it: {path}")
    return 1 if missing else 0


if __name__ == "__main__":
    sys.exit(main())
