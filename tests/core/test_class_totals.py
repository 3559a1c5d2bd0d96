"""tp + fn and fp + tn are the class totals, whatever the step does."""

import pytest
import torch

from metricfit import Counts, steps


class Square(steps.Step):
    """A step of a user's own."""

    def forward(self, p, threshold=0.5):
        return p**2


@pytest.mark.parametrize("soft", [False, True], ids=["labels", "soft targets"])
@pytest.mark.parametrize("weighted", [False, True], ids=["unweighted", "weighted"])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=str)
def test_rows_of_the_table_add_up_to_the_classes(any_step, batch, dtype, weighted, soft):
    given = batch(300, dtype=dtype, soft=soft)
    given.logits[::5] *= 20
    weight = given.weight if weighted else torch.ones_like(given.target)
    positives, negatives = (weight * given.target).sum().item(), (weight * (1 - given.target)).sum().item()
    rounding = 1e-6 if dtype == torch.float32 else 1e-14
    for tenth in range(1, 10):
        counts = Counts.soft(
            given.logits, given.target, step=any_step, threshold=tenth / 10, weight=weight if weighted else None
        )
        assert counts.positives.item() == pytest.approx(positives, rel=rounding)
        assert counts.negatives.item() == pytest.approx(negatives, rel=rounding)
        assert counts.n.item() == pytest.approx(positives + negatives, rel=rounding)
        assert min(count.item() for count in counts) >= 0


def test_a_user_defined_step_keeps_the_class_totals_too(batch):
    given = batch(100)
    counts = Counts.soft(given.logits, given.target, step=Square(), weight=given.weight)
    assert counts.positives.item() == pytest.approx((given.weight * given.target).sum().item())
    expected = (given.weight * given.target * torch.sigmoid(given.logits) ** 2).sum().item()
    assert counts.tp.item() == pytest.approx(expected)
