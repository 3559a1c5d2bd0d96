"""Crops, flips and centring against plain loops over padded images, alone and as members of a population."""

import itertools

import pytest
import torch
from torch import nn
from torch.nn.functional import pad

from metricfit.losses import WeightedBCELoss
from metricfit.train import evaluate
from metricfit_papers.models.augmentation import Centred, CropAndFlip, cropped_and_flipped
from metricfit_papers.populations import fit_population

SIDE = 8


def pictures(n, channels=3, seed=0):
    generator = torch.Generator().manual_seed(seed)
    return torch.randint(1, 256, (n, channels, SIDE, SIDE), generator=generator, dtype=torch.uint8)


def cropped_by_hand(image, down, right, flip, padding):
    """Pad, cut out, mirror, one image."""
    wide = pad(image, (padding,) * 4)
    crop = wide[:, padding + down : padding + down + SIDE, padding + right : padding + right + SIDE]
    return crop.flip(-1) if flip else crop


@pytest.mark.parametrize("dtype", [torch.uint8, torch.float32])
def test_every_move_is_a_crop_of_the_padded_image(dtype):
    moves = list(itertools.product((-2, -1, 0, 1, 2), (-2, 0, 1), (False, True)))
    images = pictures(len(moves)).to(dtype)
    down, right, flipped = (torch.tensor(each) for each in zip(*moves, strict=True))
    expected = [cropped_by_hand(image, *move, padding=2) for image, move in zip(images, moves, strict=True)]
    assert torch.equal(cropped_and_flipped(images, down, right, flipped), torch.stack(expected))


def moves_of(results, image, padding):
    """Which crop each result is: all crops of an image of distinct pixels differ."""
    every = list(itertools.product(range(-padding, padding + 1), range(-padding, padding + 1), (False, True)))
    crops = torch.stack([cropped_by_hand(image, *move, padding=padding) for move in every])
    same = (results.unsqueeze(1) == crops).flatten(2).all(-1)
    assert bool((same.sum(1) == 1).all())
    return same.int().argmax(1), len(every)


def test_all_crops_are_equally_likely():
    torch.manual_seed(0)
    image = pictures(1)[0]
    drawn = CropAndFlip(padding=1)(image.expand(3600, -1, -1, -1))
    found, count = moves_of(drawn, image, 1)
    times = torch.bincount(found, minlength=count)
    assert count == 18
    assert 140 < times.min() <= times.max() < 260  # 200 each, a deviation of 14


def test_without_flips_and_without_padding():
    images = pictures(4)
    assert torch.equal(CropAndFlip(padding=0, flip=False)(images), images)
    found, _ = moves_of(CropAndFlip(padding=1, flip=False)(images[:1].expand(50, -1, -1, -1)), images[0], 1)
    assert set(found.tolist()) <= set(range(0, 18, 2))


def test_members_of_a_population_draw_for_themselves_and_again_from_the_same_seed():
    image = pictures(1)[0]
    stacked = image.expand(3, 40, -1, -1, -1)
    layer = torch.vmap(CropAndFlip(padding=1), randomness="different")
    runs = []
    for _ in range(2):
        torch.manual_seed(3)
        runs.append(layer(stacked))
    assert torch.equal(*runs)
    members = [moves_of(each, image, 1)[0].tolist() for each in runs[0]]
    assert len({tuple(each) for each in members}) == 3


@pytest.fixture
def data():
    y = torch.arange(24) % 3 == 0
    x = pictures(24, 1)
    x[y] //= 2  # positives are darker
    return x, y.long()


def members():
    torch.manual_seed(1)
    return [nn.Sequential(CropAndFlip(1), Centred(), nn.Flatten(), nn.Linear(SIDE * SIDE, 1)) for _ in range(2)]


def trained(models, data):
    parts = torch.arange(16), torch.arange(16, 24)
    settings = {"splits": [parts] * len(models), "epochs": 3, "batch_size": 8, "device": "cpu", "progress": False}
    return fit_population(models, data, WeightedBCELoss(), monitor="auroc", **settings)


def test_a_population_trains_on_crops_of_bytes_and_is_judged_on_the_images_themselves(data):
    results = trained(members(), data)
    again = trained(members(), data)
    for one, other in zip(results, again, strict=True):
        assert torch.equal(one.model[-1].weight, other.model[-1].weight)
        kept = evaluate(one.model, (data[0][16:], data[1][16:]), "auroc")
        assert kept["auroc"] == pytest.approx(one.best)
    plain = members()
    for model in plain:
        model[0].eval()
        model[0].train = lambda mode=True: None  # never augments
    assert not torch.equal(trained(plain, data)[0].model[-1].weight, results[0].model[-1].weight)


def test_centred_is_the_textbook_standardisation():
    images = pictures(5)
    numbers = images.double() / 255
    mean, deviation = numbers.mean((0, 2, 3)), numbers.std((0, 2, 3), correction=0)
    expected = (numbers - mean.reshape(-1, 1, 1)) / deviation.reshape(-1, 1, 1)
    torch.testing.assert_close(Centred.on(images)(images).double(), expected, atol=1e-5, rtol=1e-5)
    torch.testing.assert_close(
        Centred.on(images, scaled=False)(images).double(), numbers - mean.reshape(-1, 1, 1), atol=1e-6, rtol=1e-5
    )
    assert bool(Centred.on(torch.full((2, 1, 4, 4), 7, dtype=torch.uint8))(images[:, :1]).isfinite().all())


@pytest.mark.parametrize(
    ("make", "says"),
    [
        (lambda: CropAndFlip(-1), "at least 0, got -1"),
        (lambda: CropAndFlip()(torch.zeros(3, 8, 8)), r"takes images .*got \(3, 8, 8\)"),
        (lambda: Centred(scale=0.0), "must be above 0, got 0.0"),
    ],
)
def test_mistakes_are_reported(make, says):
    with pytest.raises(ValueError, match=says):
        make()
