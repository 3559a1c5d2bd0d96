"""Draw the curve of every threshold of a TunedDecisionClassifier: docs/img/any-model.svg."""

from __future__ import annotations

from page import BLUE, GREEN, GREY, ORANGE, RED, plt, save
from sklearn.datasets import make_classification
from sklearn.ensemble import HistGradientBoostingClassifier

from metricfit import TunedDecisionClassifier

RECALL = 0.7


def main() -> None:
    X, y = make_classification(6000, 12, n_informative=4, weights=[0.93], flip_y=0.01, class_sep=0.7, random_state=0)
    trees = HistGradientBoostingClassifier(max_iter=60, random_state=0)
    model = TunedDecisionClassifier(trees, "f1", random_state=0).fit(X, y)
    figure, (left, right) = plt.subplots(1, 2, figsize=(9.6, 3.8))
    curve = model.curve_
    left.plot(curve.threshold[1:], curve.value[1:], color=BLUE, label="F1")
    left.plot(curve.threshold[1:], curve.value_of("mcc")[1:], color=ORANGE, label="MCC")
    left.axvline(model.threshold_, color=RED, linewidth=1.2)
    left.axvspan(*model.threshold_interval_, color=RED, alpha=0.12, linewidth=0)
    left.annotate("threshold_", (model.threshold_, 0.05), xytext=(6, 0), textcoords="offset points", color=RED)
    left.set(xlabel="threshold", ylabel="value on held-out rows", ylim=(0, 1), xlim=(0, 1), title="curve_")
    left.legend(loc="upper right")
    right.plot(curve.recall[1:], curve.precision[1:], color=BLUE)
    model.rethreshold(metric="precision", subject_to=f"recall >= {RECALL}")
    place = int((curve.threshold >= model.threshold_).sum()) - 1
    right.axvspan(RECALL, 1, color=GREEN, alpha=0.12, linewidth=0)
    right.plot(curve.recall[place], curve.precision[place], "o", color=RED)
    right.annotate(
        f"best precision with\nrecall >= {RECALL}",
        (curve.recall[place], curve.precision[place]),
        xytext=(-6, -42),
        textcoords="offset points",
        color=GREY,
        ha="right",
    )
    right.set(xlabel="recall", ylabel="precision", xlim=(0, 1), ylim=(0, 1), title="rethreshold(subject_to=...)")
    save(figure, "any-model")


if __name__ == "__main__":
    main()
