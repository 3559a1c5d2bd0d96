"""Draw what the papers' tables gave when they were run again, six panels: docs/img/gallery.svg.

Read from papers/results and the tables' specs. A title is a finding: where the results no longer say it,
nothing is drawn. The picture carries a digest of its numbers, by which a test sees that it is up to date.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterable
from statistics import fmean, median
from typing import Any

from matplotlib.axes import Axes
from page import BLUE, GREEN, GREY, ORANGE, RED, plt, save

import metricfit_papers as papers
from metricfit_papers.pages import stored_results
from metricfit_papers.specs.table_spec import ALL

CLOSE, LEVEL = 0.05, 0.03
F1_LOSS, BCE, TUNED = "F1*", "BCE", "BCE, tuned for F1"
ALM = "ALM with "
Numbers = dict[str, Any]


def measured(table: str, protocol: str) -> Numbers:
    """Dataset by dataset and row by row what was measured, in the order of the table's file; none where not run."""
    found = stored_results.read(stored_results.RESULTS / f"{table}.json")
    of = found["protocols"].get(protocol, {})
    return {name: of[name] for name in papers.find_table(table).datasets if name in of}


def mean(row: Numbers, column: str) -> float:
    return round(fmean(row["values"][column]), 6)


def smaller(rows: Iterable[Numbers]) -> str:
    """Where the runs were smaller than the table, for the line above a title; empty if they were not."""
    short = [row["run"]["smaller"].replace("at most ", "").replace(" training images", " images") for row in rows]
    said = [text.split(", ") for text in short]
    parts = dict.fromkeys(part for row in said for part in row if part)
    return ", ".join(part if all(part in row for row in said) else f"in part {part}" for part in parts)


def replication() -> Numbers:
    """Published and measured, every number of Bridging the Gap's Table 1 under the protocol of its code."""
    spec, of = papers.find_table("btg-1"), measured("btg-1", "code")
    points = [
        (dataset, spec.rows[row].name, spec.columns[column].title, given.mean, mean(of[dataset][row], column))
        for (dataset, row, column), given in spec.published.items()
        if row in of.get(dataset, {})
    ]
    drawn = [of[dataset][row] for dataset, row, _ in spec.published if row in of.get(dataset, {})]
    return {"points": points, "smaller": smaller(drawn)}


def tuned() -> Numbers:
    """F1 of the F1 loss, of BCE and of BCE with a tuned threshold, for each dataset with all three."""
    rows = (F1_LOSS, BCE, TUNED)
    titles = {name: given.title for name, given in papers.find_table("btg-1").datasets.items()}
    found: Numbers = {"smaller": ""}
    drawn = []
    for protocol in ("paper", "corrected"):
        complete = {name: of for name, of in measured("btg-1", protocol).items() if all(row in of for row in rows)}
        found[protocol] = {titles[name]: [mean(of[row], "f1") for row in rows] for name, of in complete.items()}
        drawn += [of[row] for of in complete.values() for row in rows]
    return found | {"smaller": smaller(drawn)}


def constrained() -> Numbers:
    """FPR at 95 % TPR without and with the ranking constraint; of BCE also when trained on without it."""
    spec = papers.find_table("constrained-2")
    pairs, control, published, drawn = {}, {}, [], []
    for dataset, rows in measured("constrained-2", "paper").items():
        ratio = spec.datasets[dataset].title.split(", ")[1]
        bases = [row for row in rows if ALM + row in rows]
        pairs[ratio] = [(row, mean(rows[row], "fpr95"), mean(rows[ALM + row], "fpr95")) for row in bases]
        control[ratio] = {BCE: mean(rows["BCE, trained on"], "fpr95")} if "BCE, trained on" in rows else {}
        published += [[spec.published[dataset, name, "fpr95"].mean for name in (row, ALM + row)] for row in bases]
        drawn += [rows[ALM + row] for row in bases]
    return {"pairs": pairs, "control": control, "published": published, "smaller": smaller(drawn)}


