"""Stacked networks, constraints and penalty-barriers of the study on image pairs are the ones that they stand for."""

import json

import numpy as np
import pytest
import torch

from metricfit.constraints import AugmentedLagrangian, RankingConstraint
from metricfit.curves import auroc
from metricfit.losses import WeightedBCELoss
from metricfit_papers.models.construction import build_network
from studies import image_pairs, image_pairs_page
from studies.common import fill
from studies.image_pairs import Adam, Barrier, Lagrangian, Part, Problem, Stack, scores

SPLITS, VERSIONS, ROWS = 2, 3, 6


@pytest.fixture
def images():
    return torch.randint(0, 256, (SPLITS, ROWS, 3, 32, 32), generator=torch.Generator().manual_seed(1)).byte()


def test_a_stack_is_its_networks(images):
    stack = Stack(VERSIONS, SPLITS, torch.device("cpu"))
    logits = stack(images)
    for split in range(SPLITS):
        alone = build_network(image_pairs.NETWORK, 3, split)(images[split])[:, 0]
        for version in range(VERSIONS):
            torch.testing.assert_close(logits[:, version * SPLITS + split], alone, rtol=1e-4, atol=1e-5)


def test_adam_with_a_rate_per_network(images):
    stack = Stack(1, SPLITS, torch.device("cpu"))
    ours = [w.clone() for w in stack.weights]
    theirs = [[w[place].clone().requires_grad_() for w in stack.weights] for place in range(SPLITS)]
    rates = [0.01, 0.1]
    adam = Adam(ours, torch.tensor(rates))
    optimizers = [torch.optim.Adam(weights, lr=rate) for weights, rate in zip(theirs, rates, strict=True)]
    for step in range(3):
        gradients = [torch.sin(w + step) for w in ours]
        for place, optimizer in enumerate(optimizers):
            for weight, gradient in zip(theirs[place], gradients, strict=True):
                weight.grad = gradient[place].clone()
            optimizer.step()
        adam.step(gradients)
    for place in range(SPLITS):
        for weight, expected in zip(ours, theirs[place], strict=True):
            torch.testing.assert_close(weight[place], expected.detach())


def test_the_lagrangian_of_many_networks_is_the_one_of_each():
    generator = torch.Generator().manual_seed(3)
    settings = [(0.3, 3.0, 1.0), (0.2, 4.0, 1.5)]
    size = 8
    stacked = Lagrangian(size, *(torch.tensor(column) for column in zip(*settings, strict=True)))
    alone = [
        AugmentedLagrangian(WeightedBCELoss(), RankingConstraint(margin, size=size), mu=mu, rho=rho)
        for mu, rho, margin in settings
    ]
    y = torch.tensor([[1, 0, 0, 1, 0, 0, 0, 1], [0, 1, 0, 0, 0, 1, 0, 0]]).T.float()
    bce = WeightedBCELoss()
    for step in range(6):
        logits = torch.randn(size, 2, generator=generator)
        rows = torch.randperm(size, generator=generator)[:5]
        ours = stacked.term(logits[rows], y[rows], rows)
        for place, loss in enumerate(alone):
            column = (logits[rows, place], y[rows, place])
            torch.testing.assert_close(ours[place] + bce(*column), loss(*column, index=rows))
            loss.update()
            torch.testing.assert_close(stacked.multiplier[:, place], loss.constraints[0].multiplier)
        if step % 2:
            value = torch.rand(2, generator=generator)
            stacked.observe(value)
            for place, loss in enumerate(alone):
                loss.observe(float(value[place]))
                assert stacked.mu[place].item() == pytest.approx(loss.mu.item(), rel=1e-6)


