"""backward_in_chunks: the exact gradient of one large batch from several small ones, for losses that are not means.

It is for training loops of the user's own; the learner of ``fit`` keeps all logits instead and works for any loss.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor, nn

from metricfit.core.counts import Counts
from metricfit.errors import InvalidTypeError, InvalidValueError
from metricfit.losses.base import AdditiveLoss, Statistics, check_parts
from metricfit.losses.calling import keeps_multipliers
from metricfit.losses.combine import Mix

Chunk = tuple[Any, Tensor] | tuple[Any, Tensor, Tensor | None]


def backward_in_chunks(model: Callable[[Any], Tensor], loss: nn.Module, chunks: Iterable[Chunk]) -> Tensor:
    r"""Backpropagate the loss of all chunks together, with the activations of one chunk in memory at a time.

    .. math:: \nabla L\Big(\sum_j S_j\Big) = \sum_j \nabla\Big(S_j \cdot \frac{\partial L}{\partial S}\Big)

    Adding the gradients of the losses of the chunks is right for a mean but wrong for a metric. A first pass without
    gradients therefore adds the statistics S of all chunks, and a second pass backpropagates the statistics of each
    chunk times dL/dS at the total. The model runs twice per chunk, both times with the same random numbers, so that
    dropout drops the same units. Batch normalisation normalises each chunk separately, and updates its running
    statistics twice.

    Args:
        model: Called as ``model(inputs)``; returns logits.
        loss: An AdditiveLoss, which is every loss of this library except the hinge losses over pairs, or a
            Mix of such losses. ``fit(steps=Steps(accumulate=k))`` does the same for any loss, but keeps all
            logits in memory.
        chunks: ``(inputs, target)`` or ``(inputs, target, weight)`` of each chunk. An iterator is read once, and its
            chunks are kept in memory.

    Returns:
        The loss of all chunks together, detached.

    Raises:
        TypeError: If the loss is not a function of sums over samples.
        ValueError: If there are no chunks, or the loss is a vector.

    Example:
        >>> from metricfit.losses import MetricLoss
        >>> model, x, y = nn.Linear(3, 1), torch.randn(8, 3), torch.tensor([0, 1] * 4)
        >>> value = backward_in_chunks(model, MetricLoss("f1"), zip(x.split(5), y.split(5)))
        >>> bool((value - MetricLoss("f1")(model(x), y)).abs() < 1e-6)
        True
    """
    members = _members(loss)
    chunks = list(chunks)  # needed twice
    if not chunks:
        raise InvalidValueError("no chunks given")
    states: list[RandomState] = []
    totals: list[Statistics] = []
    with torch.no_grad():
        for chunk in chunks:
            states.append(random_state())
            logits = model(chunk[0])
            parts = [member.statistics(logits, *chunk[1:]) for member, _ in members]
            totals = [a + b for a, b in zip(totals, parts, strict=True)] if totals else parts
    totals = [_as_leaves(total) for total in totals]
    with torch.enable_grad():
        values = [
            share * member.value(member.over_ranks(total))
            for (member, share), total in zip(members, totals, strict=True)
        ]
        value = torch.stack(values).sum(0)
    if value.dim() > 0:
        raise InvalidValueError(
            "a loss with average=None is a vector, which cannot be backpropagated; choose another average"
        )
    leaves = [leaf for total in totals for leaf in _tensors(total)]
    gradients = torch.autograd.grad(value, leaves, materialize_grads=True)  # a formula need not use all four counts
    for chunk, state in zip(chunks, states, strict=True):
        with replayed(state), torch.enable_grad():
            logits = model(chunk[0])
            sums = [leaf for member, _ in members for leaf in _tensors(member.statistics(logits, *chunk[1:]))]
            products = [(leaf * gradient).sum() for leaf, gradient in zip(sums, gradients, strict=True)]
            torch.stack(products).sum().backward()  # type: ignore[no-untyped-call]
    return value.detach()


def _tensors(statistics: Statistics) -> tuple[Tensor, ...]:
    return statistics.tensors if isinstance(statistics, Counts) else (statistics,)


def _as_leaves(statistics: Statistics) -> Statistics:
    """Return the statistics as leaves of a new graph, with respect to which the loss is differentiated."""
    if isinstance(statistics, Counts):
        return statistics.with_tensors(tensor.detach().requires_grad_() for tensor in statistics.tensors)
    return statistics.detach().requires_grad_()


def _members(loss: nn.Module, share: float = 1.0) -> list[tuple[AdditiveLoss, float]]:
    if isinstance(loss, AdditiveLoss):
        check_parts(loss, "backward_in_chunks", ("statistics", "value"))
        return [(loss, share)]
    if isinstance(loss, Mix):
        check_parts(loss, "backward_in_chunks", ("__init__",))
        pairs = zip(loss.losses, loss.weights, strict=True)
        return [pair for member, weight in pairs for pair in _members(member, share * weight)]
    if keeps_multipliers(loss):
        raise InvalidTypeError(
            f"backward_in_chunks cannot split {type(loss).__name__}: its constraints need all logits of a step at "
            "once. Use fit(..., steps=Steps(accumulate=k)), which keeps the logits of all parts, or join the logits of "
            "the chunks with torch.cat and call the loss on the whole"
        )
    raise InvalidTypeError(
        f"{type(loss).__name__} is not a loss of sums over samples; use one of metricfit.losses, such as "
        "WeightedBCELoss() for cross-entropy"
    )


RandomState = tuple[Tensor, list[Tensor]]


def random_state() -> RandomState:
    """Return the state of torch's random number generators on the CPU and on the GPUs in use."""
    on_gpu = torch.cuda.is_initialized()  # type: ignore[no-untyped-call]
    return torch.get_rng_state(), torch.cuda.get_rng_state_all() if on_gpu else []


@contextmanager
def replayed(state: RandomState) -> Iterator[None]:
    """Repeat the random numbers from a state, and restore the generators afterwards."""
    cpu, cuda = state
    with torch.random.fork_rng(devices=range(len(cuda))):
        torch.set_rng_state(cpu)
        if cuda:
            torch.cuda.set_rng_state_all(cuda)
        yield
