"""Ensembles over folds: nobody judges what it has trained on."""

import numpy as np
import pytest
import torch
from torch import nn

from metricfit.curves import best_threshold
from metricfit.decide import best_decision
from metricfit.losses import WeightedBCELoss
from metricfit.train import fit, recipes
from metricfit.train.data.batches import derive_seed
from metricfit_papers.folds import fit_folds, stratified_folds

N = 200


def data(classes=2):
    generator = torch.Generator().manual_seed(0)
    x = torch.randn(N, 4, generator=generator, dtype=torch.float64)
    score = x[:, 0] + 0.5 * torch.randn(N, generator=generator, dtype=torch.float64)
    return x, (score > 0.9).long() + (0 if classes == 2 else (score > -0.3).long())


def network(outputs=1):
    return nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, outputs)).double()


SETTINGS = {"epochs": 5, "batch_size": 50, "lr": 0.02, "progress": False}


@pytest.fixture(scope="module")
def ensemble():
    return fit_folds(network, data(), WeightedBCELoss(), folds=5, seed=3, **SETTINGS)


@pytest.mark.parametrize("folds", [2, 5, 8])
@pytest.mark.parametrize("classes", [2, 3])
def test_folds_part_the_samples_and_deal_each_class_evenly(folds, classes):
    _, y = data(classes)
    splits = stratified_folds(y, folds, seed=0)
    assert len(splits) == folds
    held_out = torch.cat([inside for _, inside in splits])
    assert sorted(held_out.tolist()) == list(range(N))
    counts = torch.stack([y[inside].bincount(minlength=classes) for _, inside in splits])
    assert bool((counts.max(0).values - counts.min(0).values <= 1).all())
    for outside, inside in splits:
        assert sorted([*outside.tolist(), *inside.tolist()]) == list(range(N))


def test_folds_are_drawn_by_the_seed():
    _, y = data()

    def first(seed):
        return stratified_folds(y, 4, seed)[0][1].tolist()

    assert first(0) == first(0)
    assert first(0) != first(1)


def test_out_of_fold_logits_are_those_of_the_member_that_held_the_sample_out(ensemble):
    x, y = data()
    splits = stratified_folds(y, 5, seed=3)
    with torch.no_grad():
        for member, (outside, inside) in zip(ensemble.members, splits, strict=True):
            logits = member.model(x)
            torch.testing.assert_close(ensemble.out_of_fold[inside], logits[inside], rtol=0, atol=1e-12)
            assert not torch.allclose(ensemble.out_of_fold[outside], logits[outside])


def test_a_member_is_what_fit_makes_of_all_folds_but_one(ensemble):
    x, y = data()
    outside, inside = stratified_folds(y, 5, seed=3)[2]
    seed = derive_seed(3, "member", 2)
    torch.manual_seed(seed)
    alone = fit(
        network(), (x[outside], y[outside]), WeightedBCELoss(), validation=(x[inside], y[inside]), seed=seed, **SETTINGS
    )
    for weight, twin in zip(ensemble.members[2].model.parameters(), alone.model.parameters(), strict=True):
        torch.testing.assert_close(weight, twin, rtol=0, atol=1e-10)


def test_other_samples_labels_do_not_reach_the_member_that_holds_them_out():
    """Labels of a fold turned round: its own member, which never stops early here, must not change."""
    x, y = data()
    splits = stratified_folds(y, 4, seed=0)
    turned = y.clone()
    turned[splits[1][1]] = 1 - turned[splits[1][1]]

    def logits(labels):
        result = fit_folds(network, (x, labels), WeightedBCELoss(), folds=splits, monitor="loss", **SETTINGS)
        return [torch.cat([tensor.flatten() for tensor in one.model.parameters()]) for one in result.members], result

    plain, one = logits(y)
    other, two = logits(turned)
    same_steps = [
        a.history["train_loss"] == b.history["train_loss"] for a, b in zip(one.members, two.members, strict=True)
    ]
    assert same_steps == [False, True, False, False]
    assert not torch.equal(plain[0], other[0])


def test_logits_are_the_mean_of_the_members_and_predictions_are_at_the_threshold(ensemble):
    x, _ = data()
    with torch.no_grad():
        mean = sum(one.model(x) for one in ensemble.members) / 5
    torch.testing.assert_close(ensemble.logits(x), mean)
    torch.testing.assert_close(ensemble.logits(x.numpy(), chunk=17), mean)
    assert torch.equal(ensemble.predict(x, 0.3), (mean.sigmoid().squeeze(1) >= 0.3).long())
    assert not ensemble.logits(x).requires_grad


