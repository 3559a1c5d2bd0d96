"""Every metric, once: a sentence over counts. 0/0 is 0, with zero gradient, by ``share`` and ``ratio``.

Formulas that multiply counts with each other do so with ``_shares`` of them, so that products neither overflow nor
vanish, whatever the sum of the weights is.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor
from torch.nn.functional import threshold

from metricfit.core.counts import Counts
from metricfit.core.numerics import SMALLEST_DIVISOR, ratio, root, share
from metricfit.metrics.metric import builtin

POSITIVES, NEGATIVES, BOTH = ("positives",), ("negatives",), ("positives", "negatives")


@builtin(needs=POSITIVES)
def fbeta(c: Counts, beta: float | Tensor) -> Tensor:
    """(1 + b²) tp / ((1 + b²) tp + b² fn + fp); beta > 1 favours recall. One beta, or one per class.

    The limits are precision at beta = 0 and recall at beta = inf.
    """
    of_misses, of_false_alarms = _shares_of_errors(beta)
    return share(c.tp, of_misses * c.fn + of_false_alarms * c.fp)


def _shares_of_errors(beta: float | Tensor) -> tuple[float | Tensor, float | Tensor]:
    """b² / (1 + b²) and 1 / (1 + b²), by the smaller of b and 1/b, whose square cannot overflow."""
    if isinstance(beta, Tensor):
        small = torch.minimum(beta, 1 / beta) ** 2
        more, less = 1 / (1 + small), small / (1 + small)
        return torch.where(beta > 1, more, less), torch.where(beta > 1, less, more)
    square = min(beta, 1 / beta if beta else math.inf) ** 2
    larger, smaller = 1 / (1 + square), square / (1 + square)
    return (larger, smaller) if beta > 1 else (smaller, larger)


@builtin(needs=POSITIVES, aliases=("dice",))
def f1(c: Counts) -> Tensor:
    """2 tp / (2 tp + fn + fp), the harmonic mean of precision and recall; also the Dice coefficient."""
    formula: Tensor = fbeta.formula(c, beta=1)
    return formula


@builtin(needs=POSITIVES)
def tversky(c: Counts, alpha: float | Tensor, beta: float | Tensor) -> Tensor:
    """tp / (tp + alpha fp + beta fn)."""
    of_tp, of_fp, of_fn = _scaled_weights(alpha, beta)
    return share(of_tp * c.tp, of_fp * c.fp + of_fn * c.fn)


def _scaled_weights(alpha: float | Tensor, beta: float | Tensor) -> tuple[float | Tensor, ...]:
    """Return 1, alpha and beta divided by the largest of them, so that their products with counts are moderate."""
    if isinstance(alpha, Tensor) or isinstance(beta, Tensor):
        largest: float | Tensor = torch.maximum(torch.as_tensor(alpha), torch.as_tensor(beta)).clamp(min=1.0)
    else:
        largest = max(alpha, beta, 1.0)
    return 1 / largest, alpha / largest, beta / largest


@builtin(needs=POSITIVES, aliases=("iou",))
def jaccard(c: Counts) -> Tensor:
    """tp / (tp + fp + fn), the intersection over union."""
    return share(c.tp, c.fp + c.fn)


@builtin(whole_matrix=True)
def accuracy(c: Counts) -> Tensor:
    """(tp + tn) / n; over several classes, sum tp / n."""
    if c.tp.shape[-1] == 1:
        return share(c.tp + c.tn, c.fp + c.fn)
    return ratio(c.tp.sum(-1), c.n[..., 0])


@builtin(needs=POSITIVES, aliases=("ppv",))
def precision(c: Counts) -> Tensor:
    """tp / (tp + fp)."""
    return share(c.tp, c.fp)


@builtin(needs=POSITIVES, aliases=("tpr", "sensitivity"))
def recall(c: Counts) -> Tensor:
    """tp / (tp + fn), the true positive rate."""
    return share(c.tp, c.fn)


@builtin(needs=NEGATIVES, aliases=("tnr",))
def specificity(c: Counts) -> Tensor:
    """tn / (tn + fp), the true negative rate."""
    return share(c.tn, c.fp)


@builtin(needs=NEGATIVES, minimize=True)
def fpr(c: Counts) -> Tensor:
    """fp / (fp + tn), the false positive rate; lower is better."""
    return share(c.fp, c.tn)


@builtin(needs=POSITIVES, minimize=True)
def fnr(c: Counts) -> Tensor:
    """fn / (fn + tp), the false negative rate; lower is better."""
    return share(c.fn, c.tp)


@builtin(needs=NEGATIVES)
def npv(c: Counts) -> Tensor:
    """tn / (tn + fn), the negative predictive value."""
    return share(c.tn, c.fn)


@builtin(needs=BOTH)
def gmean(c: Counts) -> Tensor:
    """sqrt(tpr tnr), the geometric mean of the two recalls."""
    return root(share(c.tp, c.fn) * share(c.tn, c.fp))


@builtin(needs=BOTH, whole_matrix=True)
def balanced_accuracy(c: Counts) -> Tensor:
    """(tpr + tnr) / 2; over several classes, the mean recall of those that have samples."""
    if c.tp.shape[-1] == 1:
        return (share(c.tp, c.fn) + share(c.tn, c.fp)) / 2
    present = (c.positives > 0).to(c.tp.dtype)
    return ratio(share(c.tp, c.fn).sum(-1), present.sum(-1))


@builtin(needs=BOTH, bounds=(-1.0, 1.0), whole_matrix=True)
def mcc(c: Counts) -> Tensor:
    """Matthews' correlation, (tp tn - fp fn) / sqrt((tp+fp)(tp+fn)(tn+fp)(tn+fn)); over several classes, R_K."""
    c = _shares(c)
    if c.tp.shape[-1] == 1:
        spread = root(c.positives * c.negatives) * root(c.predicted * (c.fn + c.tn))
        return ratio(c.tp * c.tn - c.fp * c.fn, spread).clamp(-1.0, 1.0)  # two roots can round past it
    unlike = root((c.predicted * (c.fn + c.tn)).sum(-1)) * root((c.positives * c.negatives).sum(-1))
    return ratio(_covariance(c), unlike).clamp(-1.0, 1.0)


