"""Accumulator: the value of a stream is that of all its rows, by scikit-learn."""

import copy

import pytest
import torch
from sklearn.metrics import cohen_kappa_score, f1_score, matthews_corrcoef

from metricfit import metrics
from metricfit.errors import InvalidStateError
from metricfit.metrics import Accumulator

Z = torch.randn(90, 4, generator=torch.Generator().manual_seed(0))
Y = torch.randint(0, 4, (90,), generator=torch.Generator().manual_seed(1))
W = torch.rand(90, generator=torch.Generator().manual_seed(2)) + 0.5


@pytest.mark.parametrize(
    ("metric", "score"),
    [
        ("f1", lambda y, d, w: f1_score(y, d, average="macro", sample_weight=w)),
        ("mcc", lambda y, d, w: matthews_corrcoef(y, d, sample_weight=w)),
        ("weighted_kappa(power=2)", lambda y, d, w: cohen_kappa_score(y, d, weights="quadratic", sample_weight=w)),
    ],
)
def test_batches_add_up(metric, score):
    stream = Accumulator(metric)
    for rows in torch.arange(90).split(17):
        stream.update(Z[rows], Y[rows], W[rows])
    expected = score(Y, Z.argmax(1), W)
    assert stream.compute().item() == pytest.approx(expected, abs=1e-6)
    resumed = Accumulator(metric)
    resumed.load_state_dict(copy.deepcopy(stream.state_dict()))
    assert resumed.compute() == stream.compute()
    stream.sync()  # one process: nothing changes
    assert stream.compute().item() == pytest.approx(expected, abs=1e-6)
    stream.reset()
    stream(Z[:50], Y[:50])
    assert stream.compute().item() == pytest.approx(score(Y[:50], Z[:50].argmax(1), None), abs=1e-6)


def test_labels_of_one_binary_and_of_several_labels():
    binary = Accumulator("f1", threshold=0.3)
    binary.update(Z[:, 0], (Y == 0).long())
    assert binary.compute().item() == pytest.approx(f1_score(Y == 0, Z[:, 0].sigmoid() >= 0.3))
    labels = torch.stack([Y > 0, Y > 2], 1).long()
    several = Accumulator("f1", average=None)
    several.update(Z[:, :2], labels)
    several.update(Z[:, :2], labels)
    expected = f1_score(labels, Z[:, :2] >= 0, average=None)
    assert several.compute().tolist() == pytest.approx(expected.tolist())


def test_ignored_labels():
    stream = Accumulator("accuracy", ignore_index=3)
    stream.update(Z, Y)
    kept = Y != 3
    assert stream.compute().item() == pytest.approx((Z.argmax(1) == Y)[kept].double().mean().item())


def test_what_is_refused():
    with pytest.raises(InvalidStateError, match="has seen no batch"):
        Accumulator("f1").compute()
    stream = Accumulator(metrics.f1)
    stream.update(Z, Y)
    with pytest.raises(ValueError, match="the batch needs"):
        stream.update(Z[:, :3], Y.clamp(max=2))
    with pytest.raises(ValueError, match="average must be"):
        Accumulator("f1", average="mean")


def test_the_gap_between_groups_of_all_batches():
    generator = torch.Generator().manual_seed(0)
    logits, target = torch.randn(90, generator=generator), torch.randint(2, (90,), generator=generator)
    group = torch.arange(90) % 3
    quality = Accumulator("recall.gap(3)")
    for rows in torch.arange(90).split(40):
        quality.update(logits[rows], target[rows], group=group[rows])
    recalls = [float((logits[(group == k) & (target == 1)] >= 0).double().mean()) for k in range(3)]
    assert float(quality.compute()) == pytest.approx(max(recalls) - min(recalls))
    with pytest.raises(ValueError, match="pass group=, one number per row"):
        quality.update(logits, target)
    with pytest.raises(ValueError, match="leave group out"):
        Accumulator("recall").update(logits, target, group=group)


def test_exclusive_classes_are_not_added_to_labels():
    stream, labels = Accumulator("f1"), (Z > 0.3).long()
    stream.update(Z, labels)
    stream.update(Z[:0], labels[:0])
    with pytest.raises(ValueError, match=r"exclusive classes.*the earlier ones of several labels"):
        stream.update(Z, Y)
    stream.reset()
    stream.update(Z, Y)
    assert stream.compute().item() == pytest.approx(f1_score(Y, Z.argmax(1), average="macro"))


def test_repr_names_the_settings():
    stream = Accumulator("f1", threshold=metrics.PerLabel([0.2, 0.5]), average="micro", classes=[1], zero_division=0)
    assert repr(stream) == (
        "Accumulator('f1', threshold=PerLabel([0.2, 0.5]), classes=[1], zero_division=0, average='micro')"
    )
    assert repr(Accumulator("f1")) == "Accumulator('f1')"


def test_another_number_of_outputs_is_named_as_that():
    stream, of_images = Accumulator("f1"), Accumulator("f1", per_image=True, task="multilabel")
    stream.update(Z[:, 0], (Z[:, 0] > 0.3).long())
    with pytest.raises(ValueError, match=r"\(4, 1\).*\(4, 4\); call reset\(\) before another stream"):
        stream.update(Z, (Z > 0.3).long())
    of_images.update(torch.randn(2, 3, 4, 4), torch.ones(2, 3, 4, 4))
    of_images.task = None
    with pytest.raises(ValueError, match=r"this batch has targets of one output or exclusive classes, \(n,\)"):
        of_images.update(torch.randn(2, 1, 4, 4), torch.ones(2, 1, 4, 4))
