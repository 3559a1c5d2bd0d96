"""evaluate: values equal to scikit-learn's, for all kinds of data, weights and tasks."""

import math

import numpy as np
import pytest
import torch
from evaluated_data import data, network, scores_of
from sklearn import metrics as sklearn_metrics
from torch import nn
from torch.utils.data import DataLoader, Dataset, TensorDataset

from metricfit import metrics
from metricfit.losses import MetricLoss, Mix, WeightedBCELoss
from metricfit.train import Evaluation, evaluate, fit


def test_values_are_scikit_learns():
    x, y = data()
    model = network()
    result = evaluate(model, (x, y), ["f1", metrics.fbeta(beta=2), "auroc", "average_precision"], threshold=0.4)
    scores = scores_of(model, x)
    decided = (scores >= 0.4).long()
    assert result["f1"] == pytest.approx(sklearn_metrics.f1_score(y, decided))
    assert result["fbeta(beta=2)"] == pytest.approx(sklearn_metrics.fbeta_score(y, decided, beta=2))
    assert result["auroc"] == pytest.approx(sklearn_metrics.roc_auc_score(y, scores))
    assert result["average_precision"] == pytest.approx(sklearn_metrics.average_precision_score(y, scores))
    assert torch.allclose(result.logits.sigmoid().squeeze(1), scores)
    assert torch.equal(result.target, y)
    assert result.threshold == 0.4


def test_one_metric_by_name_object_or_function():
    x, y = data()

    def jaccard(counts):
        return counts.tp / (counts.tp + counts.fp + counts.fn)

    model = network()
    expected = evaluate(model, (x, y), "jaccard")["jaccard"]
    assert evaluate(model, (x, y), metrics.jaccard).values == {"jaccard": expected}
    assert list(evaluate(model, (x, y), jaccard).values.values()) == [pytest.approx(expected)]
    assert evaluate(model, (x, y)).values.keys() == {"f1"}


@pytest.mark.parametrize(
    "kind",
    [
        lambda x, y: (x, y),
        lambda x, y: (x.numpy(), y.numpy()),
        lambda x, y: (x.double(), y.bool()),
        TensorDataset,
        lambda x, y: DataLoader(TensorDataset(x, y), batch_size=7, shuffle=True),
    ],
    ids=["tensors", "arrays", "other_types", "dataset", "loader"],
)
def test_all_kinds_of_data_give_the_same(kind):
    x, y = data()
    expected = evaluate(network(), (x, y), ["f1", "auroc"])
    result = evaluate(network(), kind(x, y), ["f1", "auroc"], batch_size=64)
    assert result.values == pytest.approx(expected.values)


def test_weights_count():
    x, y = data()
    weight = np.arange(300) % 5
    decided = (scores_of(network(), x) >= 0.5).long()
    expected = sklearn_metrics.f1_score(y, decided, sample_weight=weight)
    assert evaluate(network(), (x, y, weight))["f1"] == pytest.approx(expected)


class Items(Dataset):
    """Samples with weights, as tuples or as dictionaries."""

    def __init__(self, *columns, named=False):
        self.columns, self.named = columns, named

    def __len__(self):
        return len(self.columns[0])

    def __getitem__(self, index):
        item = tuple(column[index] for column in self.columns)
        return dict(zip(("x", "y", "weight"), item, strict=True)) if self.named else item


WEIGHTED = {
    "arrays": lambda x, y, w: (x.numpy(), y.numpy(), w.double().numpy()),
    "a column of weights": lambda x, y, w: (x, y, w.unsqueeze(1)),
    "dataset": Items,
    "dataset of dictionaries": lambda x, y, w: Items(x, y, w, named=True),
    "dataset of tensors": TensorDataset,
    "loader": lambda x, y, w: DataLoader(Items(x, y, w), batch_size=7, shuffle=True),
    "loader of dictionaries": lambda x, y, w: DataLoader(Items(x, y, w, named=True), batch_size=300),
    "loader of tensors": lambda x, y, w: DataLoader(TensorDataset(x, y, w), batch_size=11),
    "loader of whole weights": lambda x, y, w: DataLoader(TensorDataset(x, y, (8 * w).long()), batch_size=11),
}

TASKS = {
    "binary": (1, lambda x: data()[1]),
    "multiclass": (3, lambda x: (x[:, 0] > -0.5).long() + (x[:, 0] > 0.5)),
    "multilabel": (3, lambda x: (x[:, :3] + 0.3 * x[:, 1:] > 0.4).long()),
}


