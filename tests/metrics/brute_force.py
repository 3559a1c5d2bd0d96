"""The oracle of this folder: every metric in exact fractions, at every threshold, one sample at a time."""

import math
from fractions import Fraction
from typing import NamedTuple

INSTANCES = {
    "fbeta": "fbeta(beta=2)",
    "tversky": "tversky(alpha=0.25, beta=0.75)",
    "cost": "cost(fp=1, fn=10)",
    "cost_matrix": "cost_matrix(costs=[[0, 1], [10, 0]])",
    "weighted_kappa": "weighted_kappa(power=2)",
}
MINIMIZED = {"fpr", "fnr", "selection_rate", "cost", "cost_matrix"}
SQUARED = {"gmean", "mcc", "fowlkes_mallows"}  # their exact keys are signed squares of the values


class Table(NamedTuple):
    tp: Fraction
    fp: Fraction
    fn: Fraction
    tn: Fraction


def over(a, b):
    return Fraction(0) if b == 0 else Fraction(a) / b


def signed_square(a, b_squared):
    return over(a * abs(a), b_squared)


EXACT = {
    "fbeta": lambda t: over(5 * t.tp, 5 * t.tp + 4 * t.fn + t.fp),
    "f1": lambda t: over(2 * t.tp, 2 * t.tp + t.fn + t.fp),
    "tversky": lambda t: over(4 * t.tp, 4 * t.tp + t.fp + 3 * t.fn),
    "jaccard": lambda t: over(t.tp, t.tp + t.fp + t.fn),
    "accuracy": lambda t: over(t.tp + t.tn, sum(t)),
    "precision": lambda t: over(t.tp, t.tp + t.fp),
    "recall": lambda t: over(t.tp, t.tp + t.fn),
    "specificity": lambda t: over(t.tn, t.tn + t.fp),
    "fpr": lambda t: over(t.fp, t.tn + t.fp),
    "fnr": lambda t: over(t.fn, t.tp + t.fn),
    "npv": lambda t: over(t.tn, t.tn + t.fn),
    "selection_rate": lambda t: over(t.tp + t.fp, sum(t)),
    "gmean": lambda t: over(t.tp, t.tp + t.fn) * over(t.tn, t.tn + t.fp),
    "balanced_accuracy": lambda t: over(
        over(t.tp, t.tp + t.fn) + over(t.tn, t.tn + t.fp), (t.tp + t.fn > 0) + (t.tn + t.fp > 0)
    ),
    "mcc": lambda t: signed_square(
        t.tp * t.tn - t.fp * t.fn, (t.tp + t.fp) * (t.tp + t.fn) * (t.tn + t.fp) * (t.tn + t.fn)
    ),
    "kappa": lambda t: over(
        2 * (t.tp * t.tn - t.fp * t.fn), (t.tp + t.fp) * (t.fp + t.tn) + (t.tp + t.fn) * (t.fn + t.tn)
    ),
    "informedness": lambda t: over(t.tp * t.tn - t.fp * t.fn, (t.tp + t.fn) * (t.fp + t.tn)),
    "markedness": lambda t: over(t.tp * t.tn - t.fp * t.fn, (t.tp + t.fp) * (t.fn + t.tn)),
    "fowlkes_mallows": lambda t: over(t.tp, t.tp + t.fp) * over(t.tp, t.tp + t.fn),
    "p4": lambda t: over(4 * t.tp * t.tn, 4 * t.tp * t.tn + (t.tp + t.tn) * (t.fp + t.fn)),
    "cost": lambda t: over(t.fp + 10 * t.fn, sum(t)),
}
EXACT |= {"cost_matrix": EXACT["cost"], "weighted_kappa": EXACT["kappa"]}


def value(name, key):
    """The metric's value from its exact key."""
    return math.copysign(math.sqrt(abs(key)), key) if name in SQUARED else float(key)


def tables(scores, target, weight=None):
    """(threshold, Table) at infinity and at every distinct score, falling; positive means score >= threshold."""
    weight = [1] * len(scores) if weight is None else weight
    found = []
    for threshold in [math.inf, *sorted(set(scores) - {math.inf}, reverse=True)]:
        cells = {cell: Fraction(0) for cell in Table._fields}
        for s, y, w in zip(scores, target, weight, strict=True):
            cells[("tp" if y else "fp") if s >= threshold else ("fn" if y else "tn")] += Fraction(w)
        found.append((threshold, Table(**cells)))
    return found
