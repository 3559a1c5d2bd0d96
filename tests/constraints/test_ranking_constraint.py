"""RankingConstraint against Eq. 7-8 and Algorithm 1 written as loops over pairs."""

import pytest
import torch

from metricfit import AugmentedLagrangian, RankingConstraint
from metricfit.losses import WeightedBCELoss

MU = torch.tensor(0.3, dtype=torch.float64)


def eq_8(scores, positive, negative, multiplier, margin, per, normalize):
    """The terms after F in Eq. 8, and q of every sample, by a loop over pairs; weights of 1 are the paper's."""
    n = len(scores)
    q = [scores.new_zeros(()) for _ in range(n)]
    squares = scores.new_zeros(())
    for j in range(n):
        for k in range(n):
            hinge = torch.relu(margin - (scores[j] - scores[k]))
            q[j] = q[j] + negative[k] * hinge * (per == "positive")
            q[k] = q[k] + positive[j] * hinge * (per == "negative")
            squares = squares + positive[j] * negative[k] * hinge**2
    plus, minus = positive.sum(), negative.sum()
    if per == "pair":
        return MU / 2 * squares / (plus * minus), q
    mine, others = (positive, negative) if per == "positive" else (negative, positive)
    if normalize:
        q = [each / others.sum() for each in q]
    sums = sum(mine[i] * (MU / 2 * q[i] ** 2 + multiplier[i] * q[i]) for i in range(n))
    return sums / (mine.sum() if normalize else plus * minus), q


def data(n=12, seed=0):
    generator = torch.Generator().manual_seed(seed)
    x = torch.randn(n, generator=generator, dtype=torch.float64)
    x[1] = x[0]  # a tie
    y = (torch.rand(n, generator=generator) < 0.4).long()
    return x, y, torch.rand(n, generator=generator, dtype=torch.float64) + 0.1


@pytest.mark.parametrize("weighted", [False, True], ids=["", "weighted"])
@pytest.mark.parametrize("normalize", [False, True], ids=["Eq. 8", "normalised"])
@pytest.mark.parametrize("per", ["positive", "negative", "pair"])
def test_three_steps_of_algorithm_1(per, normalize, weighted):
    constraint = RankingConstraint(1.0, per, size=30, normalize=normalize).double()
    multiplier = torch.zeros(30, dtype=torch.float64)
    order = torch.randperm(30, generator=torch.Generator().manual_seed(1))
    for at in range(3):
        x, y, w = data(seed=at)
        index = order[at * 6 : at * 6 + 12]  # half of each batch is of the batch before, with multipliers already
        positive, negative = (side * (w if weighted else 1.0) for side in (y.double(), 1.0 - y))
        ours, twin = x.clone().requires_grad_(), x.clone().requires_grad_()
        expected, q = eq_8(twin, positive, negative, multiplier[index], 1.0, per, normalize)
        value = constraint(ours, y, MU, index=index, weight=w if weighted else None)
        torch.testing.assert_close(value, expected)
        torch.testing.assert_close(
            torch.autograd.grad(value, ours)[0], torch.autograd.grad(expected, twin)[0], rtol=1e-9, atol=1e-12
        )
        constraint.update(MU)
        chosen = {"positive": y == 1, "negative": y == 0, "pair": y < 0}[per]
        multiplier[index[chosen]] += MU * torch.stack(q).detach()[chosen]
        if per != "pair":
            torch.testing.assert_close(constraint.multiplier, multiplier)
    assert constraint.multiplier is None if per == "pair" else constraint.multiplier.count_nonzero() > 5


def test_the_normalised_form_does_not_grow_with_the_batch():
    x, y, _ = data()
    plain, normal = (RankingConstraint(size=12 * k, normalize=k > 1) for k in (1, 2))
    grown = RankingConstraint(size=24)
    twice = x.repeat(2), y.repeat(2)
    torch.testing.assert_close(normal(*twice, MU), RankingConstraint(size=12, normalize=True)(x, y, MU))
    torch.testing.assert_close(grown(*twice, MU), 2 * plain(x, y, MU))  # q_j doubles, and so does Eq. 8


