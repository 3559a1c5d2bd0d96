"""Losses made from other losses: Mix, a weighted sum, and ClassBalanced, a mean that weights the classes."""

from __future__ import annotations

import math

import torch
from torch import Tensor, nn

from metricfit.core.canonical_batch import Columns
from metricfit.core.kernels.pointwise import PointwiseForm
from metricfit.errors import InvalidTypeError, InvalidValueError, quote
from metricfit.losses.base import Loss, check_parts, takes_probabilities
from metricfit.losses.calling import (
    OPTIONAL_ARGUMENTS,
    LossArguments,
    accepted_arguments,
    call_loss,
    observe_value,
    refuse_multipliers,
    update_loss,
)
from metricfit.losses.pointwise import PointwiseLoss, check_prior, known_form

#: Cross-entropies of torch ignore this label, whether or not there are any.
USUALLY_IGNORED = -100


class Mix(Loss):
    r"""A weighted sum of losses, for example cross-entropy plus half a metric loss.

    .. math:: L = \sum_k s_k\, L_k

    with :math:`s_k` the weight of member :math:`L_k`. The members receive ``weight``, ``index`` and ``group`` if they
    accept them. ``update()`` and ``observe(value)`` are passed on to members that define them.

    Args:
        *members: Pairs ``(loss, weight)`` of a loss module and a finite number.

    Raises:
        ValueError: If there are no members, a weight is not a finite number, or members ignore different labels.
        TypeError: If a member is not a pair of a module and a number, or if it contains an AugmentedLagrangian. Write
            ``AugmentedLagrangian(Mix(...), constraints)`` instead.

    Example:
        >>> import torch
        >>> from metricfit.losses import MetricLoss, WeightedBCELoss
        >>> mix = Mix((WeightedBCELoss(), 1.0), (MetricLoss("f1"), 0.5))
        >>> mix(torch.tensor([0.0, 0.0]), torch.tensor([1, 0]))
        tensor(0.9431)
    """

    def __init__(self, *members: tuple[nn.Module, float]) -> None:
        super().__init__()
        if not members:
            raise InvalidValueError("Mix needs at least one (loss, weight) pair")
        for member in members:
            if not (isinstance(member, tuple) and len(member) == 2 and isinstance(member[0], nn.Module)):
                raise InvalidTypeError(
                    f"the members of a Mix are (loss, weight) pairs, and each loss is a module; got {quote(member)}"
                )
            if isinstance(member[1], bool) or not isinstance(member[1], (int, float)) or not math.isfinite(member[1]):
                raise InvalidValueError(
                    f"the weight of {type(member[0]).__name__} in a Mix must be a finite number, got {member[1]!r}"
                )
            refuse_multipliers(member[0], "Mix", "Mix the objective: AugmentedLagrangian(Mix(...), constraints)")
        self.losses = nn.ModuleList(loss for loss, _ in members)
        of_metricfit = [loss for loss in self.losses if type(loss).__module__.startswith("metricfit.")]
        of_logits = [type(loss).__name__ for loss in of_metricfit if not takes_probabilities(loss)]
        if of_logits and any(map(takes_probabilities, self.losses)):
            raise InvalidValueError(
                f"a Mix has one kind of input, but {', '.join(of_logits)} takes logits, another member probabilities; "
                "leave from_probabilities out and let the model return logits"
            )
        readers = [loss for loss in self.losses.modules() if hasattr(loss, "ignore_index")]  # also inside of a Mix
        ignored = {loss.ignore_index for loss in readers}
        if len(ignored) > 1 and not ignored <= {None, USUALLY_IGNORED}:
            said = ", ".join(f"{type(loss).__name__} ignores {loss.ignore_index}" for loss in readers)
            raise InvalidValueError(f"all members of a Mix read the same labels, so give each one ignore_index: {said}")
        self.weights = tuple(float(weight) for _, weight in members)
        self._member_arguments = tuple(accepted_arguments(loss) for loss, _ in members)
        accepted = {
            name: any(getattr(member, name) for member in self._member_arguments) for name in OPTIONAL_ARGUMENTS
        }
        self.accepts = LossArguments(**accepted)

    def forward(
        self,
        logits: Tensor,
        target: Tensor,
        weight: Tensor | None = None,
        *,
        index: Tensor | None = None,
        group: Tensor | None = None,
    ) -> Tensor:
        """Compute the weighted sum of the losses.

        Args:
            logits: The outputs of the model.
            target: The labels.
            weight: One weight per sample, for the members that accept it.
            index: The positions of the samples in the training set, for the members that accept them.
            group: The group numbers of the samples, for the members that accept them.

        Returns:
            The loss, a scalar.

        Raises:
            ValueError: If ``weight`` or ``group`` was passed and no member accepts it.
        """
        if weight is not None and not self.accepts.weight:
            raise InvalidValueError(f"weight was passed, but no member of the Mix accepts it: {self._member_names()}")
        if group is not None and not self.accepts.group:
            raise InvalidValueError(f"group was passed, but no member of the Mix accepts it: {self._member_names()}")
        values = [
            call_loss(loss, logits, target, accepts, weight=weight, index=index, group=group)
            for loss, accepts in zip(self.losses, self._member_arguments, strict=True)
        ]
        total = values[0] if self.weights[0] == 1.0 else self.weights[0] * values[0]
        for value, share in zip(values[1:], self.weights[1:], strict=True):
            total = torch.add(total, value, alpha=share)
        return total

    def _member_names(self) -> str:
        return ", ".join(type(loss).__name__ for loss in self.losses)

    def update(self) -> None:
        """Call ``update()`` of the members that define it."""
        for loss in self.losses:
            update_loss(loss)

    def observe(self, value: float | Tensor) -> None:
        """Call ``observe(value)`` of the members that define it.

        Args:
            value: A validation metric, for which higher is better.
        """
        for loss in self.losses:
            observe_value(loss, value)

    def extra_repr(self) -> str:
        """Return the weights of the members."""
        return f"weights={self.weights}"


