"""backward_in_chunks gives the gradient of the whole batch, for every loss of sums."""

import pytest
import task_twins as twins
import torch
from torch import nn

from metricfit import AugmentedLagrangian, MetricLoss, RunningCounts, SurrogateFBetaLoss, metrics, steps
from metricfit.losses import (
    ClassBalanced,
    EffectiveNumberBCELoss,
    FocalLoss,
    MAELoss,
    MarginLoss,
    Mix,
    MSFELoss,
    WeightedBCELoss,
)
from metricfit.losses.accumulation import backward_in_chunks

FEATURES, N = 5, 23
CUTS = {"uneven": [9, 13, 1], "even": [12, 11], "one": [23], "singles": [1] * 23}

BINARY = {
    "f1": lambda: MetricLoss("f1"),
    "mcc": lambda: MetricLoss("mcc", step=steps.Sigmoid(10), threshold=[0.3, 0.6]),
    "fpr": lambda: MetricLoss("fpr"),
    "bce": lambda: WeightedBCELoss(3.0),
    "effective": lambda: EffectiveNumberBCELoss(0.9, (9, 1)),
    "focal": lambda: FocalLoss(2.0),
    "margin": lambda: MarginLoss(1.0),
    "mae": lambda: MAELoss(),
    "msfe": lambda: MSFELoss(),
    "surrogate": lambda: SurrogateFBetaLoss(prior=0.2),
    "mix": lambda: Mix((WeightedBCELoss(), 1.0), (MetricLoss("f1"), 0.5)),
    "mix of mixes": lambda: Mix((Mix((MSFELoss(), 2.0), (FocalLoss(1.0), 0.1)), 0.3), (MetricLoss("gmean"), 0.5)),
}
SEVERAL = {
    "f1": lambda task: MetricLoss("f1", task=task),
    "kappa": lambda task: MetricLoss("kappa", task=task),
    "weighted": lambda task: MetricLoss("jaccard", task=task, average="weighted"),
    "beta per class": lambda task: MetricLoss(metrics.fbeta(beta=[1, 2, 0.5, 3]), task=task),
    "mix": lambda task: Mix((MetricLoss("f1", task=task), 1.0), (MetricLoss("mcc", task=task), 0.5)),
}


def network(outputs, dtype=torch.float64):
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(FEATURES, 6), nn.Tanh(), nn.Linear(6, outputs)).to(dtype)


def data(task, dtype=torch.float64):
    inputs = torch.randn(N, FEATURES, generator=torch.Generator().manual_seed(1), dtype=torch.float64).to(dtype)
    given = twins.make("multilabel" if task == "binary" else task, N, 1 if task == "binary" else 4, seed=2)
    return inputs, given.target.squeeze(-1) if task == "binary" else given.target, given.weight.to(dtype)


def in_chunks(cuts, *given):
    return list(zip(*(one.split(CUTS[cuts]) for one in given), strict=True))


def flat_gradient(model):
    return torch.cat([p.grad.flatten() for p in model.parameters()])


def compare(make_loss, task, cuts, *, weighted=True, dtype=torch.float64, tolerance=1e-10):
    inputs, target, weight = data(task, dtype)
    given = (inputs, target, weight) if weighted else (inputs, target)
    outputs = 1 if task == "binary" else 4
    model, whole = network(outputs, dtype), network(outputs, dtype)
    value = backward_in_chunks(model, make_loss(), in_chunks(cuts, *given))
    expected = make_loss()(whole(inputs), target, *([weight] if weighted else []))
    expected.backward()
    torch.testing.assert_close(value, expected.detach(), rtol=tolerance, atol=tolerance)
    assert not value.requires_grad
    size = flat_gradient(whole).abs().max().item()
    torch.testing.assert_close(flat_gradient(model), flat_gradient(whole), rtol=tolerance, atol=tolerance * size)
    assert size > 1e-4


@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("cuts", CUTS)
@pytest.mark.parametrize("name", BINARY)
def test_binary(name, cuts, weighted):
    compare(BINARY[name], "binary", cuts, weighted=weighted)


