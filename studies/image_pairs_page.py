"""The tables of docs/evidence/losses.md about pairs of images, from the cells that image_pairs.py writes.

python -m studies.image_pairs_page                            # from the stored results
python -m studies.image_pairs_page --cells runs/image_pairs   # collect new cells first
"""

from __future__ import annotations

import argparse
import json
import statistics
from pathlib import Path
from typing import Any

from studies.common import DOCS, fill, plain, table
from studies.image_pairs import LOSSES, PAIRS

RESULTS, PAGE = DOCS.parent / "studies" / "results" / "image_pairs.json", DOCS / "evidence" / "losses.md"
METHODS = ("cross-entropy", "trained on", "AugmentedLagrangian", "SPBM")

Cells = list[dict[str, Any]]


def collect(stored: Path) -> Cells:
    """Read finished problems, of a folder or one per line of a file, in the order of the page."""
    files = [stored] if stored.is_file() else list(stored.glob("*.json"))
    cells = [json.loads(line) for path in files for line in path.read_text(encoding="utf-8").splitlines()]
    return sorted(cells, key=lambda cell: (cell["question"], list(PAIRS).index(cell["pair"]), cell["ratio"]))


def losses_table(cells: Cells) -> str:
    """Return the values of each loss at 1:19: ranking chosen by the AUC, and F1 chosen by F1."""
    found = {cell["pair"]: cell["values"] for cell in cells if cell["question"] == "losses"}
    rows = []
    for loss in LOSSES:
        row = [loss]
        for values in found.values():
            ranked, decided = values["auroc"][loss], values["f1"][loss]
            row += [f"{ranked['auc']:.3f}", f"{ranked['fpr95']:.3f}", f"{ranked['fpr90']:.3f}"]
            row += [f"{decided['f1']:.3f}", f"{decided['f1 of one']:.3f}"]
        rows.append(row)
    columns = ("AUC", "FPR at TPR 0.95", "at 0.9", "F1 at 0.5", "F1 of one network")
    return table(["loss", *(f"{pair}: {name}" for pair in found for name in columns)], rows)


def constraints_table(cells: Cells) -> str:
    """Return the values of each way to train under the ranking constraint, for every pair and ratio."""
    kept = [cell for cell in cells if cell["question"] == "constraints"]
    rows = []
    for cell in kept:
        for method in METHODS:
            at = cell["values"][method]
            numbers = [f"{at[name]:.3f}" for name in ("auc", "fpr95", "fpr90", "auc of one")]
            p = "" if method == METHODS[0] else f"{at['p']:.2g}"
            rows.append([f"{cell['pair']}, 1:{cell['ratio']}", method, *numbers, p])
    for method in METHODS if len(kept) > 1 else ():
        means = [
            f"{statistics.fmean(cell['values'][method][name] for cell in kept):.3f}"
            for name in ("auc", "fpr95", "fpr90", "auc of one")
        ]
        rows.append([f"mean of {len(kept)}", method, *means, ""])
    head = ["images", "trained with", "AUC", "FPR at TPR 0.95", "at 0.9", "AUC of one network", "p of AUC"]
    return table(head, rows)


def parts_of_page(cells: Cells) -> dict[str, str]:
    """Return the tables of the page for the questions that were asked."""
    tables = {"losses": losses_table, "constraints": constraints_table}
    return {f"image {name}": tables[name](cells) for name in tables if any(cell["question"] == name for cell in cells)}


def main(arguments: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument(
        "--cells",
        type=Path,
        help="the folder of image_pairs.py, or a file with a cell per line; without it, only the page",
    )
    options = parser.parse_args(arguments)
    if options.cells:
        RESULTS.write_text(json.dumps(plain(collect(options.cells)), indent=1) + "\n", encoding="utf-8")
    cells = json.loads(RESULTS.read_text(encoding="utf-8"))
    PAGE.write_text(fill(PAGE.read_text(encoding="utf-8"), parts_of_page(cells)), encoding="utf-8")


if __name__ == "__main__":
    main()