def curves() -> Numbers:
    """F1 on the test images after every epoch, of three losses; one list per repeat."""
    of = measured("surrogate-5", "short")["airplane"]
    rows = ("surrogate F1", "macro soft F1", BCE)
    by_epoch = {row: of[row]["chosen"]["tests"]["test metric"] for row in rows}
    return {"curves": by_epoch, "smaller": smaller(of[row] for row in rows)}


def classes() -> Numbers:
    """Recall and precision of one class of ten, published and measured."""
    spec, of = papers.find_table("multiclass-1"), measured("multiclass-1", "paper")["cifar10"]
    columns = ("recall", "precision")
    points = {
        row: [[spec.published["cifar10", row, column].mean for column in columns], [mean(of[row], c) for c in columns]]
        for row in of
    }
    return {"points": points, "smaller": smaller(of.values())}


def perceptron() -> Numbers:
    """F1 set by set of BCE at 0.5, of AnyLoss and of BCE tuned; the published means."""
    spec, rows = papers.find_table("anyloss-perceptron"), (BCE, "AnyLoss", "BCE, tuned")
    of = measured("anyloss-perceptron", "paper")
    complete = {name: rows_of for name, rows_of in of.items() if all(row in rows_of for row in rows)}
    sets = {name: [mean(rows_of[row], "f1") for row in rows] for name, rows_of in complete.items()}
    published = [spec.published[ALL, row, "f1"].mean for row in rows if (ALL, row, "f1") in spec.published]
    drawn = [rows_of[row] for rows_of in complete.values() for row in rows]
    return {"sets": sets, "published": published, "smaller": smaller(drawn)}


def titled(axes: Axes, where: str, smaller: str, finding: str, *, holds: bool) -> None:
    """The table and how much smaller it was run, in small letters; under them the finding, which must hold."""
    if not holds:
        raise ValueError(f"the results no longer say {finding!r}: give the panel of {where} another title")
    axes.set_title(" \n \n ", fontsize=11)  # room for the lines, which may be wider than the axes
    for text, height, look in (
        (finding, 6, {"fontsize": 10, "fontweight": "bold"}),
        (smaller, 21, {"fontsize": 9, "color": GREY}),
        (where, 34 if smaller else 21, {"fontsize": 9, "color": GREY}),
    ):
        said = axes.annotate(text, (0, 1), (-30, height), xycoords="axes fraction", textcoords="offset points", **look)
        said.set_in_layout(False)


def draw_replication(axes: Axes, given: Numbers) -> None:
    axes.plot([0, 1], [0, 1], color=GREY, linewidth=1)
    shares = {}
    for adult, colour in ((False, BLUE), (True, RED)):
        points = [point for point in given["points"] if (point[0] == "adult") is adult]
        close = sum(abs(there - here) <= CLOSE + 1e-6 for *_, there, here in points)
        shares[adult] = close / len(points)
        name = "Adult" if adult else "the other sets"
        label = f"{name}: {close} of {len(points)} within {CLOSE}"
        axes.plot(*zip(*[point[3:] for point in points], strict=True), "o", color=colour, ms=5, alpha=0.75, label=label)
    axes.set(
        xlim=(-0.03, 1.03), ylim=(-0.03, 1.3), xlabel="published", ylabel="measured", yticks=[0, 0.25, 0.5, 0.75, 1]
    )
    axes.legend(loc="upper left", handletextpad=0.1)
    titled(
        axes,
        "Bridging the Gap, Table 1, as coded",
        given["smaller"],
        "Published numbers come out, least on Adult",
        holds=shares[False] > 0.85 and shares[True] < shares[False],
    )