class ClassBalanced(PointwiseLoss):
    r"""A mean over samples in which each class is weighted by the inverse of its share in the training set.

    .. math:: \frac{\sum_i w_i\, b_i\, l_i}{\sum_i w_i}, \qquad
        b_i = \frac{1}{\pi} \text{ for positives}, \quad \frac{1}{1-\pi} \text{ for negatives}

    with :math:`l_i` the loss of a sample, :math:`w_i` its weight and :math:`\pi` the prior. This is the class-balanced
    mean of Lee et al. 2021, whose weights are n/n_y of the training set. Over the whole training set it is the sum of
    the mean losses of the two classes. Nothing is normalised by the batch: the expected value over random batches is
    the value on the training set. ``SurrogateFBetaLoss(balanced=True)`` has the same weighting built in.

    Args:
        loss: A binary loss of this library that is a mean over samples, such as ``MAELoss()``. Its ``task``,
            ``ignore_index`` and ``sync`` apply here too.
        prior: The share of positives in the training set, strictly between 0 and 1.

    Raises:
        TypeError: If the loss is not a mean over samples.
        ValueError: If the loss balances the classes already, or the prior is not between 0 and 1.

    Example:
        >>> import torch
        >>> from metricfit.losses import MAELoss
        >>> loss = ClassBalanced(MAELoss(), prior=0.1)
        >>> loss(torch.tensor([0.0, 0.0]), torch.tensor([1, 0]))  # (1/0.1 + 1/0.9) / 2
        tensor(5.5556)
    """

    balanced = True
    _plain_dims = (1,)

    def __init__(self, loss: PointwiseLoss, prior: float) -> None:
        if not isinstance(loss, PointwiseLoss):
            raise InvalidTypeError(
                f"ClassBalanced needs a loss of metricfit.losses that is a mean over samples, such as MAELoss(); "
                f"{type(loss).__name__} is not. Losses of counts or pairs weight the classes themselves"
            )
        check_parts(loss, "ClassBalanced", ("of_positive", "of_negative"), ("forward", "statistics", "value"))
        if loss.balanced:
            raise InvalidValueError(
                f"{loss!r} already weights the classes, and ClassBalanced would do so twice; use it without "
                "ClassBalanced, or with balanced=False if it has that setting"
            )
        super().__init__(task=loss.task, ignore_index=loss.ignore_index, sync=loss.sync)
        self.loss = loss
        self.prior = check_prior("ClassBalanced", prior)

    def columns(self, logits: Tensor, target: Tensor, weight: Tensor | None) -> Columns:
        """Return the batch as columns; multilabel logits are refused, because there is only one prior.

        Args:
            logits: The outputs of the model.
            target: The labels.
            weight: One weight per sample.

        Returns:
            Logits, target and weight of shape ``(1, n)``.

        Raises:
            ValueError: If the logits are multilabel.
        """
        batch = super().columns(logits, target, weight)
        if not batch.exclusive:
            raise InvalidValueError(
                f"ClassBalanced is for binary logits, but these logits {tuple(logits.shape)} are multilabel"
            )
        return batch

    def of_positive(self, logits: Tensor) -> Tensor:
        """Return the inner loss of positives, divided by the prior."""
        return self.loss.of_positive(logits) / self.prior

    def of_negative(self, logits: Tensor) -> Tensor:
        """Return the inner loss of negatives, divided by the share of negatives."""
        return self.loss.of_negative(logits) / (1 - self.prior)

    def closed_form(self) -> PointwiseForm | None:
        """Return the form of the inner loss with the weights of the classes."""
        form = known_form(self.loss)
        return None if form is None else form.scaled(1 / self.prior, 1 / (1 - self.prior))
