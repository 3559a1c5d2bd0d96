"""Figures of a table: published and measured numbers side by side, and the values of trials by epoch."""

from __future__ import annotations

import statistics
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import matplotlib

matplotlib.use("svg")

from matplotlib import pyplot
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator

from metricfit_papers import TableSpec
from metricfit_papers.pages.stored_results import Results, curves_of, curves_on_test, of_protocols, paths_of
from metricfit_papers.pages.trial_curves import NAMES, median_curve
from metricfit_papers.specs.table_spec import ALL

MANY = 6
#: Panels side by side in a figure with one panel per row.
PANELS = 4
#: The metric that is drawn beside a first column of this metric.
COUNTERPARTS = {"auroc": "fpr at tpr 0.95", "precision": "recall"}
#: Minimum width of the axis of losses, because a narrower axis would make small differences look large.
NARROWEST = 0.05


@contextmanager
def picture(
    spec: TableSpec, path: Path, down: int, across: int, size: tuple[float, float]
) -> Iterator[tuple[Figure, list[Axes]]]:
    """Open a figure with its panels, and save it at the end; the same numbers give the same file."""
    with matplotlib.rc_context({"svg.hashsalt": spec.name}):
        figure, panels = pyplot.subplots(down, across, figsize=size, squeeze=False, sharey=True)
        yield figure, list(panels.flat)
        path.parent.mkdir(parents=True, exist_ok=True)
        figure.savefig(path, metadata={"Date": None})
        pyplot.close(figure)


def plot(spec: TableSpec, results: Results, path: Path) -> None:
    """Draw dots with deviations: one panel per dataset and column, one line per row; crosses are published numbers.

    Of many datasets, the mean is drawn.
    """
    columns = _drawn(spec)
    datasets = [name for name in spec.datasets if any(name in measured for measured in results["protocols"].values())]
    panels = [datasets] if spec.averaged or len(datasets) > MANY else [[name] for name in datasets]
    rows = [
        row
        for row, row_spec in spec.rows.items()
        if not (spec.averaged and row_spec.tags)
        and any(row in measured.get(name, {}) for measured in results["protocols"].values() for name in datasets)
    ]
    down, across = (len(columns), len(panels)) if len(panels) > 1 else (1, len(columns))
    height = 0.5 + down * (0.7 + (0.26 if down == 1 else 0.2) * len(rows))
    size = (2.2 + 2.1 * across, height)
    with picture(spec, path, down, across, size) as (figure, axes):
        contents = [(column, names) for column in columns for names in panels]
        for axis, (column, names) in zip(axes, contents, strict=True):
            published = [_mean_published(spec, names, row, column) for row in rows]
            axis.plot(published, range(len(rows)), "x", color="black", label="published", zorder=3)
            for number, (protocol, measured) in enumerate(of_protocols(spec, results)):
                means = [_mean_measured(measured, names, row, column) for row in rows]
                points = [(y, point) for y, point in enumerate(means) if point is not None]
                axis.errorbar(
                    [mean for _, (mean, _) in points],
                    [y + 0.18 * (number - (len(results["protocols"]) - 1) / 2) for y, _ in points],
                    xerr=[std for _, (_, std) in points],
                    fmt="o",
                    markersize=4,
                    elinewidth=1,
                    label=f"measured ({protocol})",
                )
            axis.set_title(
                spec.datasets[names[0]].title if len(names) == 1 else f"mean of {len(names)} sets", fontsize=9
            )
            axis.set_xlabel(spec.columns[column].title, fontsize=9)
            axis.set_yticks(range(len(rows)), [spec.rows[row].title for row in rows], fontsize=8)
            axis.xaxis.set_major_locator(MaxNLocator(4))
            axis.tick_params(axis="x", labelsize=8)
            axis.grid(axis="x", linewidth=0.3)
        axes[0].set_ylim(len(rows) - 0.5, -0.5)
        figure.legend(*axes[0].get_legend_handles_labels(), ncols=4, loc="lower center", fontsize=8, frameon=False)
        figure.tight_layout(rect=(0, 0.3 / height, 1, 1))