@pytest.mark.parametrize("cuts", CUTS)
@pytest.mark.parametrize("name", SEVERAL)
def test_several_classes(name, cuts):
    compare(lambda: SEVERAL[name]("multiclass"), "multiclass", cuts)


@pytest.mark.parametrize("name", ["f1", "weighted", "beta per class"])
def test_several_labels(name):
    compare(lambda: SEVERAL[name]("multilabel"), "multilabel", "uneven")


def test_float32():
    compare(BINARY["mix"], "binary", "uneven", dtype=torch.float32, tolerance=1e-5)
    compare(lambda: SEVERAL["f1"]("multiclass"), "multiclass", "uneven", dtype=torch.float32, tolerance=1e-5)


def test_adding_up_the_losses_of_chunks_would_be_wrong():
    inputs, target, _ = data("binary")
    model, whole = network(1), network(1)
    loss = MetricLoss("f1").eval()
    for x, y in in_chunks("uneven", inputs, target):
        (loss(model(x), y) * len(x) / N).backward()
    loss(whole(inputs), target).backward()
    assert not torch.allclose(flat_gradient(model), flat_gradient(whole), rtol=0.05)


@pytest.mark.parametrize("task", ["binary", "multiclass"])
def test_memory_is_updated_once_per_step(task):
    inputs, target, weight = data(task)
    outputs = 1 if task == "binary" else 4
    losses = [MetricLoss("f1", memory=RunningCounts(decay=0.8)) for _ in range(2)]
    models = [network(outputs) for _ in range(2)]
    for at in range(3):
        x = inputs + at
        for model in models:
            model.zero_grad()
        backward_in_chunks(models[0], losses[0], in_chunks("uneven", x, target, weight))
        losses[1](models[1](x), target, weight=weight).backward()
        torch.testing.assert_close(losses[0].memory.total, losses[1].memory.total, rtol=1e-10, atol=1e-12)
        torch.testing.assert_close(flat_gradient(models[0]), flat_gradient(models[1]), rtol=1e-9, atol=1e-13)


def test_gradients_are_added_to_those_already_there():
    inputs, target, _ = data("binary")
    model = network(1)
    chunks = in_chunks("even", inputs, target)
    backward_in_chunks(model, MetricLoss("f1"), chunks)
    once = flat_gradient(model).clone()
    backward_in_chunks(model, MetricLoss("f1"), chunks)
    torch.testing.assert_close(flat_gradient(model), 2 * once)


def test_a_weight_of_none_and_a_generator_of_no_chunks():
    inputs, target, _ = data("binary")
    model, whole = network(1), network(1)
    backward_in_chunks(model, MetricLoss("f1"), [(inputs[:9], target[:9], None), (inputs[9:], target[9:], None)])
    MetricLoss("f1")(whole(inputs), target).backward()
    torch.testing.assert_close(flat_gradient(model), flat_gradient(whole))
    with pytest.raises(ValueError, match="no chunks given"):
        backward_in_chunks(model, MetricLoss("f1"), [])


class Recorded(nn.Module):
    """A model with dropout that remembers its logits."""

    def __init__(self):
        super().__init__()
        self.inner = nn.Sequential(nn.Dropout(0.5), nn.Linear(FEATURES, 1).double())
        self.seen = []

    def forward(self, x):
        logits = self.inner(x)
        self.seen.append(logits.detach().clone())
        return logits


def test_both_passes_drop_the_same_units():
    inputs, target, _ = data("binary")
    torch.manual_seed(3)
    model = Recorded()
    value = backward_in_chunks(model, MetricLoss("f1"), in_chunks("uneven", inputs, target))
    first, second = model.seen[:3], model.seen[3:]
    assert len(second) == 3
    for one, other in zip(first, second, strict=True):
        assert torch.equal(one, other)
    assert not torch.equal(first[0], model.inner[1](inputs[:9]))
    assert value.item() == pytest.approx(MetricLoss("f1")(torch.cat(first), target).item(), abs=1e-12)