@builtin(needs=BOTH, bounds=(-1.0, 1.0), whole_matrix=True)
def kappa(c: Counts) -> Tensor:
    """Cohen's kappa: agreement beyond chance, (p_o - p_e) / (1 - p_e)."""
    c = _shares(c)
    if c.tp.shape[-1] == 1:
        unlike = c.predicted * c.negatives + c.positives * (c.fn + c.tn)
        return ratio(2 * (c.tp * c.tn - c.fp * c.fn), unlike)
    return ratio(_covariance(c), (c.positives * (c.fn + c.tn)).sum(-1))


@builtin(needs=BOTH, bounds=(-1.0, 1.0), aliases=("youden",))
def informedness(c: Counts) -> Tensor:
    """tpr + tnr - 1, Youden's J, as (tp tn - fp fn) / (positives negatives), which is 0 where a class is missing."""
    c = _shares(c)
    return ratio(c.tp * c.tn - c.fp * c.fn, c.positives * c.negatives)


@builtin(needs=BOTH, bounds=(-1.0, 1.0))
def markedness(c: Counts) -> Tensor:
    """precision + npv - 1, as (tp tn - fp fn) / (predicted (n - predicted)): 0 where all are predicted alike."""
    c = _shares(c)
    return ratio(c.tp * c.tn - c.fp * c.fn, c.predicted * (c.fn + c.tn))


@builtin(needs=POSITIVES)
def fowlkes_mallows(c: Counts) -> Tensor:
    """sqrt(precision recall)."""
    return root(share(c.tp, c.fp) * share(c.tp, c.fn))


@builtin(needs=BOTH)
def p4(c: Counts) -> Tensor:
    """4 tp tn / (4 tp tn + (tp + tn)(fp + fn)), the harmonic mean of precision, recall, specificity and npv."""
    c = _shares(c)
    return share(4 * c.tp * c.tn, (c.tp + c.tn) * (c.fp + c.fn))


@builtin(minimize=True, bounds=lambda fp, fn: (0.0, _largest(fp, fn)))
def cost(c: Counts, fp: float | Tensor, fn: float | Tensor) -> Tensor:
    """(fp_cost fp + fn_cost fn) / n, the expected cost of a decision; lower is better."""
    return ratio(fp * c.fp + fn * c.fn, c.n)


def _shares(c: Counts) -> Counts:
    """Return the counts divided by their sum, for formulas that do not change with the scale of the counts.

    The sum is held constant: the gradient of such a formula is the same. Counts that are too small to be divided by
    become 0 first, because dividing them by a small sum would hide how small they are.
    """
    least = SMALLEST_DIVISOR[c.tp.dtype]
    n = c.n.detach()
    scale = n.masked_fill(n < least, math.inf).reciprocal()
    return c.map(lambda count: threshold(count, least, 0.0) * scale)


def _covariance(c: Counts) -> Tensor:
    """n agreed - sum of predicted x positives, added up by class: as a difference it would cancel."""
    return (c.tp * c.tn - c.fp * c.fn).sum(-1)


def _largest(*costs: float | tuple[float, ...]) -> float:
    return max(max(given) if isinstance(given, tuple) else given for given in costs)
