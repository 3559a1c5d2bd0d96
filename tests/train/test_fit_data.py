"""fit on all kinds of data: tensors, datasets and loaders, several classes, class weights and ignored labels."""

import pandas as pd
import pytest
import torch
from small_fits import X32, Y32, N, data, network, trained, weights_of
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

from metricfit import MetricLoss
from metricfit.losses import WeightedBCELoss
from metricfit.train import Hardware, evaluate
from metricfit.train.data.batches import Batches


@pytest.mark.parametrize("workers", [0, 2])
def test_a_dataset_gives_what_tensors_give_dropout_included(workers):
    settings = {"validation": data(), "monitor": "f1"}
    from_tensors = trained(WeightedBCELoss(), model=network(dropout=0.5), **settings)
    settings["validation"] = TensorDataset(*data())
    from_dataset = trained(
        WeightedBCELoss(),
        TensorDataset(*data()),
        model=network(dropout=0.5),
        hardware=Hardware(workers=workers),
        **settings,
    )
    assert torch.equal(weights_of(from_tensors.model), weights_of(from_dataset.model))
    assert from_tensors.history == from_dataset.history


def test_a_loader_with_the_same_batches_gives_what_tensors_give():
    x, y = data()
    whole = trained(WeightedBCELoss(), model=network(dropout=0.5), batch_size=N, start_at_prior=False)
    (order,) = Batches(N).divide(y, 0, 0, 0)
    first = trained(
        WeightedBCELoss(),
        DataLoader(TensorDataset(x[order], y[order]), batch_size=N),
        model=network(dropout=0.5),
        epochs=1,
    )
    assert first.history[0]["train_loss"] == pytest.approx(whole.history[0]["train_loss"], abs=1e-12)
    validated = trained(
        WeightedBCELoss(), validation=DataLoader(TensorDataset(x, y), batch_size=7, shuffle=True), monitor="auroc"
    )
    twin = trained(WeightedBCELoss(), validation=(x, y), monitor="auroc")
    assert validated.history["value"] == pytest.approx(twin.history["value"])


KINDS = {
    "numpy": lambda: (X32.numpy(), Y32.numpy()),
    "pandas": lambda: (pd.DataFrame(X32.numpy()), pd.Series(Y32.numpy())),
    "lists": lambda: (X32.tolist(), Y32.tolist()),
    "float64": lambda: (X32.double(), Y32.double()),
    "bool": lambda: (X32, Y32.bool()),
    "uint8": lambda: (X32, Y32.byte()),
    "int32": lambda: (X32, Y32.int()),
    "column": lambda: (X32, Y32.unsqueeze(1)),
}


@pytest.mark.parametrize("settings", KINDS.values(), ids=KINDS)
@pytest.mark.parametrize("objective", [nn.BCEWithLogitsLoss, lambda: MetricLoss("f1")], ids=["torchs_bce", "metric"])
def test_all_kinds_of_inputs_and_labels_give_the_same(settings, objective):
    model = network(dtype=torch.float32)
    expected = trained(objective(), (X32, Y32), network(dtype=torch.float32))
    result = trained(objective(), settings(), model, validation=settings(), monitor="f1", epochs=4)
    assert result.history["train_loss"] == pytest.approx(expected.history["train_loss"], abs=1e-6)


def test_one_output_with_or_without_its_axis():
    class Flat(nn.Module):
        def __init__(self):
            super().__init__()
            self.inner = network()

        def forward(self, x):
            return self.inner(x).squeeze(1)

    for labels in (data()[1], data()[1].unsqueeze(1)):
        flat = trained(nn.BCEWithLogitsLoss(), (data()[0], labels), Flat(), validation=data(), monitor="best f1")
        column = trained(nn.BCEWithLogitsLoss(), (data()[0], labels), validation=data(), monitor="best f1")
        assert flat.history == column.history


def labels_for(outputs):
    x, y = data()
    classes = y + (x[:, 1] > 0).long()
    return {"multiclass": classes, "multilabel": torch.stack([y, 1 - y, (x[:, 1] > 0).long()], 1)}[outputs]


SEVERAL = {
    "cross_entropy": ("multiclass", nn.CrossEntropyLoss),
    "multi_margin": ("multiclass", nn.MultiMarginLoss),
    "metric": ("multiclass", lambda: MetricLoss("f1")),
    "multilabel_bce": ("multilabel", nn.BCEWithLogitsLoss),
    "soft_margin": ("multilabel", nn.MultiLabelSoftMarginLoss),
    "multilabel_metric": ("multilabel", lambda: MetricLoss("f1")),
}


