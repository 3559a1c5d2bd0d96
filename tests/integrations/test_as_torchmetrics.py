"""An Accumulator in torchmetrics: values by scikit-learn, epochs, collections, a Lightning module."""

import pytest
import torch
from sklearn.metrics import f1_score

torchmetrics = pytest.importorskip("torchmetrics")

from metricfit.errors import InvalidStateError, InvalidTypeError  # noqa: E402
from metricfit.integrations import as_torchmetrics  # noqa: E402
from metricfit.metrics import Accumulator  # noqa: E402

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
