"""What cannot work is refused before training starts, with a message that names the remedy."""

import copy
import math

import pytest
import torch
from forty_samples import N, X, Y, loader, network
from torch import nn
from torch.optim.lr_scheduler import ExponentialLR, ReduceLROnPlateau
from torch.utils.data import DataLoader, TensorDataset

from metricfit import AugmentedLagrangian, MetricLoss, metrics
from metricfit.losses import WeightedBCELoss
from metricfit.models import PerMember
from metricfit.train import Batches, Monitor, Stage, Steps, fit, recipes

CLASSES = torch.arange(N) % 3

LABELS = torch.stack([Y, 1 - Y, Y], 1)

ONE_SIDED = torch.tensor([1, 0, 1])

NAN = X.clone()

NAN[5, 1] = math.nan


class Tuple(nn.Linear):
    """A model that returns more than logits."""

    def forward(self, x):
        return super().forward(x), x


class Total(nn.Linear):
    """A model that returns one number for the batch."""

    def forward(self, x):
        return super().forward(x).sum()


BCE, CE = WeightedBCELoss, nn.CrossEntropyLoss

WRONG = {
    "not_a_module": ({"model": lambda x: x}, TypeError, "model must be a torch module, got function"),
    "objective": ({"objective": "f1"}, TypeError, "the objective is a loss, a Stage or a list of Stages"),
    "minus_one": ({"train": (X, 2 * Y - 1)}, ValueError, r"train: binary labels must be 0 or 1.*\(target \+ 1\) / 2"),
    "one_two": ({"train": (X, Y + 1)}, ValueError, "train: .*target - 1"),
    "validation_labels": ({"validation": (X, Y + 1)}, ValueError, "validation: .*target - 1"),
    "class_3": (
        {"model": network(3), "train": (X, CLASSES + 1), "objective": CE()},
        ValueError,
        "train: 3 classes need labels 0 to 2, got 1 to 3",
    ),
    "class_shares": (
        {"model": network(3), "train": (X, CLASSES.float()), "objective": CE()},
        ValueError,
        r"multiclass labels must be integers, got torch.float32; use y.long\(\)",
    ),
    "shapes": (
        {"model": network(3), "train": (X, LABELS[:, :2]), "objective": BCE()},
        ValueError,
        r"train: the model's outputs \(n, 3\) and the labels \(n, 2\) do not go together. They are binary:",
    ),
    "one_class": ({"train": (X, torch.zeros(N))}, ValueError, "all training labels are 0: there is nothing to learn"),
    "only_ones": ({"train": (X, torch.ones(N))}, ValueError, "all training labels are 1"),
    "one_of_three": (
        {"model": network(3), "train": (X, torch.full((N,), 2)), "objective": CE()},
        ValueError,
        "all training labels are 2",
    ),
    "nan": ({"train": (NAN, Y)}, ValueError, "train's inputs hold NaN or infinity in 1 of 40 rows.*row 5; fill in"),
    "validation_nan": ({"validation": (NAN, Y)}, ValueError, "validation's inputs hold NaN"),
    "lengths": ({"train": (X, Y[:-1])}, ValueError, "train has parts of different lengths: 40, 39"),
    "empty": ({"train": (X[:0], Y[:0])}, ValueError, "train is empty"),
    "no_positives": (
        {"validation": (X, torch.zeros(N)), "monitor": "f1"},
        ValueError,
        "the validation set has no positives, on which f1 is measured; use a stratified split, or monitor the loss",
    ),
    "no_negatives": (
        {"validation": (X, torch.ones(N)), "monitor": "fpr"},
        ValueError,
        "has no negatives, on which fpr",
    ),
    "no_auroc": (
        {"validation": (X, torch.ones(N)), "monitor": "auroc"},
        ValueError,
        "has no negatives, on which auroc",
    ),
    "no_positives_for_a_requirement": (
        {"validation": (X, torch.zeros(N)), "monitor": Monitor("accuracy", subject_to="recall >= 0.9")},
        ValueError,
        "has no positives, on which recall >= 0.9",
    ),
    "class_not_in_validation": (
        {
            "model": network(3),
            "train": (X, CLASSES),
            "objective": CE(),
            "validation": (X, CLASSES.clamp(max=1)),
            "monitor": metrics.recall[2],
        },
        ValueError,
        r"validation, for recall\[2\]: there is no sample of class 2",
    ),
    "class_beyond": (
        {
            "model": network(3),
            "train": (X, CLASSES),
            "objective": CE(),
            "validation": (X, CLASSES),
            "monitor": metrics.recall[3],
        },
        ValueError,
        r"recall\[3\]: the model has 3 classes, 0 to 2",
    ),
    "class_of_a_binary_model": (
        {"validation": (X, Y), "monitor": metrics.recall[1]},
        ValueError,
        r"recall\[1\]: the model has one output, class 0, the positives",
    ),
    "label_not_there": (
        {
            "model": network(3),
            "train": (X, LABELS * torch.tensor([1, 1, 0])),
            "objective": AugmentedLagrangian(BCE(), metrics.recall[2] >= 0.5),
        },
        ValueError,
        r"the training set, for recall\[2\] >= 0.5: there is no sample of class 2",
    ),
    "required_class": (
        {
            "model": network(3),
            "train": (X, CLASSES.clamp(max=1)),
            "objective": AugmentedLagrangian(CE(), metrics.recall[2] >= 0.5),
        },
        ValueError,
        r"the training set, for recall\[2\] >= 0.5: there is no sample of class 2",
    ),
    "loss_of_a_class": (
        {"model": network(3), "train": (X, CLASSES.clamp(max=1)), "objective": MetricLoss(metrics.recall[2])},
        ValueError,
        r"the training set, for recall\[2\]: there is no sample of class 2",
    ),
    "best_of_several": (
        {
            "model": network(3),
            "train": (X, CLASSES),
            "objective": CE(),
            "validation": (X, CLASSES),
            "monitor": "best f1",
        },
        ValueError,
        "classes exclude each other, so the largest logit decides",
    ),
    "auroc_of_one_sided_labels": (
        {"model": network(3), "train": (X, LABELS), "validation": (X, LABELS * ONE_SIDED), "monitor": "auroc"},
        ValueError,
        "the validation set has no positives or no negatives of some label, so auroc would be NaN; use a strat",
    ),
    "auroc_of_missing_classes": (
        {
            "model": network(3),
            "train": (X, CLASSES),
            "objective": CE(),
            "validation": (X, CLASSES.clamp(max=1)),
            "monitor": "auroc",
        },
        ValueError,
        "the validation set has no positives or no negatives of some class, so auroc would be NaN",
    ),
    "pairs_of_one_class": (
        {
            "model": network(3),
            "train": (X, CLASSES),
            "objective": CE(),
            "validation": (X, CLASSES * 0),
            "monitor": "auroc_ovo",
        },
        ValueError,
        "auroc_ovo would be NaN",
    ),
    "pairs_of_labels": (
        {"model": network(3), "train": (X, LABELS), "validation": (X, LABELS), "monitor": "auroc_ovo"},
        ValueError,
        r"validation, for auroc_ovo: pairs of classes \(one versus one\) need classes that exclude",
    ),
    "required_best_of_labels": (
        {
            "model": network(3),
            "train": (X, LABELS),
            "validation": (X, LABELS),
            "monitor": Monitor("f1", threshold="best", subject_to="recall >= 0.5"),
        },
        ValueError,
        "the best thresholds of several labels are searched without requirements",
    ),
    "thresholds_of_labels": (
        {
            "model": network(3),
            "train": (X, LABELS),
            "validation": (X, LABELS),
            "monitor": Monitor("f1", threshold=[0.2, 0.5]),
        },
        ValueError,
        "2 thresholds for 3 labels",
    ),
    "thresholds_of_classes": (
        {
            "model": network(3),
            "train": (X, CLASSES),
            "objective": CE(),
            "validation": (X, CLASSES),
            "monitor": Monitor("f1", threshold=[0.2, 0.5, 0.4]),
        },
        ValueError,
        "classes exclude each other, so the largest logit decides",
    ),
    "patience": ({"patience": 3}, ValueError, r"patience needs a validation set: pass validation=\(X, y\)"),
    "monitor_alone": ({"monitor": "f1"}, ValueError, "monitor='f1' needs a validation set"),
    "monitor_name": ({"monitor": "f11", "validation": (X, Y)}, (ValueError, KeyError), "f11"),
    "monitor_of_a_loader": (
        {"monitor": "f11", "validation": DataLoader(TensorDataset(X, Y))},
        (ValueError, KeyError),
        "f11",
    ),
    "weights": (
        {"train": (X, Y, torch.ones(N)), "objective": nn.BCEWithLogitsLoss()},
        ValueError,
        r"weights were given, but the objective BCEWithLogitsLoss takes none; use .* WeightedBCELoss\(\)",
    ),
    "hidden_multipliers": (
        {"objective": PerMember(AugmentedLagrangian(WeightedBCELoss(), "recall >= 0.9"), members=2)},
        TypeError,
        "PerMember cannot contain AugmentedLagrangian: .* Make the AugmentedLagrangian the objective itself",
    ),
    "validation_weights": (
        {"validation": (X, Y, torch.ones(N)), "objective": nn.BCEWithLogitsLoss()},
        ValueError,
        "BCEWithLogitsLoss takes none",
    ),
    "class_weights": (
        {"class_weight": "balanced", "objective": nn.BCEWithLogitsLoss()},
        ValueError,
        "BCEWithLogitsLoss takes none",
    ),
    "class_weight_name": ({"class_weight": "equal"}, ValueError, "'balanced' or one weight per class, got 'equal'"),
    "class_weight_count": (
        {"class_weight": [1.0]},
        ValueError,
        "class_weight has 1 weights, but the labels go up to 1",
    ),
    "class_weight_sign": ({"class_weight": [1.0, -1.0]}, ValueError, "one finite weight of at least 0 per class"),
    "class_weight_labels": (
        {"model": network(3), "train": (X, LABELS), "class_weight": "balanced"},
        ValueError,
        r"class_weight needs one label per sample, but the labels have shape \(40, 3\)",
    ),
    "class_weight_shares": ({"train": (X, Y * 0.7), "class_weight": "balanced"}, ValueError, "these are fractions"),
    "class_weight_dataset": (
        {"train": TensorDataset(X, Y), "class_weight": "balanced"},
        ValueError,
        "class_weight needs data in memory",
    ),
    "stratified_labels": (
        {"model": network(3), "train": (X, LABELS), "batch_size": Batches(20, stratified=True)},
        ValueError,
        r"stratified batches need one label per sample, but the labels have shape \(40, 3\)",
    ),
    "stratified_loader": (
        {"train": DataLoader(TensorDataset(X, Y)), "batch_size": Batches(20, stratified=True)},
        ValueError,
        "a DataLoader makes its own batches; for stratified or oversampled batches pass a Dataset",
    ),
    "epochs": ({"epochs": 0}, ValueError, "epochs must be an integer of at least 1"),
    "epochs_and_a_half": ({"epochs": 1.5}, ValueError, r"epochs must be an integer of at least 1, got 1\.5"),
    "batch_size_of_fractions": ({"batch_size": 64.0}, ValueError, "batch_size must be an integer of at least 1"),
    "class_as_objective": ({"objective": WeightedBCELoss}, TypeError, r"call it, WeightedBCELoss\(\.\.\.\)"),
    "recipe_as_objective": ({"objective": recipes.mix}, TypeError, r"call it, mix\(\.\.\.\)"),
    "function_as_objective": (
        {"objective": nn.functional.binary_cross_entropy_with_logits},
        TypeError,
        r"make it a module, with forward\(logits, target\)",
    ),
    "class_in_a_list": ({"objective": [WeightedBCELoss]}, TypeError, "a loss, a Stage or a list of Stages"),
    "optimizer_made": (
        {"optimizer": torch.optim.SGD(network().parameters(), lr=0.1)},
        TypeError,
        "give the class, such as torch.optim.AdamW, or a function, not a finished SGD",
    ),
    "scheduler_made": (
        {"scheduler": ExponentialLR(torch.optim.SGD(network().parameters(), lr=0.1), 0.9)},
        TypeError,
        "give a function.*not a finished ExponentialLR",
    ),
    "lbfgs": ({"optimizer": torch.optim.LBFGS}, ValueError, "LBFGS computes the loss several times per step"),
    "plateau_without_validation": ({"scheduler": ReduceLROnPlateau}, ValueError, r"pass validation=\(X, y\)"),
    "plateau_the_wrong_way": (
        {"scheduler": ReduceLROnPlateau, "validation": (X, Y), "monitor": "f1"},
        ValueError,
        "needs mode='max' if f1 is monitored",
    ),
    "callback": ({"callbacks": [print]}, TypeError, "a class made from metricfit.train.Callback, got <built-in"),
    "frozen": ({"model": network().requires_grad_(False)}, ValueError, "no weights to train: all are frozen"),
    "class_weight_of_names": ({"class_weight": {"a": 1.0}}, ValueError, "name classes by their numbers"),
    "class_weight_below_0": ({"class_weight": {0: -1.0}}, ValueError, "one finite weight of at least 0"),
    "lr": ({"lr": -1.0}, ValueError, "lr must be above 0"),
    "batch_size": ({"batch_size": 0}, ValueError, "batch_size must be an integer of at least 1"),
    "prior_of_classes": (
        {"model": network(3), "train": (X, CLASSES), "objective": CE(), "start_at_prior": True},
        ValueError,
        "start_at_prior=True needs one output",
    ),
    "prior_of_a_loader": (
        {"train": DataLoader(TensorDataset(X, Y)), "start_at_prior": True},
        ValueError,
        "labels known beforehand",
    ),
    "prior_without_bias": (
        {"model": nn.Linear(3, 1, bias=False), "start_at_prior": True},
        ValueError,
        "no layer with one output and a bias",
    ),
    "inputs": ({"train": (X[:, :2], Y)}, ValueError, r"the model fails on the first training samples.*shape \(2, 2\)"),
    "whole_numbers": ({"train": (X.long(), Y)}, ValueError, r"torch.int64 of shape \(2, 3\).*pass X.float\(\)"),
    "tuple": ({"model": Tuple(3, 1)}, TypeError, "the model must return a tensor of logits, got a tuple of"),
    "total": ({"model": Total(3, 1)}, ValueError, r"one row of logits per sample, got \(\) for 2"),
}


