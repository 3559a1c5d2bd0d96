"""The section on little capacity of docs/evidence/losses.md, from the cells that little_capacity.py writes.

python -m studies.little_capacity_page                             # from the stored results
python -m studies.little_capacity_page --cells runs/capacity.jsonl  # collect new cells first
"""

from __future__ import annotations

import statistics
from typing import Any

import matplotlib
import numpy as np
from scipy.stats import wilcoxon

from studies.common import DOCS, table
from studies.little_capacity import BLOCKS, LOSSES, TABLES, WIDTHS
from studies.pays_tables import Values, against, write_section

matplotlib.use("Agg")
import matplotlib.pyplot as plt

RESULTS = DOCS.parent / "studies" / "results" / "little_capacity.json"
PICTURE = DOCS / "img" / "pays-capacity.svg"
BASELINE, DECISIONS = "BCE", ("0.5", "tuned")
#: The weight of the positives is a setting that the validation rows can choose, split by split.
CHOSEN, WEIGHTS = "BCE, weight chosen", ("BCE", "BCE, weighted", "BCE, balanced")
SHOWN = ("F1", "F1, Identity", "BCE + 0.5 F1", "BCE, then F1", CHOSEN)

Cells = dict[tuple[str, int, str], dict[str, Any]]


def collect(lines: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Cells of the widths and blocks of splits that have all tables and losses, without what the page does not show."""
    found = {(line["block"], line["width"], line["table"], line["loss"]) for line in lines}
    complete = {
        (block, width)
        for block in range(len(BLOCKS))
        for width in WIDTHS
        if all((block, width, name, loss) in found for name in TABLES for loss in LOSSES)
    }
    kept = []
    for line in lines:
        if (line["block"], line["width"]) in complete:
            for decision in DECISIONS:
                line[decision] = {key: line[decision][key] for key in ("validation", "test", "train")}
            kept.append(line)
    return sorted(kept, key=lambda line: (line["block"], line["width"], line["table"], line["loss"]))


def widths_of(cells: Cells) -> list[int]:
    return [width for width in WIDTHS if (TABLES[0], width, BASELINE) in cells]


def by_key(stored: list[dict[str, Any]]) -> Cells:
    """Table, width and loss, with the splits of all blocks in one list; the chosen weight is a loss of its own."""
    cells: Cells = {}
    for line in stored:
        cell = cells.setdefault((line["table"], line["width"], line["loss"]), {d: {} for d in DECISIONS})
        for decision in DECISIONS:
            for key, values in line[decision].items():
                cell[decision].setdefault(key, []).extend(values)
    for name in TABLES:
        for width in widths_of(cells):
            cells[name, width, CHOSEN] = {
                decision: _choose([cells[name, width, loss][decision] for loss in WEIGHTS]) for decision in DECISIONS
            }
    return cells


def _choose(rivals: list[dict[str, list[float]]]) -> dict[str, list[float]]:
    best = np.argmax([rival["validation"] for rival in rivals], axis=0)
    return {key: [rivals[at][key][split] for split, at in enumerate(best)] for key in rivals[0]}


def means(cells: Cells, width: int, decision: str, part: str = "test") -> Values:
    """The mean over the splits, for each loss on each table."""
    return {
        loss: [statistics.fmean(cells[name, width, loss][decision][part]) for name in TABLES]
        for loss in (*LOSSES, CHOSEN)
    }


def width_name(width: int) -> str:
    return f"{width} units" if width else "linear"


def values_table(cells: Cells, decision: str) -> str:
    """Mean F1 of each loss for each model, and the comparison with cross-entropy."""
    rows: list[list[str]] = [[loss] for loss in (*LOSSES, CHOSEN)]
    for width in widths_of(cells):
        values = means(cells, width, decision)
        compared = against(values, BASELINE)
        for row in rows:
            text = f" ({compared[row[0]]})" if row[0] in compared else ""
            row.append(f"{statistics.fmean(values[row[0]]):.3f}{text}")
    title = "the threshold is 0.5" if decision == "0.5" else "the threshold is tuned on the validation rows"
    return f"**F1, {title}**\n\n" + table(["loss", *map(width_name, widths_of(cells))], rows)


def shrinking_table(cells: Cells) -> str:
    """By how much the gain over cross-entropy is larger for a linear model than for the widest network."""
    rows = []
    for loss in SHOWN:
        row = [loss]
        for decision in DECISIONS:
            narrow, wide = (
                np.subtract(values[loss], values[BASELINE])
                for values in (means(cells, width, decision) for width in (widths_of(cells)[0], widths_of(cells)[-1]))
            )
            d = narrow - wide
            p = float(wilcoxon(d).pvalue) if np.any(d) else 1.0
            row.append(f"{d.mean():+.3f}; {int((d > 0).sum())}-{int((d < 0).sum())}, p = {p:.2g}")
        rows.append(row)
    head = ["loss", "at 0.5", "tuned"]
    return (
        f"**Gain of the linear model minus gain with {widths_of(cells)[-1]} units** (p without correction)\n\n"
        + table(head, rows)
    )


def training_table(cells: Cells) -> str:
    """F1 of the training rows at their best threshold: what the loss could reach, without estimation error."""
    rows: list[list[str]] = [[loss] for loss in LOSSES]
    for width in widths_of(cells):
        values = means(cells, width, "tuned", "train")
        for row in rows:
            row.append(f"{statistics.fmean(values[row[0]]):.3f}")
    return "**F1 of the training rows at their best threshold**, of the same networks\n\n" + table(
        ["loss", *map(width_name, widths_of(cells))], rows
    )


def draw(cells: Cells) -> None:
    figure, axes = plt.subplots(1, 2, figsize=(9.6, 3.7), layout="constrained")
    for axis, decision in zip(axes, DECISIONS, strict=True):
        for place, loss in enumerate(SHOWN):
            gains = [
                np.subtract(values[loss], values[BASELINE])
                for values in (means(cells, width, decision) for width in widths_of(cells))
            ]
            error = [gain.std(ddof=1) / len(gain) ** 0.5 for gain in gains]
            at = np.arange(len(widths_of(cells))) + 0.06 * (place - 2)
            style = {"color": "0.4", "linestyle": "--"} if loss == CHOSEN else {"color": f"C{place}"}
            axis.errorbar(at, [gain.mean() for gain in gains], error, marker="o", capsize=2, label=loss, **style)
        axis.axhline(0, color="0.7", linewidth=1)
        axis.set_xticks(range(len(widths_of(cells))), list(map(width_name, widths_of(cells))))
        axis.set_title("threshold 0.5" if decision == "0.5" else "tuned threshold", fontsize=11)
        axis.spines[["top", "right"]].set_visible(False)
    axes[0].set_ylabel(f"test F1 minus that of {BASELINE}")
    figure.legend(*axes[0].get_legend_handles_labels(), frameon=False, ncols=5, loc="outside lower center")
    with matplotlib.rc_context({"svg.hashsalt": "metricfit"}):
        figure.savefig(PICTURE, metadata={"Date": None})
    plt.close(figure)


def parts_of_page(stored: list[dict[str, Any]]) -> dict[str, str]:
    cells = by_key(stored)
    splits = len(cells[TABLES[0], 0, BASELINE]["tuned"]["test"])
    note = (
        f"Means over {len(TABLES)} tables with {splits} splits each. In brackets: the mean difference to {BASELINE}, "
        "tables won-lost, and the p-value of Wilcoxon's test over the tables, corrected for the losses (Holm)."
    )
    parts = [note, *(values_table(cells, decision) for decision in DECISIONS), shrinking_table(cells)]
    return {"capacity": "\n\n".join([*parts, training_table(cells)])}


def main(arguments: list[str] | None = None) -> None:
    draw(by_key(write_section(__doc__, arguments, RESULTS, collect, parts_of_page)))


if __name__ == "__main__":
    main()