@pytest.mark.parametrize("kind", WEIGHTED)
@pytest.mark.parametrize("task", TASKS)
def test_weights_count_alike_in_all_kinds_of_data(kind, task):
    outputs, labels = TASKS[task]
    x, _ = data()
    y, weight = labels(x), (torch.arange(300) % 5) / 8  # eighths, so that sums are exact in any order
    model = network(outputs)
    wanted = ["f1", "mcc", "cost(fp=1, fn=3)"] + ["auroc", "average_precision", "best f1"] * (task == "binary")
    expected = evaluate(model, (x, y, weight), wanted)
    result = evaluate(model, WEIGHTED[kind](x, y, weight), wanted, batch_size=64)
    assert result.values == pytest.approx(expected.values, abs=1e-12)
    assert result["f1"] != pytest.approx(evaluate(model, (x, y))["f1"])
    decided = expected.logits.argmax(1) if task == "multiclass" else (expected.logits >= 0).squeeze(1).long()
    average = "binary" if task == "binary" else "macro"
    assert result["f1"] == pytest.approx(sklearn_metrics.f1_score(y, decided, average=average, sample_weight=weight))


@pytest.mark.parametrize("kind", [lambda *args: args, Items], ids=["tensors", "dataset"])
def test_weights_keep_their_precision_beside_half_precision_inputs(kind):
    x, y = data()
    weight = torch.arange(300.0) + 1
    model = network().bfloat16()
    result = evaluate(model, kind(x.bfloat16(), y, weight))
    decided = (result.logits.squeeze(1) >= 0).long()
    assert result["f1"] == pytest.approx(sklearn_metrics.f1_score(y, decided, sample_weight=weight), rel=1e-9)


def test_weights_of_some_batches_and_not_of_others_are_refused():
    x, y = data(20)
    batches = [(x[:10], y[:10], torch.ones(10)), (x[10:], y[10:])]
    loader = DataLoader(batches, batch_size=None)
    with pytest.raises(ValueError, match="1 of 2 batches have weights; give them to all or to none"):
        evaluate(network(), loader)


@pytest.mark.parametrize("average", ["macro", "micro", "weighted"])
def test_several_classes(average):
    x, _ = data()
    y = torch.arange(300) % 3
    model = network(3)
    with torch.no_grad():
        decided = model.eval()(x).argmax(1)
    expected = sklearn_metrics.f1_score(y, decided, average=average)
    assert evaluate(model, (x, y), "f1", average=average)["f1"] == pytest.approx(expected)


def test_the_model_is_left_as_it_was_without_gradients():
    x, y = data()
    model = network().train()
    result = evaluate(model, (x, y))
    assert model.training
    assert not result.logits.requires_grad
    assert result.values == evaluate(model, (x, y)).values  # no dropout
    assert not evaluate(network().eval(), (x, y)).logits.requires_grad


def test_it_prints_its_values():
    assert repr(Evaluation({"f1": 0.51234}, torch.zeros(3), torch.zeros(3), 0.5)) == (
        "Evaluation(f1=0.5123; n=3, threshold=0.5)"
    )


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"metrics": "loss"}, "evaluate measures metrics; for a loss, call it on the logits"),
        ({"metrics": ["f1", "f11"]}, "f11"),
        ({"threshold": 2.0}, "strictly between 0 and 1"),
        ({"threshold": "bets"}, "strictly between 0 and 1.*got 'bets'"),
        ({"threshold": [0.5, 1.0]}, "strictly between 0 and 1"),
        ({"threshold": [0.5, 0.4]}, "2 thresholds for 1 output"),
        ({"threshold": []}, "strictly between 0 and 1"),
        ({"metrics": []}, "at least one metric"),
        ({"metrics": "best auroc"}, "threshold='best' needs a metric of decisions"),
        ({"metrics": "f11"}, "Besides metrics there are loss, auroc, auroc_ovo, average_precision"),
        ({"average": "mean"}, "average must be 'macro', 'micro', 'weighted'"),
        ({"task": "labels"}, "task must be None or one of"),
        ({"task": "multiclass"}, "do not fit task='multiclass'"),
        ({"data": (torch.zeros(3, 4), torch.zeros(3, 2))}, r"logits \(3, 1\) with target \(3, 2\) fit no task"),
        ({"model": network(3), "metrics": "auroc_ovo", "data": (torch.zeros(3, 4), torch.zeros(3, 3))}, "exclude each"),
        ({"threshold": metrics.ThresholdGrid([0.4])}, "strictly between 0 and 1: a number, one number per label"),
        ({"model": network(3), "data": (torch.zeros(3, 4), torch.arange(3)), "threshold": "best"}, "best_offsets"),
        ({"model": network(3), "data": (torch.zeros(3, 4), torch.arange(3)), "metrics": "best f1"}, "best_offsets"),
        ({"model": network(3), "data": (torch.zeros(3, 4), torch.arange(3)), "threshold": [0.5] * 3}, "best_offsets"),
        ({"model": network(3), "data": (torch.zeros(3, 4), torch.arange(3) + 1)}, "3 classes need labels 0 to 2"),
        (
            {"model": nn.Flatten(0), "data": (torch.zeros(3, 4), torch.zeros(3))},
            r"one row of logits per sample.*\(12,\)",
        ),
        ({"average": None}, "average=None gives one number per class"),
        ({"data": (torch.full((3, 4), torch.nan), torch.zeros(3))}, "data's inputs hold NaN"),
    ],
)
def test_what_cannot_be_measured_is_refused(settings, message):
    with pytest.raises((ValueError, KeyError), match=message):
        evaluate(**{"model": network(), "data": data(), **settings})


