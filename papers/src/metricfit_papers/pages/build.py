"""Build the pages of the reproduced tables from stored results.

    python -m metricfit_papers.pages.build --from metricfit-reproduce   # take a run folder's results, write the pages
    python -m metricfit_papers.pages.build                              # write the pages from papers/results

`stored_results` stores a table's results in ``papers/results/NAME.json``, `drawing` draws them. What holds is written
by hand, in ``papers/verdicts/NAME.md`` and, claim by claim, in ``papers/verdicts/claims.toml``, which `claims` shows
with figures computed from the results; nothing here judges.
"""

from __future__ import annotations

import argparse
import json
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import metricfit_papers as papers
from metricfit_papers import TableSpec
from metricfit_papers.pages import drawing, repository, set_averages, stored_results
from metricfit_papers.pages.agreement import agreement
from metricfit_papers.pages.claims import read_claims, show_claims
from metricfit_papers.pages.class_balance import describe_balance
from metricfit_papers.pages.constraint_effects import describe_constraint_effects
from metricfit_papers.pages.gather import listed
from metricfit_papers.pages.prose import fill
from metricfit_papers.pages.queue import describe_queue, missing_runs
from metricfit_papers.pages.run_lengths import measure_size, training_minutes
from metricfit_papers.pages.search_choices import choices
from metricfit_papers.pages.stored_results import Results
from metricfit_papers.pages.trial_curves import medians_on_test
from metricfit_papers.results import markdown, result_files
from metricfit_papers.specs.run_sizes import FILE as SIZES
from metricfit_papers.specs.run_sizes import write_sizes
from metricfit_papers.specs.table_spec import ALL

#: The theme's table of contents would cover the last columns of the tables.
WRITTEN = "<!-- Written by metricfit_papers.pages.build: edit papers/results or papers/verdicts, not this page. -->"


def build(
    results: Path = repository.RESULTS,
    verdicts: Path = repository.VERDICTS,
    pages: Path = repository.PAGES,
    images: Path = repository.IMAGES,
    sizes: Path = SIZES,
    short: Path = repository.SUMMARY,
) -> list[Path]:
    """Write one page per paper, all verdicts, the short summary and the sizes of the runs; return their paths."""
    specs = [papers.find_table(name) for name in papers.table_names()]
    paths = {spec.name: results / f"{spec.name}.json" for spec in specs}
    stored = {name: stored_results.read(path) if path.exists() else None for name, path in paths.items()}
    written = []
    for paper in dict.fromkeys(spec.paper for spec in specs):
        tables = [spec for spec in specs if spec.paper == paper]
        parts = [f"# {paper}", WRITTEN, *_read_text(verdicts / f"{slug(paper)}.md", stored), contents(tables, stored)]
        for spec in tables:
            parts += list(table_page(spec, stored, verdicts, images))
        if paper.startswith("Bridging the Gap"):
            parts += list(describe_balance())
        written.append(pages / f"{slug(paper)}.md")
        written[-1].write_text(unbroken("\n\n".join(parts)) + "\n", encoding="utf-8")
    written.append(pages / "index.md")
    written[-1].write_text("\n\n".join(summary(specs, stored, verdicts)) + "\n", encoding="utf-8")
    written.append(pages / "queue.md")
    written[-1].write_text("\n\n".join([WRITTEN, *describe_queue()]) + "\n", encoding="utf-8")
    for text in _read_text(verdicts / "summary.md", stored):
        written.append(short)
        short.write_text(text + "\n", encoding="utf-8")
    write_sizes({spec.name: measure_size(spec, stored[spec.name]) for spec in specs}, sizes)
    return [*written, sizes]


def unbroken(text: str) -> str:
    """Prevent line breaks before a deviation and, in a table, between two plain numbers.

    >>> unbroken("| 0.972 (0.9467) | 0.5 (0.4) | 0.95 ± 0.01 (0.9 ± 0.01) |")
    '| 0.972&nbsp;(0.9467) | 0.5&nbsp;(0.4) | 0.95&nbsp;±&nbsp;0.01 (0.9&nbsp;±&nbsp;0.01) |'
    """
    return re.sub(r"(\| [\d.]+) (\([\d.]+\))(?= \|)", r"\1&nbsp;\2", text).replace(" ± ", "&nbsp;±&nbsp;")


def contents(specs: list[TableSpec], results: dict[str, Results | None]) -> str:
    """Return links to the tables of a page and their protocols."""
    lines = []
    for spec in specs:
        stored = results[spec.name]
        protocols = stored_results.of_protocols(spec, stored) if stored else []
        run = [f"[{name}](#{spec.name}-{name})" for name, _ in protocols]
        lines.append(f"- [{heading(spec)}](#{spec.name}): {', '.join(run) or 'not run yet'}")
    return "\n".join(lines)


def heading(spec: TableSpec) -> str:
    """Return the heading of a table: its number in the paper and its title."""
    return f"{spec.where.split(',')[0]}: {spec.title}"


