"""Draw how long the default families take on several workers, from their seconds on one core: docs/img/workers.svg."""

from __future__ import annotations

import json
import math
import statistics

from page import BLUE, DOCS, GREEN, GREY, ORANGE, plt, save

from metricfit.tabular.families.choice import DEFAULT

TABLES = {"coil_2000": (9822, ORANGE), "satimage": (6435, BLUE), "phoneme": (5404, GREEN)}
FOLDS = 8
WORKERS = [1, 2, 4, 8, 16]


def seconds_on(seconds: dict[str, float], workers: int) -> float:
    """Return the seconds until all families are ready, one after the other, if workers take the folds of one."""
    return sum(math.ceil(FOLDS / workers) * seconds[family] / FOLDS for family in DEFAULT)


def main() -> None:
    """Draw the seconds by the number of workers."""
    study = json.loads((DOCS.parent / "studies" / "results" / "tables.json").read_text())
    figure, axes = plt.subplots(figsize=(6.4, 3.6))
    for name, (rows, colour) in TABLES.items():
        cells = study[name].values()
        seconds = {family: statistics.fmean(cell["seconds"][family] for cell in cells) for family in DEFAULT}
        axes.plot(
            WORKERS,
            [seconds_on(seconds, workers) for workers in WORKERS],
            "o-",
            color=colour,
            label=f"{name}, {rows:,} rows",
        )
        print(name, [round(seconds_on(seconds, workers), 1) for workers in WORKERS])
    axes.axvline(FOLDS, color=GREY, linestyle="--", linewidth=1)
    axes.annotate(
        f"{FOLDS} folds",
        (FOLDS, axes.get_ylim()[1]),
        xytext=(-4, -10),
        textcoords="offset points",
        ha="right",
        color=GREY,
    )
    axes.set(xscale="log", yscale="log", xlabel="workers of one core each", ylabel="seconds of training")
    axes.set_xticks(WORKERS, [str(workers) for workers in WORKERS])
    axes.minorticks_off()
    axes.set_yticks([1, 3, 10, 30], ["1", "3", "10", "30"])
    axes.legend()
    save(figure, "workers")


if __name__ == "__main__":
    main()
