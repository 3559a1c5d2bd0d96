"""What sections of docs/evidence/losses.md share: comparisons with a baseline, and a picture of losses by decisions."""

from __future__ import annotations

import argparse
import json
import statistics
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import matplotlib
import numpy as np
from numpy.typing import NDArray
from scipy.stats import wilcoxon

from metricfit.stats import holm
from studies.common import DOCS, fill

matplotlib.use("Agg")
import matplotlib.pyplot as plt

PAGE = DOCS / "evidence" / "losses.md"
#: Of each loss the mean values on the problems, in one order.
Values = Mapping[str, Sequence[float]]


def against(values: Values, baseline: str) -> dict[str, str]:
    """For each other loss: the mean difference to the baseline, problems won and lost, and p after Holm's correction.

    The test is Wilcoxon's signed-rank test over problems, each with the mean of its seeds.
    """
    texts = {}
    for loss, p in corrected_p(values, baseline).items():
        d = _differences(values, baseline, loss)
        won, lost = int((d > 0).sum()), int((d < 0).sum())
        texts[loss] = f"{statistics.fmean(d):+.3f}; {won}-{lost}, p = {p:.2g}"
    return texts


def corrected_p(values: Values, baseline: str) -> dict[str, float]:
    """For each other loss: the p-value of Wilcoxon's test against the baseline, after Holm's correction."""
    others = [loss for loss in values if loss != baseline]
    differences = [_differences(values, baseline, loss) for loss in others]
    p_values = [float(wilcoxon(d).pvalue) if np.any(d) else 1.0 for d in differences]
    return {loss: float(p) for loss, p in zip(others, holm(p_values), strict=True)}


def _differences(values: Values, baseline: str, loss: str) -> NDArray[np.float64]:
    return np.subtract(values[loss], values[baseline]).round(9)


def draw_losses(panels: Mapping[str, Mapping[str, Values]], path: Path, ylabel: str, columns: int) -> None:
    """One panel per problem or average: the mean of each loss, one mark per decision."""
    rows = -(-len(panels) // columns)
    figure, axes = plt.subplots(rows, columns, figsize=(9.6, 3.3 * rows + 0.5), layout="constrained", squeeze=False)
    marks = ("o", "D", "s", "^", "v")
    for axis, (title, by_decision) in zip(axes.flat, panels.items(), strict=True):
        for place, (decision, values) in enumerate(by_decision.items()):
            means = [statistics.fmean(each) for each in values.values()]
            face = "white" if place == 0 else f"C{place - 1}"
            edge = "0.3" if place == 0 else f"C{place - 1}"
            spread = 0.12 * (place - (len(by_decision) - 1) / 2)
            at = np.arange(len(means)) + spread
            axis.plot(at, means, marks[place], mfc=face, mec=edge, markersize=7, label=decision)
        names = list(next(iter(by_decision.values())))
        axis.set_xticks(range(len(names)), names, rotation=35, ha="right")
        axis.set_title(title, fontsize=11)
        axis.grid(axis="y", color="0.9")
        axis.set_axisbelow(True)
        axis.spines[["top", "right"]].set_visible(False)
    for axis in axes[:, 0]:
        axis.set_ylabel(ylabel)
    figure.legend(*axes[0, 0].get_legend_handles_labels(), frameon=False, ncols=5, loc="outside lower center")
    with matplotlib.rc_context({"svg.hashsalt": "metricfit"}):
        figure.savefig(path, metadata={"Date": None})
    plt.close(figure)


def read_lines(files: Sequence[Path]) -> list[dict[str, Any]]:
    """The cells of files of JSON lines."""
    return [json.loads(line) for file in files for line in file.read_text(encoding="utf-8").splitlines()]


def write_lines(path: Path, cells: Sequence[Mapping[str, Any]]) -> None:
    """A JSON list with one cell per line."""
    lines = ",\n".join(json.dumps(cell, separators=(",", ":")) for cell in cells)
    path.write_text(f"[{lines}]\n", encoding="utf-8")


def write_section(
    doc: str | None,
    arguments: list[str] | None,
    results: Path,
    collect: Callable[[list[dict[str, Any]]], list[dict[str, Any]]],
    parts_of_page: Callable[[list[dict[str, Any]]], dict[str, str]],
) -> list[dict[str, Any]]:
    """Read the options of a page's script, collect new cells if there are any, and write the section of the page.

    Returns:
        The stored cells.
    """
    parser = argparse.ArgumentParser(description=doc, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--cells", type=Path, nargs="*", help="files of finished cells: collect them")
    options = parser.parse_args(arguments)
    if options.cells:
        write_lines(results, collect(read_lines(options.cells)))
    stored: list[dict[str, Any]] = json.loads(results.read_text(encoding="utf-8"))
    PAGE.write_text(fill(PAGE.read_text(encoding="utf-8"), parts_of_page(stored)), encoding="utf-8")
    return stored
