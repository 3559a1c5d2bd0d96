"""Surrogates of exclusive classes and of several labels with priors of their own, against sums over single terms."""

import copy
import math
import pickle

import numpy as np
import pytest
import torch
from torch.nn.functional import cross_entropy

from metricfit.errors import MetricfitError
from metricfit.losses.surrogate import SurrogateFBetaLoss, SurrogateTverskyLoss
from metricfit_papers.baselines.class_surrogates import GeneralizedCrossEntropyLoss, MulticlassSurrogateLoss

PRIORS = (0.6, 0.3, 0.1)
GENERATOR = torch.Generator().manual_seed(0)
X = torch.randn(12, 3, dtype=torch.float64, generator=GENERATOR) * 2
Y = torch.randint(0, 3, (12,), generator=GENERATOR)
W = torch.rand(12, dtype=torch.float64, generator=GENERATOR)


def power(value, q):
    return math.log(value) if q == 0 else (value**q - 1) / q


def naive(beta, q, probability, balanced, rows=range(12)):
    """The mean over samples and classes, term by term."""
    total = 0.0
    for i in rows:
        p = (X[i].softmax(0) if probability == "softmax" else X[i].sigmoid()).tolist()
        for k, prior in enumerate(PRIORS):
            if k == Y[i]:
                total -= W[i].item() * power(p[k], q) / (prior if balanced else 1)
            else:
                c = beta**2 * prior / (1 - prior)
                total += W[i].item() * power(c + p[k], q) / ((1 - prior) if balanced else 1)
    return total / 3 / sum(W[i].item() for i in rows)


@pytest.mark.parametrize("probability", ["softmax", "sigmoid"])
@pytest.mark.parametrize(("beta", "q", "balanced"), [(1, 0, True), (2, 0.4, False), (0.5, 1, True)])
def test_the_mean_over_classes_term_by_term(probability, beta, q, balanced):
    loss = MulticlassSurrogateLoss(PRIORS, beta, q=q, probability=probability, balanced=balanced)
    assert loss(X, Y, W).item() == pytest.approx(naive(beta, q, probability, balanced), rel=1e-12)
    x = X.clone().requires_grad_()
    assert torch.autograd.gradcheck(lambda x: loss(x, Y, W), (x,))


def test_one_class_against_the_rest_is_the_binary_surrogate_of_each_class():
    of_classes = MulticlassSurrogateLoss(PRIORS, 2.0, q=0.3, probability="sigmoid")(X, Y)
    singles = [SurrogateFBetaLoss(2.0, prior=prior, q=0.3)(X[:, k], Y.eq(k)) for k, prior in enumerate(PRIORS)]
    torch.testing.assert_close(of_classes, torch.stack(singles).mean())


def test_ignored_labels_pixels_and_large_logits():
    kept = list(range(0, 12, 2))
    target = Y.clone()
    target[1::2] = 255
    loss = MulticlassSurrogateLoss(PRIORS, ignore_index=255)
    assert loss(X, target, W).item() == pytest.approx(naive(1, 0, "softmax", True, kept), rel=1e-12)
    pixels, labels = X.T.reshape(1, 3, 4, 3), Y.reshape(1, 4, 3)
    torch.testing.assert_close(MulticlassSurrogateLoss(PRIORS)(pixels, labels), MulticlassSurrogateLoss(PRIORS)(X, Y))
    far = (1000 * X).float().requires_grad_()
    MulticlassSurrogateLoss(PRIORS)(far, Y).backward()
    assert far.grad.isfinite().all()


@pytest.mark.parametrize("q", [0.0, 0.5, 1.0])
def test_generalised_cross_entropy(q):
    p = X.softmax(1)[torch.arange(12), Y]
    expected = cross_entropy(X, Y) if q == 0 else ((1 - p**q) / q).mean()
    torch.testing.assert_close(GeneralizedCrossEntropyLoss(q)(X, Y), expected)
    ignoring = Y.clone()
    ignoring[:4] = -100
    torch.testing.assert_close(
        GeneralizedCrossEntropyLoss(q)(X, ignoring), GeneralizedCrossEntropyLoss(q)(X[4:], Y[4:])
    )


def test_a_prior_per_label_is_the_mean_of_the_labels_losses():
    target = (X + torch.randn(12, 3, dtype=torch.float64, generator=GENERATOR) > 0).long()
    for together, single in (
        (SurrogateFBetaLoss(2.0, prior=PRIORS, q=0.5), lambda p: SurrogateFBetaLoss(2.0, prior=p, q=0.5)),
        (SurrogateTverskyLoss(0.3, 0.7, prior=PRIORS), lambda p: SurrogateTverskyLoss(0.3, 0.7, prior=p)),
    ):
        singles = [single(prior)(X[:, k], target[:, k]) for k, prior in enumerate(PRIORS)]
        torch.testing.assert_close(together(X, target), torch.stack(singles).mean())
        assert "0.6, 0.3, 0.1" in repr(together)
    same = SurrogateFBetaLoss(prior=[0.2] * 3)(X, target)
    torch.testing.assert_close(same, SurrogateFBetaLoss(prior=0.2)(X, target))


def test_priors_of_arrays_and_rounded_shares_are_taken():
    expected = MulticlassSurrogateLoss(PRIORS)(X, Y)
    for prior in (torch.tensor(PRIORS, dtype=torch.float64), np.array(PRIORS), list(PRIORS)):
        torch.testing.assert_close(MulticlassSurrogateLoss(prior)(X, Y), expected, rtol=1e-12, atol=0)
    assert MulticlassSurrogateLoss([0.333, 0.333, 0.333])(X, Y).isfinite()
    assert SurrogateFBetaLoss(torch.tensor(1.0), prior=np.float32(0.25), q=np.float64(0.5)).prior == 0.25


