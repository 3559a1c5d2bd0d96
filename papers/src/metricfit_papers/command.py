"""``metricfit reproduce`` and ``metricfit datasets``, found by metricfit through entry points.

``python -m metricfit_papers.command`` is ``metricfit reproduce``.
"""

from __future__ import annotations

import shlex
import sys
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.table import Table

import metricfit_papers as tables
from metricfit.cli.progress_display import progress_bar
from metricfit.cli.terminal import UserError, print_message, print_result, report_errors
from metricfit.runs.executor import BACKENDS
from metricfit_papers.results import markdown, result_files
from metricfit_papers.specs.run_sizes import RunSize, read_sizes
from metricfit_papers.specs.table_spec import ALL

AsJson = Annotated[bool, typer.Option("--json", help="Print only JSON on standard output.")]
SIZES_EXPLAINED = (
    "Datasets, trials and epochs: how many were run for the pages of docs/reproduction, of those in the table's file. "
    "Epochs are the limits of shorter runs and the longest training; most trainings stop early, when the validation "
    "set shows no gain. Papers may have more datasets, which were not available: see the notes of a table."
)


def reproduce(
    name: Annotated[
        str | None, typer.Argument(help="Name of a table (see --list), or the path of a .toml file.")
    ] = None,
    protocol: Annotated[
        list[str] | None, typer.Option("--protocol", help="paper, code, corrected or all; may be repeated.")
    ] = None,
    data: Annotated[Path | None, typer.Option("--data", help="Folder with the datasets.")] = None,
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
    """Run a paper's table again, and show the published numbers beside the measured ones."""
    if listed:
        _list(as_json)
        return
    if name is None and sources:
        copies = _copied(sources, to, quiet=True)
        print_result(_output(copies=copies), as_json, [f"{copy}." for copy in copies])
        return
    if name is None:
        raise UserError("Name a table, such as btg-1; metricfit reproduce --list shows them all.")
    spec = tables.find_table(name)
    chosen = list(spec.protocols) if "all" in (protocol or ()) else protocol or [next(iter(spec.protocols))]
    for protocol_name in chosen:
        if protocol_name not in spec.protocols:
            names = ", ".join(spec.protocols)
            raise UserError(f"{spec.name} has no protocol {protocol_name!r}; it has {names}. all runs all of them.")
    copies = _copied(sources or (), to, quiet)
    results: list[dict[str, Any]] = []
    output: list[str | Table] = []
    for protocol_name in chosen:
        with progress_bar(f"{spec.name}, {protocol_name}", quiet) as watch:
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


def _list(as_json: bool) -> None:
    specs = [tables.find_table(name) for name in tables.table_names()]
    sizes = read_sizes()
    table = Table("name", "paper", "table", "protocols run", "datasets", "trials", "epochs")
    for spec in specs:
        size = sizes.get(spec.name, RunSize())
        run = (size.protocols or "not run", size.datasets, size.trials, size.epochs)
        table.add_row(spec.name, spec.paper.split(" (")[0], spec.title, *run)
    plain = [
        {"name": spec.name, "title": spec.title, "paper": spec.paper, "where": spec.where}
        | {"protocols": list(spec.protocols), "datasets": list(spec.datasets), "rows": list(spec.rows)}
        | {"run": asdict(sizes.get(spec.name, RunSize()))}
        for spec in specs
    ]
    print_result(_output(listed=plain), as_json, [table, SIZES_EXPLAINED])


def datasets(as_json: AsJson = False) -> None:
    """List the datasets of the papers and studies: their size, positive class and source."""
    from metricfit_papers.datasets.catalogue import CATALOGUE, names  # pandas, which listing tables does not need

    listed, lines = [], []
    width = max(map(len, names()))
    for name in names():
        entry = CATALOGUE[name]
        facts = {field: getattr(entry, field) for field in ("rows", "positives", "positive", "source")}
        listed.append({"name": name, **facts, "fetch": entry.openml is not None})
        counts = f"{entry.rows} rows, {entry.positives} positive"
        lines.append(f"{name:{width}}  {counts}: {entry.positive}; {entry.source}")
    print_result({"datasets": listed}, as_json, lines)


def main() -> None:
    """Run the command without the other commands of metricfit."""
    app = typer.Typer(add_completion=False, pretty_exceptions_enable=False, rich_markup_mode=None)
    app.command()(report_errors(reproduce, resumes=True))
    app()


if __name__ == "__main__":
    main()
