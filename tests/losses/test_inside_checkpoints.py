"""Losses inside ``torch.utils.checkpoint``, AveragedModel and ``torch.jit.trace``, as training scripts use them."""

import pytest
import torch
from torch import nn
from torch.optim.swa_utils import AveragedModel
from torch.utils.checkpoint import checkpoint

from metricfit import AugmentedLagrangian, MetricLoss, RankingConstraint, RunningCounts, losses, steps
from metricfit.errors import InvalidStateError
from metricfit.losses.cross_entropy import WeightedCrossEntropyLoss

BCE = losses.WeightedBCELoss()

BINARY = {
    "f1": lambda: MetricLoss("f1"),
    "f1 unchecked": lambda: MetricLoss("f1", validate=False),
    "mcc": lambda: MetricLoss("mcc"),
    "sigmoid": lambda: MetricLoss("gmean", step=steps.Sigmoid(5)),
    "annealed": lambda: MetricLoss("f1", step=steps.Annealed(steps.Identity(), steps.Linear())),
    "own": lambda: MetricLoss(lambda c: c.tp / (c.tp + c.fp + c.fn)),
    "memory": lambda: MetricLoss("f1", memory=RunningCounts(0.8)),
    "two memories": lambda: losses.Mix(
        (MetricLoss("f1", memory=RunningCounts(0.8)), 1.0), (MetricLoss("mcc", memory=RunningCounts(0.5)), 1.0)
    ),
    "constrained": lambda: AugmentedLagrangian(BCE, ["recall >= 0.9", "precision <= 0.2", lambda z, y: z.mean() - 0.1]),
    "ranking": lambda: AugmentedLagrangian(BCE, [RankingConstraint(size=12)]),
    "bce": lambda: BCE,
    "focal": lambda: losses.FocalLoss(2.0),
    "hinge": lambda: losses.PairHingeLoss(),
    "square": lambda: losses.PairSquareLoss(),
    "auroc": lambda: losses.SoftAUROCLoss(),
    "ap": lambda: losses.AveragePrecisionLoss(),
    "lovasz": lambda: losses.LovaszLoss(),
    "surrogate": lambda: losses.SurrogateFBetaLoss(prior=0.3),
    "balanced": lambda: losses.ClassBalanced(BCE, prior=0.3),
}
CLASSES = {
    "f1 of classes": lambda: MetricLoss("f1"),
    "mcc of classes": lambda: MetricLoss("mcc"),
    "identity": lambda: MetricLoss("f1", step=steps.Identity()),
    "kappa": lambda: MetricLoss("weighted_kappa(power=2)"),
    "memory of classes": lambda: MetricLoss("f1", memory=RunningCounts(0.8)),
    "cross-entropy": lambda: WeightedCrossEntropyLoss(),
}


def batches(classes, n=3, rows=12):
    generator = torch.Generator().manual_seed(0)
    x = torch.randn(n, rows, 3, generator=generator)
    y = torch.randint(0, max(classes, 2), (n, rows), generator=generator)
    return list(zip(x, y, strict=True))


def train(loss, classes, *, checkpointed, together=False, mode=True):
    """Return the gradients of three steps, and all state of the loss."""
    torch.manual_seed(0)
    model, gradients = nn.Linear(3, classes), []
    loss.train(mode)

    def forward(x, y):
        logits = model(x) if classes > 1 else model(x)[:, 0]
        extra = {"index": torch.arange(len(y))} if isinstance(loss, AugmentedLagrangian) else {}
        return loss(logits, y, **extra)

    def call(x, y):
        return checkpoint(forward, x, y, use_reentrant=False) if checkpointed else forward(x, y)

    if together:
        sum(call(x, y) for x, y in batches(classes)).backward()
        return [model.weight.grad], list(loss.buffers())
    for x, y in batches(classes):
        model.zero_grad()
        call(x, y).backward()
        gradients.append(model.weight.grad.clone())
    return gradients, list(loss.buffers())


@pytest.mark.parametrize("together", [False, True], ids=["in turn", "one backward pass"])
@pytest.mark.parametrize("mode", [True, False], ids=["train", "eval"])
@pytest.mark.parametrize("name", [*BINARY, *CLASSES])
def test_a_checkpoint_changes_neither_gradients_nor_state(name, mode, together):
    make, classes = (BINARY[name], 1) if name in BINARY else (CLASSES[name], 4)
    plain = train(make(), classes, checkpointed=False, together=together, mode=mode)
    again = train(make(), classes, checkpointed=True, together=together, mode=mode)
    torch.testing.assert_close(again, plain)


def test_a_reentrant_checkpoint_adds_counts_once():
    memory = MetricLoss("f1", memory=RunningCounts(0.8)).memory
    loss, (x, y) = MetricLoss("f1", memory=memory), batches(1)[0]
    logits = x[:, 0].clone().requires_grad_()
    checkpoint(loss, logits, y, use_reentrant=True).backward()
    assert float(memory.total.sum()) == pytest.approx(len(y))


def test_a_memory_works_where_torch_does_not_say_whether_it_goes_backward(monkeypatch):
    monkeypatch.delattr(torch._C, "_current_graph_task_id")
    loss = MetricLoss("f1", memory=RunningCounts(0.8))
    for x, y in batches(1):
        loss(x[:, 0].clone().requires_grad_(), y).backward()
    assert float(loss.memory.total.sum()) == pytest.approx(12 * (1 + 0.8 + 0.64))


@pytest.mark.parametrize("use_buffers", [False, True])
def test_an_averaged_model_follows_a_model_with_a_memory(use_buffers):
    module = nn.ModuleDict({"loss": MetricLoss("f1", memory=RunningCounts(0.8)), "norm": nn.BatchNorm1d(3)})
    averaged = AveragedModel(module, use_buffers=use_buffers)
    for x, y in batches(1):
        module["loss"](module["norm"](x)[:, 0], y).backward()
        averaged.update_parameters(module)
    mean = averaged.module["norm"].running_mean
    assert mean.abs().sum() > 0
    if not use_buffers:
        torch.testing.assert_close(averaged.module["loss"].memory.total, module["loss"].memory.total)
        torch.testing.assert_close(mean, module["norm"].running_mean)


def test_a_copy_without_counts_of_its_own_may_have_other_classes():
    import copy

    memory = RunningCounts(0.8)
    loss, other = MetricLoss("f1", memory=memory), MetricLoss("f1", memory=copy.deepcopy(memory))
    x, y = batches(3)[0]
    loss(x.clone().requires_grad_(), y)
    other(x[:, :2].clone().requires_grad_(), y % 2)
    assert loss.memory.total.shape == (4, 3)
    assert other.memory.total.shape == (4, 2)


@pytest.mark.filterwarnings("ignore")  # of torch.jit.trace, which is deprecated
@pytest.mark.parametrize("name", BINARY)
def test_tracing_is_refused_by_name(name):
    x, y = batches(1)[0]
    with pytest.raises(InvalidStateError, match=r"torch.jit.trace cannot record a loss"):
        torch.jit.trace(BINARY[name](), (x[:, 0], y))


@pytest.mark.filterwarnings("ignore")  # of torch.jit.trace, which is deprecated
@pytest.mark.parametrize("constraint", ["recall >= 0.9", lambda logits, target: logits.mean()])
def test_tracing_a_constrained_loss_of_torch_is_refused_by_name(constraint):
    x, y = batches(1)[0]
    with pytest.raises(InvalidStateError, match=r"torch.jit.trace cannot record a loss"):
        torch.jit.trace(AugmentedLagrangian(nn.BCEWithLogitsLoss(), constraint), (x[:, 0], y.float()))
