"""The tables and the picture of the study of group floors, from its results."""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from studies import common
from studies.common import table

RESULTS = Path(__file__).resolve().parent / "results" / "group_floors.json"
PAGE = "evidence/requirements.md"
GROUPINGS = {"sex": ("Female", "Male"), "race": ("White", "Black", "other")}
PROBLEMS = ("floor", "parity")
FLOOR, GAP = 0.85, 0.05
#: The rows of the picture, with colour and height.
SHOWN = (("train", "#9a9a9a", 0.2), ("validation", "#d98c00", 0.0), ("test", "#1f5f99", -0.2))
TRAINED = ("training counts", "held-out counts")
VARIANTS = (
    "training counts, no validation rows",
    "training counts",
    "held-out counts",
    "training counts, batches of 1,024",
    "held-out counts, batches of 1,024",
    "training counts, batches of 1,024, mu = 5",
    "held-out counts, batches of 1,024, mu = 5",
)
#: Methods that are compared over all cells.
PAIRS = (
    ("floor", "held-out counts", "training counts"),
    ("parity", "held-out counts", "training counts"),
    ("floor", "training counts", "thresholds per group"),
    ("parity", "training counts", "thresholds per group"),
    ("floor", "training counts", "training counts, no validation rows"),
    ("floor", "held-out counts, batches of 1,024", "training counts, batches of 1,024"),
    ("parity", "held-out counts, batches of 1,024", "training counts, batches of 1,024"),
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


def with_variants(results: dict[str, Any]) -> dict[str, Any]:
    """Return the splits in which the variants were measured too, without sizes that have none."""
    kept: dict[str, Any] = {}
    for size, groupings in results.items():
        for grouping, cells in groupings.items():
            complete = {split: cell for split, cell in cells.items() if VARIANTS[0] in cell["floor"]}
            if complete:
                kept.setdefault(size, {})[grouping] = complete
    return kept


def worst(problem: str, cell: dict[str, Any], rows: str = "test") -> float:
    """The lowest recall of a group, or the gap between the groups."""
    recalls = cell[rows]["recalls"]
    return min(recalls) if problem == "floor" else max(recalls) - min(recalls)


def holds(problem: str, value: float) -> bool:
    return value >= FLOOR if problem == "floor" else value <= GAP


def method_table(results: dict[str, Any], problem: str, grouping: str, methods: Sequence[str]) -> str:
    """For each size and method: the requirement on each part of the rows, how often it holds, and accuracy."""
    what = "lowest recall of a group" if problem == "floor" else "gap between recalls"
    rows = []
    for size in results:
        for method in methods:
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
                ]
            )
    recalls = f"test recalls ({', '.join(GROUPINGS[grouping])})"
    head = ["rows", "method", f"{what}: train", "validation", "test", "holds on test", recalls, "accuracy"]
    return table(head, rows)


def pairs_table(results: dict[str, Any]) -> str:
    """Two methods on the same cells of all sizes and groupings: the requirement, who is nearer to it, and accuracy."""
    rows = []
    all_cells = [cell for size in results.values() for splits in size.values() for cell in splits.values()]
    for problem, first, second in PAIRS:
        cells = [cell[problem] for cell in all_cells]
        pairs = [(cell[first], cell[second]) for cell in cells if first in cell and second in cell]
        pairs = [pair for pair in pairs if not any("error" in cell for cell in pair)]
        if not pairs:
            continue
        values = [[worst(problem, cell) for cell in pair] for pair in pairs]
        sign = 1 if problem == "floor" else -1
        wins, losses = (sum(sign * side * (a - b) > 0 for a, b in values) for side in (1, -1))
        accuracy = [pair[0]["test"]["accuracy"] - pair[1]["test"]["accuracy"] for pair in pairs]
        held = (sum(holds(problem, value[side]) for value in values) for side in (0, 1))
        means = (statistics.fmean(value[side] for value in values) for side in (0, 1))
        rows.append(
            [
                problem,
                f"{first} / {second}",
                len(pairs),
                " / ".join(f"{mean:.3f}" for mean in means),
                f"{wins}-{losses}",
                " / ".join(map(str, held)),
                f"{statistics.fmean(accuracy):+.3f}; {sum(a > 0 for a in accuracy)}-{sum(a < 0 for a in accuracy)}",
            ]
        )
    head = ["requirement", "methods", "cells", "lowest recall or gap on test", "nearer", "holds on test", "accuracy"]
    return table(head, rows)


def draw(results: dict[str, Any], out: Path) -> None:
    import matplotlib.pyplot as plt

    size = "10000" if "10000" in results else next(iter(results))
    grouping = next(iter(results[size]))
    figure, axes = plt.subplots(1, 2, figsize=(11, 4.2))
    for axis, problem in zip(axes, PROBLEMS, strict=True):
        methods = METHODS[problem]
        for place, method in enumerate(methods):
            cells = cells_of(results, size, grouping, problem, method)
            for rows, colour, shift in SHOWN:
                values = [worst(problem, cell, rows) for cell in cells]
                label = rows if place == 0 else None
                axis.scatter(values, [place + shift] * len(values), s=14, color=colour, alpha=0.7, label=label)
        axis.axvline(FLOOR if problem == "floor" else GAP, color="black", linewidth=0.8)
        axis.set_yticks(range(len(methods)), methods)
        axis.invert_yaxis()
        axis.set_xlabel("lowest recall of a group" if problem == "floor" else "largest gap between recalls of groups")
    axes[0].legend(loc="lower left", fontsize=8)
    figure.tight_layout()
    figure.savefig(out / "docs" / "img" / "group-floors.svg", metadata={"Date": None})
    plt.close(figure)


def write_page(results: dict[str, Any], out: Path) -> None:
    import matplotlib

    matplotlib.use("agg")
    matplotlib.rcParams.update({"svg.hashsalt": "metricfit", "axes.spines.top": False, "axes.spines.right": False})
    (out / "docs" / "img").mkdir(parents=True, exist_ok=True)
    draw(results, out)
    parts, some = {}, with_variants(results)
    for problem in PROBLEMS:
        for grouping in GROUPINGS:
            parts[f"{problem} {grouping}"] = method_table(results, problem, grouping, METHODS[problem])
            parts[f"{problem} variants {grouping}"] = method_table(some, problem, grouping, VARIANTS)
    parts["pairs"] = pairs_table(results)
    common.write_page(out, PAGE, parts)
