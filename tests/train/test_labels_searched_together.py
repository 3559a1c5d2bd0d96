"""The best thresholds of all labels at once are those of one label at a time."""

import pytest
import torch

from metricfit.core.settings import CountSettings
from metricfit.core.tasks import canonical
from metricfit.metrics import get_metric
from metricfit.train import label_thresholds


@pytest.mark.parametrize("name", ["f1", "mcc", "fnr", "cost(fp=1, fn=3)", "precision"])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.float16])
def test_thresholds_are_those_of_each_label_alone(name, dtype, monkeypatch):
    metric, generator = get_metric(name), torch.Generator().manual_seed(0)
    for n in (2, 9, 40):
        logits = 3 * torch.randn(n, 4, generator=generator)
        logits[:, 1] = logits[:, 1].round()  # ties
        target = (torch.rand(n, 4, generator=generator) < 0.4).long()
        target[:, 2], target[:, 3] = 0, 1
        labels = canonical(logits.to(dtype), target, CountSettings(task="multilabel"))
        assert label_thresholds._search_together(labels, metric) is not None
        together = label_thresholds.best_label_thresholds(labels, metric, "macro")
        with monkeypatch.context() as without:
            without.setattr(label_thresholds, "_search_together", lambda labels, metric: None)
            expected = label_thresholds.best_label_thresholds(labels, metric, "macro")
        torch.testing.assert_close(together, expected, rtol=0, atol=1e-12)


def test_logits_that_no_halfway_probability_separates_are_searched_one_by_one():
    logits = torch.tensor([[30.0, 0.0], [36.0, 1.0], [36.5, 2.0], [40.0, -1.0]], dtype=torch.float64)
    labels = canonical(logits, torch.tensor([[0, 1], [0, 1], [0, 1], [1, 0]]), CountSettings(task="multilabel"))
    assert label_thresholds._search_together(labels, get_metric("f1")) is None
    thresholds = label_thresholds.best_label_thresholds(labels, get_metric("f1"), "macro")
    assert ((thresholds > 0) & (thresholds < 1)).all()
