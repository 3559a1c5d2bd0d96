"""The pictures of a table: published and measured beside each other, and how trials went epoch by epoch."""

from __future__ import annotations

import statistics
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import matplotlib
from kept import Results, of_protocols, paths_of

matplotlib.use("svg")

from matplotlib import pyplot
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from metricfit.experiments.reproduce import TableSpec
from metricfit.experiments.reproduce.spec import ALL

MANY = 6


@contextmanager
def picture(
    spec: TableSpec, path: Path, down: int, across: int, size: tuple[float, float], **shared: bool
) -> Iterator[tuple[Figure, list[Axes]]]:
    """A figure and its panels to draw on, then the file: the same one from the same numbers."""
    with matplotlib.rc_context({"svg.hashsalt": spec.name}):
        figure, panels = pyplot.subplots(down, across, figsize=size, squeeze=False, **shared)
        yield figure, list(panels.flat)
        path.parent.mkdir(parents=True, exist_ok=True)
        figure.savefig(path, metadata={"Date": None})
        pyplot.close(figure)


def plot(spec: TableSpec, found: Results, path: Path) -> None:
    """Dots with deviations: a panel a dataset, a line a row; crosses are published. Of many datasets, their mean."""
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
    size = (2.2 + 2.1 * len(panels), height)
    with picture(spec, path, 1, len(panels), size, sharey=True) as (figure, axes):
        for axis, names in zip(axes, panels, strict=True):
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
            axis.set_title(
                spec.datasets[names[0]].title if len(names) == 1 else f"mean of {len(names)} sets", fontsize=9
            )
            axis.set_xlabel(spec.columns[column].title, fontsize=9)
            axis.set_yticks(range(len(rows)), [spec.rows[row].title for row in rows], fontsize=8)
            axis.tick_params(axis="x", labelsize=8)
            axis.grid(axis="x", linewidth=0.3)
        axes[0].set_ylim(len(rows) - 0.5, -0.5)
        figure.legend(*axes[0].get_legend_handles_labels(), ncols=4, loc="lower center", fontsize=8, frameon=False)
        figure.tight_layout(rect=(0, 0.5 / height, 1, 1))


def plot_paths(spec: TableSpec, found: Results, path: Path) -> None:
    """A panel a row: each epoch of the first trial a dot, its metric over its loss, later ones darker."""
    paths = paths_of(spec, found)
    across = 4
    down = -(-len(paths) // across)
    with picture(spec, path, down, across, (2.3 * across, 2.1 * down)) as (figure, axes):
        for axis, (row, drawn) in zip(axes, paths.items(), strict=False):
            axis.scatter(drawn["loss"], drawn["metric"], c=range(len(drawn["loss"])), cmap="Blues", vmin=-20, s=8)
            axis.set_title(spec.rows[row].title, fontsize=8)
            axis.tick_params(labelsize=7)
        for axis in axes[len(paths) :]:
            axis.set_axis_off()
        figure.supxlabel("loss", fontsize=9)
        figure.supylabel("the row's metric", fontsize=9)
        figure.tight_layout()


def plot_curves(spec: TableSpec, found: Results, path: Path) -> None:
    """F1 and accuracy on training batches, epoch by epoch, of the rows that are for F1."""
    wanted = [name for name, row in spec.rows.items() if row.settings.get("metric") in ("f1", "fbeta(beta=1.0)")]
    with picture(spec, path, 1, 2, (8.4, 3.0)) as (figure, axes):
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
