"""The gradient of one large batch from several small ones, exactly, for losses that are not means."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager

import torch
from torch import Tensor, nn

from metricfit.losses.additive import AdditiveLoss
from metricfit.losses.mix import Mix

Chunk = tuple[Tensor, Tensor] | tuple[Tensor, Tensor, Tensor | None]


def backward_in_chunks(model: Callable[[Tensor], Tensor], loss: nn.Module, chunks: Sequence[Chunk]) -> Tensor:
    """Backpropagate the loss of all chunks together, each held in memory alone; returns the loss, detached.

    A chunk is ``(inputs, target)`` or ``(inputs, target, weight)``. Adding up the gradients of the chunks' own losses
    is right for a mean and wrong for a metric. Here a first pass without gradients adds up the statistics S of all
    chunks; a second backpropagates each chunk's statistics times dL/dS at the total. The model runs twice a chunk,
    each time with the same random numbers, so that dropout drops the same units; batch normalisation sees each chunk
    for itself, and twice.

    Works for every AdditiveLoss, that is every loss of this library but ClassBalanced and the hinges over pairs, and
    for a Mix of them. ``fit(accumulate=)`` does it for any loss, holding all logits.

    >>> from metricfit.losses import MetricLoss
    >>> model, x, y = nn.Linear(3, 1), torch.randn(8, 3), torch.tensor([0, 1] * 4)
    >>> value = backward_in_chunks(model, MetricLoss("f1"), [(x[:5], y[:5]), (x[5:], y[5:])])
    >>> bool((value - MetricLoss("f1")(model(x), y)).abs() < 1e-6)
    True
    """
    members = _members(loss)
    states, totals = [], []
    with torch.no_grad():
        for chunk in chunks:
            states.append(random_state())
            logits = model(chunk[0])
            totals.append([member.statistics(logits, *chunk[1:]).detach() for member, _ in members])
    if not totals:
        raise ValueError("no chunks given")
    sums = [torch.stack(of_member).sum(0).requires_grad_() for of_member in zip(*totals, strict=True)]
    with torch.enable_grad():
        value = sum(
            share * member.value(member.over_ranks(total)) for (member, share), total in zip(members, sums, strict=True)
        )
    assert isinstance(value, Tensor)
    if value.dim() > 0:
        raise ValueError("a loss with average=None is a vector, which cannot be backpropagated; choose another average")
    gradients = torch.autograd.grad(value, sums)
    for chunk, state in zip(chunks, states, strict=True):
        with replayed(state), torch.enable_grad():
            logits = model(chunk[0])
            statistics = [member.statistics(logits, *chunk[1:]) for member, _ in members]
            parts = [(given * gradient).sum() for given, gradient in zip(statistics, gradients, strict=True)]
            torch.stack(parts).sum().backward()  # type: ignore[no-untyped-call]
    return value.detach()


def _members(loss: nn.Module, share: float = 1.0) -> list[tuple[AdditiveLoss, float]]:
    if isinstance(loss, AdditiveLoss):
        return [(loss, share)]
    if isinstance(loss, Mix):
        pairs = zip(loss.losses, loss.weights, strict=True)
        return [one for member, weight in pairs for one in _members(member, share * weight)]
    raise TypeError(
        f"{type(loss).__name__} is not a loss of sums over samples; use one of metricfit.losses, such as "
        "WeightedBCELoss() for cross-entropy"
    )


RandomState = tuple[Tensor, list[Tensor]]


def random_state() -> RandomState:
    """The state of torch's random numbers, on the CPU and on GPUs in use."""
    on_gpu = torch.cuda.is_initialized()  # type: ignore[no-untyped-call]
    return torch.get_rng_state(), torch.cuda.get_rng_state_all() if on_gpu else []


@contextmanager
def replayed(state: RandomState) -> Iterator[None]:
    """The random numbers of the first pass again, and those after it left as they were."""
    cpu, cuda = state
    with torch.random.fork_rng(devices=range(len(cuda))):
        torch.set_rng_state(cpu)
        if cuda:
            torch.cuda.set_rng_state_all(cuda)
        yield
