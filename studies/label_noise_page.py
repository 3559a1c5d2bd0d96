"""The section on label noise of docs/evidence/losses.md, from the cells that label_noise.py writes.

python -m studies.label_noise_page                          # from the stored results
python -m studies.label_noise_page --cells runs/noise.jsonl  # collect new cells first
"""

from __future__ import annotations

import statistics
from typing import Any

import matplotlib

from studies.common import DOCS, table
from studies.label_noise import BLOCKS, LOSSES, NOISE, TABLES
from studies.pays_tables import Values, against, write_section

matplotlib.use("Agg")
import matplotlib.pyplot as plt

RESULTS = DOCS.parent / "studies" / "results" / "label_noise.json"
PICTURE = DOCS / "img" / "pays-noise.svg"
LOGARITHMS, ROBUST = "surrogate, q = 0", ("surrogate, q = 0.3", "surrogate, q = 0.7", "surrogate, q = 1")
#: How the network and its threshold are chosen, in words.
SELECTIONS = {
    "noisy, 0.5": "threshold 0.5, chosen on validation rows with the same noise",
    "noisy, tuned": "tuned threshold, chosen on validation rows with the same noise",
    "clean, tuned": "tuned threshold, chosen on validation rows with true labels",
    "last, 0.5": "threshold 0.5, after all steps (only the rate is chosen, on noisy rows)",
}
SHORT = ("none", "symmetric 0.4", "missed 0.4")
SHOWN = ("BCE", "MAE, balanced", "F1", LOGARITHMS, "surrogate, q = 0.7", "surrogate, q = 1")

Cells = dict[tuple[str, str], dict[str, dict[str, list[float]]]]


def collect(lines: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Cells of the blocks of splits that have all tables and losses."""
    found = {(line["block"], line["table"], line["loss"]) for line in lines}
    complete = {
        block for block in range(len(BLOCKS)) if all((block, name, loss) in found for name in TABLES for loss in LOSSES)
    }
    kept = [line for line in lines if line["block"] in complete]
    return sorted(kept, key=lambda line: (line["block"], line["table"], line["loss"]))


def by_key(stored: list[dict[str, Any]]) -> Cells:
    """Table and loss, with the splits of all blocks in one list."""
    cells: Cells = {}
    for line in stored:
        cell = cells.setdefault((line["table"], line["loss"]), {selection: {} for selection in SELECTIONS})
        for selection, by_noise in cell.items():
            for noise in NOISE:
                by_noise.setdefault(noise, []).extend(line[selection][noise])
    return cells


def by_split(cells: Cells, selection: str, noise: str) -> Values:
    """F1 of each loss on every split of every table, in one order."""
    return {loss: [value for name in TABLES for value in cells[name, loss][selection][noise]] for loss in LOSSES}


def values_table(cells: Cells, selection: str) -> str:
    columns = {noise: by_split(cells, selection, noise) for noise in NOISE}
    rows = [[loss, *(f"{statistics.fmean(columns[noise][loss]):.3f}" for noise in NOISE)] for loss in LOSSES]
    return f"**F1, {SELECTIONS[selection]}**\n\n" + table(["loss", *NOISE], rows)


def claim_table(cells: Cells, baseline: str, others: tuple[str, ...]) -> str:
    """Losses against a baseline, by noise and selection."""
    rows = []
    for selection in SELECTIONS:
        for noise in ("none", "symmetric 0.2", "symmetric 0.4", "missed 0.2", "missed 0.4"):
            values = by_split(cells, selection, noise)
            compared = against({loss: values[loss] for loss in (baseline, *others)}, baseline)
            rows.append([selection, noise, *(compared[loss] for loss in others)])
    return f"**Against {baseline}**\n\n" + table(["selection", "noise", *others], rows)


def tables_table(cells: Cells) -> str:
    """F1 of each table with the most symmetric noise, at 0.5."""
    rows = [
        [loss, *(f"{statistics.fmean(cells[name, loss]['noisy, 0.5'][n]):.3f}" for name in TABLES for n in SHORT)]
        for loss in LOSSES
    ]
    return "**F1 at 0.5 of each table**, chosen on validation rows with the same noise\n\n" + table(
        ["loss", *(f"{name}, {noise}" for name in TABLES for noise in SHORT)], rows
    )


def draw(cells: Cells) -> None:
    figure, axes = plt.subplots(2, 2, figsize=(9.6, 6.6), layout="constrained", sharex=True, sharey="row")
    for row, selection in enumerate(("noisy, 0.5", "clean, tuned")):
        for column, kind in enumerate(("symmetric", "missed")):
            axis = axes[row, column]
            names = ["none", *(noise for noise in NOISE if noise.startswith(kind))]
            at = [max(NOISE[name]) for name in names]
            for place, loss in enumerate(SHOWN):
                values = [statistics.fmean(by_split(cells, selection, noise)[loss]) for noise in names]
                axis.plot(at, values, marker="o", color=f"C{place}", label=loss)
            axis.set_title(f"{'0.5' if row == 0 else 'true validation labels, tuned'}; {kind}", fontsize=11)
            axis.spines[["top", "right"]].set_visible(False)
        axes[row, 0].set_ylabel("test F1, true labels")
    for axis in axes[1]:
        axis.set_xlabel("share of wrong labels" if axis is axes[1, 0] else "share of positives labelled negative")
    figure.legend(*axes[0, 0].get_legend_handles_labels(), frameon=False, ncols=6, loc="outside lower center")
    with matplotlib.rc_context({"svg.hashsalt": "metricfit"}):
        figure.savefig(PICTURE, metadata={"Date": None})
    plt.close(figure)


def parts_of_page(stored: list[dict[str, Any]]) -> dict[str, str]:
    cells = by_key(stored)
    splits = len(cells[TABLES[0], "BCE"]["noisy, 0.5"]["none"])
    note = (
        f"Means over {len(TABLES)} tables with {splits} splits each; F1 of test rows with true labels. Comparisons: "
        f"the mean difference, splits won-lost of {splits * len(TABLES)}, and the p-value of Wilcoxon's test over the "
        "splits, corrected for the losses of its row (Holm). Splits of one table share rows, so that p is too small; "
        "a test over three tables cannot reject anything."
    )
    parts = [note, *(values_table(cells, selection) for selection in SELECTIONS)]
    parts += [claim_table(cells, LOGARITHMS, ROBUST), claim_table(cells, "BCE", ("MAE, balanced", "F1", ROBUST[-1]))]
    return {"noise": "\n\n".join([*parts, tables_table(cells)])}


def main(arguments: list[str] | None = None) -> None:
    draw(by_key(write_section(__doc__, arguments, RESULTS, collect, parts_of_page)))


if __name__ == "__main__":
    main()
