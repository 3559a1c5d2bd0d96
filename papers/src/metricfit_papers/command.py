"""``metricfit reproduce`` and ``metricfit datasets``, found by metricfit through entry points.

``python -m metricfit_papers.command`` is ``metricfit reproduce``.
"""

from __future__ import annotations

import shlex
import sys
from collections.abc import Collection, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn, TransferSpeedColumn
from rich.table import Table

import metricfit_papers as tables
from metricfit.cli.progress_display import progress_bar
from metricfit.cli.terminal import UserError, err, print_message, print_result, report_errors
from metricfit.runs.executor import BACKENDS
from metricfit_papers.datasets.dataset_files import data_name
from metricfit_papers.datasets.fetching import IMAGES, SOURCES, Fetched, fetch, fetchable, find_data
from metricfit_papers.datasets.http_files import Watch
from metricfit_papers.results import markdown, result_files
from metricfit_papers.results.table_run import MissingDataError
from metricfit_papers.specs.run_sizes import RunSize, read_sizes
from metricfit_papers.specs.table_spec import ALL

AsJson = Annotated[bool, typer.Option("--json", help="Print only JSON on standard output.")]
Folder = Annotated[
    Path | None, typer.Option("--data", help="Folder with the datasets; by default metricfit-data, if it is there.")
]
#: The folder of the datasets that `--fetch` writes to, and that is read if it is there, where `--data` names no other.
DATA = Path("metricfit-data")
#: Most names of datasets in one cell of `--list`.
NAMED = 3
SIZES_EXPLAINED = (
    "Datasets, trials and epochs: how many were run for the pages of papers/pages, of those in the table's file. "
    "Epochs are the limits of shorter runs and the longest training; most trainings stop early, when the validation "
    "set shows no gain. Papers may have more datasets, which were not available: see the notes of a table. Minutes: "
    "training of these runs, on the machines that the pages name."
)


def reproduce(
    name: Annotated[
        str | None, typer.Argument(help="Name of a table (see --list), or the path of a .toml file.")
    ] = None,
    protocol: Annotated[
        list[str] | None, typer.Option("--protocol", help="paper, code, corrected or all; may be repeated.")
    ] = None,
    data: Folder = None,
    fetches: Annotated[bool, typer.Option("--fetch", help="Download the datasets that are not there.")] = False,
    to: Annotated[Path, typer.Option("--out", help="Folder for the cells and results.")] = Path("metricfit-reproduce"),
    trials: Annotated[
        int | None, typer.Option("--trials", min=1, help="Number of trials; by default the table's.")
    ] = None,
    epochs: Annotated[int | None, typer.Option("--epochs", min=1, help="Maximum number of epochs.")] = None,
    only: Annotated[list[str] | None, typer.Option("--only", help="Name of a dataset to run; may be repeated.")] = None,
    row: Annotated[list[str] | None, typer.Option("--row", help="Name of a row to run; may be repeated.")] = None,
    without: Annotated[
        list[str] | None, typer.Option("--without", help="Tag or name of rows to leave out; may be repeated.")
    ] = None,
    jobs: Annotated[
        int, typer.Option("--jobs", help="Number of cells to run at the same time; -1 for one per core.")
    ] = 1,
    backend: Annotated[str, typer.Option("--backend", help=", ".join(BACKENDS))] = "loky",
    device: Annotated[
        str | None, typer.Option("--device", help="cpu or cuda; by default a GPU if there is one.")
    ] = None,
    sources: Annotated[
        list[Path] | None,
        typer.Option("--from", help="Another run folder, whose finished cells are copied first; may be repeated."),
    ] = None,
    finished: Annotated[
        bool, typer.Option("--finished", help="Train nothing; report an error if cells are not finished.")
    ] = False,
    listed: Annotated[bool, typer.Option("--list", help="List the tables.")] = False,
    as_json: AsJson = False,
    quiet: Annotated[bool, typer.Option("--quiet", help="Show no progress.")] = False,
) -> None:
    """Run a paper's table again, and compare the published numbers with the measured ones."""
    data = data or (DATA if fetches or DATA.is_dir() else None)
    if listed:
        _list(data, as_json)
        return
    if name is None and sources:
        copies = _copied(sources, to, quiet=True)
        print_result(_output(copies=copies), as_json, [f"{copy}." for copy in copies])
        return
    if name is None:
        raise UserError("Name a table, such as btg-1; metricfit reproduce --list shows them all.")
    spec = tables.find_table(name)
    chosen = _chosen_protocols(spec, protocol or ())
    if fetches and data is not None:
        _fetch_missing(spec, only or (), data, quiet)
    copies = _copied(sources or (), to, quiet)
    results: list[dict[str, Any]] = []
    output: list[str | Table] = []
    for protocol_name in chosen:
        with _missing_data_in_lines(), progress_bar(f"{spec.name}, {protocol_name}", quiet) as watch:
            result = tables.run_table(
                spec,
                protocol_name,
                to,
                data=data,
                trials=trials,
                epochs=epochs,
                only=only or (),
                rows=row or (),
                without=without or (),
                jobs=jobs,
                backend=backend,
                device=device,
                watch=watch,
                train=not finished,
            )
        plain = result_files.to_plain_values(result, f"metricfit {shlex.join(sys.argv[1:])}")
        path = result_files.write_results(spec, plain, to)
        results.append(_with_all_fields(plain) | {"file": str(path)})
        output += [*_terminal_tables(spec, plain), f"Written: {path}"]
    print_result(_output(spec.name, results, copies), as_json, output)


