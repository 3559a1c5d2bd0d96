"""evaluate adds up counts batch by batch where these are enough, with the values of all logits together."""

import weakref

import pytest
import torch
from torch import nn
from torch.utils.data import DataLoader

from metricfit.train import evaluate

DRAWN = torch.Generator().manual_seed(0)
X = torch.randn(60, 4, 5, 5, generator=DRAWN)
MASKS = torch.randint(4, (60, 5, 5), generator=DRAWN)
WEIGHT = torch.rand(60, generator=DRAWN)
COLUMN = torch.randn(60, generator=DRAWN)
LABELS = torch.randint(2, (60,), generator=DRAWN)
ROWS = torch.randn(60, 4, generator=DRAWN)
SEVERAL = torch.randint(2, (60, 4), generator=DRAWN)

CASES = {
    "masks": ((X, MASKS), {"metrics": ["f1", "jaccard", "mcc"]}),
    "weighted_masks": ((X, MASKS, WEIGHT), {"metrics": "f1", "average": "weighted", "ignore_index": 2}),
    "overlapping_masks": ((X, (X > 0.5).long()), {"metrics": "f1", "task": "multilabel", "threshold": 0.3}),
    "thresholds": ((ROWS, SEVERAL), {"metrics": "f1", "threshold": [0.3, 0.4, 0.5, 0.6]}),
    "matrix": ((ROWS, MASKS[:, 0, 0]), {"metrics": ["weighted_kappa(power=2)", "accuracy"]}),
    "binary": ((COLUMN.unsqueeze(1), LABELS), {"metrics": ["f1", "mcc", lambda counts: counts.tp / counts.n]}),
}


class Counted(nn.Module):
    """Returns its inputs, and notes how many of its earlier outputs are still alive."""

    def __init__(self):
        super().__init__()
        self.seen, self.alive = [], []

    def forward(self, x):
        logits = x.clone()
        self.alive.append(sum(reference() is not None for reference in self.seen))
        self.seen.append(weakref.ref(logits.untyped_storage()))
        return logits


@pytest.mark.parametrize("name", CASES)
def test_counts_give_the_values_of_all_logits(name):
    data, settings = CASES[name]
    whole = evaluate(nn.Identity(), data, keep_logits=True, **settings)
    model = Counted()
    counted = evaluate(model, data, keep_logits=False, batch_size=7, **settings)
    assert counted.values == pytest.approx(whole.values, abs=1e-12)
    assert repr(counted) == repr(whole)
    assert (counted.logits, counted.target, counted.rows) == (None, None, 60)
    assert len(model.seen) == 9


def test_images_are_counted_by_default_and_other_logits_are_kept():
    assert evaluate(nn.Identity(), (X, MASKS), "f1").logits is None
    assert evaluate(nn.Identity(), (X, MASKS), "f1", keep_logits=True).logits.shape == X.shape
    assert evaluate(nn.Identity(), (ROWS, SEVERAL), "f1").logits.shape == ROWS.shape


def test_one_batch_of_logits_is_in_memory():
    model = Counted()
    evaluate(model, DataLoader([(x, y) for x, y in zip(X, MASKS, strict=True)], batch_size=4), "f1")
    assert len(model.alive) == 15
    assert max(model.alive) == 0


@pytest.mark.parametrize(
    "settings",
    [{"metrics": "auroc"}, {"metrics": "best f1"}, {"threshold": "best"}, {"groups": LABELS}],
    ids=["ranking", "own_threshold", "best", "groups"],
)
def test_what_needs_scores_is_measured_on_all_of_them(settings):
    whole = evaluate(nn.Identity(), (COLUMN, LABELS), **settings)
    dropped = evaluate(nn.Identity(), (COLUMN, LABELS), keep_logits=False, batch_size=7, **settings)
    assert (dropped.values, dropped.by_group) == (whole.values, whole.by_group)
    assert repr(dropped) == repr(whole)
    assert dropped.logits is None


def test_wrong_labels_are_refused_in_any_batch():
    wrong = MASKS.clone()
    wrong[-1, 0, 0] = 4
    with pytest.raises(ValueError, match=r"labels|classes"):
        evaluate(nn.Identity(), (X, wrong), "f1", batch_size=7)
    shares = torch.rand(60, 4, generator=DRAWN).softmax(1)
    with pytest.raises(ValueError, match="sum to 1"):
        evaluate(nn.Identity(), (ROWS, shares), "f1", keep_logits=False, batch_size=7)
    with pytest.raises(ValueError, match="NaN"):
        evaluate(lambda_module(lambda x: torch.where(x.abs() > 2.5, torch.nan, x)), (X, MASKS), "f1", batch_size=7)


def lambda_module(function):
    module = nn.Identity()
    module.forward = function
    return module