def test_random_numbers_continue_as_after_one_pass():
    inputs, target, _ = data("binary")
    chunks = in_chunks("uneven", inputs, target)
    torch.manual_seed(3)
    model = Recorded()
    torch.manual_seed(5)
    backward_in_chunks(model, MetricLoss("f1"), chunks)
    found = torch.rand(3)
    torch.manual_seed(5)
    for x, _ in chunks:
        model(x)
    assert torch.equal(found, torch.rand(3))


def test_chunks_may_come_from_an_iterator():
    inputs, target, _ = data("binary")
    model, whole = network(1), network(1)
    value = backward_in_chunks(model, MetricLoss("f1"), zip(inputs.split(9), target.split(9), strict=True))
    expected = MetricLoss("f1")(whole(inputs), target)
    expected.backward()
    torch.testing.assert_close(value, expected.detach())
    torch.testing.assert_close(flat_gradient(model), flat_gradient(whole))


def test_constrained_losses_are_refused_with_an_alternative():
    inputs, target, _ = data("binary")
    loss = AugmentedLagrangian(WeightedBCELoss(), ["recall >= 0.9"])
    with pytest.raises(
        TypeError, match=r"cannot split AugmentedLagrangian: .* fit\(\.\.\., steps=Steps\(accumulate=k\)\)"
    ):
        backward_in_chunks(network(1), loss, in_chunks("even", inputs, target))


def test_foreign_losses_are_refused():
    inputs, target, _ = data("binary")
    for loss in (nn.BCEWithLogitsLoss(), Mix((MetricLoss("f1"), 1.0), (nn.BCEWithLogitsLoss(), 1.0))):
        with pytest.raises(
            TypeError, match="BCEWithLogitsLoss is not a loss of sums over samples; use one of metricfit"
        ):
            backward_in_chunks(network(1), loss, in_chunks("even", inputs, target))


def test_class_balanced_is_a_loss_of_this_library():
    """The docstring says every loss of this library works."""
    compare(lambda: ClassBalanced(MAELoss(), prior=0.2), "binary", "uneven")


@pytest.mark.parametrize("cuts", [(2, 2), (3, 1)], ids=str)
def test_counts_per_image_are_not_added_over_chunks(cuts):
    """Image i of one chunk has nothing to do with image i of another: right gradients, or a refusal that says so."""
    given = twins.make("multiclass", 4, c=3, shape=(4, 4))
    models = []
    for _ in range(2):
        torch.manual_seed(0)
        models.append(nn.Conv2d(3, 3, 1).double())
    loss = MetricLoss("f1", per_image=True)
    chunks = list(zip(given.logits.split(cuts), given.target.split(cuts), strict=True))
    try:
        value = backward_in_chunks(models[0], loss, chunks)
    except (ValueError, TypeError) as refusal:
        assert "per_image" in str(refusal)  # noqa: PT017
        return
    expected = loss(models[1](given.logits), given.target)
    expected.backward()
    torch.testing.assert_close(value, expected.detach())
    torch.testing.assert_close(flat_gradient(models[0]), flat_gradient(models[1]))


def test_evaluation_mode_and_frozen_parameters():
    inputs, target, _ = data("binary")
    model, whole = network(1), network(1)
    for each in (model, whole):
        each[0].requires_grad_(False)
    backward_in_chunks(model, MetricLoss("f1").eval(), in_chunks("even", inputs, target))
    MetricLoss("f1")(whole(inputs), target).backward()
    torch.testing.assert_close(model[2].weight.grad, whole[2].weight.grad)
    assert model[0].weight.grad is None


def test_images():
    given = twins.make("multiclass", 4, c=3, shape=(4, 4))
    models = []
    for _ in range(2):
        torch.manual_seed(0)
        models.append(nn.Conv2d(3, 3, 1).double())
    chunks = list(zip(given.logits.split(3), given.target.split(3), given.weight.split(3), strict=True))
    backward_in_chunks(models[0], MetricLoss("f1"), chunks)
    MetricLoss("f1")(models[1](given.logits), given.target, weight=given.weight).backward()
    torch.testing.assert_close(flat_gradient(models[0]), flat_gradient(models[1]))