@pytest.mark.parametrize("target", [torch.zeros(4), torch.ones(4)], ids=["no positives", "no negatives"])
@pytest.mark.parametrize("per", ["positive", "negative", "pair"])
def test_without_pairs_nothing_breaks(per, target):
    constraint, x = RankingConstraint(per=per, size=4), torch.randn(4, requires_grad=True)
    value = constraint(x, target, MU)
    value.backward()
    constraint.update(MU)
    assert value.item() == 0
    assert x.grad.tolist() == [0] * 4
    assert constraint.multiplier is None or not constraint.multiplier.any()


def test_an_empty_batch_gives_0():
    constraint = RankingConstraint(size=4)
    assert constraint(torch.empty(0), torch.empty(0), MU, index=torch.empty(0, dtype=torch.long)).item() == 0


def test_named_classes_are_ranked_against_the_rest_by_log_odds():
    generator = torch.Generator().manual_seed(0)
    logits = torch.randn(15, 4, generator=generator, dtype=torch.float64)
    target = torch.randint(4, (15,), generator=generator)
    constraint = RankingConstraint(size=15, classes=[3, 2]).double()
    p, w = logits.softmax(1), torch.rand(15, generator=generator, dtype=torch.float64)
    binary = {one: RankingConstraint(size=15).double() for one in (3, 2)}
    for _ in range(2):
        apart = [
            alone(torch.log(p[:, one] / (1 - p[:, one])), (target == one).long(), MU, weight=w)
            for one, alone in binary.items()
        ]
        torch.testing.assert_close(constraint(logits, target, MU, weight=w), sum(apart))
        for each in (constraint, *binary.values()):
            each.update(MU)
        torch.testing.assert_close(constraint.multiplier, torch.stack([alone.multiplier for alone in binary.values()]))
        assert constraint.multiplier.any(1).all()


def test_soft_multiclass_targets_are_shares_of_a_sample():
    logits, labels = torch.randn(6, 3, dtype=torch.float64), torch.tensor([0, 1, 2, 0, 1, 2])
    hard, soft = (RankingConstraint(size=6, classes=[1], task="multiclass").double() for _ in range(2))
    one_hot = torch.nn.functional.one_hot(labels, 3).double()
    torch.testing.assert_close(soft(logits, one_hot, MU), hard(logits, labels, MU))


def test_columns_of_a_multilabel_problem():
    logits, target, w = torch.randn(8, 3).double(), torch.randint(2, (8, 3)), torch.rand(8).double()
    ours = RankingConstraint(size=8, classes=[0, 2]).double()(logits, target, MU, weight=w)
    apart = [RankingConstraint(size=8).double()(logits[:, k], target[:, k], MU, weight=w) for k in (0, 2)]
    torch.testing.assert_close(ours, sum(apart))


@pytest.mark.parametrize("by", ["image", "pixel"])
def test_pixels_are_samples(by):
    logits, target = torch.randn(2, 1, 3, 3).double(), torch.randint(2, (2, 1, 3, 3))
    images = torch.tensor([4, 1])
    pixels = images[:, None] * 9 + torch.arange(9)
    constraint, flat = (RankingConstraint(size=45).double() for _ in range(2))
    index = images if by == "image" else pixels.reshape(2, 1, 3, 3)
    torch.testing.assert_close(
        constraint(logits, target, MU, index=index),
        flat(logits.flatten(), target.flatten(), MU, index=pixels.flatten()),
    )
    constraint.update(MU)
    flat.update(MU)
    torch.testing.assert_close(constraint.multiplier, flat.multiplier)
    assert constraint.multiplier[36:].any()
    assert not constraint.multiplier[:9].any()


def test_multiclass_pixels_with_ignored_ones():
    logits, target = torch.randn(2, 3, 4, dtype=torch.float64), torch.randint(3, (2, 4))
    target[0, 1] = 255
    constraint = RankingConstraint(size=8, classes=[1], ignore_index=255).double()
    kept = target.flatten() != 255
    flat = logits.movedim(1, 2).reshape(8, 3)
    apart = RankingConstraint(size=8, classes=[1]).double()
    expected = apart(flat[kept], target.flatten()[kept], MU, index=torch.arange(8)[kept])
    torch.testing.assert_close(constraint(logits, target, MU, index=torch.arange(2)), expected)


