"""PerMember: a separate loss for each member of an ensemble that is one module."""

from __future__ import annotations

import copy
from functools import partial

import torch
from torch import Tensor, nn

from metricfit.errors import InvalidValueError
from metricfit.losses.calling import accepted_arguments, call_loss


class PerMember(nn.Module):
    r"""The mean over members of the objective on that member's logits: how `TabM` is trained.

    :math:`\frac1k \sum_j \mathrm{objective}_j(x_{\cdot\cdot j}, y)` for logits ``(n, c, k)``, k the number of
    ``members``. Logits ``(n, c)``, which `TabM` gives in eval mode, go to one objective alone.

    An objective with state (parameters, or buffers such as running counts and multipliers) is copied for each member,
    so that its state is that of one member, and the copies are called in turn. An objective without state is called
    once, under ``vmap``, which takes a tenth of the time with 32 members.

    Args:
        objective: The loss of one member, called as ``objective(logits, target)``.
        members: Number of members.

    Raises:
        ValueError: If ``members`` is below 1.

    Example:
        >>> loss = PerMember(nn.BCEWithLogitsLoss(), members=4)
        >>> target = torch.tensor([[1.0], [0.0]])
        >>> loss(torch.zeros(2, 1, 4), target), loss(torch.zeros(2, 1), target)
        (tensor(0.6931), tensor(0.6931))
    """

    def __init__(self, objective: nn.Module, members: int) -> None:
        super().__init__()
        if members < 1:
            raise InvalidValueError(f"PerMember needs at least one member, got {members}")
        self.members = members
        # A buffer that is still None counts: RunningCounts makes its own at first use.
        stateful = any(module._buffers or module._parameters for module in objective.modules())
        self.objectives = nn.ModuleList(copy.deepcopy(objective) for _ in range(members if stateful else 1))
        self.accepts = accepted_arguments(objective)

    def forward(
        self,
        logits: Tensor,
        target: Tensor,
        weight: Tensor | None = None,
        index: Tensor | None = None,
        *,
        group: Tensor | None = None,
    ) -> Tensor:
        """Compute the mean over members of their losses.

        Args:
            logits: The outputs of the model, ``(n, c, members)``, or ``(n, c)`` in eval mode.
            target: The labels.
            weight: One weight per sample, for objectives that accept it.
            index: The positions of the samples in the training set, for objectives that accept them.
            group: The group numbers of the samples, for objectives that accept them.

        Returns:
            The loss, a scalar.

        Raises:
            ValueError: If the logits have another shape, or ``weight`` was passed and the objective does not accept it.
        """
        if weight is not None and not self.accepts.weight:
            raise InvalidValueError(f"weight was passed, but {type(self.objectives[0]).__name__} does not accept it")

        def compute_loss(objective: nn.Module, column: Tensor) -> Tensor:
            return call_loss(objective, column, target, self.accepts, weight=weight, index=index, group=group)

        if logits.dim() < 3:
            return compute_loss(self.objectives[0], logits)
        if logits.dim() != 3 or logits.shape[-1] != self.members:
            raise InvalidValueError(
                f"PerMember of {self.members} members takes logits (n, c, {self.members}), or (n, c) in eval mode, "
                f"got {tuple(logits.shape)}"
            )
        if len(self.objectives) == 1:
            values: Tensor = torch.vmap(partial(compute_loss, self.objectives[0]), in_dims=-1)(logits)
            return values.mean()
        return torch.stack(list(map(compute_loss, self.objectives, logits.unbind(-1)))).mean()

    def extra_repr(self) -> str:
        """Return the number of members."""
        return f"members={self.members}"
