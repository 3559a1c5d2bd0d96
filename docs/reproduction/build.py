"""The pages of reproduced tables, from results that runs left behind.

    python docs/reproduction/build.py --from metricfit-reproduce    # take a run folder's results, then write the pages
    python docs/reproduction/build.py                               # write the pages from docs/reproduction/results

A table's results are in ``results/NAME.json``: for each protocol, dataset and row the values of every trial and the run
they come from. Rows that were run again replace those of as many trials or fewer. What holds is written by hand, in
``verdicts/NAME.md`` and, claim by claim, in ``verdicts/claims.md``; nothing here judges.
"""

from __future__ import annotations

import argparse
import json
import re
import shlex
import statistics
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from metricfit.experiments import reproduce
from metricfit.experiments.reproduce import TableSpec, averages, writing
from metricfit.experiments.reproduce.agreement import agreement
from metricfit.experiments.reproduce.choices import choices
from metricfit.experiments.reproduce.pairs import with_and_without
from metricfit.experiments.reproduce.spec import ALL

HERE = Path(__file__).resolve().parent
RESULTS, VERDICTS, IMAGES = HERE / "results", HERE / "verdicts", HERE.parent / "img"
MANY = 6
WRITTEN = "<!-- Written by docs/reproduction/build.py: edit the results or the verdicts, not this page. -->"

Results = dict[str, Any]


