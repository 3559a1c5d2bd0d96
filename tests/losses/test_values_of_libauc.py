"""Values and gradients that LibAUC 2.0.1 gives for the same formulas, and the two-way partial area by all pairs.

LibAUC's losses keep dual variables and moving averages for each training sample. The numbers here are those of one step
with the exact ones: ``AveragePrecisionLoss(gamma=1)``, whose value is always 0; ``pAUC_CVaR_Loss(beta=0.5, eta=0)``
with ``u_pos`` between the third and the fourth largest of the six pair losses of each positive; ``tpAUC_CVaR_loss``
(theta_0 = theta_1 = 0.5, no steps) with the same ``s1`` and a ``dual_var`` of 1 for the two lowest of the four
positives.
"""

import pytest
import torch

from metricfit.losses import AveragePrecisionLoss
from metricfit.losses.ranking import PartialAUCLoss

X = [0.9, -0.3, 0.4, 1.2, -0.8, 0.1, 0.55, -0.15, 0.7, -1.1]
Y = torch.tensor([1, 0, 1, 0, 0, 1, 0, 0, 1, 0])
CASES = {
    "average precision": (
        AveragePrecisionLoss(),
        None,
        [-0.127539, 0.01773, -0.094331, 0.220661, 0.001672, -0.059855, 0.127607, 0.030347, -0.116292, 0.0],
    ),
    "one-way": (
        PartialAUCLoss(min_tpr=0.0, max_fpr=0.5),
        1.412292,
        [-0.325, 0.0, -0.566667, 1.116667, 0.0, -0.716667, 0.683333, 0.225, -0.416667, 0.0],
    ),
    "two-way": (
        PartialAUCLoss(min_tpr=0.5, max_fpr=0.5),
        1.973333,
        [0.0, 0.0, -1.133333, 1.3, 0.0, -1.433333, 0.866667, 0.4, 0.0, 0.0],
    ),
}


@pytest.mark.parametrize("name", CASES)
def test_one_step_of_libauc(name):
    loss, expected, gradient = CASES[name]
    x = torch.tensor(X, requires_grad=True)
    value = loss(x, Y)
    value.backward()
    if expected is not None:
        assert value.item() == pytest.approx(expected, abs=2e-6)
    assert x.grad.tolist() == pytest.approx(gradient, abs=2e-6)


def hardest(score, weight, share):
    """The weights of the highest scores that make up the share, one by one; the last counts in part."""
    left, kept = share * weight.sum().item(), torch.zeros_like(weight)
    for place in score.argsort(descending=True).tolist():
        kept[place] = min(weight[place].item(), max(0.0, left))
        left -= weight[place].item()
    return kept


@pytest.mark.parametrize(("min_tpr", "max_fpr"), [(0.6, 0.3), (0.95, 0.05), (0.0, 0.25), (0.4, 1.0)])
@pytest.mark.parametrize("weighted", [False, True])
def test_a_corner_of_the_curve_by_all_pairs(min_tpr, max_fpr, weighted):
    generator = torch.Generator().manual_seed(0)
    x = torch.randn(50, generator=generator, dtype=torch.float64)
    y = (torch.rand(50, generator=generator) < 0.4).long()
    w = torch.rand(50, generator=generator, dtype=torch.float64) + 0.1 if weighted else torch.ones(50).double()

    def by_all_pairs(z):
        pairs = hardest(-x, w * y, 1 - min_tpr)[:, None] * hardest(x, w * (1 - y), max_fpr)
        return (pairs * torch.relu(0.8 - (z[:, None] - z)) ** 2).sum() / pairs.sum()

    loss = PartialAUCLoss(min_tpr, max_fpr, margin=0.8)
    found, expected = [], []
    for function, values in ((lambda z: loss(z, y, w if weighted else None), found), (by_all_pairs, expected)):
        z = x.clone().requires_grad_()
        values += [function(z).detach(), torch.autograd.grad(function(z), z)[0]]
    torch.testing.assert_close(found, expected, rtol=1e-10, atol=1e-12)