#: Constraints of three steps, and what humancompatible-train 0.4.2 makes of them: ``PBM(m=3, init_duals=0.1, gamma=g,
#: penalty_mult=k, gamma_annealing=False, penalty_annealing=False).forward_update(0, c)``, and then its multipliers and
#: penalties.
STEPS = [[0.8, -0.1, -1.5], [0.3, -0.6, 0.0], [2.5, 0.4, -0.2]]
EXPECTED = {
    "[0.1, 0.1]": [
        [0.0375347, 0.172, 0.091, 0.025, 0.6, 1.0, 1.0],
        [0.02622718, 0.2494, 0.043225, 0.025, 0.4753847, 1.0, 1.0],
        [2.27921, 1.429812, 0.058786, 0.0205, 0.1697802, 0.7428572, 1.0],
    ],
    "[0.5, 0.1]": [
        [0.0375347, 0.14, 0.095, 0.05833333, 0.6, 1.0, 1.0],
        [0.01254487, 0.175, 0.06729166, 0.05833333, 0.4753847, 1.0, 1.0],
        [1.609684, 0.6351538, 0.08074999, 0.0525, 0.1697802, 0.7428572, 1.0],
    ],
    "[0.9, 0.9]": [
        [0.0375347, 0.108, 0.099, 0.09166666, 0.9555556, 1.0, 1.0],
        [-0.004151415, 0.1113907, 0.09322499, 0.09166666, 0.9335042, 1.0, 1.0],
        [0.6796163, 0.141222, 0.096954, 0.08983333, 0.8668253, 0.9714286, 1.0],
    ],
}


@pytest.mark.parametrize("setting", EXPECTED)
def test_penalty_barriers_have_the_values_of_their_package(setting):
    kept, kept_penalty = json.loads(setting)
    columns = [torch.tensor([value], dtype=torch.float64) for value in (0.1, kept, kept_penalty, 1.0)]
    method, rows = Barrier(3, *columns), torch.arange(3)
    for c, expected in zip(STEPS, EXPECTED[setting], strict=True):
        terms = method.surrogate(
            torch.tensor(c, dtype=torch.float64)[:, None], rows, torch.ones(3, 1, dtype=torch.bool)
        )
        found = [terms.sum().item(), *method.multiplier[:, 0].tolist(), *method.penalty[:, 0].tolist()]
        assert found == pytest.approx(expected, rel=1e-5)


def test_only_positives_of_the_batch_move_their_multipliers():
    method = Barrier(4, *(torch.tensor([value]) for value in (0.1, 0.5, 0.5, 1.0)))
    logits, y = torch.tensor([[0.0], [3.0], [1.0]]), torch.tensor([[1.0], [0.0], [0.0]])
    method.term(logits, y, torch.tensor([2, 0, 1]))
    assert (method.multiplier[:, 0] != 0.1).tolist() == [False, False, True, False]


def test_scores_are_the_ones_of_the_curves():
    generator = torch.Generator().manual_seed(5)
    y = torch.stack([torch.randperm(12, generator=generator) < 4 for _ in range(SPLITS)]).long()
    logits = torch.randn(12, SPLITS * VERSIONS, generator=generator).mul(2).round()
    found = scores(logits, y)
    for network in range(SPLITS * VERSIONS):
        column, labels = logits[:, network].double(), y[network % SPLITS]
        assert found[image_pairs.AUC][network].item() == pytest.approx(auroc(column, labels))
        assert found[image_pairs.F1][network].item() == pytest.approx(image_pairs.f1_at_half(column, labels))


def test_both_questions_in_a_tiny_version():
    generator = np.random.default_rng(0)

    def part(splits, negatives, positives):
        y = torch.stack(
            [torch.from_numpy(generator.permutation([0] * negatives + [1] * positives)) for _ in range(splits)]
        )
        x = torch.from_numpy(generator.integers(0, 200, (splits, negatives + positives, 3, 32, 32), dtype=np.uint8))
        return Part(x + (40 * y[..., None, None, None]).byte(), y)

    problem = Problem(part(SPLITS, 10, 3), part(SPLITS, 6, 2), part(1, 12, 4))
    losses = image_pairs.compare_losses(problem, [0.01], epochs=1)
    assert set(losses) == {"auroc", "f1"}
    assert set(losses["f1"]) == set(image_pairs.LOSSES)
    constraints = image_pairs.compare_constraints(problem, epochs=1)
    assert set(constraints) == {"cross-entropy", "trained on", "AugmentedLagrangian", "SPBM"}
    assert all(0 <= cell["auc"] <= 1 for cell in constraints.values())


@pytest.mark.pages
def test_the_page_shows_the_stored_results():
    stored = json.loads(image_pairs_page.RESULTS.read_text(encoding="utf-8"))
    text = image_pairs_page.PAGE.read_text(encoding="utf-8")
    assert fill(text, image_pairs_page.parts_of_page(stored)) == text, "run: python -m studies.image_pairs_page"
