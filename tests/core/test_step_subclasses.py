"""A class derived from a step, a loss or a metric is used for what it does, not for what its parent does."""

import copy
import pickle

import pytest
import torch

from metricfit import Counts, MetricLoss, losses, metrics, steps
from metricfit.core.steps import ClosedFormStep
from metricfit.losses.accumulation import backward_in_chunks

X = torch.tensor([2.0, -1.0, 0.3, -0.2])
Y = torch.tensor([1, 0, 1, 0])
CLASSES = torch.tensor([[2.0, 0.0, -1.0], [0.1, 0.2, 0.3], [-1.0, 0.5, 3.0]])
LABELS = torch.tensor([0, 1, 2])


class Cubic(steps.Sigmoid):
    def forward(self, p, threshold=0.5):
        return p**3


class CubicIdentity(steps.Identity):
    def forward(self, p, threshold=0.5):
        return p**3 + 0 * torch.as_tensor(threshold)


class CubicThrough(steps.StraightThrough):
    def forward(self, p, threshold=0.5):
        return p**3


class CubicAnnealed(steps.Annealed):
    def forward(self, p, threshold=0.5):
        return p**3


class FromScratch(steps.Step):
    def forward(self, p, threshold=0.5):
        return p**3


SUBCLASSES = {
    "Sigmoid": lambda: Cubic(k=10),
    "Identity": CubicIdentity,
    "StraightThrough": lambda: CubicThrough(steps.Linear()),
    "Annealed": lambda: CubicAnnealed(steps.Linear(), steps.Identity()),
}


@pytest.mark.parametrize("parent", SUBCLASSES)
@pytest.mark.parametrize("group", [None, torch.tensor([0, 1, 1, 0])], ids=["whole", "groups"])
def test_a_subclass_that_overrides_forward_is_called(parent, group):
    step = SUBCLASSES[parent]()
    counts = Counts.soft(X, Y, step=step, group=group)
    expected = Counts.soft(X, Y, step=FromScratch(), group=group)
    torch.testing.assert_close(torch.stack(tuple(counts)), torch.stack(tuple(expected)))


@pytest.mark.parametrize("parent", SUBCLASSES)
@pytest.mark.parametrize("threshold", ["dynamic", 0.4])
def test_a_subclass_that_overrides_forward_is_called_for_classes(parent, threshold):
    counts = Counts.soft(CLASSES, LABELS, step=SUBCLASSES[parent](), threshold=threshold)
    expected = Counts.soft(CLASSES, LABELS, step=FromScratch(), threshold=threshold)
    torch.testing.assert_close(torch.stack(tuple(counts)), torch.stack(tuple(expected)))


@pytest.mark.parametrize("parent", SUBCLASSES)
def test_a_subclass_within_an_annealed_step_is_called(parent):
    step = steps.Annealed(SUBCLASSES[parent](), steps.Linear())
    expected = Counts.soft(X, Y, step=FromScratch()).tp
    torch.testing.assert_close(Counts.soft(X, Y, step=step).tp, expected)


@pytest.mark.parametrize("parent", [steps.Sigmoid, steps.Identity, lambda: steps.StraightThrough(steps.Linear())])
@pytest.mark.parametrize("change", ["forward", "hook", "pre_hook"])
@pytest.mark.parametrize("data", [(X, Y), (CLASSES, LABELS)], ids=["binary", "classes"])
def test_an_instance_with_its_own_forward_or_hooks_is_called(parent, change, data):
    step, calls = parent(), []
    expected = Counts.soft(*data, step=FromScratch()).tp
    if change == "forward":
        step.forward = lambda p, threshold=0.5: p**3
    elif change == "hook":
        step.register_forward_hook(lambda module, arguments, output: arguments[0] ** 3)
    else:
        step.register_forward_pre_hook(lambda module, arguments: calls.append(1))
        Counts.soft(*data, step=step)
        assert calls
        return
    torch.testing.assert_close(Counts.soft(*data, step=step).tp, expected)


def test_a_parameter_that_is_changed_later_is_used():
    step = steps.Sigmoid(k=10)
    step.k = 30.0
    torch.testing.assert_close(Counts.soft(X, Y, step=step).tp, Counts.soft(X, Y, step=steps.Sigmoid(k=30)).tp)


def test_a_closed_form_of_an_unknown_kind_is_refused():
    class Unknown(ClosedFormStep):
        kind, number = "cubic", 1.0

    with pytest.raises(TypeError, match="unknown kind 'cubic'"):
        MetricLoss("f1", step=Unknown())(X, Y)


class Penalised(MetricLoss):
    """A loss whose forward adds what its statistics do not hold."""

    def forward(self, logits, target, weight=None):
        return super().forward(logits, target, weight) + logits.square().mean()


class PenalisedMix(losses.Mix):
    def forward(self, logits, target, weight=None):
        return super().forward(logits, target, weight) + logits.square().mean()


@pytest.mark.parametrize(
    "loss",
    [
        Penalised("f1"),
        losses.Mix((Penalised("f1"), 1.0)),
        PenalisedMix((losses.MAELoss(), 1.0)),
    ],
    ids=["loss", "member", "mix"],
)
def test_chunks_refuse_a_loss_that_overrides_only_forward(loss):
    with pytest.raises(TypeError, match="overrides forward"):
        backward_in_chunks(torch.nn.Identity(), loss, [(X, Y)])


class PenalisedError(losses.MAELoss):
    def forward(self, logits, target, weight=None):
        return super().forward(logits, target, weight) + logits.square().mean()


def test_class_balanced_refuses_a_loss_that_overrides_only_forward():
    with pytest.raises(TypeError, match="overrides forward"):
        losses.ClassBalanced(PenalisedError(), prior=0.5)


def test_a_loss_that_also_overrides_its_statistics_is_accepted():
    class Consistent(MetricLoss):
        def forward(self, logits, target, weight=None):
            return self.value(self.statistics(logits, target, weight))

        def statistics(self, logits, target, weight=None):
            return super().statistics(2 * logits, target, weight)

    x = X.clone().requires_grad_()
    value = backward_in_chunks(torch.nn.Identity(), Consistent("f1"), [(x, Y)])
    torch.testing.assert_close(value, MetricLoss("f1")(2 * X, Y))


class Half(metrics.Metric):
    """A metric with a value of its own under the name of its parent."""

    def __call__(self, counts):
        return super().__call__(counts) / 2


def plain_recall(counts):
    return counts.tp / counts.positives


def make_half():
    return Half("recall", plain_recall, bounds=(0.0, 1.0), needs=metrics.recall.needs)


@pytest.mark.parametrize("copied", [lambda given: pickle.loads(pickle.dumps(given)), copy.copy, copy.deepcopy])
def test_a_copy_of_a_derived_metric_keeps_its_class(copied):
    counts = Counts(tp=3, fp=1, fn=1, tn=5)
    half = copied(make_half())
    assert type(half) is Half
    assert half(counts).item() == 0.375


def test_a_derived_metric_is_not_equal_to_its_parent():
    assert make_half() != metrics.recall
    assert make_half() == make_half()


def test_one_class_of_a_derived_metric_keeps_the_overridden_behaviour():
    counts = Counts(tp=torch.tensor([3.0, 1.0]), fp=torch.ones(2), fn=torch.ones(2), tn=torch.ones(2))
    assert make_half()[1](counts).item() == 0.25
