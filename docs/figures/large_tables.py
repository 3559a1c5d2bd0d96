"""Draw the peak memory of fit, predict and evaluate on large tables: docs/img/large-tables.svg."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
from page import BLUE, GREEN, ORANGE, plt, save

RESULTS = Path(__file__).resolve().parents[2] / "studies" / "results" / "many_rows.json"


def main() -> None:
    results = sorted(json.loads(RESULTS.read_text()).items(), key=lambda item: int(item[0]))
    figure, axes = plt.subplots(figsize=(7.2, 2.6))
    places = np.arange(len(results), dtype=float)
    for number, (step, colour) in enumerate((("fit", BLUE), ("predict", ORANGE), ("evaluate", GREEN))):
        heights = [found[step]["peak_gib"] if step in found else 0 for _, found in results]
        bars = axes.bar(places + 0.27 * (number - 1), heights, 0.25, color=colour, label=step)
        axes.bar_label(bars, [f"{height:.1f}" if height else "" for height in heights], fontsize=8)
    axes.set_xticks(places, [f"{int(rows):,} rows" for rows, _ in results])
    axes.set(ylabel="peak memory in GiB")
    axes.legend(fontsize=8)
    save(figure, "large-tables")


if __name__ == "__main__":
    main()
