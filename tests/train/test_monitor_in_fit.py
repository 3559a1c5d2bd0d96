"""Monitors in fit: the epoch that is kept, ignored labels, and tasks."""

import pytest
import torch
from monitored_data import masks
from torch import nn

from metricfit import MetricLoss
from metricfit.train import Hardware, Monitor, Stage, evaluate, fit


def test_fit_keeps_the_epoch_that_meets_the_requirement_however_low_a_metric_without_bounds_is():
    """The first epoch calls everything positive, the later ones, which the metric prefers, nothing."""

    def gain(counts):
        return -100 * counts.fp - counts.fn

    x, y = torch.ones(20, 1), torch.tensor([1.0] * 5 + [0.0] * 15)
    model = nn.Linear(1, 1)
    nn.init.constant_(model.bias, 0.6)
    nn.init.zeros_(model.weight)
    result = fit(
        model,
        (x, y),
        nn.BCEWithLogitsLoss(),
        validation=(x, y),
        monitor=Monitor(gain, subject_to="recall >= 0.9"),
        optimizer=torch.optim.SGD,
        lr=0.5,
        epochs=10,
        start_at_prior=False,
        progress=False,
    )
    assert bool((result.model(x) >= 0).all()), "the weights kept call everything positive"
    assert result.best == result.history["value"][0] == -1500
    assert result.history["value"][-1] == -5


def test_fit_watches_at_the_threshold_given():
    x = torch.randn(60, 3, generator=torch.Generator().manual_seed(0))
    y = (x[:, 0] > 0.5).long()
    torch.manual_seed(0)
    model = torch.nn.Linear(3, 1)
    settings = {"validation": (x, y), "epochs": 3, "progress": False, "monitor": Monitor("recall", threshold=0.2)}
    result = fit(model, (x, y), torch.nn.BCEWithLogitsLoss(), **settings)
    expected = Monitor("recall", threshold=0.2).measure(result.model(x).detach(), y)
    assert result.best == pytest.approx(expected.value)
    assert result.threshold == 0.2
    assert result.history["monitor"] == ["recall"] * 3


@pytest.mark.parametrize("name", ["f1", "best f1", "auroc", "average_precision"])
def test_fit_watches_without_what_the_objective_ignores(name):
    x = torch.randn(60, 3, generator=torch.Generator().manual_seed(0))
    y = (x[:, 0] > 0).long()
    held_out = torch.where(torch.arange(60) % 4 > 0, y, 255)
    stage = Stage(MetricLoss("f1", ignore_index=255), monitor=name)
    result = fit(nn.Linear(3, 1), (x, y), stage, validation=(x, held_out), epochs=1, progress=False)
    kept = held_out != 255
    assert result.best == pytest.approx(evaluate(result.model, (x[kept], y[kept]), name)[name])
    assert result.best == pytest.approx(evaluate(result, (x, held_out), name, ignore_index=255)[name])


def test_a_validation_set_whose_positives_are_ignored_is_refused():
    x, y = torch.randn(20, 3), torch.arange(20) % 2
    stage = Stage(MetricLoss("f1", ignore_index=255), monitor="f1")
    with pytest.raises(ValueError, match="the validation set has no positives"):
        fit(nn.Linear(3, 1), (x, y), stage, validation=(x, 255 * y), epochs=1, progress=False)


def test_fit_watches_overlapping_masks_with_a_task():
    def run(objective, monitor):
        torch.manual_seed(0)
        settings = {
            "validation": masks(seed=1),
            "epochs": 2,
            "progress": False,
            "hardware": Hardware(accelerator="cpu"),
        }
        return fit(nn.Conv2d(2, 2, 1), masks(), objective, monitor=monitor, **settings)

    result = run(nn.BCEWithLogitsLoss(), Monitor("f1", task="multilabel"))
    assert result.best == pytest.approx(evaluate(result, masks(seed=1), task="multilabel")["f1"])
    of_objective = run(MetricLoss("f1", task="multilabel"), "f1")
    assert of_objective.best == pytest.approx(evaluate(of_objective, masks(seed=1), task="multilabel")["f1"])
    with pytest.raises(ValueError, match=r"validation, for f1: .*say which"):
        run(nn.BCEWithLogitsLoss(), "f1")
