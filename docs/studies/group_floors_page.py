"""The tables and the picture of the study of group floors, from its results."""

from __future__ import annotations

import statistics
from pathlib import Path
from typing import Any

from common import DOCS, fill, table

RESULTS = Path(__file__).resolve().parent / "results" / "group_floors.json"
PAGE = "group-floors.md"
GROUPINGS = {"sex": ("Female", "Male"), "race": ("White", "Black", "other")}
PROBLEMS = ("floor", "parity")
FLOOR, GAP = 0.85, 0.05
#: The rows of the picture, with colour and height.
SHOWN = (("train", "#9a9a9a", 0.2), ("validation", "#d98c00", 0.0), ("test", "#1f5f99", -0.2))
TRAINED = (
    "training counts, last epoch",
    "training counts, mu = 1",
    "held-out counts, mu = 1",
    "training counts, mu = 5",
    "held-out counts, mu = 5",
    "held-out counts, mu = 5, then thresholds per group",
)
METHODS = {
    "floor": ("cross-entropy at 0.5", "one threshold", "thresholds per group", *TRAINED),
    "parity": (
        "cross-entropy at 0.5",
        "thresholds per group",
        "fairlearn ThresholdOptimizer",
        "fairlearn ExponentiatedGradient",
        *TRAINED,
    ),
}


def cells_of(results: dict[str, Any], size: str, grouping: str, problem: str, method: str) -> list[dict[str, Any]]:
    cells = [cell[problem].get(method) for cell in results[size][grouping].values()]
    return [cell for cell in cells if cell is not None and "error" not in cell]


def worst(problem: str, cell: dict[str, Any], rows: str = "test") -> float:
    """The lowest recall of a group, or the gap between the groups."""
    recalls = cell[rows]["recalls"]
    return min(recalls) if problem == "floor" else max(recalls) - min(recalls)


def holds(problem: str, value: float) -> bool:
    return value >= FLOOR if problem == "floor" else value <= GAP


def method_table(results: dict[str, Any], problem: str, grouping: str) -> str:
    """For each size and method: the requirement on validation and test rows, how often it holds, and accuracy."""
    what = "lowest recall of a group" if problem == "floor" else "gap between recalls"
    rows = []
    for size in results:
        for method in METHODS[problem]:
            cells = cells_of(results, size, grouping, problem, method)
            if not cells:
                continue
            values = [worst(problem, cell) for cell in cells]
            groups = zip(*(cell["test"]["recalls"] for cell in cells), strict=True)
            rows.append(
                [
                    f"{int(size):,}",
                    method,
                    f"{statistics.fmean(worst(problem, cell, 'train') for cell in cells):.3f}",
                    f"{statistics.fmean(worst(problem, cell, 'validation') for cell in cells):.3f}",
                    f"**{statistics.fmean(values):.3f}**",
                    f"{sum(holds(problem, value) for value in values)} of {len(values)}",
                    ", ".join(f"{statistics.fmean(group):.3f}" for group in groups),
                    f"{statistics.fmean(cell['test']['accuracy'] for cell in cells):.3f}",
                    f"{statistics.fmean(cell['test']['precision'] for cell in cells):.3f}",
                ]
            )
    recalls = f"test recalls ({', '.join(GROUPINGS[grouping])})"
    head = ["rows", "method", f"{what}: train", "validation", "test", "holds on test", recalls, "accuracy", "precision"]
    return table(head, rows)


def draw(results: dict[str, Any], out: Path) -> None:
    import matplotlib.pyplot as plt

    size, grouping = next(iter(results)), "race" if "race" in next(iter(results.values())) else "sex"
    figure, axes = plt.subplots(1, 2, figsize=(11, 4.2))
    for axis, problem in zip(axes, PROBLEMS, strict=True):
        methods = METHODS[problem]
        for place, method in enumerate(methods):
            cells = cells_of(results, size, grouping, problem, method)
            for rows, colour, shift in (
                ("train", "#9a9a9a", 0.2),
                ("validation", "#d98c00", 0.0),
                ("test", "#1f5f99", -0.2),
            ):
                values = [worst(problem, cell, rows) for cell in cells]
                label = rows if place == 0 else None
                axis.scatter(values, [place + shift] * len(values), s=14, color=colour, alpha=0.7, label=label)
        axis.axvline(FLOOR if problem == "floor" else GAP, color="black", linewidth=0.8)
        axis.set_yticks(range(len(methods)), methods)
        axis.invert_yaxis()
        axis.set_xlabel("lowest recall of a group" if problem == "floor" else "largest gap between recalls of groups")
    axes[0].legend(loc="lower left", fontsize=8)
    figure.tight_layout()
    figure.savefig(out / "img" / "group-floors.svg", metadata={"Date": None})
    plt.close(figure)


def write_page(results: dict[str, Any], out: Path) -> None:
    import matplotlib

    matplotlib.use("agg")
    matplotlib.rcParams.update({"svg.hashsalt": "metricfit", "axes.spines.top": False, "axes.spines.right": False})
    (out / "img").mkdir(parents=True, exist_ok=True)
    draw(results, out)
    parts = {
        f"{problem} {grouping}": method_table(results, problem, grouping)
        for problem in PROBLEMS
        for grouping in GROUPINGS
    }
    (out / PAGE).write_text(fill((DOCS / PAGE).read_text(encoding="utf-8"), parts), encoding="utf-8")
