"""Counts with a leading group axis are the counts of each group alone."""

import pytest
import task_twins as twins
import torch

from metricfit import Counts, metrics, steps
from metricfit.metrics import averaged

KINDS = {
    "binary": ("multilabel", 1, ()),
    "multiclass": ("multiclass", 4, ()),
    "multilabel": ("multilabel", 4, ()),
    "segmentation": ("multiclass", 3, (3, 4)),
    "binary segmentation": ("multilabel", 1, (3, 4)),
    "multilabel segmentation": ("multilabel", 3, (2, 2, 2)),
}
GROUP = torch.tensor([0, 2, 2, 0, 4, 2, 4, 0])  # groups 1 and 3 are empty, as is 5 with groups=6


@pytest.fixture(params=KINDS)
def kind(request):
    return request.param


@pytest.fixture
def given(kind):
    task, c, shape = KINDS[kind]
    given = twins.make(task, len(GROUP), c, shape=shape)
    given.task = "binary" if c == 1 else task
    return given


def stacked(counts):
    return torch.stack(tuple(counts))


def of_group(count, given, logits, g, **settings):
    rows = g == GROUP
    if rows.any():
        return stacked(count(logits[rows], given.target[rows], task=given.task, weight=given.weight[rows], **settings))
    return torch.zeros(4, given.c, dtype=torch.float64)


@pytest.mark.parametrize("threshold", [None, 0.3, [0.3, 0.6]], ids=str)
def test_soft_counts_and_gradients(given, any_step, threshold):
    settings = {"step": any_step, "threshold": threshold}
    x, y = (given.logits.clone().requires_grad_() for _ in range(2))
    found = stacked(
        Counts.soft(x, given.target, task=given.task, weight=given.weight, group=GROUP, groups=6, **settings)
    )
    each = [of_group(Counts.soft, given, y, g, **settings) for g in range(6)]
    each = torch.stack(
        [
            one.expand_as(each[0])
            if one.dim() > 2 or threshold != [0.3, 0.6]
            else one.unsqueeze(1).expand(4, 2, given.c)
            for one in each
        ],
        -2,
    )
    torch.testing.assert_close(found, each, rtol=1e-10, atol=1e-12)
    directions = torch.randn(found.shape, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    (found * directions).sum().backward()
    (each * directions).sum().backward()
    torch.testing.assert_close(x.grad, y.grad, rtol=1e-9, atol=1e-12)
    assert x.grad.any()


@pytest.mark.parametrize("threshold", [None, 0.3], ids=str)
def test_hard_counts(given, threshold):
    settings = {"task": given.task, "threshold": threshold, "weight": given.weight}
    found = stacked(Counts.hard(given.logits, given.target, group=GROUP, **settings))
    assert found.shape == (4, 5, given.c)
    each = [of_group(Counts.hard, given, given.logits, g, threshold=threshold) for g in range(5)]
    torch.testing.assert_close(found, torch.stack(each, 1), rtol=1e-12, atol=0)


def test_groups_add_up_to_the_whole(given):
    grouped = stacked(Counts.soft(given.logits, given.target, task=given.task, group=GROUP, step=steps.Sigmoid(9)))
    whole = stacked(Counts.soft(given.logits, given.target, task=given.task, step=steps.Sigmoid(9)))
    torch.testing.assert_close(grouped.sum(1), whole)


@pytest.mark.parametrize("dtype", [torch.int32, torch.int16, torch.uint8], ids=str)
def test_group_numbers_of_every_whole_type(given, dtype):
    expected = stacked(Counts.soft(given.logits, given.target, task=given.task, group=GROUP))
    found = Counts.soft(given.logits, given.target, task=given.task, group=GROUP.to(dtype))
    torch.testing.assert_close(stacked(found), expected)


@pytest.mark.parametrize("name", ["recall", "f1", "fbeta(beta=2)", "accuracy", "mcc"])
def test_a_metric_per_group(name, task, twin):
    metric, given = metrics.get_metric(name), twins.make(task, 8)
    if metric.whole_matrix and task == "multilabel":
        task, given = "multiclass", twins.make("multiclass", 8)
    x = given.logits.clone().requires_grad_()
    values = averaged(metric, Counts.soft(x, given.target, group=GROUP, groups=5), training=True)
    assert values.shape == (5,)
    assert values[1] == values[3] == 0
    worst = values[[0, 2, 4]].min()
    worst.backward()
    for g in (0, 2, 4):
        expected = twin.value(metric, twin.counts(task, given.logits[g == GROUP], given.target[g == GROUP]))
        assert values[g].item() == pytest.approx(expected.item(), abs=1e-12)
    group = int(values.detach()[[0, 2, 4]].argmin()) * 2
    assert x.grad[group == GROUP].any()
    assert (x.grad[group != GROUP] == 0).all()


def test_recall_in_each_site_by_scikit_learn():
    from sklearn.metrics import recall_score

    given = twins.make("multiclass", 8, seed=4)
    values = averaged(metrics.recall, Counts.hard(given.logits, given.target, group=GROUP))
    for g in (0, 2, 4):
        y, d = given.target[g == GROUP], given.logits[g == GROUP].argmax(1)
        assert values[g].item() == pytest.approx(recall_score(y, d, average="macro", zero_division=0))


def test_no_rows_and_a_number_of_groups():
    for x, y in ((torch.zeros(0), torch.zeros(0)), (torch.zeros(0, 3), torch.zeros(0, dtype=torch.long))):
        counts = Counts.soft(x, y, group=torch.zeros(0, dtype=torch.long), groups=2)
        assert counts.tp.shape == (2, 3 if x.dim() == 2 else 1)
        assert not stacked(counts).any()


def test_ignored_samples_and_groups():
    given = twins.make("multiclass", 8, c=3, shape=(3, 3))
    target = given.target.clone()
    target[:, 0] = 255
    found = Counts.soft(given.logits, target, ignore_index=255, group=GROUP)
    expected = Counts.soft(given.logits[:, :, 1:], target[:, 1:], group=GROUP)
    torch.testing.assert_close(stacked(found), stacked(expected))


def test_several_columns_read_as_binary():
    """task="binary" makes one question of all entries; a row's group is that of each of its entries."""
    given = twins.make("multilabel", 8)
    found = Counts.soft(given.logits, given.target, task="binary", group=GROUP)
    for g in (0, 2, 4):
        alone = Counts.soft(given.logits[g == GROUP], given.target[g == GROUP], task="binary")
        torch.testing.assert_close(stacked(found)[:, g], stacked(alone))
