"""The page and the picture of guarantees.py: docs/evidence/requirements.md and docs/img/guarantees.svg."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import matplotlib as mpl

from studies.common import fill, table
from studies.guarantees_out_of_fold import MARGIN

mpl.use("svg")

from matplotlib import pyplot as plt

DOCS = Path(__file__).resolve().parents[1] / "docs"
PAGE, PICTURE = DOCS / "evidence" / "requirements.md", DOCS / "img" / "guarantees.svg"
#: Methods in the order of the tables, with their titles and colours in the picture (those of Okabe and Ito).
METHODS = {
    "empirical": ("met on the rows, empirical", "#D55E00"),
    "plug-in": ("met on the rows, plug-in", "#E69F00"),
    "confidence 0.9": ("`confidence=0.9`", "#0072B2"),
    "MAPIE": ("MAPIE, defaults", "#CC79A7"),
    "MAPIE, sequence": ("MAPIE, sequence", "#009E73"),
}
LEVELS = (0.5, 0.8, 0.9, 0.95)
NAMES = {"adult": "Adult", "diabetes_100k": "Diabetes"}


def describe(case: dict[str, Any]) -> str:
    """A case in words."""
    population = NAMES.get(case["population"], case["population"])
    return f"{population}, {case['rows']:,} rows: {' and '.join(case['requirements'])}"


def percent(share: float) -> str:
    """A share in percent, without decimals unless it is small."""
    return f"{100 * share:.1f}" if 0 < share < 0.0995 else f"{100 * share:.0f}"


def violations(cases: list[dict[str, Any]]) -> str:
    """How often a requirement failed, and in brackets how often there was no threshold, in percent of the draws."""
    rows = []
    for case in cases:
        cells = []
        for name in METHODS:
            found = case["methods"].get(name)
            none = f" ({percent(found['none'])})" if found and found["none"] > 0.0005 else ""
            cells.append("" if found is None else f"{percent(found['violations'])}{none}")
        rows.append([describe(case), *cells])
    return table(["requirement", *(title for title, _ in METHODS.values())], rows)


def values(cases: list[dict[str, Any]]) -> str:
    """The mean of the metric in the population, where a threshold was found."""
    rows = []
    for case in cases:
        cells = [
            f"{case['methods'][name]['metric']:.3f}"
            if name in case["methods"] and case["methods"][name]["none"] < 0.5
            else "-"
            for name in METHODS
        ]
        rows.append([f"{describe(case)}; {case['metric']}", *cells])
    return table(["requirement; metric", *(title for title, _ in METHODS.values())], rows)


def out_of_fold(tables: list[dict[str, Any]]) -> str:
    """How often a requirement failed where models were trained on the rows, in percent of the draws."""
    rows = []
    for entry in tables:
        for way, found in entry["ways"].items():
            if not way.endswith(MARGIN):
                of_both = found + entry["ways"].get(way + MARGIN, [])
                rows.append([NAMES[entry["table"]], way, *(_failed(each) for each in of_both)])
    requirements = [text.split()[0] for _, text in tables[0]["cases"]] if tables else []
    head = ["table", "scores", *requirements, *(f"{name}{MARGIN}" for name in requirements)]
    return table(head, [row + [""] * (len(head) - len(row)) for row in rows])


def _failed(found: dict[str, float]) -> str:
    none = f" ({percent(found['none'])})" if found["none"] > 0.0005 else ""
    return f"{percent(found['violations'])}{none}"


def mammography(found: dict[str, Any]) -> str:
    """Recall and precision on the other halves of Mammography, and recall on all rows."""
    rows = []
    for name, way in found.items():
        other = [f"{way['recall']:.3f}", f"{way['lowest']:.3f}", f"{way['below']} of {way['halves']}"]
        of_all = [f"{way['of_all']:.3f}", f"{way['below_of_all']} of {way['halves']}"]
        rows.append([name, *other, *of_all, f"{way['precision']:.3f}"])
    head = ["threshold", "recall, other half", "lowest", "below 0.9", "recall, all rows", "below 0.9", "precision"]
    return table(head, rows)


def draw(results: dict[str, Any]) -> None:
    """Violations of each method in each case, and of ours at each confidence."""
    mpl.rcParams.update({"svg.hashsalt": "metricfit", "axes.spines.top": False, "axes.spines.right": False})
    cases = results["cases"]
    figure, (left, right) = plt.subplots(
        1, 2, figsize=(10, 0.4 * len(cases) + 1.6), width_ratios=(2, 1), facecolor="white"
    )
    for place, case in enumerate(cases):
        for name, (title, colour) in METHODS.items():
            if name in case["methods"]:
                found = case["methods"][name]
                label = title.replace("`", "") if place == 0 else None
                left.errorbar(
                    100 * found["violations"], -place, xerr=200 * found["standard_error"],
                    fmt="o", color=colour, markersize=5, linewidth=1, label=label,
                )  # fmt: skip
    left.axvline(10, color="#666666", linestyle=":", linewidth=1)
    left.set_yticks(
        [-place for place in range(len(cases))],
        [describe(case).replace(" and ", "\nand ") for case in cases],
        fontsize=8,
    )
    left.set(xlabel="draws in which a requirement failed on new rows, %", xlim=(-2, 100))
    left.legend(fontsize=8, frameon=False, loc="center right")
    for case in cases:
        shares = [100 * case["methods"][f"confidence {level:g}"]["violations"] for level in LEVELS]
        right.plot([100 * (1 - level) for level in LEVELS], shares, "o-", color="#0072B2", alpha=0.4, markersize=3)
    right.plot([0, 50], [0, 50], color="#666666", linestyle=":", linewidth=1)
    right.set(xlabel="allowed by confidence=, %", ylabel="failed, %", xlim=(0, 52), ylim=(0, 60))
    figure.tight_layout()
    figure.savefig(PICTURE, metadata={"Date": None}, bbox_inches="tight")
    plt.close(figure)
    PICTURE.write_text("\n".join(line.rstrip() for line in PICTURE.read_text().splitlines()) + "\n")


def tables(results: dict[str, Any]) -> dict[str, str]:
    """The tables of the page."""
    return {
        "violations": violations(results["cases"]),
        "values": values(results["cases"]),
        "out of fold": out_of_fold(results["cross_validated"]),
        "mammography": mammography(results["mammography"]),
    }


def write_page(results: dict[str, Any]) -> None:
    """Fill in the tables and draw the picture."""
    PAGE.write_text(fill(PAGE.read_text(encoding="utf-8"), tables(results)), encoding="utf-8")
    draw(results)
