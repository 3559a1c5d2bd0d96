"""The arithmetic of the augmented Lagrangian: functions of a violation, its multiplier and the penalty."""

from __future__ import annotations

from torch import Tensor


def augmented_term(violation: Tensor, multiplier: Tensor, penalty: Tensor) -> Tensor:
    r"""Compute what a constraint :math:`g \le 0` adds to the objective (Rockafellar 1973).

    .. math:: \frac{\max(0, \lambda + \mu g)^2 - \lambda^2}{2 \mu}

    Its derivative with respect to g is max(0, lambda + mu g), the next multiplier. A constraint that holds by more than
    lambda / mu therefore has no gradient.

    Args:
        violation: The violation g.
        multiplier: The multiplier lambda.
        penalty: The penalty factor mu.

    Returns:
        The term, of the shape of the violation.

    Example:
        >>> augmented_term(torch.tensor([0.5, -2.0]), torch.tensor([1.0, 1.0]), torch.tensor(2.0))
        tensor([ 0.7500, -0.2500])
    """
    return (next_multiplier(violation, multiplier, penalty) ** 2 - multiplier**2) / (2 * penalty)


def next_multiplier(violation: Tensor, multiplier: Tensor, penalty: Tensor) -> Tensor:
    r"""Compute the multiplier after an update: :math:`\max(0, \lambda + \mu g)` (Rockafellar 1973).

    Args:
        violation: The violation g.
        multiplier: The multiplier lambda.
        penalty: The penalty factor mu.

    Returns:
        The new multiplier, of the shape of the violation.

    Example:
        >>> next_multiplier(torch.tensor([0.5, -2.0]), torch.tensor([1.0, 1.0]), torch.tensor(2.0))
        tensor([2., 0.])
    """
    return (multiplier + penalty * violation).relu()


def equality_term(violation: Tensor, multiplier: Tensor, penalty: Tensor) -> Tensor:
    r"""Compute the term of a constraint :math:`q = 0`.

    .. math:: \frac{\mu}{2} q^2 + \lambda q

    Its derivative with respect to q is :math:`\lambda + \mu q`, the next multiplier. Sangalli et al. 2021, Eq. 7, use
    it for sums of hinges, which are at least 0; for a q of any sign the multiplier may be negative.

    Args:
        violation: The violation q.
        multiplier: The multiplier lambda.
        penalty: The penalty factor mu.

    Returns:
        The term, of the shape of the violation.

    Example:
        >>> equality_term(torch.tensor(2.0), torch.tensor(1.0), torch.tensor(0.5))
        tensor(3.)
    """
    return violation * (0.5 * penalty * violation + multiplier)