@contextmanager
def _missing_data_in_lines() -> Iterator[None]:
    """Print one line per missing dataset, because the message of an error is a single line."""
    try:
        yield
    except MissingDataError as error:
        for line in error.missing:
            print_message(line)
        few = " To run the others only: " + " ".join(f"--only {name}" for name in error.others) if error.others else ""
        raise UserError(
            f"{len(error.missing)} of {len(error.missing) + len(error.others)} datasets are missing; --fetch downloads "
            f"them where a program can.{few}"
        ) from error


def _chosen_protocols(spec: tables.TableSpec, protocols: Sequence[str]) -> list[str]:
    """Return the protocols to run: by default the first one, and all of them for ``all``."""
    chosen = list(spec.protocols) if "all" in protocols else list(protocols) or [next(iter(spec.protocols))]
    for name in chosen:
        if name not in spec.protocols:
            names = ", ".join(spec.protocols)
            raise UserError(f"{spec.name} has no protocol {name!r}; it has {names}. all runs all of them.")
    return chosen


def _data_names(spec: tables.TableSpec, only: Collection[str] = ()) -> list[str]:
    """Return the names of the data of a table's datasets; generated datasets and a user's files have none."""
    chosen = [dataset for name, dataset in spec.datasets.items() if not only or name in only]
    return list(dict.fromkeys(name for dataset in chosen if (name := data_name(dataset)) is not None))


def _fetch_missing(spec: tables.TableSpec, only: Collection[str], folder: Path, quiet: bool) -> None:
    """Download what a table needs; what no program can download is reported when the table is run."""
    for name in _data_names(spec, only):
        if find_data(name, folder) is None and name in SOURCES:
            _fetch(name, folder, quiet)


def _fetch(name: str, folder: Path, quiet: bool) -> Fetched:
    """Download one dataset, with progress and its licence on standard error."""
    with _download_display(quiet) as watch:
        fetched = fetch(name, folder, watch=watch)
    if not quiet:
        state = "" if fetched.new else " was there already"
        print_message(f"{name}: {fetched.path}{state}. Licence: {fetched.licence}.")
    return fetched


@contextmanager
def _download_display(quiet: bool) -> Iterator[Watch | None]:
    """Show a bar of bytes on a terminal, and one line per file where there is none."""
    if quiet:
        yield None
        return
    columns = (TextColumn("{task.description}", markup=False), BarColumn(), DownloadColumn(), TransferSpeedColumn())
    with Progress(*columns, console=err, transient=True, disable=not err.is_terminal) as bar:
        tasks: dict[str, Any] = {}

        def watch(file: str, size: int, total: int | None) -> None:
            if file not in tasks:
                tasks[file] = bar.add_task(file, total=total)
                if not err.is_terminal:
                    print_message(
                        f"Downloading {file}" + ("" if total is None else f", {total / 1e6:,.1f} MB") + " ..."
                    )
            bar.update(tasks[file], completed=size, total=total)

        yield watch


def _output(
    table: str | None = None,
    protocols: Sequence[dict[str, Any]] = (),
    copies: Sequence[tables.CopyReport] = (),
    listed: list[dict[str, Any]] | None = None,
) -> dict[str, Any]:
    """Return what ``--json`` prints; ``reproduce_schema`` describes it."""
    copied = [asdict(copy) for copy in copies]
    return {"table": table, "protocols": list(protocols), "copied": copied, "tables": listed}


def _with_all_fields(plain: dict[str, Any]) -> dict[str, Any]:
    """Return results with null where something does not apply."""
    datasets = {
        dataset: {row: {"chosen": None} | measured for row, measured in rows.items()}
        for dataset, rows in plain["datasets"].items()
    }
    return {"average": None} | plain | {"datasets": datasets}


def _copied(sources: Sequence[Path], to: Path, quiet: bool) -> list[tables.CopyReport]:
    """Copy the finished cells of each folder, and report what was copied."""
    copies = []
    for source in sources:
        copies.append(tables.copy_finished(source, to))
        if not quiet:
            print_message(f"{copies[-1]}.")
    return copies


