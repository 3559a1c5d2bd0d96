"""Tiny Darknet, the ResNets and the small CNN: published sizes, shapes, live gradients, normalisation."""

import pytest
import torch
from torch import nn

from metricfit_papers.models import ResNet, TinyDarknet, resnet18, resnet34, small_cnn
from metricfit_papers.models.normalisation import normalisation


def size(model):
    return sum(parameter.numel() for parameter in model.parameters())


@pytest.mark.parametrize("norm", ["group", "batch"])
@pytest.mark.parametrize(
    ("build", "outputs", "published"),
    [
        (resnet18, 10, 11_173_962),  # the usual figures for CIFAR-10's stem
        (resnet34, 10, 21_282_122),
        (TinyDarknet, 1000, 1_042_104),  # 1,000 classes of ImageNet
    ],
)
def test_sizes_are_the_published_ones(build, outputs, published, norm):
    with torch.device("meta"):
        assert size(build(out_features=outputs, norm=norm)) == published


def test_size_of_the_small_cnn():
    by_hand = (3 * 9 + 1) * 16 + (16 * 9 + 1) * 32 + (32 * 9 + 1) * 64 + 64 * 4 * 4 + 1
    assert size(small_cnn()) == by_hand


SMALL = {
    "darknet": lambda **given: TinyDarknet(**given),
    "resnet": lambda **given: ResNet((1, 1, 1, 1), **given),
    "cnn": lambda **given: small_cnn(**given),
}


@pytest.mark.parametrize("norm", ["group", "batch", "none"])
@pytest.mark.parametrize("name", SMALL)
def test_shapes_and_a_gradient_in_every_parameter(name, norm):
    torch.manual_seed(0)
    model = SMALL[name](in_channels=1, out_features=3, norm=norm)
    logits = model(torch.randn(4, 1, 32, 32))
    assert logits.shape == (4, 3)
    (logits * torch.randn(4, 3)).sum().backward()
    dead = [key for key, p in model.named_parameters() if p.grad is None or not p.grad.abs().max() > 0]
    assert not dead


@pytest.mark.parametrize("build", [resnet18, TinyDarknet])
def test_images_of_28_pixels_fit_too(build):
    assert build(in_channels=1)(torch.zeros(1, 1, 28, 28)).shape == (1, 1)


def test_the_small_cnn_of_another_image_size():
    assert small_cnn(image_size=28, widths=(8, 8), dropout=0.3)(torch.zeros(2, 3, 28, 28)).shape == (2, 1)


@pytest.mark.parametrize("name", SMALL)
def test_with_group_norm_no_image_depends_on_the_others(name):
    torch.manual_seed(0)
    model = SMALL[name](norm="group").double()
    x = torch.randn(4, 3, 32, 32, dtype=torch.float64)
    torch.testing.assert_close(model(x)[:2], model(x[:2]))
    assert not list(model.buffers())


def test_resnet_equals_the_formula_of_its_paper():
    """One block with a shortcut of its own, against functional calls."""
    torch.manual_seed(0)
    model = ResNet((1, 1, 1, 1), norm="batch").double().eval()
    block, x = model.stages[1][0], torch.randn(2, 64, 8, 8, dtype=torch.float64)
    first, norm1, _, second, norm2 = block.body

    def normed(given, norm):
        return nn.functional.batch_norm(given, norm.running_mean, norm.running_var, norm.weight, norm.bias)

    inner = normed(nn.functional.conv2d(x, first.weight, stride=2, padding=1), norm1).clamp_min(0)
    outer = normed(nn.functional.conv2d(inner, second.weight, padding=1), norm2)
    short = normed(nn.functional.conv2d(x, block.shortcut[0].weight, stride=2), block.shortcut[1])
    torch.testing.assert_close(block(x), (outer + short).clamp_min(0))


@pytest.mark.parametrize("channels", [1, 3, 16, 20, 24, 50, 64, 512])
def test_groups_divide_the_channels_and_hold_eight_or_all(channels):
    layer = normalisation("group", channels)
    assert channels % layer.num_groups == 0
    assert layer.num_groups == 1 or channels // layer.num_groups >= 8


def test_an_unknown_norm_is_refused():
    with pytest.raises(ValueError, match='norm must be "group", "batch" or "none"'):
        small_cnn(norm="layer")


def test_too_many_halvings_are_refused():
    with pytest.raises(ValueError, match="give between 1 and 3 widths"):
        small_cnn(image_size=8, widths=(8, 8, 8, 8))


def test_a_resnet_has_four_stages():
    with pytest.raises(ValueError, match="four stages; got the numbers of blocks of 3"):
        ResNet((1, 1, 1))