def test_decisions_are_at_a_half_by_default():
    result = fit_folds(network, data(), recipes.two_stage("f1"), folds=3, **SETTINGS)
    x, _ = data()
    assert torch.equal(result.predict(x), (result.logits(x).squeeze(1) >= 0).long())


def test_several_classes():
    x, y = data(3)
    result = fit_folds(
        lambda: network(3),
        (x, y),
        recipes.two_stage("f1", task="multiclass"),
        folds=3,
        monitor="f1",
        **SETTINGS | {"epochs": 20},
    )
    assert result.out_of_fold.shape == (N, 3)
    assert torch.equal(result.predict(x), result.logits(x).argmax(1))
    assert float((result.predict(x) == y).double().mean()) > 0.6


def test_several_labels_with_user_defined_folds():
    x, y = data()
    labels = torch.stack([y, 1 - y], 1)
    splits = [(torch.arange(100, N), torch.arange(100)), (torch.arange(100), torch.arange(100, N))]
    result = fit_folds(lambda: network(2), (x, labels), WeightedBCELoss(), folds=splits, **SETTINGS)
    assert torch.equal(result.predict(x), (result.logits(x) >= 0).long())
    with pytest.raises(ValueError, match=r"one label per sample.*\(200, 2\); pass folds as a list"):
        fit_folds(lambda: network(2), (x, labels), WeightedBCELoss(), folds=2)


def test_a_sample_that_nobody_held_out_has_no_out_of_fold_logits():
    x, y = data()
    splits = [(range(50, N), range(50)), (range(50), range(50, 150)), (range(100), range(100, 150))]
    result = fit_folds(network, (x, y), WeightedBCELoss(), folds=splits, **SETTINGS)
    assert bool(result.out_of_fold[150:].isnan().all())
    assert not bool(result.out_of_fold[:150].isnan().any())
    with torch.no_grad():
        twice = (result.members[1].model(x[100:150]) + result.members[2].model(x[100:150])) / 2
    torch.testing.assert_close(result.out_of_fold[100:150], twice)


def test_the_same_seed_gives_the_same_and_torchs_random_numbers_are_left_alone():
    torch.manual_seed(0)
    before = torch.get_rng_state()
    one = fit_folds(network, data(), WeightedBCELoss(), folds=2, **SETTINGS)
    assert torch.equal(torch.get_rng_state(), before)
    torch.manual_seed(1)
    assert torch.equal(one.out_of_fold, fit_folds(network, data(), WeightedBCELoss(), folds=2, **SETTINGS).out_of_fold)
    other = fit_folds(network, data(), WeightedBCELoss(), folds=2, seed=1, **SETTINGS)
    assert not torch.equal(one.out_of_fold, other.out_of_fold)


def test_more_folds_than_positives_are_refused():
    x, _ = data()
    y = torch.zeros(N, dtype=torch.long)
    y[:2] = 1
    with pytest.raises(ValueError, match=r"3 folds need 3 samples of each class; the rarest has 2. Use fewer"):
        fit_folds(network, (x, y), WeightedBCELoss(), folds=3)


def test_one_fold_is_refused():
    with pytest.raises(ValueError, match="folds must be at least 2, got 1"):
        fit_folds(network, data(), WeightedBCELoss(), folds=1)


def test_a_number_of_folds_of_numpys():
    result = fit_folds(network, data(), WeightedBCELoss(), folds=np.int64(2), **SETTINGS)
    assert len(result.members) == 2


def test_a_model_instead_of_what_makes_one_is_refused():
    with pytest.raises(TypeError, match=r"make_model is called to make a fresh model.*got a Sequential"):
        fit_folds(network(), data(), WeightedBCELoss(), folds=2)


def test_a_dataset_is_refused():
    with pytest.raises(TypeError, match="fit_folds needs data in memory"):
        fit_folds(network, torch.utils.data.TensorDataset(*data()), WeightedBCELoss())


def test_a_decision_is_chosen_on_the_out_of_fold_logits(ensemble):
    _, y = data()
    decision = best_decision(ensemble.out_of_fold.reshape(-1), y, "f1", rule="empirical")
    expected = best_threshold(ensemble.out_of_fold.reshape(-1), y, "f1")
    assert decision.evidence.value == pytest.approx(expected.value)