def take(folder: Path, results: Path = RESULTS) -> list[str]:
    """Merge a run folder's results into those kept; the names of the tables."""
    taken = []
    for name in sorted(path.name for path in folder.iterdir() if path.is_dir() and path.name != "cells"):
        path = results / f"{name}.json"
        kept: Results = json.loads(path.read_text(encoding="utf-8")) if path.exists() else {"table": name}
        for found in sorted((folder / name).glob("*.json")):
            merge(kept, json.loads(found.read_text(encoding="utf-8")))
        results.mkdir(parents=True, exist_ok=True)
        path.write_text(json.dumps(kept, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
        taken.append(name)
    return taken


def merge(kept: Results, plain: dict[str, Any]) -> None:
    """Add a run's rows, each with the run it comes from."""
    run = {key: plain[key] for key in ("trials", "smaller")} | {"command": without_folders(plain["command"])}
    protocol = kept.setdefault("protocols", {}).setdefault(plain["protocol"], {})
    for dataset, rows in plain["datasets"].items():
        for row, measured in rows.items():
            before = protocol.setdefault(dataset, {}).get(row)
            if before is None or _size(before["run"]) <= _size(run):
                where = {key: measured[key] for key in ("machine", "versions")}
                numbers = {key: given for key, given in measured.items() if key not in where}
                protocol[dataset][row] = numbers | {"run": run | where}


def without_folders(command: str) -> str:
    """A command with FOLDER for the folder of the data, and without those of results: it trains all it shows.

    >>> without_folders("metricfit reproduce btg-1 --data some/data --out here --from there --finished --jobs 2")
    'metricfit reproduce btg-1 --data FOLDER --jobs 2'
    """
    words = [word for word in shlex.split(command) if word != "--finished"]
    for option in ("--out", "--from"):
        while option in words:
            del words[words.index(option) : words.index(option) + 2]
    if "--data" in words:
        words[words.index("--data") + 1] = "FOLDER"
    return shlex.join(words)


def _size(run: dict[str, Any]) -> tuple[int, bool]:
    return run["trials"], "epochs" not in run["smaller"]


def build(results: Path = RESULTS, verdicts: Path = VERDICTS, pages: Path = HERE, images: Path = IMAGES) -> list[Path]:
    """A page for each paper, and the summary."""
    specs = [reproduce.find(name) for name in reproduce.names()]
    found = {spec.name: _read(results / f"{spec.name}.json") for spec in specs}
    written = []
    for paper in dict.fromkeys(spec.paper for spec in specs):
        mine = [spec for spec in specs if spec.paper == paper]
        parts = [f"# {paper}", WRITTEN, *_read_text(verdicts / f"{slug(paper)}.md")]
        for spec in mine:
            parts += list(table_page(spec, found[spec.name], verdicts, images))
        written.append(pages / f"{slug(paper)}.md")
        written[-1].write_text("\n\n".join(parts).replace(" ± ", "&nbsp;±&nbsp;") + "\n", encoding="utf-8")
    written.append(pages / "index.md")
    written[-1].write_text("\n\n".join(summary(specs, found, verdicts)) + "\n", encoding="utf-8")
    return written


def table_page(spec: TableSpec, found: Results | None, verdicts: Path, images: Path) -> Iterator[str]:
    """A table's part of its paper's page."""
    yield f"## {spec.where.split(',')[0]}: {spec.title} {{ #{spec.name} }}"
    yield f"`metricfit reproduce {spec.name} --data FOLDER --protocol all`. Published: {spec.where}."
    if found is None:
        yield "Not run yet."
        return
    yield from _read_text(verdicts / f"{spec.name}.md")
    if spec.published:
        picture = plot(spec, found, images / f"reproduction-{spec.name}.svg")
        yield f"![Published and measured]({picture})"
    if any(row.kind == "paths" for row in spec.rows.values()):
        paths = plot_paths(spec, found, images / f"reproduction-{spec.name}-paths.svg")
        yield f"![Each epoch's loss and metric, the first trial]({paths})"
        curves = plot_curves(spec, found, images / f"reproduction-{spec.name}-curves.svg")
        yield f"![F1 and accuracy epoch by epoch, of the losses for F1 and of the usual ones]({curves})"
        yield how_far(spec, found)
    for protocol, datasets in of_protocols(spec, found):
        yield f"### {spec.name}, {protocol} {{ #{spec.name}-{protocol} }}"
        yield " ".join(spec.protocols[protocol].says.split())
        shown = _in_order(spec, {"protocol": protocol, "datasets": datasets})
        if spec.averaged:
            yield from over_sets(spec, shown)
        for dataset in [] if spec.averaged else shown["datasets"]:
            yield writing.table(spec, shown, dataset)
        yield from filter(
            None,
            [
                agreement(spec, shown["datasets"]),
                with_and_without(spec, shown["datasets"]),
                choices(spec, shown["datasets"]),
            ],
        )
        yield "\n".join(f"- {line}" for line in runs_of(spec, shown["datasets"]))
    notes = [*spec.notes, *(f"{row.title}: {row.note}" for row in spec.rows.values() if row.note)]
    if notes:
        yield "\n".join(f"- {note}" for note in notes)


def of_protocols(spec: TableSpec, found: Results) -> list[tuple[str, Any]]:
    """What was measured under each protocol, in the order of the table's file."""
    return [(name, found["protocols"][name]) for name in spec.protocols if name in found["protocols"]]


def over_sets(spec: TableSpec, shown: dict[str, Any]) -> Iterator[str]:
    """Means over the sets, rows against one of them, the sets with published numbers, and all sets column by column."""
    everywhere = set.intersection(*(set(rows) for rows in shown["datasets"].values()))
    sets = {name: {row: rows[row] for row in rows if row in everywhere} for name, rows in shown["datasets"].items()}
    shown = shown | {"datasets": sets, "average": writing.average_of(sets)}
    main = [row.name for row in averages.main_rows(spec, shown)]
    yield writing.table(spec, shown | {"average": {row: shown["average"][row] for row in main}}, ALL)
    yield from filter(None, [averages.against(spec, shown)])
    others = {row: given for row, given in shown["average"].items() if row not in main}
    if others:
        yield writing.table(spec, shown | {"average": others}, ALL).replace(
            "**Mean", "**One loss for all columns: mean", 1
        )
    for dataset in sets:
        if any(name == dataset for name, _, _ in spec.published):
            untagged = {row: sets[dataset][row] for row in main}
            yield writing.table(spec, shown | {"datasets": {dataset: untagged}}, dataset)
    yield "**Set by set**"
    for column in spec.columns:
        yield averages.by_set(spec, shown, column)


def _in_order(spec: TableSpec, plain: dict[str, Any]) -> dict[str, Any]:
    """Datasets and rows in the order of the table's file."""
    datasets = {
        name: {row: plain["datasets"][name][row] for row in spec.rows if row in plain["datasets"][name]}
        for name in spec.datasets
        if name in plain["datasets"]
    }
    return plain | {"datasets": datasets}


def runs_of(spec: TableSpec, datasets: dict[str, Any]) -> Iterator[str]:
    """Each run: its command, trials, machine and seconds, and where it was smaller than the table."""
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
        minutes = group["seconds"] / 60
        yield (
            f"{', '.join(group['datasets'])}: {run['trials']} trials, {minutes:.1f} minutes of training on "
            f"{run['machine']}, torch {run['versions']['torch']}: `{run['command']}`.{smaller}"
        )


def plot(spec: TableSpec, found: Results, path: Path) -> str:
    """Dots with deviations: a panel a dataset, a line a row; crosses are published. Of many datasets, their mean."""
    import matplotlib

    matplotlib.use("svg")
    from matplotlib import pyplot

    matplotlib.rcParams["svg.hashsalt"] = spec.name  # the same picture from the same numbers
    column = _drawn(spec)
    datasets = [name for name in spec.datasets if any(name in of for of in found["protocols"].values())]
    panels = [datasets] if spec.averaged or len(datasets) > MANY else [[name] for name in datasets]
    rows = [
        row
        for row, given in spec.rows.items()
        if not (spec.averaged and given.tags)
        and any(row in of.get(name, {}) for of in found["protocols"].values() for name in datasets)
    ]
    height = 1.2 + 0.26 * len(rows)
    figure, axes = pyplot.subplots(
        1, len(panels), figsize=(2.2 + 2.1 * len(panels), height), sharey=True, squeeze=False
    )
    for axis, names in zip(axes[0], panels, strict=True):
        published = [_mean_published(spec, names, row, column) for row in rows]
        axis.plot(published, range(len(rows)), "x", color="black", label="published", zorder=3)
        for at, (protocol, of) in enumerate(of_protocols(spec, found)):
            points = [_mean_measured(of, names, row, column) for row in rows]
            there = [(y, point) for y, point in enumerate(points) if point is not None]
            axis.errorbar(
                [mean for _, (mean, _) in there],
                [y + 0.18 * (at - (len(found["protocols"]) - 1) / 2) for y, _ in there],
                xerr=[std for _, (_, std) in there],
                fmt="o",
                markersize=4,
                elinewidth=1,
                label=protocol,
            )
        axis.set_title(spec.datasets[names[0]].title if len(names) == 1 else f"mean of {len(names)} sets", fontsize=9)
        axis.set_xlabel(spec.columns[column].title, fontsize=9)
        axis.set_yticks(range(len(rows)), [spec.rows[row].title for row in rows], fontsize=8)
        axis.tick_params(axis="x", labelsize=8)
        axis.grid(axis="x", linewidth=0.3)
    axes[0][0].set_ylim(len(rows) - 0.5, -0.5)
    figure.legend(*axes[0][0].get_legend_handles_labels(), ncols=4, loc="lower center", fontsize=8, frameon=False)
    figure.tight_layout(rect=(0, 0.5 / height, 1, 1))
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, metadata={"Date": None})
    pyplot.close(figure)
    return f"../img/{path.name}"


def paths_of(spec: TableSpec, found: Results) -> dict[str, dict[str, list[float]]]:
    """For each row how its first trial went, epoch by epoch."""
    return {
        row: rows[row]["chosen"]["path"]
        for of in found["protocols"].values()
        for rows in of.values()
        for row in spec.rows
        if "path" in rows.get(row, {}).get("chosen", {})
    }


def how_far(spec: TableSpec, found: Results) -> str:
    """Between which values the metric went: r says nothing of a metric that stood still."""
    head = ["row, first trial", "its metric, first epoch", "lowest", "highest", "last epoch"]
    lines = [
        writing.line([spec.rows[row].title, *(f"{each:.3f}" for each in (of[0], min(of), max(of), of[-1]))])
        for row, path in paths_of(spec, found).items()
        if (of := path["metric"])
    ]
    return "\n".join([writing.line(head), writing.line(["---"] + ["---:"] * 4), *lines])


def plot_curves(spec: TableSpec, found: Results, path: Path) -> str:
    """F1 and accuracy on training batches, epoch by epoch, of the rows that are for F1."""
    import matplotlib

    matplotlib.use("svg")
    from matplotlib import pyplot

    matplotlib.rcParams["svg.hashsalt"] = spec.name
    wanted = [name for name, row in spec.rows.items() if row.settings.get("metric") in ("f1", "fbeta(beta=1.0)")]
    figure, axes = pyplot.subplots(1, 2, figsize=(8.4, 3.0))
    for axis, name in zip(axes, ("f1", "accuracy"), strict=True):
        for row, drawn in paths_of(spec, found).items():
            if row in wanted:
                axis.plot(range(1, len(drawn[name]) + 1), drawn[name], label=spec.rows[row].title)
        axis.set_xlabel("epoch", fontsize=9)
        axis.set_ylabel({"f1": "F1", "accuracy": "accuracy"}[name], fontsize=9)
        axis.tick_params(labelsize=8)
        axis.grid(linewidth=0.3)
    axes[1].legend(fontsize=8, frameon=False)
    figure.tight_layout()
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, metadata={"Date": None})
    pyplot.close(figure)
    return f"../img/{path.name}"