def plot_paths(spec: TableSpec, datasets: Results, path: Path) -> None:
    """Draw one panel per row: one dot per epoch of the first trial, its metric over its loss, later epochs darker.

    The axis of the metric is 0 to 1 in all panels, so that a metric that does not change is seen as such.
    """
    paths = paths_of(spec, datasets)
    across = min(PANELS, len(paths))
    down = -(-len(paths) // across)
    with picture(spec, path, down, across, (2.3 * across, 2.1 * down)) as (figure, axes):
        for axis, (row, drawn) in zip(axes, paths.items(), strict=False):
            axis.scatter(drawn["loss"], drawn["metric"], c=range(len(drawn["loss"])), cmap="Blues", vmin=-20, s=8)
            axis.set_title(spec.rows[row].title, fontsize=9)
            middle, span = (max(drawn["loss"]) + min(drawn["loss"])) / 2, max(drawn["loss"]) - min(drawn["loss"])
            half = 0.55 * max(span, NARROWEST)
            axis.set(xlim=(middle - half, middle + half), ylim=(0, 1), yticks=[0, 0.25, 0.5, 0.75, 1])
            axis.xaxis.set_major_locator(MaxNLocator(3, steps=[1, 2, 5, 10]))
            axis.ticklabel_format(axis="x", useOffset=False)
            axis.tick_params(labelsize=8)
            axis.grid(linewidth=0.3)
        for axis in axes[len(paths) :]:
            axis.set_axis_off()
        figure.supxlabel("loss on the training batches of an epoch", fontsize=9)
        figure.supylabel("the row's metric", fontsize=9)
        figure.tight_layout()


def plot_tests(spec: TableSpec, datasets: Results, path: Path) -> None:
    """Draw one panel per row: its metric and its accuracy on the test rows, all trials and thicker their median."""
    tests = curves_on_test(spec, datasets)
    across = min(PANELS, len(tests))
    down = -(-len(tests) // across)
    with picture(spec, path, down, across, (2.3 * across, 0.4 + 2.1 * down)) as (figure, axes):
        for axis, (row, curves) in zip(axes, tests.items(), strict=False):
            for color, (name, label) in zip(("C0", "C1"), NAMES.items(), strict=True):
                for curve in curves[name]:
                    axis.plot(range(1, len(curve) + 1), curve, color=color, linewidth=0.5, alpha=0.5)
                median = median_curve(curves[name])
                axis.plot(range(1, len(median) + 1), median, color=color, linewidth=1.6, label=f"{label}, median")
            axis.set_title(spec.rows[row].title, fontsize=9)
            axis.set(ylim=(0, 1))
            axis.xaxis.set_major_locator(MaxNLocator(4, integer=True))
            axis.tick_params(labelsize=8)
            axis.grid(linewidth=0.3)
        for axis in axes[len(tests) :]:
            axis.set_axis_off()
        figure.supxlabel("epoch", fontsize=9)
        figure.legend(*axes[0].get_legend_handles_labels(), ncols=2, loc="upper center", fontsize=8, frameon=False)
        figure.tight_layout(rect=(0, 0, 1, 1 - 0.3 / (0.4 + 2.1 * down)))


def plot_curves(spec: TableSpec, datasets: Results, path: Path) -> None:
    """Draw Figures 2 and 5 of Lee et al. 2021, medians of the trials by epoch, for the rows for F1."""
    wanted = [name for name, row in spec.rows.items() if row.settings.get("metric") in ("f1", "fbeta(beta=1.0)")]
    panels = {
        "f1": "(a) F1, training batches",
        "validation f1": "(b) F1, validation set",
        "test accuracy": "(c) accuracy, test images",
    }
    curves = {row: of_row for row, of_row in curves_of(spec, datasets).items() if row in wanted}
    with picture(spec, path, 1, len(panels), (9.6, 3.3)) as (figure, axes):
        for axis, (name, title) in zip(axes, panels.items(), strict=True):
            drawn = {row: of_row[name] for row, of_row in curves.items() if name in of_row}
            for row, trials in drawn.items():
                median = median_curve(trials)
                color = f"C{list(curves).index(row)}"
                axis.plot(range(1, len(median) + 1), median, color=color, label=spec.rows[row].title)
            counts = " or ".join(str(count) for count in sorted({len(trials) for trials in drawn.values()}))
            axis.set_xlabel("epoch", fontsize=9)
            axis.set_title(f"{title}\n{'one trial' if counts == '1' else f'median of {counts} trials'}", fontsize=9)
            axis.set(ylim=(0, 1))
            axis.xaxis.set_major_locator(MaxNLocator(6, integer=True))
            axis.tick_params(labelsize=8)
            axis.grid(linewidth=0.3)
        figure.legend(*axes[0].get_legend_handles_labels(), ncols=6, loc="lower center", fontsize=8, frameon=False)
        figure.tight_layout(rect=(0, 0.08, 1, 1))


def _drawn(spec: TableSpec) -> list[str]:
    """Return the first column (for means over sets, the first with a published mean) and its counterpart, if any."""
    of_all = [column for name, _, column in spec.published if name == ALL]
    first = next((column for column in spec.columns if column in of_all), next(iter(spec.shown_columns)))
    metric = spec.columns[first].metric
    wanted = {metric.replace(one, other) for one, other in COUNTERPARTS.items() if metric.startswith(one)}
    return [first, *(key for key, column in spec.shown_columns.items() if column.metric in wanted)]


def _mean_published(spec: TableSpec, names: list[str], row: str, column: str) -> float:
    if spec.averaged:
        number = spec.published.get((ALL, row, column))
        return float("nan") if number is None else number.mean
    numbers = [spec.published[name, row, column].mean for name in names if (name, row, column) in spec.published]
    return statistics.fmean(numbers) if numbers else float("nan")


def _mean_measured(measured: dict[str, Any], names: list[str], row: str, column: str) -> tuple[float, float] | None:
    values = [measured[name][row]["values"][column] for name in names if row in measured.get(name, {})]
    if not values:
        return None
    trials = [statistics.fmean(trial) for trial in zip(*values, strict=False)]
    return statistics.fmean(trials), statistics.stdev(trials) if len(trials) > 1 else 0.0
