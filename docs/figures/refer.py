"""Draw the region that is referred to a person, and what referring is worth: docs/img/refer.svg."""

from __future__ import annotations

import numpy as np
from page import BLUE, GREY, ORANGE, RED, plt, save
from sklearn.datasets import make_classification
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import f1_score

from metricfit import TunedDecisionClassifier

SHARE = 0.1


def main() -> None:
    X, y = make_classification(26000, 8, n_informative=4, weights=[0.9], class_sep=0.8, random_state=1)
    new, labels = X[6000:], y[6000:]
    model = TunedDecisionClassifier(LogisticRegression(), "f1", random_state=0).fit(X[:6000], y[:6000])
    p = model.predict_proba(new)[:, 1]
    figure, (left, right) = plt.subplots(1, 2, figsize=(9.6, 3.8))
    model.refer(max_share=SHARE)
    bins = np.linspace(0, 1, 41)
    for label, colour, name in ((0, BLUE, "negative"), (1, ORANGE, "positive")):
        left.hist(p[labels == label], bins, color=colour, alpha=0.6, label=name)
    left.axvspan(*model.refer_region_, color=RED, alpha=0.15, linewidth=0)
    left.axvline(model.threshold_, color=RED, linewidth=1.2)
    left.annotate("referred", (model.refer_region_[1], 2000), xytext=(6, 0), textcoords="offset points", color=RED)
    left.set(yscale="log", xlabel="probability of the positive class", ylabel="new rows")
    left.set_title(f"refer(max_share={SHARE})")
    left.legend(loc="upper right")

    shares, expected, measured = np.linspace(0, 0.3, 13), [], []
    for share in shares:
        model.refer(max_share=float(share), label=-1)
        predicted = model.predict(new)
        decided = predicted != -1
        expected.append(model.value_)
        measured.append(f1_score(labels[decided], predicted[decided]))
    right.plot(100 * shares, expected, color=GREY, linestyle="--", label="value_")
    right.plot(100 * shares, measured, color=RED, label="on new rows")
    right.set(xlabel="largest share referred, %", ylabel="F1 of the decided rows", ylim=(0, 1))
    right.set_title("what referring is worth")
    right.legend(loc="lower right")
    save(figure, "refer")


if __name__ == "__main__":
    main()
