"""An Accumulator in torchmetrics: values by scikit-learn, epochs, collections, a Lightning module."""

import pytest
import torch
from sklearn.metrics import f1_score

torchmetrics = pytest.importorskip("torchmetrics")

from metricfit.errors import InvalidStateError, InvalidTypeError  # noqa: E402
from metricfit.integrations import as_torchmetrics  # noqa: E402
from metricfit.metrics import Accumulator, PerLabel  # noqa: E402

Z = torch.randn(60, 3, generator=torch.Generator().manual_seed(0))
Y = torch.randint(0, 3, (60,), generator=torch.Generator().manual_seed(1))


def test_the_value_of_a_stream_and_a_new_epoch():
    quality = as_torchmetrics(Accumulator("f1"))
    for rows in torch.arange(60).split(25):
        quality.update(Z[rows], Y[rows])
    assert quality.compute().item() == pytest.approx(f1_score(Y, Z.argmax(1), average="macro"), abs=1e-6)
    quality.reset()
    value_of_batch = quality(Z[:20], Y[:20])
    assert value_of_batch.item() == pytest.approx(f1_score(Y[:20], Z[:20].argmax(1), average="macro"), abs=1e-6)
    assert quality.compute() == value_of_batch


def test_collections_save_and_load():
    several = torchmetrics.MetricCollection(
        {name: as_torchmetrics(Accumulator(name)) for name in ("f1", "accuracy", "weighted_kappa(power=2)")}
    )
    several.persistent(True)
    several.update(Z, Y)
    again = torchmetrics.MetricCollection(
        {name: as_torchmetrics(Accumulator(name)) for name in ("f1", "accuracy", "weighted_kappa(power=2)")}
    )
    again.load_state_dict(several.state_dict())
    assert again["accuracy"].total.sum() == several["accuracy"].total.sum()
    assert several.compute()["accuracy"].item() == pytest.approx((Z.argmax(1) == Y).double().mean().item())


def test_the_direction_is_that_of_the_metric():
    assert as_torchmetrics(Accumulator("f1")).higher_is_better
    assert not as_torchmetrics(Accumulator("cost(fp=1, fn=5)")).higher_is_better


def test_other_objects_are_refused():
    with pytest.raises(InvalidTypeError, match="Accumulator"):
        as_torchmetrics("f1")


def test_a_value_without_batches_is_refused():
    quality = as_torchmetrics(Accumulator("f1"))
    with pytest.warns(UserWarning, match="before the ``update``"), pytest.raises(InvalidStateError, match="no batch"):
        quality.compute()


def check_collection(accumulators, batches):
    """Each metric of a collection has the value that it has alone."""
    together = torchmetrics.MetricCollection({name: as_torchmetrics(each) for name, each in accumulators.items()})
    for logits, target in batches:
        together.update(logits, target)
        for each in accumulators.values():
            each.update(logits, target)
    alone = {name: each.compute().item() for name, each in accumulators.items()}
    assert {name: value.item() for name, value in together.compute().items()} == pytest.approx(alone)
    assert len(set(alone.values())) == len(alone)
    return together


def test_metrics_whose_sums_agree_on_the_first_batch_stay_apart():
    images = torch.randn(2, 3, 1, 4, 4, generator=torch.Generator().manual_seed(2))
    masks = torch.randint(0, 2, (2, 3, 1, 4, 4), generator=torch.Generator().manual_seed(3))
    images[0] = -9.0  # nothing is predicted, so that dice and iou are both 0
    batches = list(zip(images, masks, strict=True))
    check_collection({name: Accumulator(name, per_image=True) for name in ("dice", "iou")}, batches)
    functions = {"twice": lambda counts: 2 * counts.tp, "thrice": lambda counts: 3 * counts.tp}
    check_collection({name: Accumulator(formula, per_image=True) for name, formula in functions.items()}, batches)


@pytest.mark.parametrize("thresholds", [(0.5, 0.3), (PerLabel([0.5, 0.5, 0.5]), PerLabel([0.5, 0.3, 0.5]), 0.4)])
def test_thresholds_whose_counts_agree_on_the_first_batch_stay_apart(thresholds):
    labels = torch.nn.functional.one_hot(Y, 3)
    first = torch.where(labels[:20] == 1, 5.0, -5.0)
    accumulators = {
        f"at {k}": Accumulator("f1", task="multilabel", threshold=each) for k, each in enumerate(thresholds)
    }
    check_collection(accumulators, [(first, labels[:20]), (Z[20:], labels[20:])])


def test_a_gap_takes_groups():
    group = torch.arange(60) % 2
    quality = as_torchmetrics(Accumulator("recall.gap(2)"))
    quality.update(Z[:, 0], (Y == 0).long(), group=group)
    expected = Accumulator("recall.gap(2)")
    expected.update(Z[:, 0], (Y == 0).long(), group=group)
    assert quality.compute() == expected.compute()
    with pytest.raises(ValueError, match="pass group="):
        quality.update(Z[:, 0], (Y == 0).long())


def test_a_collection_has_gaps_and_other_metrics():
    group, target = torch.arange(60) % 2, (Y == 0).long()
    both = torchmetrics.MetricCollection(
        {"gap": as_torchmetrics(Accumulator("recall.gap(2)")), "f1": as_torchmetrics(Accumulator("f1"))}
    )
    both.update(Z[:, 0], target, group=group)
    expected = Accumulator("f1")
    expected.update(Z[:, 0], target)
    assert both.compute()["f1"] == expected.compute()


def test_images_are_weighed():
    images, masks = torch.randn(3, 1, 4, 4), torch.randint(0, 2, (3, 1, 4, 4))
    weight = torch.tensor([1.0, 50.0, 0.0])
    quality, expected = as_torchmetrics(Accumulator("dice", per_image=True)), Accumulator("dice", per_image=True)
    quality.update(images, masks, weight)
    expected.update(images, masks, weight)
    assert quality.compute() == expected.compute()


def test_another_number_of_classes_is_refused():
    quality = as_torchmetrics(Accumulator("f1"))
    quality.update(Z[:, 0], (Y == 0).long())
    with pytest.raises(ValueError, match=r"\(4, 1\), and this one of \(4, 3\); call reset\(\)"):
        quality.update(Z, Y)
