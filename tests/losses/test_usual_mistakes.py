"""What every loss says about arguments, outputs and targets that it does not take."""

import inspect

import pytest
import torch

import metricfit.losses as L
from metricfit.losses.base import Loss
from metricfit.losses.cross_entropy import WeightedCrossEntropyLoss
from metricfit.losses.ranking import PartialAUCLoss
from metricfit.losses.surrogate import SurrogateTverskyLoss

LOSSES = vars(L) | {loss.__name__: loss for loss in (WeightedCrossEntropyLoss, PartialAUCLoss, SurrogateTverskyLoss)}
OF_COLUMNS = {
    "WeightedBCELoss": {"positive_weight": 2.0},
    "EffectiveNumberBCELoss": {"beta": 0.9, "class_counts": (3, 4)},
    "FocalLoss": {"gamma": 2.0},
    "MarginLoss": {"margin": 1.0},
    "MAELoss": {},
    "MSFELoss": {},
    "SurrogateFBetaLoss": {"prior": 0.3},
    "PairHingeLoss": {},
    "PairSquareLoss": {},
    "PartialAUCLoss": {},
    "SurrogateTverskyLoss": {"alpha": 1.0, "beta": 1.0, "prior": 0.3},
    "AveragePrecisionLoss": {},
    "WMWLoss": {},
    "MBAUCLoss": {},
    "SoftAUROCLoss": {},
    "MetricLoss": {"metric": "f1"},
    "LovaszLoss": {},
}
OF_CLASSES = {
    "WeightedCrossEntropyLoss": {},
    "LogitAdjustedLoss": {"class_counts": (5, 3, 2)},
    "LDAMLoss": {"class_counts": (5, 3, 2)},
    "MetricLoss": {"metric": "f1"},
    "LovaszLoss": {},
}


def columns_and_classes(test):
    losses = [(name, settings, False) for name, settings in OF_COLUMNS.items()]
    losses += [(name, settings, True) for name, settings in OF_CLASSES.items()]
    names = [f"{name}-{'classes' if classes else 'columns'}" for name, _, classes in losses]
    return pytest.mark.parametrize(("name", "settings", "classes"), losses, ids=names)(test)


def batch(classes):
    torch.manual_seed(0)
    if classes:
        return torch.randn(30, 3), torch.randint(0, 3, (30,))
    return torch.randn(30), torch.randint(0, 2, (30,))


@columns_and_classes
@pytest.mark.parametrize("argument", sorted(Loss.remedies))
def test_arguments_of_other_libraries_are_refused_with_a_remedy(name, settings, classes, argument):
    if argument in inspect.signature(LOSSES[name]).parameters:
        pytest.skip("this loss has the argument")
    with pytest.raises(TypeError, match=f"{name} has no argument {argument}; .*(pass|use|per_image|choose)"):
        LOSSES[name](**settings, **{argument: torch.ones(2)})


def test_an_argument_of_a_subclass_with_such_a_name_is_accepted():
    class Smoothed(L.WeightedBCELoss):
        def __init__(self, label_smoothing):
            super().__init__()
            self.smoothing = label_smoothing

    assert Smoothed(label_smoothing=0.1).smoothing == 0.1


@columns_and_classes
def test_a_dictionary_of_outputs_is_refused_with_its_keys(name, settings, classes):
    logits, target = batch(classes)
    with pytest.raises(TypeError, match="logits must be a torch tensor, got dict with the entries 'out', 'aux'"):
        LOSSES[name](**settings)({"out": logits, "aux": logits}, target)


@pytest.mark.parametrize(("name", "settings"), OF_CLASSES.items())
@pytest.mark.parametrize("labels", [[0.0, 1.7, 2.0, 0.0], [0.0, float("nan"), 2.0, 0.0], [0.0, 1.0, 2.0, 0.0]])
def test_class_numbers_are_integers(name, settings, labels):
    with pytest.raises(ValueError, match=r"must be integers, got torch\.float32; use target\.long\(\)"):
        LOSSES[name](**settings)(torch.zeros(4, 3), torch.tensor(labels))


@pytest.mark.parametrize("name", ["PairSquareLoss", "PairHingeLoss", "PartialAUCLoss", "AveragePrecisionLoss"])
def test_logits_whose_pairs_overflow_are_named(name):
    with pytest.raises(ValueError, match=r"overflow: .* as large as 1e\+30; .* logits\.double\(\)"):
        LOSSES[name]()(torch.tensor([1e30, -1e30, 1.0, 0.0]), torch.tensor([0, 1, 1, 0]))


@pytest.mark.parametrize("name", ["MBAUCLoss", "WMWLoss", "SoftAUROCLoss"])
def test_losses_of_probabilities_are_finite_for_such_logits(name):
    logits = torch.tensor([1e30, -1e30, 1.0, 0.0], requires_grad=True)
    loss = LOSSES[name]()(logits, torch.tensor([0, 1, 1, 0]))
    loss.backward()
    assert torch.stack([loss, *logits.grad]).isfinite().all()


@pytest.mark.parametrize("loss", [L.LovaszLoss, lambda **kwargs: L.MetricLoss("dice", **kwargs)])
@pytest.mark.parametrize("weights", [None, "images", "pixels"])
def test_masks_without_a_class_axis_are_images(loss, weights):
    torch.manual_seed(0)
    logits, target = torch.randn(3, 8, 8), torch.randint(0, 2, (3, 8, 8))
    weight = {None: None, "images": torch.rand(3), "pixels": torch.rand(3, 8, 8)}[weights]
    spread = weight.unsqueeze(1) if weights == "pixels" else weight
    expected = loss(per_image=True)(logits.unsqueeze(1), target.unsqueeze(1), spread)
    torch.testing.assert_close(loss(per_image=True, task="binary")(logits, target, weight), expected)


@pytest.mark.parametrize(("task", "shape"), [("multiclass", (0, 8, 8)), ("multilabel", (0, 3, 8, 8))])
@pytest.mark.parametrize("per_image", [False, True])
def test_the_lovasz_loss_of_no_images_is_0(task, shape, per_image):
    loss = L.LovaszLoss(per_image=per_image, task=task)
    assert loss(torch.zeros(0, 3, 8, 8), torch.zeros(shape, dtype=torch.long)) == 0


@pytest.mark.filterwarnings("ignore")  # of torch.jit.trace, which is deprecated
@pytest.mark.parametrize(("name", "settings"), OF_CLASSES.items())
def test_tracing_a_loss_of_classes_is_refused_by_name(name, settings):
    with pytest.raises(RuntimeError, match=r"torch.jit.trace cannot record a loss"):
        torch.jit.trace(LOSSES[name](**settings), batch(classes=True))
