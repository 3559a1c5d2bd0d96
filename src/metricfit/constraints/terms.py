"""The arithmetic of the augmented Lagrangian: functions of a violation, its multiplier and the penalty."""

from __future__ import annotations

from torch import Tensor


def augmented_term(violation: Tensor, multiplier: Tensor, penalty: Tensor) -> Tensor:
    r"""What a constraint :math:`g \le 0` adds to the objective (Rockafellar 1973).

    .. math:: \frac{\max(0, \lambda + \mu g)^2 - \lambda^2}{2 \mu}

    Its derivative by g is max(0, lambda + mu g), which is the next multiplier: a constraint that holds by more than
    lambda / mu pulls no more.

    >>> augmented_term(torch.tensor([0.5, -2.0]), torch.tensor([1.0, 1.0]), torch.tensor(2.0))
    tensor([ 0.7500, -0.2500])
    """
    return (next_multiplier(violation, multiplier, penalty) ** 2 - multiplier**2) / (2 * penalty)


def next_multiplier(violation: Tensor, multiplier: Tensor, penalty: Tensor) -> Tensor:
    r"""The multiplier after a step: :math:`\max(0, \lambda + \mu g)`.

    >>> next_multiplier(torch.tensor([0.5, -2.0]), torch.tensor([1.0, 1.0]), torch.tensor(2.0))
    tensor([2., 0.])
    """
    return (multiplier + penalty * violation).relu()


def equality_term(violation: Tensor, multiplier: Tensor, penalty: Tensor) -> Tensor:
    r"""The same for :math:`q = 0` with :math:`q \ge 0`, as sums of hinges are: :math:`\mu q^2 / 2 + \lambda q`.

    >>> equality_term(torch.tensor(2.0), torch.tensor(1.0), torch.tensor(0.5))
    tensor(3.)
    """
    return violation * (0.5 * penalty * violation + multiplier)
