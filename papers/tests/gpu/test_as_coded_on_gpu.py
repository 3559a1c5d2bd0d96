"""The losses as coded teach the same from CUDA graphs as from Python's steps."""

import pytest
import torch
from torch import nn

from metricfit.steps import Linear
from metricfit_papers.baselines.as_coded import AUROCAsCoded, MetricAsCoded
from metricfit_papers.graphs import CapturedLearner
from metricfit_papers.populations import fit_population

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device"),
]


@pytest.fixture(autouse=True)
def short_runs_are_captured(monkeypatch):
    monkeypatch.setattr("metricfit_papers.graphs.FEWEST_STEPS", 1)


def trained_weights(loss, graphs):
    generator = torch.Generator().manual_seed(0)
    x = torch.randn(1000, 6, generator=generator)
    y = (x[:, 0] + torch.randn(1000, generator=generator) > 0.5).long()
    torch.manual_seed(0)
    models = [nn.Sequential(nn.Linear(6, 16), nn.ReLU(), nn.Linear(16, 1)) for _ in range(3)]
    splits = [(list(range(700)), list(range(700, 1000)))] * 3
    settings = {"make_learner": CapturedLearner} if graphs else {}
    results = fit_population(models, (x, y), loss, splits=splits, epochs=6, batch_size=128, device="cuda", **settings)
    return [torch.cat([w.detach().cpu().flatten() for w in each.model.state_dict().values()]) for each in results]


@pytest.mark.parametrize("loss", [MetricAsCoded("f1", Linear(0.2)), AUROCAsCoded(Linear(0.2))])
def test_replayed_steps_give_the_same_weights(loss):
    for one, other in zip(trained_weights(loss, False), trained_weights(loss, True), strict=True):
        torch.testing.assert_close(other, one, rtol=1e-3, atol=1e-4)