def plot_paths(spec: TableSpec, found: Results, path: Path) -> str:
    """A panel a row: each epoch of the first trial a dot, its metric over its loss, later ones darker."""
    import matplotlib

    matplotlib.use("svg")
    from matplotlib import pyplot

    matplotlib.rcParams["svg.hashsalt"] = spec.name
    paths = paths_of(spec, found)
    across = 4
    down = -(-len(paths) // across)
    figure, axes = pyplot.subplots(down, across, figsize=(2.3 * across, 2.1 * down), squeeze=False)
    for axis, (row, drawn) in zip(axes.flat, paths.items(), strict=False):
        axis.scatter(drawn["loss"], drawn["metric"], c=range(len(drawn["loss"])), cmap="Blues", vmin=-20, s=8)
        axis.set_title(spec.rows[row].title, fontsize=8)
        axis.tick_params(labelsize=7)
    for axis in axes.flat[len(paths) :]:
        axis.set_axis_off()
    figure.supxlabel("loss", fontsize=9)
    figure.supylabel("the row's metric", fontsize=9)
    figure.tight_layout()
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, metadata={"Date": None})
    pyplot.close(figure)
    return f"../img/{path.name}"


def _drawn(spec: TableSpec) -> str:
    """The first column; of means over sets, the first with a published one."""
    of_all = [column for name, _, column in spec.published if name == ALL]
    return next((column for column in spec.columns if column in of_all), next(iter(spec.shown_columns)))