@pytest.mark.parametrize(("options", "error", "message"), WRONG.values(), ids=WRONG)
def test_invalid_calls_are_refused_before_anything_changes(options, error, message):
    settings = {"model": network(), "train": (X, Y), "objective": BCE(), "epochs": 1, "progress": False} | options
    model = settings["model"]
    before = copy.deepcopy(model.state_dict()) if isinstance(model, nn.Module) else {}
    with pytest.raises(error, match=message):
        fit(settings.pop("model"), settings.pop("train"), settings.pop("objective"), **settings)
    assert all(torch.equal(tensor, model.state_dict()[name]) for name, tensor in before.items())


def test_labels_that_the_objective_ignores_are_let_through():
    ignored = Y.clone()
    ignored[:5] = -1
    model = network()
    fit(model, (X, ignored), MetricLoss("f1", ignore_index=-1), epochs=1, lr=1e-9, progress=False)
    share = float((ignored == 1).sum() / (ignored >= 0).sum())
    assert float(model.bias.detach().sigmoid()) == pytest.approx(share, rel=1e-4)
    with pytest.raises(ValueError, match="train: all labels are ignored"):
        fit(model, (X, torch.full((N,), -1)), MetricLoss("f1", ignore_index=-1), progress=False)


@pytest.mark.parametrize(
    ("train", "validation", "message"),
    [
        (loader(Y), (X, Y * 0), "the validation set has no positives, on which f1 is measured"),
        (loader(Y), loader(Y * 0), "the validation set has no positives, on which f1 is measured"),
        (loader(Y), (X, 2 * Y - 1), "validation: binary labels must be 0 or 1.*map labels -1/1"),
        (loader(Y), loader(2 * Y - 1), "validation: binary labels must be 0 or 1.*map labels -1/1"),
        (loader(2 * Y - 1), (X, Y), "train, batch 0 of 5: binary labels must be 0 or 1.*map labels -1/1"),
        (loader(torch.where(torch.arange(N) == N - 1, 2, Y)), (X, Y), "train, batch 4 of 5: binary labels must"),
        (loader(LABELS), loader(LABELS), r"train, batch 0 of 5: the model's outputs \(n, 1\)"),
    ],
)
def test_batches_of_a_loader_are_checked_too(train, validation, message):
    with pytest.raises(ValueError, match=message):
        fit(network(), train, WeightedBCELoss(), validation=validation, monitor="f1", epochs=2, progress=False)