@pytest.mark.parametrize(("kind", "objective"), SEVERAL.values(), ids=SEVERAL)
@pytest.mark.parametrize("dtype", [torch.int64, torch.uint8])
def test_several_classes_and_several_labels(kind, objective, dtype):
    x, _ = data()
    train = x, labels_for(kind).to(dtype)
    result = trained(objective(), train, network(3), validation=train, monitor="f1", epochs=25)
    assert result.best > 0.6
    assert evaluate(result.model, train, "f1")["f1"] == pytest.approx(result.best)


def test_balanced_class_weights_are_the_weights_they_stand_for():
    x, y = data()
    positives = int(y.sum())
    by_class = torch.tensor([N / (2 * (N - positives)), N / (2 * positives)])
    balanced = trained(WeightedBCELoss(), class_weight="balanced")
    explicit = trained(WeightedBCELoss(), (x, y, by_class[y]))
    listed = trained(WeightedBCELoss(), class_weight=by_class.tolist())
    by_name = trained(WeightedBCELoss(), class_weight=dict(enumerate(by_class.tolist())))
    assert torch.equal(weights_of(by_name.model), weights_of(listed.model))
    torch.testing.assert_close(weights_of(balanced.model), weights_of(explicit.model), rtol=0, atol=1e-6)
    torch.testing.assert_close(weights_of(listed.model), weights_of(balanced.model), rtol=0, atol=1e-6)
    twice = trained(WeightedBCELoss(), (x, y, torch.full((N,), 2.0)), class_weight="balanced")
    torch.testing.assert_close(weights_of(twice.model), weights_of(balanced.model), rtol=0, atol=1e-6)


def test_class_weights_are_not_for_the_validation_set():
    weighted = trained(WeightedBCELoss(), class_weight="balanced", validation=data(), epochs=1, lr=1e-12)
    plain = trained(WeightedBCELoss(), validation=data(), epochs=1, lr=1e-12)
    assert weighted.history["validation_loss"] == pytest.approx(plain.history["validation_loss"], abs=1e-9)


@pytest.mark.parametrize("option", [{"stratified": True}, {"oversample": 0.5}])
def test_stratified_and_oversampled_batches_reach_the_objective(option):
    class Shares(WeightedBCELoss):
        seen: list[float] = []  # noqa: RUF012

        def forward(self, logits, target, weight=None):
            self.seen.append(float(target.mean()))
            return super().forward(logits, target, weight)

    Shares.seen.clear()
    _, y = data()
    trained(Shares(), batch_size=Batches(15, **option), epochs=1)
    if "oversample" in option:
        assert sum(Shares.seen) / len(Shares.seen) == pytest.approx(0.5, abs=0.01)
    else:
        share = float(y.double().mean())
        assert all(abs(item - share) <= 1 / 15 for item in Shares.seen)


@pytest.mark.parametrize(
    "option",
    [
        {"class_weight": "balanced"},
        {"class_weight": {1: 5.0}},
        {"batch_size": Batches(25, stratified=True)},
        {"batch_size": Batches(25, oversample=0.6)},
    ],
    ids=str,
)
def test_ignored_labels_are_no_class(option):
    """Ignored samples of any label train what ignored samples of another do, and are not dealt as positives."""
    x, y = data()
    kept = torch.arange(N) % 3 > 0
    results = []
    for label in (-100, 255):
        marked = torch.where(kept, y, label)
        loss = MetricLoss("f1", ignore_index=label)
        results.append(weights_of(trained(loss, (x, marked), **{"batch_size": 25} | option).model))
    assert torch.equal(*results)


def test_balanced_class_weights_are_of_what_is_not_ignored():
    x, y = data()
    kept = torch.arange(N) % 3 > 0
    share = y[kept].double().mean().item()
    by_class = {0: 0.5 / (1 - share), 1: 0.5 / share}
    loss, marked = MetricLoss("f1", ignore_index=255), torch.where(kept, y, 255)
    balanced, listed = (trained(loss, (x, marked), class_weight=entry) for entry in ("balanced", by_class))
    torch.testing.assert_close(weights_of(balanced.model), weights_of(listed.model), rtol=0, atol=1e-6)


def test_a_column_of_labels_can_be_stratified():
    x, y = data()
    column, row = (
        trained(WeightedBCELoss(), (x, item), batch_size=Batches(50, stratified=True)) for item in (y[:, None], y)
    )
    assert torch.equal(weights_of(column.model), weights_of(row.model))
