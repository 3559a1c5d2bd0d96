"""The oracles: every metric and step by its textbook definition, and every metric in exact fractions.

This is the one place where a new metric or step is told to the tests: a metric in ``naive_metric`` (and in ``SQUARED``
with an exact key if it has a root), a step in ``EVERY_STEP`` and ``naive_step``. Nothing of the library's arithmetic
goes into them.
"""

import math
from fractions import Fraction
from typing import NamedTuple

import torch

from metricfit import metrics, steps

PARAMETERISED = {
    "fbeta": [metrics.fbeta(beta=2), metrics.fbeta(beta=0.5)],
    "tversky": [metrics.tversky(0.3, 0.7)],
    "cost": [metrics.cost(fp=1, fn=10)],
    "cost_matrix": [metrics.cost_matrix([[0, 1], [10, 0]])],
    "weighted_kappa": [metrics.weighted_kappa(power=1), metrics.weighted_kappa(power=2)],
}
EVERY_METRIC = [
    each for name in metrics.names() for each in PARAMETERISED.get(name) or [metrics.get_metric(name)]
]  # a new metric with parameters fails here until it is given some


def annealed(fraction=0.3):
    step = steps.Annealed(steps.Identity(), steps.Sigmoid(k=20))
    step.advance(fraction)
    return step


CLOSED_FORM = {
    "linear": lambda: steps.Linear(0.1),
    "sigmoid": lambda: steps.Sigmoid(k=10),
    "identity": steps.Identity,
    "raised_cosine": lambda: steps.RaisedCosine(width=0.3),
}
SMOOTH = CLOSED_FORM | {"annealed": annealed}
EVERY_STEP = SMOOTH | {"straight_through": lambda: steps.StraightThrough(steps.Sigmoid(k=5))}


def naive_step(step, p, t):
    """The step's formula as the papers print it."""
    if isinstance(step, steps.Annealed):
        a = float(step.a)
        return (1 - a) * naive_step(step.start, p, t) + a * naive_step(step.end, p, t)
    if isinstance(step, steps.StraightThrough):
        return (p >= t).to(p.dtype)
    if isinstance(step, steps.Identity):
        return p
    if isinstance(step, steps.Sigmoid):
        return 1 / (1 + torch.exp(-step.k * (p - t)))
    if isinstance(step, steps.RaisedCosine):
        u = (p - t) / step.width
        inside = (1 + u + torch.sin(math.pi * u) / math.pi) / 2
        return torch.where(u < -1, 0.0, torch.where(u > 1, 1.0, inside))
    t = torch.as_tensor(t, dtype=p.dtype, device=p.device)
    nearest = torch.minimum(t, 1 - t)
    a, b = t - nearest / 2, t + nearest / 2
    lower, middle = step.delta * p / a, 0.5 + (1 - 2 * step.delta) * (p - t) / nearest
    upper = 1 - step.delta * (1 - p) / (1 - b)
    return torch.where(p <= a, lower, torch.where(p <= b, middle, upper))


def naive_counts(logits, target, weight, step, t):
    """tp, fp, fn and tn over the last axis, as four plain sums."""
    weight = torch.ones_like(target) if weight is None else weight
    h = naive_step(step, 1 / (1 + torch.exp(-logits)), t)
    masses = target * h, (1 - target) * h, target * (1 - h), (1 - target) * (1 - h)
    return torch.stack([(weight * mass).sum(-1) for mass in masses])


def _over(a, b):
    return a / b if b else 0.0 * a


def naive_metric(metric, tp, fp, fn, tn):
    """The textbook definition from rates, 0/0 = 0; for Python numbers and for 0-d tensors."""
    given, n = metric.parameters, tp + fp + fn + tn
    p, r, s, v = _over(tp, tp + fp), _over(tp, tp + fn), _over(tn, tn + fp), _over(tn, tn + fn)

    def fbeta(beta):
        return _over((1 + beta**2) * p * r, beta**2 * p + r)

    def harmonic(*rates):
        return len(rates) / sum(1 / rate for rate in rates) if all(rates) else 0.0 * n

    def kappa():
        chance = _over((tp + fp) * (tp + fn) + (fn + tn) * (fp + tn), n * n)
        return _over(_over(tp + tn, n) - chance, 1 - chance)

    spread = ((tp + fp) * (tp + fn) * (tn + fp) * (tn + fn)) ** 0.5
    values = {
        "fbeta": lambda: fbeta(given["beta"]),
        "f1": lambda: harmonic(p, r),
        "tversky": lambda: _over(tp, tp + given["alpha"] * fp + given["beta"] * fn),
        "jaccard": lambda: _over(tp, n - tn),
        "accuracy": lambda: 1 - _over(fp + fn, n),
        "precision": lambda: p,
        "recall": lambda: r,
        "specificity": lambda: s,
        "fpr": lambda: _over(fp, fp + tn),
        "fnr": lambda: _over(fn, fn + tp),
        "npv": lambda: v,
        "selection_rate": lambda: _over(tp + fp, n),
        "gmean": lambda: (r * s) ** 0.5,
        "balanced_accuracy": lambda: _over(r + s, bool(tp + fn) + bool(fp + tn)),
        "mcc": lambda: _over(tp * tn - fp * fn, spread),
        "kappa": kappa,
        "informedness": lambda: r + s - 1 if tp + fn and fp + tn else 0.0 * n,
        "markedness": lambda: p + v - 1 if tp + fp and fn + tn else 0.0 * n,
        "fowlkes_mallows": lambda: (p * r) ** 0.5,
        "p4": lambda: harmonic(p, r, s, v),
        "cost": lambda: _over(given["fp"] * fp + given["fn"] * fn, n),
        "cost_matrix": lambda: _over(given["costs"][0][1] * fp + given["costs"][1][0] * fn, n),
        "weighted_kappa": kappa,
    }
    return values[metric.base_name]()


def naive_loss(metric, logits, target, weight, step, t=0.5):
    metric = metrics.get_metric(metric)
    value = naive_metric(metric, *naive_counts(logits, target, weight, step, t))
    return value if metric.minimize else 1 - value


def naive_gradient(metric, logits, target, weight, step, t=0.5):
    """The gradient of ``naive_loss`` with respect to the logits, by autograd in float64."""
    x = logits.detach().double().requires_grad_()
    y, w = target.detach().double(), None if weight is None else weight.detach().double()
    return torch.autograd.grad(naive_loss(metric, x, y, w, step, t), x)[0]


INSTANCES = {
    "fbeta": "fbeta(beta=2)",
    "tversky": "tversky(alpha=0.25, beta=0.75)",
    "cost": "cost(fp=1, fn=10)",
    "cost_matrix": "cost_matrix(costs=[[0, 1], [10, 0]])",
    "weighted_kappa": "weighted_kappa(power=2)",
}
MINIMIZED = {name for name in metrics.names() if metrics.get_metric(INSTANCES.get(name, name)).minimize}
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


class _Exact(dict):
    """Metrics in exact fractions; one that is not here is taken from its textbook definition, without roots."""

    def __missing__(self, name):
        metric = metrics.get_metric(INSTANCES.get(name, name))
        return lambda table: naive_metric(metric, *table)


EXACT = _Exact(
    {
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
)
EXACT |= {"cost_matrix": EXACT["cost"], "weighted_kappa": EXACT["kappa"]}


def value(name, key):
    """The metric's value from its exact key."""
    return math.copysign(math.sqrt(abs(key)), key) if name in SQUARED else float(key)