def test_evaluating_needs_no_index_and_remembers_nothing():
    constraint = RankingConstraint(size=50).eval()
    constraint.multiplier.fill_(7.0)
    x, y, _ = data()
    expected, _ = eq_8(x, y.double(), 1.0 - y, torch.zeros(12), 1.0, "positive", False)
    torch.testing.assert_close(constraint(x, y, MU), expected)
    constraint.train()
    with torch.no_grad():
        constraint(x, y, MU, index=torch.arange(12))
    constraint.update(MU)
    assert (constraint.multiplier == 7).all()


def test_the_margin_is_not_lost_in_large_scores():
    constraint = RankingConstraint(margin=0.001, size=2)
    value = constraint(torch.tensor([1e4, 1e4]), torch.tensor([1, 0]), torch.tensor(2.0))
    assert value.item() == pytest.approx(1e-6, rel=1e-5)


def test_vmap_without_stacked_multipliers_is_explained():
    constraint, target = RankingConstraint(size=4), torch.tensor([1, 0, 1, 0])
    with pytest.raises(RuntimeError, match="needs multipliers for each member"):
        torch.func.vmap(lambda x: constraint(x, target, MU))(torch.randn(3, 4))


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: RankingConstraint(), "give size=, their number; got None"),
        (lambda: RankingConstraint(margin=-1, size=3), "margin of at least 0, got -1"),
        (lambda: RankingConstraint(per="class", size=3), "'positive', 'negative', 'pair', got 'class'"),
        (lambda: RankingConstraint(classes=[1, 1], size=3), "different class numbers"),
        (lambda: RankingConstraint(size=9)(torch.randn(4), torch.ones(4), MU), "this batch has 4: give index="),
        (
            lambda: RankingConstraint(size=9)(torch.randn(2), torch.ones(2), MU, index=torch.tensor([3, 9])),
            r"index must lie in 0..8, got 3 to 9",
        ),
        (
            lambda: RankingConstraint(size=9)(torch.randn(2), torch.ones(2), MU, index=torch.tensor([1.0, 2.0])),
            "one integer per sample",
        ),
        (
            lambda: RankingConstraint(size=9)(torch.randn(2), torch.ones(2), MU, index=torch.tensor([True, False])),
            "one integer per sample",
        ),
        (
            lambda: RankingConstraint(size=2)(torch.randn(2, 3), torch.tensor([0, 2]), MU),
            "name the critical ones with classes=",
        ),
        (
            lambda: RankingConstraint(size=2, classes=[5])(torch.randn(2, 3), torch.tensor([0, 2]), MU),
            "have 3 classes, 0 to 2",
        ),
    ],
)
def test_mistakes_are_refused(make, message):
    with pytest.raises(ValueError, match=message):
        make()


@pytest.mark.parametrize("shape", [(0,), (0, 1), (0, 3)], ids=str)
@pytest.mark.parametrize("per", ["positive", "negative", "pair"])
def test_an_empty_batch_with_weights_adds_nothing(shape, per):
    classes = [0, 1] if shape[1:] == (3,) else None
    constraint = RankingConstraint(per=per, size=None if per == "pair" else 4, classes=classes)
    logits = torch.zeros(shape, requires_grad=True)
    loss = AugmentedLagrangian(WeightedBCELoss(), [constraint, "recall >= 0.9", "mcc >= 0.5"])
    value = loss(logits, torch.zeros(shape), weight=torch.zeros(0), index=torch.zeros(0, dtype=torch.long))
    value.backward()
    loss.update()
    assert value.item() == 0
    assert logits.grad.shape == shape


def test_large_weights_do_not_overflow():
    logits = torch.tensor([65504.0, -65504.0, 1.0], requires_grad=True)
    constraint = RankingConstraint(size=3)
    value = constraint(logits, torch.tensor([0, 1, 1]), torch.tensor(0.3), weight=torch.full((3,), 1e13))
    value.backward()
    assert value.isfinite()
    assert logits.grad.isfinite().all()
