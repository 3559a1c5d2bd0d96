"""Without checks of values, NaN logits give a NaN loss, which trainers look for, and never a number."""

import pytest
import torch

from metricfit import MetricLoss

BATCHES = {
    "binary": ((9,), (9,), None),
    "multiclass": ((9, 4), (9,), None),
    "multiclass, many rows": ((40_000, 4), (40_000,), None),
    "multilabel": ((9, 4), (9, 4), "multilabel"),
    "segmentation": ((9, 4, 5, 5), (9, 5, 5), None),
    "masks": ((9, 1, 5, 5), (9, 1, 5, 5), None),
}


def diverged(name):
    shape, target, task = BATCHES[name]
    logits = torch.randn(shape, generator=torch.Generator().manual_seed(0))
    logits[1] = torch.nan
    return logits.requires_grad_(), torch.arange(torch.Size(target).numel()).reshape(target) % 2, task


@pytest.mark.parametrize("metric", ["f1", "mcc", "recall"])
@pytest.mark.parametrize("name", BATCHES)
def test_one_diverged_row_makes_the_loss_nan(name, metric):
    logits, target, task = diverged(name)
    assert MetricLoss(metric, task=task, validate=False)(logits, target).isnan()


@pytest.mark.parametrize("name", ["segmentation", "masks"])
def test_one_diverged_image_makes_the_mean_over_images_nan(name):
    logits, target, task = diverged(name)
    assert MetricLoss("f1", task=task, per_image=True, validate=False)(logits, target).isnan()
