"""Draw how sure a leak is: columns with the bounds of their AUC, and the bound by rows: docs/img/doctor.svg."""

from __future__ import annotations

import numpy as np
import pandas as pd
from page import BLUE, GREY, ORANGE, RED, plt, save
from scipy.stats import norm
from sklearn.datasets import load_breast_cancer

from metricfit.tabular.doctor.column_checks import LEVEL, PERFECT, SURELY, column_aucs


def main() -> None:
    """Draw the columns of a table that comes with scikit-learn, with one that is made from the target."""
    data = load_breast_cancer(as_frame=True)
    table = data.data.iloc[:, [20, 27, 23, 0, 24, 14, 9]].assign(treated=np.where(data.target == 0, "yes", "no"))
    found = column_aucs(table, pd.Series(data.target).rename("benign"), positive=0)[::-1]
    figure, (left, right) = plt.subplots(1, 2, figsize=(9.6, 3.6))
    for place, each in enumerate(found):
        colour = RED if each.bound >= SURELY and each.auc >= 0.985 else BLUE
        left.plot([each.bound, each.auc], [place, place], color=colour)
        left.plot(each.auc, place, "o", color=colour)
    left.axvline(0.985, color=GREY, linestyle="--", linewidth=1)
    left.set_yticks(range(len(found)), [each.column for each in found])
    left.set(xlabel="AUC of the column alone, down to its lower bound", xlim=(0.4, 1.01))
    left.set_title("569 tumours; 'treated' is made from the target")
    rows = np.arange(3, 201)
    for columns, colour in ((10, BLUE), (300, ORANGE)):
        z = norm.isf(LEVEL / columns)
        right.plot(rows, rows / (rows + z * z), color=colour, label=f"{columns} columns")
    for bound, name in ((SURELY, "serious"), (PERFECT[1], "warning")):
        right.axhline(bound, color=GREY, linestyle="--", linewidth=1)
        right.annotate(name, (200, bound), xytext=(0, -12), textcoords="offset points", ha="right", color=GREY)
    right.set(xlabel="rows of the rarer class", ylabel="lower bound of the AUC", ylim=(0, 1.02))
    right.set_title("a column that decides every row")
    right.legend(loc="lower right")
    save(figure, "doctor")


if __name__ == "__main__":
    main()
