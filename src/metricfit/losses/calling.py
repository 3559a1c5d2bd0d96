"""How losses are called: which optional arguments a loss accepts, and the call that passes exactly those.

Every loss is called as ``loss(logits, target)``. A loss may also accept ``weight``, ``index`` and ``group``. Callers of
losses (Mix, AugmentedLagrangian, the objective of ``fit``) find out once, in their constructor, what a loss accepts,
because inspecting a signature in every forward pass is slow and breaks the graph of torch.compile.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache

from torch import Tensor, nn

from metricfit.errors import InvalidTypeError

#: The optional arguments of losses.
OPTIONAL_ARGUMENTS = ("weight", "index", "group")


@dataclass(frozen=True)
class LossArguments:
    """Which optional arguments a loss accepts.

    Attributes:
        weight: Whether the loss accepts one weight per sample.
        index: Whether it accepts the positions of the samples in the training set.
        group: Whether it accepts the group numbers of the samples.
    """

    weight: bool
    index: bool
    group: bool


def accepted_arguments(loss: nn.Module) -> LossArguments:
    """Find out which optional arguments a loss accepts.

    A loss that calls other losses says it itself, in an attribute ``accepts``. For any other loss the signature of
    ``forward`` decides. ``**kwargs`` counts as accepting ``weight`` alone, because ``fit`` passes ``index`` with every
    batch and most losses with ``**kwargs`` have no use for it. A loss whose settings decide whether it uses ``group``,
    as MetricLoss does, says so in an attribute ``uses_groups``.

    Args:
        loss: The loss, possibly compiled.

    Returns:
        The arguments that the loss accepts.

    Example:
        >>> from metricfit.losses import MetricLoss
        >>> accepted_arguments(MetricLoss("f1"))
        LossArguments(weight=True, index=False, group=False)
        >>> accepted_arguments(nn.BCEWithLogitsLoss())
        LossArguments(weight=False, index=False, group=False)
    """
    compiled = getattr(loss, "_orig_mod", None)
    if isinstance(compiled, nn.Module):
        return accepted_arguments(compiled)
    declared = getattr(loss, "accepts", None)
    if isinstance(declared, LossArguments):
        return declared
    names, open_ended = _read_signature(getattr(loss.forward, "__func__", loss.forward))
    uses_groups = "group" in names and getattr(loss, "uses_groups", True) is True
    return LossArguments("weight" in names or open_ended, "index" in names, uses_groups)


@lru_cache(maxsize=256)
def _read_signature(forward: Callable[..., Tensor]) -> tuple[frozenset[str], bool]:
    """Return the names of a function's parameters, and whether it takes any others by name."""
    parameters = inspect.signature(forward).parameters
    return frozenset(parameters), any(parameter.kind is parameter.VAR_KEYWORD for parameter in parameters.values())


def call_loss(
    loss: Callable[..., Tensor],
    logits: Tensor,
    target: Tensor,
    accepts: LossArguments,
    *,
    weight: Tensor | None = None,
    index: Tensor | None = None,
    group: Tensor | None = None,
) -> Tensor:
    """Call a loss with those optional arguments that it accepts and that are not None.

    Args:
        loss: The loss, or any callable with the same signature.
        logits: The outputs of the model.
        target: The labels.
        accepts: What the loss accepts, as ``accepted_arguments`` returns it.
        weight: One weight per sample.
        index: The positions of the samples in the training set.
        group: The group numbers of the samples.

    Returns:
        The loss. Arguments that the loss does not accept are dropped; whether that is an error is up to the caller.

    Example:
        >>> import torch
        >>> logits, target = torch.zeros(2), torch.tensor([1.0, 0.0])
        >>> bce = nn.BCEWithLogitsLoss()
        >>> call_loss(bce, logits, target, accepted_arguments(bce), index=torch.tensor([0, 1]))
        tensor(0.6931)
    """
    arguments = {"weight": weight, "index": index, "group": group}
    passed = {name: value for name, value in arguments.items() if value is not None and getattr(accepts, name)}
    return loss(logits, target, **passed)


def update_loss(loss: nn.Module) -> None:
    """Call ``update()`` of a loss that defines it, at the end of an epoch."""
    if hasattr(loss, "update"):
        loss.update()  # type: ignore[operator]


def observe_value(loss: nn.Module, value: float | Tensor) -> None:
    """Call ``observe(value)`` of a loss that defines it, after a validation; higher values are better."""
    if hasattr(loss, "observe"):
        loss.observe(value)  # type: ignore[operator]


def keeps_multipliers(loss: nn.Module) -> bool:
    """Whether a loss is an augmented Lagrangian, whose multipliers move only if somebody calls its ``update``."""
    return hasattr(loss, "constraints") and hasattr(loss, "update")


def refuse_multipliers(loss: nn.Module, owner: str, remedy: str) -> None:
    """Refuse a loss that is, or contains, an augmented Lagrangian.

    ``fit`` and training loops call ``update`` and ``observe`` of the outermost loss. The multipliers of an augmented
    Lagrangian inside another loss would stay at 0 without any sign of it.

    Args:
        loss: The inner loss.
        owner: The name of the outer loss, for the message.
        remedy: What to write instead.

    Raises:
        TypeError: If the loss is or contains an augmented Lagrangian.
    """
    for module in loss.modules():
        if keeps_multipliers(module):
            raise InvalidTypeError(
                f"{owner} cannot contain {type(module).__name__}: the multipliers of its constraints would never be "
                f"updated. {remedy}"
            )