MANY = (1e-5, 0.5, 0.49999)


@pytest.mark.filterwarnings("ignore:.*float16 holds numbers up to")
@pytest.mark.parametrize("make", [lambda: MulticlassSurrogateLoss(MANY), lambda: SurrogateFBetaLoss(prior=MANY)])
@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32])
def test_the_settings_of_several_priors_stay_exact(make, dtype):
    """A module in half precision that holds the loss rounded them, or overflowed."""
    target = Y if isinstance(make(), MulticlassSurrogateLoss) else (X > 0).long()
    expected = make()(X, target)
    module = torch.nn.Sequential(torch.nn.Linear(3, 3), make()).to(dtype)
    assert module[0].weight.dtype == dtype
    copies = [module[1], copy.deepcopy(module[1]), pickle.loads(pickle.dumps(module[1])), module.double()[1]]
    for loss in copies:
        assert loss(X, target).item() == expected.item()
        assert loss.state_dict() == {}
    short = module[1](X.half(), target)
    assert short.isfinite()
    torch.testing.assert_close(short.double(), make()(X.half().double(), target), rtol=1e-5, atol=0)


@pytest.mark.parametrize("make", [lambda: MulticlassSurrogateLoss(PRIORS), lambda: SurrogateFBetaLoss(prior=PRIORS)])
def test_several_priors_under_vmap_and_compile(make):
    loss = make()
    target = Y if isinstance(loss, MulticlassSurrogateLoss) else (X > 0).long()
    members = torch.stack([X, 2 * X])
    together = torch.func.vmap(loss, in_dims=(0, None))(members, target)
    torch.testing.assert_close(together, torch.stack([loss(X, target), loss(2 * X, target)]))
    compiled = torch.compile(loss, backend="eager")
    torch.testing.assert_close(compiled(X, target), loss(X, target))


def test_ignored_labels_are_in_the_representation():
    assert "ignore_index=255" in repr(MulticlassSurrogateLoss(PRIORS, ignore_index=255))
    assert "ignore_index" not in repr(MulticlassSurrogateLoss(PRIORS))


@pytest.mark.parametrize(
    ("wrong", "says"),
    [
        (lambda: MulticlassSurrogateLoss(0.3), "two or more classes"),
        (lambda: MulticlassSurrogateLoss([0.3]), "two or more classes"),
        (lambda: MulticlassSurrogateLoss([0.3, 1.0]), "strictly between 0 and 1"),
        (lambda: MulticlassSurrogateLoss("ab"), "prior is"),
        (lambda: MulticlassSurrogateLoss([0.3, 0.7], beta=0), "beta from"),
        (lambda: MulticlassSurrogateLoss([0.3, 0.7], q=2), "q in"),
        (lambda: MulticlassSurrogateLoss([0.3, 0.7], probability="softmin"), "softmax"),
        (lambda: MulticlassSurrogateLoss([0.3, 0.7])(X, Y), "priors of 2 classes"),
        (lambda: MulticlassSurrogateLoss(PRIORS)(X[:, 0], Y), "class numbers"),
        (lambda: GeneralizedCrossEntropyLoss(-0.1), "q in"),
        (lambda: SurrogateFBetaLoss(prior=[0.2, 0.3])(X, (X > 0).long()), "priors of 2 labels"),
        (lambda: SurrogateFBetaLoss(prior=[0.2, 0.3])(X[:, 0], Y > 0), "priors of 2 labels"),
        (lambda: SurrogateFBetaLoss(prior=[]), "one number per label"),
        (lambda: SurrogateFBetaLoss(prior=None), "one number per label"),
        (lambda: SurrogateFBetaLoss(prior={0: 0.2, 1: 0.3}), "one number per label"),
        (lambda: SurrogateFBetaLoss(prior=["0.2", "0.3"]), "one number per label"),
        (lambda: SurrogateFBetaLoss(prior=[0.3, 0.2], task="binary"), "task='binary' has a single prior"),
        (lambda: SurrogateFBetaLoss(prior=0.3)(X, Y), r"use MetricLoss\('fbeta"),
        (lambda: SurrogateFBetaLoss(prior=PRIORS)(X, Y), r"use MetricLoss\('fbeta"),
        (lambda: SurrogateFBetaLoss(prior=0.3, task="multiclass"), r"use MetricLoss\('fbeta"),
        (lambda: SurrogateFBetaLoss("1", prior=0.3), "beta must be a number, got '1'"),
        (lambda: SurrogateTverskyLoss(None, 1, prior=0.3), "alpha must be a number, got None"),
        (lambda: SurrogateFBetaLoss(prior=0.3, q="a"), "q must be a number, got 'a'"),
        (lambda: MulticlassSurrogateLoss(PRIORS, beta=[1, 2, 3]), "beta must be a number"),
        (lambda: MulticlassSurrogateLoss(PRIORS, q=None), "q must be a number, got None"),
        (lambda: GeneralizedCrossEntropyLoss(None), "q must be a number, got None"),
        (lambda: MulticlassSurrogateLoss([0.3, 0.3, 0.3]), r"sum to 0.9\. Pass the number of samples of each class"),
        (lambda: MulticlassSurrogateLoss({"a": 0.3, "b": 0.7}), "share of each class; got"),
        (lambda: MulticlassSurrogateLoss([0.3, 1.7]), "the share of each class in the training set, strictly"),
    ],
)
def test_wrong_use_is_named(wrong, says):
    with pytest.raises(MetricfitError, match=says):
        wrong()