def table_page(spec: TableSpec, stored: dict[str, Results | None], verdicts: Path, images: Path) -> Iterator[str]:
    """Yield the paragraphs of a table."""
    results = stored[spec.name]
    yield f'<a id="{spec.name}"></a>\n\n## {heading(spec)}'
    yield f"`metricfit reproduce {spec.name} --data FOLDER --protocol all`. Published: {spec.where}."
    missing = missing_runs(spec.name, listed(repository.QUEUE))
    waiting = (
        [f"**Not run here** ([why](queue.md)), with estimated seconds of an H200:\n\n{missing}"] if missing else []
    )
    if results is None:
        yield from ["Not run yet.", *waiting]
        return
    yield from _read_text(verdicts / f"{spec.name}.md", stored)
    if spec.published:
        yield _picture(drawing.plot, spec, results, images / f"reproduction-{spec.name}.svg", "Published and measured")
    for protocol, datasets in stored_results.of_protocols(spec, results):
        yield f'<a id="{spec.name}-{protocol}"></a>\n\n### {spec.name}, {protocol}'
        yield " ".join(spec.protocols[protocol].says.split())
        shown = _in_order(spec, {"protocol": protocol, "datasets": datasets})
        if spec.averaged:
            yield from over_sets(spec, shown)
        for dataset in [] if spec.averaged else shown["datasets"]:
            yield markdown.format_table(spec, shown, dataset)
        if any(row.kind == "paths" for row in spec.rows.values()):
            yield from _paths(spec, shown["datasets"], images / f"reproduction-{spec.name}-{protocol}")
        yield from filter(
            None,
            [
                agreement(spec, shown["datasets"]),
                describe_constraint_effects(spec, shown["datasets"]),
                choices(spec, shown["datasets"]),
            ],
        )
        yield "\n".join(f"- {line}" for line in runs_of(spec, shown["datasets"]))
    notes = [*spec.notes, *(f"{row.title}: {row.note}" for row in spec.rows.values() if row.note)]
    if notes:
        yield "\n".join(f"- {note}" for note in notes)
    yield from waiting


def _paths(spec: TableSpec, datasets: Results, image: Path) -> Iterator[str]:
    """Yield the figures and tables of the rows of paths under a protocol."""
    caption = "Loss and metric of each epoch's training batches, the first trial"
    yield _picture(drawing.plot_paths, spec, datasets, image.with_name(f"{image.name}-paths.svg"), caption)
    caption = "F1 on training batches and on the validation set, accuracy on test images, medians of the trials"
    yield _picture(drawing.plot_curves, spec, datasets, image.with_name(f"{image.name}-curves.svg"), caption)
    yield metric_ranges(spec, datasets)
    if stored_results.curves_on_test(spec, datasets):
        caption = "The row's metric and accuracy on the test rows, epoch by epoch: all trials and their median"
        yield _picture(drawing.plot_tests, spec, datasets, image.with_name(f"{image.name}-tests.svg"), caption)
        yield medians_on_test(spec, datasets)


def _picture(
    draw: Callable[[TableSpec, Results, Path], None], spec: TableSpec, results: Results, path: Path, caption: str
) -> str:
    draw(spec, results, path)
    return f"![{caption}](img/{path.name})"


def over_sets(spec: TableSpec, shown: dict[str, Any]) -> Iterator[str]:
    """Yield means over sets, rows compared with one row, the sets with published numbers, and all sets by column."""
    everywhere = set.intersection(*(set(rows) for rows in shown["datasets"].values()))
    sets = {name: {row: rows[row] for row in rows if row in everywhere} for name, rows in shown["datasets"].items()}
    shown = shown | {"datasets": sets, "average": result_files.average_over_sets(sets)}
    main = [row.name for row in set_averages.main_rows(spec, shown)]
    yield markdown.format_table(spec, shown | {"average": {row: shown["average"][row] for row in main}}, ALL)
    yield from filter(None, [set_averages.against(spec, shown)])
    others = {row: average for row, average in shown["average"].items() if row not in main}
    if others:
        yield markdown.format_table(spec, shown | {"average": others}, ALL).replace(
            "**Mean", "**One loss for all columns: mean", 1
        )
    for dataset in sets:
        if any(name == dataset for name, _, _ in spec.published):
            untagged = {row: sets[dataset][row] for row in main}
            yield markdown.format_table(spec, shown | {"datasets": {dataset: untagged}}, dataset)
    yield "**Set by set**"
    for column in spec.columns:
        yield set_averages.by_set(spec, shown, column)


def _in_order(spec: TableSpec, plain: dict[str, Any]) -> dict[str, Any]:
    """Return the results with datasets and rows in the order of the table's file."""
    datasets = {
        name: {row: plain["datasets"][name][row] for row in spec.rows if row in plain["datasets"][name]}
        for name in spec.datasets
        if name in plain["datasets"]
    }
    return plain | {"datasets": datasets}