def test_a_loaders_batch_may_be_ignored_whole():
    y = torch.where(torch.arange(N) < 8, -100, Y)
    fit(network(), loader(y), MetricLoss("f1", ignore_index=-100), epochs=1, progress=False)


def test_makers_are_called_once_before_training_and_once_a_stage():
    """So that a mistake in the last stage shows before the first."""
    log = []

    class Logged(WeightedBCELoss):
        def forward(self, logits, target, weight=None):
            log.append("step")
            return super().forward(logits, target, weight)

    def optimizer(parameters, lr):
        log.append(f"optimizer at {lr}")
        return torch.optim.SGD(parameters, lr=lr)

    def scheduler(optimizer):
        log.append("scheduler")
        return ExponentialLR(optimizer, 0.9)

    stages = [Stage(Logged(), epochs=1, lr=lr) for lr in (0.1, 0.2)]
    fit(network(), (X, Y), stages, optimizer=optimizer, scheduler=scheduler, progress=False)
    first, second = (["optimizer at 0.1", "scheduler"], ["optimizer at 0.2", "scheduler"])
    assert log == [*first, *second, *first, "step", *second, "step"]


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"accumulate": 0}, "accumulate is the number of parts"),
        ({"accumulate": 1.5}, "an integer of at least 1; got 1.5"),
        ({"clip": 0.0}, "clip must be above 0"),
    ],
)
def test_steps_out_of_range_are_refused(settings, message):
    with pytest.raises(ValueError, match=message):
        Steps(**settings)