def draw_tuned(axes: Axes, given: Numbers) -> None:
    names = list(given["paper"] | given["corrected"])
    marks = [("F1 loss", BLUE, "o", 9), ("BCE", ORANGE, "s", 6), ("BCE, tuned", GREEN, "D", 4.5)]
    for protocol, offset, fill in (("paper", -0.14, True), ("corrected", 0.2, False)):
        for name, values in given[protocol].items():
            at = names.index(name) + offset
            axes.plot([min(values), max(values)], [at, at], color=GREY, linewidth=0.7, zorder=1)
            for value, (label, colour, mark, size) in zip(values, marks, strict=True):
                first = label if fill and name == names[0] else None
                axes.plot(value, at, mark, color=colour, mfc=colour if fill else "none", ms=size, label=first, zorder=2)
    axes.set_yticks(range(len(names)), [name.replace(" ", "\n", 1) for name in names])
    axes.set(ylim=(len(names) - 0.5, -1.15), xlabel="F1, mean over thresholds (hollow: at 0.5)")
    axes.grid(visible=False, axis="y")
    axes.legend(loc="upper center", ncols=3, handletextpad=0.1, columnspacing=1)
    ahead = [tuned - f1 for protocol in ("paper", "corrected") for f1, _, tuned in given[protocol].values()]
    titled(
        axes,
        "Bridging the Gap, Table 1",
        given["smaller"],
        "Tuned, BCE does as well as the F1 loss",
        holds=min(ahead) > -LEVEL and fmean(ahead) > -0.01,
    )


def draw_constrained(axes: Axes, given: Numbers) -> None:
    centres, start = {}, 0
    for ratio, pairs in given["pairs"].items():
        for at, (row, without, with_it) in enumerate(pairs, start):
            lower = with_it < without
            axes.plot([at, at], [without, with_it], color=BLUE if lower else RED, linewidth=1.3)
            axes.plot(at, without, "o", color=GREY, ms=4.5, label="the loss alone" if at == 0 else None)
            axes.plot(at, with_it, "v" if lower else "^", color=BLUE if lower else RED, ms=6)
            if row in given["control"][ratio]:
                label = "BCE alone, trained on" if at == 0 else None
                axes.plot(at, given["control"][ratio][row], "_", color="black", ms=9, mew=2, label=label, zorder=4)
        centres[ratio] = start + (len(pairs) - 1) / 2
        start += len(pairs) + 1
    every = [pair for pairs in given["pairs"].values() for pair in pairs]
    lower = sum(with_it < without for _, without, with_it in every)
    published = sum(with_it < without for without, with_it in given["published"])
    axes.set_xticks(list(centres.values()), list(centres))
    axes.set(ylabel="FPR at 95 % TPR", ylim=(0, 0.72))
    axes.set_xlabel(f"positives : negatives (published: {published} lower)")
    axes.grid(visible=False, axis="x")
    axes.plot([], [], "v", color=BLUE, ms=6, label="with the constraint (red: higher)")
    axes.legend(loc="upper left", handletextpad=0.4, handlelength=1.3)
    titled(
        axes,
        "Constrained training, Table 2",
        given["smaller"],
        f"Constrained, {lower} of {len(every)} FPRs are lower",
        holds=lower > 0.75 * len(every),
    )


def draw_curves(axes: Axes, given: Numbers) -> None:
    colours = {"surrogate F1": BLUE, "macro soft F1": GREEN, BCE: ORANGE}
    last = {}
    for row, trials in given["curves"].items():
        epochs = range(1, len(trials[0]) + 1)
        for values in trials:
            axes.plot(epochs, values, color=colours[row], linewidth=0.7, alpha=0.45)
        medians = [median(values) for values in zip(*trials, strict=True)]
        axes.plot(epochs, medians, color=colours[row], linewidth=2, label=row)
        last[row] = medians[-1]
    axes.plot([], [], color=GREY, linewidth=0.7, label=f"one of {len(trials)} repeats")
    axes.set(xlabel="epoch", ylabel="F1 on test images", ylim=(0, 1.05))
    axes.legend(loc="upper left", ncols=2, handletextpad=0.4, handlelength=1.3, columnspacing=1)
    titled(
        axes,
        "Surrogate F-beta, Figure 5",
        given["smaller"],
        "After 20 epochs, BCE has the highest F1",
        holds=last[BCE] == max(last.values()) and len(epochs) == 20,
    )


