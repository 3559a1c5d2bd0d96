r"""A linear structural SVM with one slack, by cutting planes (Joachims 2005; Joachims, Finley, Yu 2009).

    min over w of   |w|^2 / 2 + strength max over violations v of (loss_v - w g_v),      g_v = sum_i shares_i x_i

The maximum is over exponentially many violations, but a few of them suffice. With those found so far it is a quadratic
program, whose dual has one unknown per violation: maximise beta loss - strength |beta G|^2 / 2 over beta >= 0 with sum
at most 1, and w = strength beta G. The worst violation under that w is added, until it is worse than the others by no
more than ``tol``. The program is solved by Clarabel, an interior-point method that is maintained as cvxpy's default
solver and accepts a positive semidefinite Gram matrix, while active-set solvers need a definite one.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy.sparse import csc_array, eye_array, triu, vstack

from metricfit.errors import InvalidValueError
from metricfit_papers.baselines.violations import Array, Violations

#: A plane that was slack for this many consecutive rounds is dropped; the worst violation can bring it back.
IDLE = 50


@dataclass(frozen=True)
class Planes:
    """The solution of the cutting-plane method.

    Attributes:
        weights: The weights of the columns.
        excess: How much worse the worst violation is than those in the program.
        cuts: Number of planes.
    """

    weights: Array
    excess: float
    cuts: int


def cut(X: Any, violations: Violations, strength: float, tol: float, max_iter: int) -> Planes:
    """Return the weights of the columns of X, an array or a sparse matrix."""
    weights = np.zeros(X.shape[1])
    gradients, losses, idle = np.empty((0, X.shape[1])), np.empty(0), np.empty(0, dtype=np.int64)
    excess = np.inf
    for count in range(1, max_iter + 1):
        worst = violations.worst(X @ weights)
        gradient = X.T @ worst.shares
        slack = max(0.0, float(np.max(losses - gradients @ weights, initial=0.0)))
        excess = worst.loss - float(gradient @ weights) - slack
        if excess <= tol:
            return Planes(weights, excess, count - 1)
        gradients, losses = np.vstack([gradients, gradient]), np.append(losses, worst.loss)
        beta = _dual(gradients, losses, strength)
        weights = strength * (beta @ gradients)
        idle = np.where(beta > 1e-9, 0, np.append(idle, 0) + 1)
        active = idle < IDLE
        gradients, losses, idle = gradients[active], losses[active], idle[active]
    return Planes(weights, excess, max_iter)


def _dual(gradients: Array, losses: Array, strength: float) -> Array:
    """Return beta, one number of at least 0 per plane, with a sum of at most 1."""
    try:
        import clarabel
    except ModuleNotFoundError as error:
        raise ModuleNotFoundError(
            "SVMPerf needs clarabel, which is not installed: pip install clarabel", name="clarabel"
        ) from error
    size = len(losses)
    gram = strength * (gradients @ gradients.T)
    limits = csc_array(vstack([-eye_array(size), np.ones((1, size))]))
    settings = clarabel.DefaultSettings()
    settings.verbose = False
    solution = clarabel.DefaultSolver(
        csc_array(triu(gram)),
        -losses,
        limits,
        np.append(np.zeros(size), 1.0),
        [clarabel.NonnegativeConeT(size + 1)],
        settings,
    ).solve()
    beta: Array = np.clip(np.asarray(solution.x), 0.0, None)
    if not np.isfinite(beta).all():
        raise InvalidValueError(
            f"the quadratic program of {size} planes was not solved ({solution.status}); scale the columns of X"
        )
    beta /= max(1.0, float(beta.sum()))
    return beta