def runs_of(spec: TableSpec, datasets: dict[str, Any]) -> Iterator[str]:
    """Describe each run: its command, trials, machine and duration, and how much smaller it was than the table."""
    grouped: dict[str, dict[str, Any]] = {}
    for dataset, rows in datasets.items():
        for row, measured in rows.items():
            run = measured["run"]
            group = grouped.setdefault(json.dumps(run, sort_keys=True), {"run": run, "datasets": {}, "seconds": 0.0})
            group["datasets"].setdefault(spec.datasets[dataset].title, []).append(spec.rows[row].title)
            group["seconds"] += measured["seconds"] if spec.rows[row].own_trials else 0.0
    for group in grouped.values():
        run = group["run"]
        smaller = f" **Smaller than the table: {run['smaller']}.**" if run["smaller"] else ""
        trials, minutes = markdown.count_trials(run["trials"]), group["seconds"] / 60
        yield (
            f"{', '.join(group['datasets'])}: {trials}, {minutes:.1f} minutes of training on "
            f"{run['machine']}, torch {run['versions']['torch']}: `{run['command']}`.{smaller}"
        )


def metric_ranges(spec: TableSpec, datasets: Results) -> str:
    """Make a table of the range of the metric, because the correlation means nothing if the metric did not change."""
    head = ["row, first trial", "its metric, first epoch", "lowest", "highest", "last epoch"]
    lines = [
        markdown.markdown_line(
            [spec.rows[row].title, *(f"{v:.3f}" for v in (values[0], min(values), max(values), values[-1]))]
        )
        for row, path in stored_results.paths_of(spec, datasets).items()
        if (values := path["metric"])
    ]
    return "\n".join([markdown.markdown_line(head), markdown.markdown_line(["---"] + ["---:"] * 4), *lines])


def summary(specs: list[TableSpec], results: dict[str, Results | None], verdicts: Path) -> Iterator[str]:
    """Yield the paragraphs of the summary: the verdicts on the claims, and a table of all runs."""
    yield "# The papers' tables, run again"
    yield WRITTEN
    yield (
        "Each table is one file and one command: `metricfit reproduce NAME`, of the package `metricfit-papers` (`pip "
        "install ./papers`). There are up to three protocols: **paper**, what "
        "the text says; **code**, what the published code does, including its errors; **corrected**, as it should be. "
        "[How to add a table](add-a-table.md), [where the data come from](data.md)."
    )
    if (verdicts / "claims.toml").exists():
        claims = read_claims(verdicts / "claims.toml")
        pages = {spec.name: f"{slug(spec.paper)}.md" for spec in specs}
        yield from map(unbroken, show_claims(claims, results, pages.__getitem__))
    yield "## What was run"
    yield (
        "Datasets, trials and epochs are those that were run, of those in the table's file; the papers have more "
        "datasets for AnyLoss (102). Epochs are the limits of "
        "shorter runs and the longest training, of the maximum that the table allows. Most trainings stop early, when "
        "the validation set shows no gain. Training with a constraint continues from the base networks: 200 + 200 "
        "epochs."
    )
    head = ["table", "published", "protocols run", "datasets", "trials", "epochs", "smaller than the table", "training"]
    lines = [markdown.markdown_line(head), markdown.markdown_line(["---"] * (len(head) - 1) + ["---:"])]
    for spec in specs:
        lines.append(markdown.markdown_line(list(_run_line(spec, results[spec.name]))))
    yield "\n".join(lines)


def _run_line(spec: TableSpec, results: Results | None) -> Iterator[str]:
    yield f"[{spec.name}]({slug(spec.paper)}.md#{spec.name})"
    yield f"{spec.paper.split(' (')[0]}, {spec.where}"
    size = measure_size(spec, results)
    yield from (size.protocols or "not run", size.datasets, size.trials, size.epochs, size.smaller)
    yield f"{training_minutes(spec, results):.0f} min" if results else ""


def slug(paper: str) -> str:
    """Return the name of a page: the paper's, without its authors."""
    return re.sub(r"[^a-z0-9]+", "-", paper.split(" (")[0].lower()).strip("-")


def _read_text(path: Path, stored: dict[str, Results | None]) -> list[str]:
    """Return the prose of a file with its numbers filled in; nothing if there is no file."""
    return [fill(path.read_text(encoding="utf-8").strip(), stored)] if path.exists() else []


def main(arguments: list[str] | None = None) -> None:
    """Run the command line of this module."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument(
        "--from", dest="folder", type=Path, action="append", default=[], help="a folder of runs; may be repeated"
    )
    folders = parser.parse_args(arguments).folder
    repository.check_checkout()
    for folder in folders:
        print(f"taken from {folder}: {', '.join(stored_results.take(folder))}")
    for path in build():
        print(path.relative_to(repository.ROOT))


if __name__ == "__main__":
    main()
