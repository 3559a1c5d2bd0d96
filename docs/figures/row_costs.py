"""Draw decisions by the cost of each row: docs/img/costs-per-row.svg."""

from __future__ import annotations

import numpy as np
import pandas as pd
from page import BLUE, GREY, ORANGE, RED, plt, save
from sklearn.linear_model import LogisticRegression

from metricfit import TunedDecisionClassifier

FALSE_ALARM = 5


def main() -> None:
    X, y = payments(6000)
    new, labels = payments(20000, seed=1)
    model = TunedDecisionClassifier(LogisticRegression(), f"cost(fp={FALSE_ALARM}, fn='amount')", random_state=0)
    model.fit(X, y)
    figure, (left, right) = plt.subplots(1, 2, figsize=(9.6, 3.8))
    shown = slice(0, 900)
    p, fraud = model.predict_proba(new)[:, 1], labels == 1
    for kind, colour, name in ((~fraud, BLUE, "good"), (fraud, ORANGE, "fraud")):
        part = kind[shown]
        left.plot(new["amount"][shown][part], p[shown][part], ".", color=colour, markersize=4, label=name)
    amounts = np.geomspace(1, 3000, 200)
    left.plot(amounts, FALSE_ALARM / (FALSE_ALARM + amounts), color=RED)
    left.annotate("flagged", (250, 0.35), color=RED)
    left.set(xscale="log", yscale="log", xlabel="amount", ylabel="probability of fraud", ylim=(0.003, 1.2))
    left.set_title("each row has its own threshold")
    left.legend(loc="lower left", markerscale=3, frameon=True)

    def cost(called: np.ndarray) -> float:
        return float(np.where(fraud, ~called * new["amount"], called * FALSE_ALARM).mean())

    thresholds = np.geomspace(0.005, 1, 200)
    right.plot(
        thresholds, [cost(p >= threshold) for threshold in thresholds], color=GREY, label="one threshold for all"
    )
    right.axhline(cost(model.predict(new) == 1), color=RED, label="each row by its own costs")
    right.set(xscale="log", xlabel="threshold", ylabel="cost per row", ylim=(0, None))
    right.set_title("on new rows")
    right.legend(loc="lower left")
    save(figure, "costs-per-row")


def payments(rows: int, seed: int = 0) -> tuple[pd.DataFrame, np.ndarray]:
    """Draw payments with an amount, some of them frauds."""
    rng = np.random.default_rng(seed)
    table = pd.DataFrame(rng.normal(size=(rows, 3)), columns=["distance", "hour", "age"])
    table["amount"] = np.exp(rng.normal(3.5, 1.3, rows)).round(2)
    return table, (table["distance"] + 0.5 * table["hour"] + rng.normal(size=rows) > 2.6).to_numpy().astype(int)


if __name__ == "__main__":
    main()