def test_what_was_not_measured_is_a_key_error_that_says_what_was():
    with pytest.raises(KeyError, match="'recall' was not measured; there are f1, auroc"):
        evaluate(network(), data(), ["f1", "auroc"])["recall"]
    with pytest.raises(KeyError, match="'best f1' was not measured"):
        evaluate(network(), data(), "f1")["best f1"]


def test_overlapping_masks_are_evaluated_with_a_task():
    generator = torch.Generator().manual_seed(0)
    x = torch.randn(6, 3, 4, 5, generator=generator)
    y = (x + torch.randn(6, 3, 4, 5, generator=generator) > 0.3).long()
    with pytest.raises(ValueError, match="say which with task='multilabel' or task='multiclass'"):
        evaluate(nn.Identity(), (x, y))
    rows = [item.movedim(1, 3).reshape(-1, 3) for item in (x, y)]
    for threshold in (0.4, "best"):
        result = evaluate(nn.Identity(), (x, y), ["f1", "recall"], threshold=threshold, task="multilabel")
        assert result.values == pytest.approx(
            evaluate(nn.Identity(), rows, ["f1", "recall"], threshold=threshold).values
        )
    shares = torch.nn.functional.one_hot(y[:, 0], 3).movedim(3, 1)
    result = evaluate(nn.Identity(), (x, shares), "f1", task="multiclass")
    assert result["f1"] == pytest.approx(evaluate(nn.Identity(), (x, y[:, 0]))["f1"])


def test_what_fit_returns_is_evaluated_by_its_model():
    x, y = data()
    result = fit(network(), (x, y), WeightedBCELoss(), epochs=1, progress=False)
    assert evaluate(result, (x, y)).values == evaluate(result.model, (x, y)).values
    with pytest.raises(TypeError, match="a torch module or a FitResult, got str"):
        evaluate("model", (x, y))


class Fails(nn.Linear):
    """A model that cannot be run."""

    def forward(self, x):
        raise OSError("no")


def test_the_model_is_left_as_it_was_when_it_fails():
    model = Fails(4, 1).train()
    with pytest.raises(OSError, match="no"):
        evaluate(model, data())
    assert model.training


def one_hot(rows=40):
    x = torch.randn(rows, 3, generator=torch.Generator().manual_seed(0))
    return x, torch.nn.functional.one_hot(torch.arange(rows) % 3, 3)


@pytest.mark.parametrize("batch_size", [1, 5, 64])
@pytest.mark.parametrize("kind", [lambda x, y, size: (x, y), lambda x, y, size: DataLoader(TensorDataset(x, y), size)])
def test_one_hot_labels_are_judged_over_the_whole_set(kind, batch_size):
    x, y = one_hot()
    with pytest.warns(UserWarning, match="exactly one label.*task='multiclass'") as raised:
        evaluate(nn.Identity(), kind(x, y, batch_size), batch_size=batch_size)
    assert len(raised) == 1
    exclusive = evaluate(nn.Identity(), kind(x, y, batch_size), batch_size=batch_size, task="multiclass")
    assert exclusive["f1"] == pytest.approx(evaluate(nn.Identity(), (x, y.argmax(1)))["f1"])
    y[-1] = 1  # one row with several labels tells that the labels are independent; no warning is raised
    evaluate(nn.Identity(), kind(x, y, batch_size), batch_size=batch_size)


def test_class_shares_are_refused_without_a_task():
    x, y = one_hot()
    shares = 0.9 * y + 0.1 / 3
    with pytest.raises(ValueError, match="say which with task='multiclass' or task='multilabel'"):
        evaluate(nn.Identity(), DataLoader(TensorDataset(x, shares), 1))
    assert evaluate(nn.Identity(), (x, shares), "accuracy", task="multiclass")["accuracy"] > 0