def _terminal_tables(spec: tables.TableSpec, plain: dict[str, Any]) -> list[str | Table]:
    protocol = spec.protocols[plain["protocol"]]
    lines: list[str | Table] = [f"{spec.title}. {protocol.name}: {protocol.says}"]
    for dataset in [ALL] if "average" in plain else plain["datasets"]:
        table = Table("", "", title=markdown.dataset_title(spec, plain, dataset))
        for column in [*(column.title for column in spec.shown_columns.values()), "seconds"]:
            table.add_column(column, no_wrap=True, justify="right")
        for title, published, measured, seconds in markdown.format_rows(spec, plain, dataset):
            table.add_row(title, "published", *published)
            table.add_row("", "measured", *measured, seconds, end_section=True)
        lines.append(table)
    return lines


def _list(folder: Path | None, as_json: bool) -> None:
    specs = [tables.find_table(name) for name in tables.table_names()]
    sizes = read_sizes()
    table = Table("name", "paper", "table", "protocols run", "datasets", "trials", "epochs", "minutes", "data")
    listed = []
    for spec in specs:
        size = sizes.get(spec.name, RunSize())
        data = {name: find_data(name, folder) is not None for name in _data_names(spec)}
        run = (size.protocols or "not run", size.datasets, size.trials, size.epochs, size.minutes)
        table.add_row(spec.name, spec.paper.split(" (")[0], spec.title, *run, _describe_data(data))
        listed.append(
            {"name": spec.name, "title": spec.title, "paper": spec.paper, "where": spec.where}
            | {"protocols": list(spec.protocols), "datasets": list(spec.datasets), "rows": list(spec.rows)}
            | {"run": asdict(size)}
            | {"data": [{"name": name, "present": there, "fetch": name in SOURCES} for name, there in data.items()]}
        )
    where = f"Folder of the data: {folder or f'none; --data FOLDER names one, --fetch makes {DATA}'}."
    print_result(_output(listed=listed), as_json, [table, SIZES_EXPLAINED, where])


def _describe_data(data: dict[str, bool]) -> str:
    """Return which data a table needs and whether they are there.

    >>> _describe_data({"adult": True, "cifar10": False}), _describe_data({})
    ('1 of 2 there; missing: cifar10', 'generated')
    """
    if not data:
        return "generated"
    missing = [name for name, there in data.items() if not there]
    if not missing:
        return f"there: {_some(list(data))}"
    start = "missing" if len(missing) == len(data) else f"{len(data) - len(missing)} of {len(data)} there; missing"
    return f"{start}: {_some(missing)}"


def _some(names: Sequence[str]) -> str:
    more = f" and {len(names) - NAMED} more" if len(names) > NAMED else ""
    return ", ".join(names[:NAMED]) + more


def datasets(
    fetched: Annotated[
        list[str] | None, typer.Option("--fetch", help="Name of a dataset to download; may be repeated.")
    ] = None,
    data: Folder = None,
    as_json: AsJson = False,
    quiet: Annotated[bool, typer.Option("--quiet", help="Show no progress.")] = False,
) -> None:
    """List the datasets of the papers and studies: their size, positive class and source."""
    from metricfit_papers.datasets.catalogue import CATALOGUE, names

    if fetched:
        folder = data or DATA
        results = [(name, _fetch(name, folder, quiet)) for name in dict.fromkeys(fetched)]
        plain = [{"name": name, **result._asdict(), "path": str(result.path)} for name, result in results]
        used = f"metricfit reproduce TABLE --data {shlex.quote(str(folder))} reads them."
        print_result({"datasets": [], "fetched": plain}, as_json, [*(str(result.path) for _, result in results), used])
        return
    listed, lines = [], []
    width = max(map(len, [*names(), *IMAGES]))
    for name in names():
        entry = CATALOGUE[name]
        facts = {field: getattr(entry, field) for field in ("rows", "positives", "positive", "source")}
        listed.append({"name": name, **facts, "fetch": name in fetchable()})
        counts = f"{entry.rows} rows, {entry.positives} positive"
        lines.append(f"{name:{width}}  {counts}: {entry.positive}; {entry.source}")
    for name, images in IMAGES.items():
        facts = {"rows": images.images, "positives": None, "positive": "", "source": images.source}
        listed.append({"name": name, **facts, "fetch": True})
        lines.append(f"{name:{width}}  {images.images} images; {images.source}")
    print_result({"datasets": listed, "fetched": []}, as_json, lines)


def main() -> None:
    """Run the command without the other commands of metricfit."""
    app = typer.Typer(add_completion=False, pretty_exceptions_enable=False, rich_markup_mode=None)
    app.command()(report_errors(reproduce, resumes=True))
    app()


if __name__ == "__main__":
    main()
