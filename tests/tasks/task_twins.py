"""Twins for several classes: loops over samples in plain Python, and the same in plain float64 autograd.

Both follow FACTS 2 to the letter: t is the mean of the two largest probabilities, h = step(p, t) per class, divided by
its sum over the classes (0/0: the softmax). Nothing of the library's arithmetic goes into them.
"""

import math
from types import SimpleNamespace

import torch

from metricfit import metrics, steps
from oracles import naive_step

CLASSES = 4
PARAMETERISED = {
    "fbeta": [metrics.fbeta(beta=2), metrics.fbeta(beta=[0.5, 1, 2, 5])],
    "tversky": [metrics.tversky(0.3, 0.7), metrics.tversky([0.1, 0.3, 0.5, 2], 0.7)],
    "cost": [metrics.cost(fp=1, fn=10), metrics.cost(fp=[1, 2, 0, 3], fn=[10, 1, 5, 2])],
}
MATRIX_METRICS = ("cost_matrix", "weighted_kappa")  # test_matrix_of_classes has these
OF_COUNTS = [name for name in metrics.names() if name not in MATRIX_METRICS]
EVERY_METRIC = [each for name in OF_COUNTS for each in PARAMETERISED.get(name) or [metrics.get_metric(name)]]
PER_CLASS = [each for each in EVERY_METRIC if not each.whole_matrix]
TASKS = ("multiclass", "multilabel")


def is_per_class(metric):
    return any(isinstance(given, tuple) for given in metric.parameters.values())


def metric_of_class(metric, k):
    """The metric whose parameters are those of class k."""
    if not is_per_class(metric):
        return metric
    factory = getattr(metrics, metric.base_name)
    return factory(**{key: v[k] if isinstance(v, tuple) else v for key, v in metric.parameters.items()})


def make(task, n=12, c=CLASSES, *, seed=0, shape=(), dtype=torch.float64, scale=1.5):
    """Logits ``(n, c, ...)`` with a target that holds every class, and weights, one a sample."""
    generator = torch.Generator().manual_seed(seed)
    logits = torch.randn(n, c, *shape, generator=generator, dtype=torch.float64) * scale
    if task == "multiclass":
        target = torch.randint(0, c, (n, *shape), generator=generator)
        target.view(-1)[: min(c, target.numel())] = torch.arange(min(c, target.numel()))
    else:
        target = (torch.rand(n, c, *shape, generator=generator) < 0.4).long()
        target[0], target[-1] = 1, 0
    weight = torch.rand(n, *shape, generator=generator, dtype=torch.float64) + 0.5
    return SimpleNamespace(logits=logits.to(dtype), target=target, weight=weight, task=task, n=n, c=c)


# Plain Python: numbers and lists.


def python_step(step, p, t):
    return float(naive_step(step, torch.tensor(p, dtype=torch.float64), t))


def python_softmax(row):
    highest = max(row)
    powers = [math.exp(x - highest) for x in row]
    total = sum(powers)
    return [each / total for each in powers]


def python_decision_of(p, step, threshold=None):
    """The soft decision of one sample from its probabilities; for StraightThrough the argmax, first on ties."""
    if isinstance(step, steps.StraightThrough):
        return [float(k == p.index(max(p))) for k in range(len(p))]
    t = sum(sorted(p)[-2:]) / 2 if threshold is None else threshold
    h = [python_step(step, each, t) for each in p]
    total = sum(h)
    return [each / total for each in h] if total else p


def python_matrix(logits, target, weight, step, threshold=None):
    """The confusion matrix, sample by sample; ``target`` labels, or rows of class shares."""
    c = len(logits[0])
    matrix = [[0.0] * c for _ in range(c)]
    for row, true, w in zip(logits, target, weight, strict=True):
        decision = python_decision_of(python_softmax(row), step, threshold)
        shares = true if isinstance(true, list) else [float(k == true) for k in range(c)]
        for i in range(c):
            for j in range(c):
                matrix[i][j] += w * shares[i] * decision[j]
    return matrix


def counts_of_matrix(matrix):
    """tp, fp, fn, tn of each class by their definitions over the matrix's entries."""
    c = range(len(matrix))
    tp = [matrix[k][k] for k in c]
    fp = [sum(matrix[i][k] for i in c if i != k) for k in c]
    fn = [sum(matrix[k][j] for j in c if j != k) for k in c]
    tn = [sum(matrix[i][j] for i in c for j in c if i != k and j != k) for k in c]
    return tp, fp, fn, tn


def whole_matrix_value(name, tp, fp, fn, tn):
    """accuracy, balanced accuracy, Gorodkin's R_K and kappa of exclusive classes; numbers or 0-d tensors."""
    n = tp[0] + fp[0] + fn[0] + tn[0]
    positives, predicted = [a + b for a, b in zip(tp, fn, strict=True)], [a + b for a, b in zip(tp, fp, strict=True)]
    agreed, chance = sum(tp), sum(a * b for a, b in zip(positives, predicted, strict=True))
    if name == "accuracy":
        return agreed / n
    if name == "balanced_accuracy":
        recalls = [a / b for a, b in zip(tp, positives, strict=True) if b > 0]
        return sum(recalls) / len(recalls)
    if name == "kappa":
        return (agreed * n - chance) / (n * n - chance) if n * n - chance else 0.0 * n
    unlike = (n * n - sum(a * a for a in predicted)) * (n * n - sum(a * a for a in positives))
    return (agreed * n - chance) / unlike**0.5 if unlike > 0 else 0.0 * n
