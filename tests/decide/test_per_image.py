"""Masks per image: against every mask, every class map, and for wrong arguments."""

import itertools

import pytest
import torch
from all_labellings import all_labellings, expected, probability_of

from metricfit import Counts
from metricfit.decide import per_image
from metricfit.decide.expected_values import RankedMoments
from metricfit.decide.units import best_masks
from metricfit.errors import InvalidTypeError, InvalidValueError
from metricfit.metrics import get_metric


def images(count, height, width, seed=0):
    return torch.rand(count, height, width, generator=torch.manual_seed(seed)).pow(2)


def exact_images(probabilities, name, zero_division=0.0):
    masks = best_masks(probabilities.flatten(1), get_metric(name), zero_division, exact=True)
    return masks.reshape(probabilities.shape)


@pytest.mark.parametrize("name", ["dice", "jaccard", "fbeta(beta=2)"])
def test_the_exact_mask_is_the_best_of_all(name):
    metric = get_metric(name)
    for image, mask in zip(images(4, 2, 3), exact_images(images(4, 2, 3), name), strict=True):
        chosen = expected(mask.flatten().double(), image.flatten().double(), metric)
        best = max(expected(candidate, image.flatten().double(), metric) for candidate in all_labellings(6))
        assert chosen == pytest.approx(best, abs=1e-12)


@pytest.mark.parametrize("name", ["dice", "jaccard"])
def test_the_default_loses_little_to_the_exact_mask(name):
    metric = get_metric(name)
    probabilities = images(6, 2, 6, seed=2)  # 12 pixels
    gaps = []
    for image, mask in zip(probabilities, per_image(probabilities, name), strict=True):
        exact = exact_images(image[None], name)[0]
        values = [expected(m.flatten().double(), image.flatten().double(), metric) for m in (exact, mask)]
        gaps.append(values[0] - values[1])
    assert min(gaps) + 1e-12 >= 0
    assert max(gaps) < 1e-3


def test_a_lower_is_better_metric_is_minimised():
    probabilities = images(3, 3, 3)
    by_cost = per_image(probabilities, "cost(fp=1, fn=3)")
    assert torch.equal(by_cost, probabilities > 0.25)


def test_an_empty_image_is_left_empty_where_that_is_rewarded():
    faint = torch.full((1, 2, 2), 0.05)
    assert per_image(faint, "dice").any()
    assert exact_images(faint, "dice").any()
    assert not exact_images(faint, "dice", 1.0).any()
    assert not per_image(faint, "dice", zero_division=1.0).any()


def test_overlapping_masks_are_decided_one_by_one():
    probabilities = images(6, 4, 5).reshape(2, 3, 4, 5)
    together = per_image(probabilities, task="multilabel")
    alone = per_image(probabilities.reshape(6, 4, 5)).reshape(2, 3, 4, 5)
    assert torch.equal(together, alone)


def values_of_all_class_maps(probabilities, metric):
    """The expected mean metric of every class map, over all class maps that the truth can be."""
    classes, pixels = probabilities.shape
    maps = torch.tensor(list(itertools.product(range(classes), repeat=pixels)))
    chances = probabilities[maps, torch.arange(pixels)].prod(1)
    total = torch.zeros(len(maps), dtype=torch.float64)
    for number in range(classes):
        is_class = (maps == number).double()
        tp = is_class @ is_class.T  # decided, true
        fp, fn = is_class.sum(1)[:, None] - tp, is_class.sum(1) - tp
        counts = Counts(*(cell.unsqueeze(-1) for cell in (tp, fp, fn, pixels - tp - fp - fn)), exclusive=False)
        total += metric(counts).squeeze(-1) @ chances
    return {tuple(labels.tolist()): float(value) / classes for labels, value in zip(maps, total, strict=True)}


@pytest.mark.parametrize("name", ["dice", "jaccard"])
def test_class_maps_are_near_the_best_of_all_and_better_than_the_argmax(name):
    logits = 1.5 * torch.randn(20, 3, 5, 1, dtype=torch.float64, generator=torch.manual_seed(5))
    probabilities = logits.softmax(1)
    maps = per_image(probabilities, name, task="multiclass")
    chosen, best, argmax = [], [], []
    for image, decided in zip(probabilities.flatten(2), maps.flatten(1), strict=True):
        values = values_of_all_class_maps(image, get_metric(name))
        chosen.append(values[tuple(decided.tolist())])
        argmax.append(values[tuple(image.argmax(0).tolist())])
        best.append(max(values.values()))
    assert sum(best) - sum(chosen) < 0.1 * (sum(best) - sum(argmax))
    assert min(c - a for c, a in zip(chosen, argmax, strict=True)) > -0.01


def test_chances_of_labellings_add_up():
    assert float(probability_of(all_labellings(4), torch.rand(4, dtype=torch.float64)).sum()) == pytest.approx(1.0)


def test_a_large_image_has_the_best_of_all_sizes():
    image = images(1, 60, 80, seed=3)
    ranked = image.flatten(1).double().sort(1, descending=True).values
    values = RankedMoments(ranked).expected_values(get_metric("dice"), torch.arange(4801)[None])
    assert int(per_image(image).sum()) == int(values.argmax())


def test_half_precision_gives_the_same_masks_as_its_values_in_double():
    probabilities = images(2, 8, 8).to(torch.float16)
    assert torch.equal(per_image(probabilities), per_image(probabilities.double()))


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"probabilities": torch.rand(2, 9)}, "shape"),
        ({"probabilities": torch.randn(2, 3, 3) * 9}, "between 0 and 1"),
        ({"probabilities": torch.full((1, 2, 2), float("nan"))}, "NaN"),
        ({"probabilities": torch.rand(0, 3, 3)}, "no pixels"),
        ({"task": "volume"}, "binary"),
        ({"task": "multiclass", "probabilities": torch.rand(2, 3, 4, 4)}, "add up to 1"),
        ({"zero_division": 2}, "from 0 to 1"),
        ({"metric": "accuracy", "zero_division": 1.0}, "leave zero_division out"),
        ({"metric": "weighted_kappa"}, "one class"),
    ],
)
def test_wrong_arguments_are_explained(arguments, message):
    with pytest.raises(InvalidValueError, match=message):
        per_image(**{"probabilities": torch.rand(2, 4, 4), **arguments})


def test_labels_are_no_probabilities():
    with pytest.raises(InvalidTypeError, match="int64"):
        per_image(torch.ones(1, 2, 2, dtype=torch.int64))
    with pytest.raises(InvalidTypeError, match="list"):
        per_image([[0.2]])


def test_several_channels_need_a_task():
    for probabilities in (torch.rand(2, 3, 4, 4), torch.randn(2, 3, 4, 4).softmax(1), torch.rand(2, 3, 2, 4, 4)):
        with pytest.raises(InvalidValueError, match=r"task='multilabel'.*task='multiclass'.*volume.*task='binary'"):
            per_image(probabilities)
    volumes = torch.rand(2, 3, 4, 4)
    flat = per_image(volumes.reshape(2, 3, 16)).reshape(2, 3, 4, 4)
    assert torch.equal(per_image(volumes, task="binary"), flat)
    one_channel = per_image(volumes.reshape(2, 1, 3, 4, 4))
    assert torch.equal(one_channel, flat.unsqueeze(1))
    assert torch.equal(per_image(volumes[:, 0], task="binary"), per_image(volumes[:, 0]))