def draw_classes(axes: Axes, given: Numbers) -> None:
    names = {"F-beta P*": ("beta 0.25", BLUE), "F-beta R*": ("beta 5", GREEN), "CE": ("cross-entropy", ORANGE)}
    for row, (there, here) in given["points"].items():
        name, colour = names[row]
        axes.annotate("", here, there, arrowprops={"arrowstyle": "-", "color": colour, "lw": 1, "ls": ":"})
        axes.plot(*there, "o", color=colour, mfc="white", ms=8, mew=1.6)
        axes.plot(*here, "o", color=colour, ms=8)
        axes.annotate(name, there, (8, 6), textcoords="offset points", color=colour, fontsize=9.5)
    axes.plot([], [], "o", color=GREY, mfc="white", ms=7, label="published")
    axes.plot([], [], "o", color=GREY, ms=7, label="measured")
    axes.set(xlabel="recall of dogs", ylabel="precision of dogs", xlim=(0.1, 1), ylim=(0.2, 1))
    axes.legend(loc="lower left", handletextpad=0.1)
    (_, precise), (_, recalling), (_, plain) = (given["points"][row] for row in names)
    titled(
        axes,
        "Multiclass F-beta, Table 1",
        given["smaller"],
        "Beta trades recall for precision, as published",
        holds=precise[1] > plain[1] > recalling[1] and precise[0] < plain[0] < recalling[0],
    )


def draw_perceptron(axes: Axes, given: Numbers) -> None:
    for values in given["sets"].values():
        axes.plot(range(3), values, color=GREY, linewidth=0.7, alpha=0.5)
    means = [fmean(values) for values in zip(*given["sets"].values(), strict=True)]
    axes.plot(range(3), means, "o-", color=BLUE, ms=7, linewidth=2, label=f"mean of {len(given['sets'])} sets")
    for at, value in enumerate(means):
        axes.annotate(f"{value:.2f}", (at, value), (0, -16), textcoords="offset points", ha="center", color=BLUE)
    axes.plot(range(len(given["published"])), given["published"], "x", color="black", ms=7, label="published, 102 sets")
    axes.set_xticks(range(3), ["BCE at 0.5", "AnyLoss", "BCE, tuned"])
    axes.set(xlim=(-0.3, 2.3), ylim=(0, 1.28), ylabel="F1", yticks=[0, 0.25, 0.5, 0.75, 1])
    axes.plot([], [], color=GREY, linewidth=0.7, label="one set")
    axes.legend(loc="upper left", ncols=2, handletextpad=0.4, handlelength=1.3, columnspacing=1)
    at_half, any_loss, tuned = means
    titled(
        axes,
        "AnyLoss, single-layer perceptron",
        given["smaller"],
        "AnyLoss beats BCE at 0.5, not BCE tuned",
        holds=any_loss > at_half + LEVEL and any_loss < tuned + LEVEL,
    )


PANELS: dict[str, tuple[Callable[[], Numbers], Callable[[Axes, Numbers], None]]] = {
    "replication": (replication, draw_replication),
    "tuned": (tuned, draw_tuned),
    "constrained": (constrained, draw_constrained),
    "curves": (curves, draw_curves),
    "classes": (classes, draw_classes),
    "perceptron": (perceptron, draw_perceptron),
}


def numbers() -> Numbers:
    """All that is drawn, panel by panel."""
    return {name: read() for name, (read, _) in PANELS.items()}


def digest(given: Numbers) -> str:
    """What the picture says of the numbers it was drawn from."""
    return "numbers " + hashlib.sha256(json.dumps(given, sort_keys=True).encode()).hexdigest()


def main() -> None:
    given = numbers()
    plt.rcParams.update({"font.size": 9.5, "legend.fontsize": 9, "legend.borderaxespad": 0.1})
    figure, axes = plt.subplots(2, 3, figsize=(11.5, 7.1))
    for panel, (name, (_, draw)) in zip(axes.flat, PANELS.items(), strict=True):
        draw(panel, given[name])
    save(figure, "gallery", description=digest(given))


if __name__ == "__main__":
    main()
