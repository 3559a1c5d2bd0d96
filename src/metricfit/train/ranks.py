"""Several processes: how the loss of a batch that is shared out among them stays that of the whole batch."""

from __future__ import annotations

from torch import Tensor, nn

from metricfit.constraints import AugmentedLagrangian, Constraint
from metricfit.constraints.function import FunctionConstraint
from metricfit.core.distributed import gather_over_ranks
from metricfit.losses.mix import Mix
from metricfit.train.samples import Batch


def over_ranks(loss: nn.Module) -> bool:
    """Make a loss that of all ranks' samples together; whether logits must be gathered for that.

    The losses of this library add up their counts, or gather what they rank, by themselves. Of any other loss nothing
    is known, not even that it is a mean: it is given all ranks' logits, and then those of this library in it must not
    add up again.
    """
    gathers = not _adds_up(loss)
    for module in loss.modules():
        if hasattr(module, "sync"):
            module.sync = not gathers  # type: ignore[assignment]
    return gathers


def _adds_up(loss: nn.Module) -> bool:
    if isinstance(loss, AugmentedLagrangian):
        return all(map(_adds_up, (loss.objective, *loss.constraints)))
    if isinstance(loss, Mix):
        return all(map(_adds_up, loss.losses))
    if isinstance(loss, Constraint):
        return not isinstance(loss, FunctionConstraint)  # of a user's function only a mean over ranks could be taken
    return hasattr(loss, "sync")


def gathered(logits: Tensor, batch: Batch) -> tuple[Tensor, Batch]:
    """All ranks' logits, with the gradient that DistributedDataParallel needs, and all but the inputs of the batch."""
    rest = [None if given is None else gather_over_ranks(given) for given in (batch.y, batch.weight, batch.index)]
    return gather_over_ranks(logits), Batch(None, *rest)  # type: ignore[arg-type]
