"""Draw how long one row takes in Python and in the exported graph: docs/img/export.svg."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
from page import BLUE, ORANGE, plt, save

RESULTS = Path(__file__).resolve().parents[2] / "studies" / "results" / "onnx_export.json"
NAMES = {"auto": "default"}


def main() -> None:
    results = json.loads(RESULTS.read_text())
    results.sort(key=lambda found: found["model"]["one"])
    figure, (one, many) = plt.subplots(1, 2, figsize=(8.4, 2.9), sharey=True)
    places = np.arange(len(results), dtype=float)
    for axes, key, title in ((one, "one", "one row"), (many, "many", "1,000 rows")):
        for shift, side, colour, label in ((0.19, "model", ORANGE, "Python"), (-0.19, "graph", BLUE, "ONNX graph")):
            widths = [found[side][key] for found in results]
            bars = axes.barh(places + shift, widths, 0.36, color=colour, label=label)
            axes.bar_label(bars, [f" {width:.2g}" if width < 1 else f" {width:,.0f}" for width in widths], fontsize=8)
        axes.set_xscale("log")
        axes.set_xlim(axes.get_xlim()[0], axes.get_xlim()[1] * 3)
        axes.set(xlabel="milliseconds", title=title)
    one.set_yticks(places, [f"{found['table']}, {NAMES.get(found['models'], found['models'])}" for found in results])
    many.legend(fontsize=8, loc="upper left", bbox_to_anchor=(1.0, 1.0))
    save(figure, "export")


if __name__ == "__main__":
    main()
