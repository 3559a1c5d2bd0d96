"""Draw what importance and worst find in a table with known answers: docs/img/columns-and-rows.svg."""

from __future__ import annotations

import numpy as np
import pandas as pd
from page import BLUE, GREY, ORANGE, RED, plt, save

from metricfit import MetricClassifier

FLIPPED = 20


def make_table(rows: int, seed: int) -> tuple[pd.DataFrame, np.ndarray]:
    rng = np.random.default_rng(seed)
    income = rng.normal(size=rows)
    table = pd.DataFrame({"income": income, "income_eur": income * 0.92 + 0.05 * rng.normal(size=rows)})
    table["debt"], table["age"] = rng.normal(size=(2, rows))
    table["id"] = rng.permutation(rows)
    late = 1.5 * table["debt"] - 1.5 * income + 0.4 * table["age"] + rng.logistic(size=rows) > 1.5
    return table, late.to_numpy()


def main() -> None:
    table, late = make_table(600, seed=0)
    new_table, new_late = make_table(5000, seed=1)
    model = MetricClassifier("f1", models=["extra_trees"], random_state=0).fit(table, late)
    results = {
        "rows of training, by the whole model": model.importance(table, late),
        "rows of training, out of fold": model.importance(table, late, out_of_fold=True),
        "new rows": model.importance(new_table, new_late),
    }
    figure, (left, right) = plt.subplots(1, 2, figsize=(9.6, 3.8))
    names = list(table.columns)
    for place, ((label, result), colour) in enumerate(zip(results.items(), (GREY, BLUE, ORANGE), strict=True)):
        rows = result.table.set_index("column").loc[names]
        y = np.arange(len(names)) + 0.25 * (place - 1)
        spread = np.abs(rows[["low", "high"]].to_numpy().T - rows["importance"].to_numpy())
        left.barh(y, rows["importance"], 0.22, color=colour, label=label, xerr=spread, ecolor="#666666")
    left.axvline(0, color=GREY, linewidth=0.8)
    left.set(yticks=range(len(names)), yticklabels=names, xlabel="loss of F1 if the column is shuffled")
    left.invert_yaxis()
    left.legend(loc="lower right", fontsize=8)

    flipped = np.random.default_rng(2).choice(600, FLIPPED, replace=False)
    labels = late.copy()
    labels[flipped] = ~labels[flipped]
    model = MetricClassifier("f1", random_state=0, models=["linear", "boosting_small"]).fit(table, labels)
    order = model.worst(table, labels, n=600, out_of_fold=True).numbers
    found = np.cumsum(np.isin(order, flipped))
    right.plot(np.arange(1, 601), found, color=RED, label="worst rows first")
    right.plot([0, 600], [0, FLIPPED], color=GREY, linestyle="--", label="rows at random")
    right.set(xlim=(0, 200), ylim=(0, FLIPPED), xlabel="rows looked at", ylabel=f"of {FLIPPED} wrong labels, found")
    right.legend(loc="lower right")
    save(figure, "columns-and-rows")


if __name__ == "__main__":
    main()
