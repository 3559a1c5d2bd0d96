"""Which samples make up each batch: every sample once, nearly equal batches, a function of seed, stage and epoch."""

import pytest
import torch

from metricfit.train.data.batches import Batches, derive_seed

LABELS = (torch.arange(1025) % 40 == 0).long()  # 26 positives


def of_epoch(order, labels=LABELS, seed=0, stage=0, epoch=0, **settings):
    return order.divide(labels, seed, stage, epoch, **settings)


@pytest.mark.parametrize("batch_size", [1, 7, 512, 1024, 1025, 5000])
@pytest.mark.parametrize("stratified", [False, True])
def test_every_sample_is_in_one_batch_and_batches_are_of_nearly_equal_size(batch_size, stratified):
    labels = torch.ones(1025, dtype=torch.long) if batch_size == 1 else LABELS  # a batch of one cannot hold two
    batches = of_epoch(Batches(batch_size, stratified), labels)
    sizes = [len(batch) for batch in batches]
    assert max(sizes) <= batch_size + stratified  # one more, where a positive had to be given
    assert max(sizes) - min(sizes) <= 1 + stratified
    assert len(batches) == -(-1025 // batch_size)
    every = torch.cat(batches)
    counts = every.bincount(minlength=1025)
    assert bool((counts >= 1).all())
    extra = len(every) - 1025
    assert extra == 0 or (stratified and bool((labels[counts > 1] == 1).all()))


def test_1025_samples_by_1024_are_513_and_512():
    assert sorted(len(item) for item in of_epoch(Batches(1024))) == [512, 513]


def test_the_order_is_a_function_of_seed_stage_and_epoch():
    order = Batches(100)
    settings = [(seed, stage, epoch) for seed in (0, 1) for stage in (0, 1) for epoch in (0, 1)]
    result = [torch.cat(order.divide(LABELS, *setting)) for setting in settings]
    again = [torch.cat(order.divide(LABELS, *setting)) for setting in settings]
    assert all(map(torch.equal, result, again))
    assert len({tuple(order.tolist()) for order in result}) == len(settings)


def test_torchs_random_numbers_are_left_alone():
    before = torch.get_rng_state()
    of_epoch(Batches(100, stratified=True, oversample=0.3))
    assert torch.equal(torch.get_rng_state(), before)


def test_stratified_batches_hold_their_share_of_every_class():
    labels = torch.arange(900) % 9 // 4  # 400, 400 and 100 of each
    for batch in of_epoch(Batches(90, stratified=True), labels):
        assert labels[batch].bincount().tolist() == [40, 40, 10]


def test_each_stratified_batch_has_a_positive_even_where_there_are_fewer_than_batches():
    labels = torch.zeros(100, dtype=torch.long)
    labels[:3] = 1
    batches = of_epoch(Batches(10, stratified=True), labels)
    assert len(batches) == 10
    assert all(int(labels[batch].sum()) == 1 for batch in batches)
    plain = of_epoch(Batches(10), labels)
    assert any(int(labels[batch].sum()) == 0 for batch in plain)


@pytest.mark.parametrize("share", [0.1, 0.5, 0.9])
def test_oversampling_repeats_positives_up_to_the_share(share):
    every = torch.cat(of_epoch(Batches(100, oversample=share)))
    labels = LABELS[every]
    assert float(labels.double().mean()) == pytest.approx(share, abs=1 / len(every))
    assert bool((every[labels == 0].bincount(minlength=1025)[LABELS == 0] == 1).all())
    assert len(set(every[labels == 1].tolist())) == int(LABELS.sum())


def test_a_share_that_is_there_already_adds_nothing():
    assert len(torch.cat(of_epoch(Batches(100, oversample=0.01)))) == 1025


@pytest.mark.parametrize("order", [Batches(100), Batches(100, oversample=0.4), Batches(1000, stratified=True)])
def test_steps_of_is_the_number_of_batches(order):
    assert order.steps_per_epoch(LABELS) == len(of_epoch(order))


def test_the_number_of_batches_can_be_given():
    sizes = [len(item) for item in of_epoch(Batches(1024), steps=4)]
    assert sorted(sizes) == [256, 256, 256, 257]


@pytest.mark.parametrize("batch_size", [0, -1])
def test_a_batch_holds_at_least_one(batch_size):
    with pytest.raises(ValueError, match="batch_size must be an integer of at least 1"):
        Batches(batch_size)


@pytest.mark.parametrize("share", [0.0, 1.0, -0.5, 50])
def test_a_share_lies_between_0_and_1(share):
    with pytest.raises(ValueError, match="oversample is the share of positives to reach, strictly between 0 and 1"):
        Batches(10, oversample=share)


@pytest.mark.parametrize(("option", "value"), [("stratified", True), ("oversample", 0.5)])
def test_labels_that_an_option_has_no_meaning_for_are_refused(option, value):
    order = Batches(10, **{option: value})
    with pytest.raises(ValueError, match=rf"{option} batches need one label per sample.*\(5, 2\)"):
        order.check(torch.zeros(5, 2))
    with pytest.raises(ValueError, match=f"{option} batches need positives and negatives; all labels are 0"):
        order.check(torch.zeros(5))
    order.check(LABELS)
    Batches(10).check(torch.zeros(5, 2))


def test_seeds_of_different_parts_differ_and_fit_in_63_bits():
    parts = [(0,), (0, 0), (1, 0), (0, 1), (10, 1), (1, 1), ("noise", 0), (101,), (1, "noise")]
    seeds = [derive_seed(*part) for part in parts]
    assert len(set(seeds)) == len(parts)
    assert all(0 <= seed < 2**63 for seed in seeds)
    assert derive_seed(3, "folds") == derive_seed(3, "folds")


@pytest.mark.parametrize("order", [Batches(10, stratified=True), Batches(10, oversample=0.5)])
def test_a_column_of_labels_is_a_row(order):
    order.check(LABELS[:, None])
    assert order.steps_per_epoch(LABELS[:, None]) == order.steps_per_epoch(LABELS)
    pairs = zip(of_epoch(order, LABELS[:, None]), of_epoch(order), strict=True)
    assert all(torch.equal(*pair) for pair in pairs)


def test_a_batch_size_is_a_whole_number():
    with pytest.raises(ValueError, match=r"batch_size must be an integer of at least 1, got 64\.0"):
        Batches(64.0)
