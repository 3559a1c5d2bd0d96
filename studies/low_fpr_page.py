"""The section on low false positive rates of docs/evidence/losses.md, from the cells that low_fpr.py writes.

python -m studies.low_fpr_page                            # from the stored results
python -m studies.low_fpr_page --cells runs/low_fpr.jsonl  # collect new cells first
"""

from __future__ import annotations

import statistics
from typing import Any

from studies.common import DOCS, table
from studies.low_fpr import LOSSES, TABLES, TPR
from studies.pays_tables import Values, against, draw_losses, write_section

RESULTS = DOCS.parent / "studies" / "results" / "low_fpr.json"
PICTURE = DOCS / "img" / "pays-low-fpr.svg"
BASELINE = "BCE"

Cells = dict[tuple[str, str], dict[str, Any]]


def collect(lines: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Cells of the tables that have all losses."""
    found = {(line["table"], line["loss"]) for line in lines}
    complete = {name for name in TABLES if all((name, loss) in found for loss in LOSSES)}
    kept = [line for line in lines if line["table"] in complete]
    return sorted(kept, key=lambda line: (line["table"], line["loss"]))


def by_key(stored: list[dict[str, Any]]) -> Cells:
    return {(line["table"], line["loss"]): line for line in stored}


def finished_tables(cells: Cells) -> list[str]:
    return [name for name in TABLES if (name, BASELINE) in cells]


def rates(cells: Cells, tpr: float) -> Values:
    """False positive rates, means over the splits, for each loss on each table."""
    return {
        loss: [statistics.fmean(cells[name, loss]["fpr"][f"{tpr}"]) for name in finished_tables(cells)]
        for loss in LOSSES
    }


def losses_table(cells: Cells) -> str:
    rows: list[list[str]] = [[loss] for loss in LOSSES]
    for tpr in TPR:
        values = rates(cells, tpr)
        compared = against({loss: [-rate for rate in row] for loss, row in values.items()}, BASELINE)
        for row in rows:
            text = f" ({compared[row[0]]})" if row[0] in compared else ""
            row.append(f"{statistics.fmean(values[row[0]]):.3f}{text}")
    return table(["loss", *(f"FPR at TPR {tpr}" for tpr in TPR)], rows)


def tables_table(cells: Cells) -> str:
    values = rates(cells, 0.95)
    rows = [[loss, *(f"{rate:.3f}" for rate in values[loss])] for loss in LOSSES]
    return "**FPR at TPR 0.95 of each table**\n\n" + table(["loss", *finished_tables(cells)], rows)


def parts_of_page(stored: list[dict[str, Any]]) -> dict[str, str]:
    cells = by_key(stored)
    note = (
        f"Means over {len(finished_tables(cells))} tables with five splits each. In brackets, against {BASELINE}: by "
        "how much the rate is lower (+ is better), tables won-lost, and the p-value of Wilcoxon's test over tables, "
        "corrected for the number of losses (Holm)."
    )
    return {"low FPR": "\n\n".join([note, losses_table(cells), tables_table(cells)])}


def main(arguments: list[str] | None = None) -> None:
    cells = by_key(write_section(__doc__, arguments, RESULTS, collect, parts_of_page))
    panel = {f"TPR {tpr}": rates(cells, tpr) for tpr in TPR}
    draw_losses({f"mean of {len(finished_tables(cells))} tables": panel}, PICTURE, "FPR (lower is better)", columns=1)


if __name__ == "__main__":
    main()
