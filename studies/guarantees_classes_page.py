"""The table and the picture of guarantees_classes.py, in docs/evidence/requirements.md."""

from __future__ import annotations

from typing import Any

from studies.common import fill, table
from studies.guarantees_page import DOCS, METHODS, PAGE, percent, plt

PICTURE = DOCS / "img" / "guarantees-classes.svg"
SHOWN = ("empirical", "plug-in", "confidence 0.9")


def describe(case: dict[str, Any]) -> str:
    """A case in words."""
    return f"{case['population']}, {case['rows']:,} rows: {' and '.join(case['requirements'])}"


def violations(cases: list[dict[str, Any]]) -> str:
    """How often a requirement failed, how often nothing was found, and the metric of the rest."""
    rows = []
    for case in cases:
        cells = []
        for name in SHOWN:
            found = case["methods"][name]
            none = f" ({percent(found['none'])})" if found["none"] > 0.0005 else ""
            cells.append(f"{percent(found['violations'])}{none}")
        values = [f"{case['methods'][name]['metric']:.3f}" for name in SHOWN]
        metric = f"{case['average']} {case['metric']}"
        rows.append([describe(case), *cells, metric, *values])
    head = [METHODS[name][0] for name in SHOWN]
    return table(["requirements", *head, "metric", "empirical", "plug-in", "`confidence=0.9`"], rows)


def draw(cases: list[dict[str, Any]]) -> None:
    """Violations of each method in each case."""
    figure, axes = plt.subplots(figsize=(8, 0.45 * len(cases) + 1.3), facecolor="white")
    for place, case in enumerate(cases):
        for name in SHOWN:
            title, colour = METHODS[name]
            found = case["methods"][name]
            axes.errorbar(
                100 * found["violations"], -place, xerr=200 * found["standard_error"],
                fmt="o", color=colour, markersize=5, linewidth=1, label=title.replace("`", "") if place == 0 else None,
            )  # fmt: skip
    axes.axvline(10, color="#666666", linestyle=":", linewidth=1)
    labels = [describe(case).replace(": ", ":\n") for case in cases]
    axes.set_yticks([-place for place in range(len(cases))], labels, fontsize=8)
    axes.set(xlabel="draws in which a requirement failed on new rows, %", xlim=(-2, 100))
    axes.legend(fontsize=8, frameon=False, loc="lower right")
    for side in ("top", "right"):
        axes.spines[side].set_visible(False)
    figure.tight_layout()
    figure.savefig(PICTURE, metadata={"Date": None}, bbox_inches="tight")
    plt.close(figure)
    PICTURE.write_text("\n".join(line.rstrip() for line in PICTURE.read_text().splitlines()) + "\n")


def tables(results: dict[str, Any]) -> dict[str, str]:
    """The table of the page."""
    return {"classes": violations(results["cases"])}


def write_page(results: dict[str, Any]) -> None:
    """Fill in the table and draw the picture."""
    PAGE.write_text(fill(PAGE.read_text(encoding="utf-8"), tables(results)), encoding="utf-8")
    draw(results["cases"])