def test_the_task_of_a_result_is_that_of_its_objective():
    masks = (torch.rand(4, 2, 3, 3, generator=torch.Generator().manual_seed(0)) < 0.4).float()
    x = torch.randn(4, 1, 3, 3, generator=torch.Generator().manual_seed(1))
    result = fit(
        nn.Conv2d(1, 2, 1),
        (x, masks),
        Mix((nn.BCEWithLogitsLoss(), 1.0), (MetricLoss("f1", task="multilabel"), 1.0)),
        epochs=1,
        progress=False,
    )
    assert evaluate(result, (x, masks))["f1"] == evaluate(result, (x, masks), task="multilabel")["f1"]
    with pytest.raises(ValueError, match="can be read as multilabel"):
        evaluate(result.model, (x, masks))


def test_aliases_name_the_values_that_they_asked_for():
    x, y = torch.tensor([[1.0], [-1.0], [2.0], [0.5]]), torch.tensor([1, 0, 1, 0])
    result = evaluate(nn.Identity(), (x, y), ["dice", "iou", "best sensitivity"])
    assert list(result.values) == ["f1", "jaccard", "best recall"]
    assert result["dice"] == result["f1"]
    assert result["iou"] == result["jaccard"]
    assert result["best tpr"] == result["best recall"]
    tuned = evaluate(nn.Identity(), (x, y), "dice", threshold="best")
    assert tuned["best dice"] == tuned["dice"] == tuned["f1"]
    with pytest.raises(KeyError, match="'ppv' was not measured; there are f1, jaccard, best recall"):
        result["ppv"]


def test_what_is_0_by_0_is_printed_as_not_known():
    x, y = torch.tensor([[1.0], [-1.0], [-2.0], [2.0]]), torch.tensor([0, 0, 0, 1])
    result = evaluate(nn.Identity(), (x[:3], y[:3]), ["recall", "fnr", "gmean", "specificity"])
    assert result.undefined == {"recall", "fnr", "gmean"}
    assert repr(result).startswith("Evaluation(recall=not known, fnr=not known, gmean=not known, specificity=0.6667;")
    assert result["recall"] == sklearn_metrics.recall_score(y[:3], x[:3, 0] >= 0, zero_division=0)
    assert not evaluate(nn.Identity(), (x, y), ["recall", "fnr", "gmean"]).undefined
    assert not evaluate(nn.Identity(), (x[:3], y[:3]), "recall", zero_division=1).undefined
    counted = evaluate(nn.Identity(), (x[:3], y[:3]), ["recall", "specificity"], keep_logits=False)
    assert counted.undefined == {"recall"}
    groups = evaluate(nn.Identity(), (x, y), ["recall", "fpr"], groups=[0, 0, 1, 2]).by_group
    assert math.isnan(groups[0]["recall"])
    assert math.isnan(groups[2]["fpr"])
    assert (groups[0]["fpr"], groups[2]["recall"]) == (0.5, 1.0)


def test_zero_division_applies_to_the_metrics_that_take_it():
    x, y = torch.tensor([[-1.0], [-2.0]]), torch.tensor([0, 0])
    result = evaluate(nn.Identity(), (x, y), ["accuracy", "recall"], zero_division=1)
    assert result.values == {"accuracy": 1.0, "recall": 1.0}
    both = torch.tensor([0, 1])
    result = evaluate(nn.Identity(), (x, both), ["auroc", "precision", "best recall"], zero_division=1)
    assert result["precision"] == sklearn_metrics.precision_score(both, [0, 0], zero_division=1)
    for alone, message in (("accuracy", "a metric of all decisions"), ("auroc", "not with 'auroc'")):
        with pytest.raises(ValueError, match=message):
            evaluate(nn.Identity(), (x, both), alone, zero_division=1)


class Gives(nn.Module):
    """A model with outputs of another kind, as those of libraries for segmentation and for text."""

    def __init__(self, outputs):
        super().__init__()
        self.outputs, self.weight = outputs, nn.Parameter(torch.zeros(()))

    def forward(self, x):
        return self.outputs


@pytest.mark.parametrize(
    ("outputs", "remedy"),
    [
        (
            {"loss": 0, "logits": torch.zeros(2, 1)},
            r"dict with 'loss', 'logits'; .* return self.model\(x\)\['logits'\]",
        ),
        ({"out": torch.zeros(2, 1)}, r"return self.model\(x\)\['out'\]"),
        ((torch.zeros(2, 1), torch.zeros(2, 1)), r"a tuple of 2; .* return self.model\(x\)\[0\]"),
        ("text", "got a str; wrap it in a module whose forward returns the logits"),
    ],
)
def test_outputs_that_are_no_tensor_name_the_remedy(outputs, remedy):
    x, y = torch.zeros(2, 1), torch.tensor([0, 1])
    for call in (lambda: evaluate(Gives(outputs), (x, y)), lambda: fit(Gives(outputs), (x, y), WeightedBCELoss())):
        with pytest.raises(TypeError, match=remedy):
            call()
