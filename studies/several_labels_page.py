"""The section on several labels of docs/evidence/losses.md, from the cells that several_labels.py writes.

python -m studies.several_labels_page                      # from the stored results
python -m studies.several_labels_page --cells runs/labels  # collect new cells first
"""

from __future__ import annotations

import argparse
import json
import statistics
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from studies.common import DOCS, fill, table
from studies.pays_tables import Values, against, draw_losses
from studies.several_labels import AVERAGES, DECISIONS, LOSSES, TABLES, VARIANTS

RESULTS, PAGE = Path(__file__).resolve().parent / "results" / "several_labels.json", DOCS / "evidence" / "losses.md"
PICTURE = DOCS / "img" / "pays-labels.svg"
BASELINE, MIX = "BCE", "BCE + F1"
#: The decision that each average is compared at, beside 0.5; chosen before the study, it is what the library proposes.
PROPOSED = {"macro": "per label, smoothed", "micro": "per label, smoothed", "samples": "per row"}

MAIN = tuple(loss for loss in LOSSES if loss not in VARIANTS)

Cells = list[dict[str, Any]]


def collect(folder: Path) -> Cells:
    return [json.loads(path.read_text(encoding="utf-8")) for path in sorted(folder.glob("*.json"))]


def complete(cells: Cells, losses: Sequence[str]) -> Cells:
    """The cells of the splits that all these losses have on every table."""
    found = {(cell["table"], cell["loss"], cell["seed"]) for cell in cells}
    seeds = {cell["seed"] for cell in cells}
    whole = {s for s in seeds if all((name, loss, s) in found for name in TABLES for loss in losses)}
    return [cell for cell in cells if cell["seed"] in whole and cell["loss"] in losses]


def number_of_splits(cells: Cells) -> int:
    return len({cell["seed"] for cell in cells})


def means(cells: Cells, average: str, decision: str, losses: Sequence[str] = MAIN) -> Values:
    """The mean over the splits, for each loss on each table."""
    return {
        loss: [
            statistics.fmean(
                cell["values"][average][decision] for cell in cells if cell["loss"] == loss and cell["table"] == name
            )
            for name in TABLES
        ]
        for loss in losses
    }


def losses_table(cells: Cells, average: str) -> str:
    """Losses by decisions, and each loss against cross-entropy at 0.5 and at the proposed decision."""
    by_decision = {decision: means(cells, average, decision) for decision in DECISIONS}
    compared = [against(by_decision[decision], BASELINE) for decision in ("0.5", PROPOSED[average])]
    rows = []
    for loss in MAIN:
        values = [f"{statistics.fmean(by_decision[decision][loss]):.3f}" for decision in DECISIONS]
        rows.append([loss, *values, *(text.get(loss, "") for text in compared)])
    head = ["loss", *DECISIONS, f"against {BASELINE} at 0.5", f"against {BASELINE}, {PROPOSED[average]}"]
    return f"**{average} F1**\n\n" + table(head, rows)


def tables_table(cells: Cells) -> str:
    """Macro F1 on every table, at 0.5 and at the proposed thresholds."""
    half, tuned = (means(cells, "macro", decision) for decision in ("0.5", PROPOSED["macro"]))
    rows = [
        [name, *(f"{half[loss][place]:.3f} / {tuned[loss][place]:.3f}" for loss in MAIN)]
        for place, name in enumerate(TABLES)
    ]
    return f"**Macro F1 of every table, 0.5 / {PROPOSED['macro']}:**\n\n" + table(["table", *MAIN], rows)


def variants_table(cells: Cells) -> str:
    """Other ways to use the metric against the mix with weight 1: macro F1 at 0.5 and at the proposed decision."""
    losses = (BASELINE, MIX, *VARIANTS)
    used = complete(cells, losses)
    if not used:
        return ""
    rows = [[loss] for loss in losses]
    head = ["loss"]
    for average in AVERAGES:
        for decision in ("0.5", PROPOSED[average]):
            values = means(used, average, decision, losses)
            compared = against(values, MIX)
            head.append(f"{average}, {decision}")
            for row in rows:
                difference = f" ({compared[row[0]]})" if row[0] in compared else ""
                row.append(f"{statistics.fmean(values[row[0]]):.3f}{difference}")
    title = f"**Other forms of the mix**, {number_of_splits(used)} splits, in brackets against `{MIX}`:"
    return f"{title}\n\n{table(head, rows)}"


def decisions_table(cells: Cells) -> str:
    """Each decision against 0.5, for a network trained with cross-entropy and for one trained with the mix."""
    rows = []
    for loss in (BASELINE, MIX):
        for average in AVERAGES:
            values = {decision: means(cells, average, decision)[loss] for decision in DECISIONS}
            text = against(values, "0.5")
            rows.append([loss, average, *(text[decision] for decision in DECISIONS[1:])])
    return table(["loss", "average", *DECISIONS[1:]], rows)


def parts_of_page(stored: Cells) -> dict[str, str]:
    cells = complete(stored, MAIN)
    tables = "\n\n".join(losses_table(cells, average) for average in AVERAGES)
    note = (
        f"Means over nine tables with {number_of_splits(cells)} splits each. Comparisons: the mean difference, tables "
        "won-lost, and the p-value of Wilcoxon's test over the tables, corrected for the number of losses (Holm)."
    )
    against_half = "**Each decision against 0.5**, corrected for four decisions:\n\n" + decisions_table(cells)
    return {
        "labels": "\n\n".join(filter(None, [note, tables, against_half, tables_table(cells), variants_table(stored)]))
    }


def main(arguments: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--cells", type=Path, help="the folder of finished cells: collect them")
    options = parser.parse_args(arguments)
    if options.cells is not None:
        lines = ",\n".join(json.dumps(cell, separators=(",", ":")) for cell in collect(options.cells))
        RESULTS.write_text(f"[{lines}]\n", encoding="utf-8")
    cells = json.loads(RESULTS.read_text(encoding="utf-8"))
    PAGE.write_text(fill(PAGE.read_text(encoding="utf-8"), parts_of_page(cells)), encoding="utf-8")
    cells = complete(cells, MAIN)
    panels = {
        f"{average} F1": {decision: means(cells, average, decision) for decision in DECISIONS} for average in AVERAGES
    }
    draw_losses(panels, PICTURE, "mean of nine tables", columns=3)


if __name__ == "__main__":
    main()