def _mean_published(spec: TableSpec, names: list[str], row: str, column: str) -> float:
    if spec.averaged:
        there = spec.published.get((ALL, row, column))
        return float("nan") if there is None else there.mean
    given = [spec.published[name, row, column].mean for name in names if (name, row, column) in spec.published]
    return statistics.fmean(given) if given else float("nan")


def _mean_measured(of: dict[str, Any], names: list[str], row: str, column: str) -> tuple[float, float] | None:
    values = [of[name][row]["values"][column] for name in names if row in of.get(name, {})]
    if not values:
        return None
    trials = [statistics.fmean(each) for each in zip(*values, strict=False)]
    return statistics.fmean(trials), statistics.stdev(trials) if len(trials) > 1 else 0.0


def summary(specs: list[TableSpec], found: dict[str, Results | None], verdicts: Path) -> Iterator[str]:
    """What was run, how large and how long; then the verdicts, claim by claim."""
    yield "# The papers' tables, run again"
    yield WRITTEN
    yield (
        "Each table is one file and one command: `metricfit reproduce NAME`. Up to three protocols: **paper**, what "
        "the text says; **code**, what the published code does, its errors included; **corrected**, as it should be. "
        "[How to add a table](add-a-table.md), [where the data come from](data.md)."
    )
    yield from _read_text(verdicts / "claims.md")
    yield "## What was run"
    lines = ["| table | published | protocols run | datasets | trials | training |", "|---|---|---|---|---|---:|"]
    for spec in specs:
        lines.append(_run_line(spec, found[spec.name]))
    yield "\n".join(lines)


def _run_line(spec: TableSpec, found: Results | None) -> str:
    name = f"[{spec.name}]({slug(spec.paper)}.md#{spec.name})"
    where = f"{spec.paper.split(' (')[0]}, {spec.where}"
    if found is None:
        return f"| {name} | {where} | not run | | | |"
    rows = [
        (dataset, row, measured)
        for of in found["protocols"].values()
        for dataset, several in of.items()
        for row, measured in several.items()
    ]
    datasets = {dataset for dataset, _, _ in rows}
    trials = sorted({measured["run"]["trials"] for _, _, measured in rows})
    seconds = sum(measured["seconds"] for _, row, measured in rows if spec.rows[row].own_trials)
    of = f"{len(datasets)} of {len(spec.datasets)}"
    number = " or ".join(map(str, trials)) + f" of {spec.trials}"
    return f"| {name} | {where} | {', '.join(found['protocols'])} | {of} | {number} | {seconds / 60:.0f} min |"


def slug(paper: str) -> str:
    """A page's name: the paper's without its authors."""
    return re.sub(r"[^a-z0-9]+", "-", paper.split(" (")[0].lower()).strip("-")


def _read(path: Path) -> Results | None:
    return json.loads(path.read_text(encoding="utf-8")) if path.exists() else None


def _read_text(path: Path) -> list[str]:
    return [path.read_text(encoding="utf-8").strip()] if path.exists() else []


def main(arguments: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument(
        "--from", dest="folder", type=Path, action="append", default=[], help="a folder of runs; may be repeated"
    )
    for folder in parser.parse_args(arguments).folder:
        print(f"taken from {folder}: {', '.join(take(folder))}")
    for path in build():
        print(path.relative_to(HERE.parent.parent))


if __name__ == "__main__":
    main()
