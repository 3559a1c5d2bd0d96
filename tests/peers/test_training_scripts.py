"""Training scripts as MONAI's, segmentation_models_pytorch's and timm's documentation has them: one line is changed.

The scripts are written in plain torch, with what their loaders and loops do: MONAI's labels are floats with a channel
axis in a subclass of Tensor, those of timm are the shares that mixup and label smoothing make. With MONAI 1.6.1 itself
the values of ``DiceLoss(to_onehot_y=True, softmax=True)`` and ``DiceCELoss`` were the same to seven digits in every
step of such a script.
"""

import pytest
import torch
from torch import nn

from metricfit import MetricLoss, score
from metricfit.losses import Mix, WeightedCrossEntropyLoss


class MetaTensor(torch.Tensor):
    """A tensor with something more, as MONAI's images are; ``new_empty`` takes a tuple alone, as there."""

    def new_empty(self, size, **settings):
        if not isinstance(size, tuple):
            raise TypeError("argument 'size' must be tuple of ints")
        return super().new_empty(size, **settings)


def monai_images(classes=3):
    generator = torch.Generator().manual_seed(0)
    labels = torch.zeros(8, 1, 16, 16)
    for i in range(8):
        labels[i, 0, 1 + i // 2 : 8, 2:9] = 1
        labels[i, 0, 10:15, i : 5 + i] = 2
    images = 0.7 * labels + 0.3 * torch.randn(labels.shape, generator=generator)
    return images.as_subclass(MetaTensor), labels.clamp(max=classes - 1).as_subclass(MetaTensor)


def network(channels, out):
    torch.manual_seed(0)
    return nn.Sequential(nn.Conv2d(channels, 16, 3, padding=1), nn.ReLU(), nn.Conv2d(16, out, 3, padding=1))


def monai_script(loss_function):
    images, labels = monai_images()
    model = network(1, 3)
    optimizer = torch.optim.Adam(model.parameters(), 1e-2)
    for _ in range(30):
        for batch in zip(images.split(4), labels.split(4), strict=True):
            inputs, target = batch
            optimizer.zero_grad()
            outputs = model(inputs)
            loss = loss_function(outputs, target)
            loss.backward()
            optimizer.step()
    return score(model(images).detach().as_subclass(torch.Tensor), labels.long().squeeze(1), "dice")


@pytest.mark.parametrize(
    "loss_function",
    [
        MetricLoss("dice", per_image=True),  # DiceLoss(to_onehot_y=True, softmax=True)
        MetricLoss("dice", classes=[1, 2], per_image=True),  # ... include_background=False
        Mix((WeightedCrossEntropyLoss(), 1.0), (MetricLoss("dice", per_image=True), 1.0)),  # DiceCELoss(...)
    ],
)
def test_a_script_of_monai(loss_function):
    assert monai_script(loss_function) > 0.8


def smp_script(loss_fn, mode):
    """Masks of one class are floats with a channel axis, masks of several classes are integers."""
    images, labels = (each.as_subclass(torch.Tensor) for each in monai_images(2 if mode == "binary" else 3))
    model = network(1, 1 if mode == "binary" else 3)
    masks = labels if mode == "binary" else labels.squeeze(1).long()
    optimizer = torch.optim.Adam(model.parameters(), 1e-2)
    for _ in range(30):
        logits_mask = model(images)
        loss = loss_fn(logits_mask, masks)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    return score(model(images).detach(), masks.long(), "iou")


@pytest.mark.parametrize("mode", ["binary", "multiclass"])
def test_a_script_of_segmentation_models(mode):
    assert smp_script(MetricLoss("dice"), mode) > 0.6  # DiceLoss(mode, from_logits=True)


def timm_script(train_loss_fn):
    """Mixup and label smoothing make shares of classes, autocast the logits, and an average of weights the model."""
    generator = torch.Generator().manual_seed(0)
    target = torch.randint(0, 4, (256,), generator=generator)
    x = torch.randn(256, 8, generator=generator) + 2 * nn.functional.one_hot(target, 8)
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(8, 32), nn.ReLU(), nn.Linear(32, 4))
    optimizer = torch.optim.AdamW(model.parameters(), 1e-2)
    average = torch.optim.swa_utils.AveragedModel(model, multi_avg_fn=torch.optim.swa_utils.get_ema_multi_avg_fn(0.9))
    shares = nn.functional.one_hot(target, 4) * 0.9 + 0.1 / 4
    for _ in range(30):
        for rows in torch.randperm(256, generator=generator).split(64):
            lam = float(torch.distributions.Beta(0.8, 0.8).sample())
            mixed, soft = (lam * each[rows] + (1 - lam) * each[rows.flip(0)] for each in (x, shares))
            with torch.autocast("cpu", torch.bfloat16):
                output = model(mixed)
                loss = train_loss_fn(output, soft)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            average.update_parameters(model)
    output = average(x).detach()
    return score(output, target, "accuracy"), score(output, target, "accuracy", top_k=2)


@pytest.mark.parametrize(
    "train_loss_fn",
    [
        MetricLoss("f1", task="multiclass"),  # SoftTargetCrossEntropy()
        Mix((WeightedCrossEntropyLoss(), 1.0), (MetricLoss("f1", task="multiclass"), 0.5)),
    ],
)
def test_a_script_of_timm(train_loss_fn):
    top1, top2 = timm_script(train_loss_fn)
    assert 0.85 < top1 < top2


def test_labels_with_a_channel_are_the_labels():
    logits, labels = torch.randn(2, 3, 4, 5), torch.randint(0, 3, (2, 4, 5))
    for loss in (MetricLoss("dice"), MetricLoss("mcc"), WeightedCrossEntropyLoss(), MetricLoss("f1", ignore_index=2)):
        expected = loss(logits, labels)
        for given in (labels.unsqueeze(1), labels.unsqueeze(1).float(), labels.unsqueeze(1).byte()):
            assert loss(logits, given) == expected
    weight = torch.rand(2, 4, 5)
    for loss in (MetricLoss("dice"), WeightedCrossEntropyLoss(), MetricLoss("dice", per_image=True)):
        assert loss(logits, labels.unsqueeze(1), weight.unsqueeze(1)) == loss(logits, labels, weight)
    with pytest.raises(ValueError, match="must be whole, got fractions"):
        MetricLoss("dice")(logits, labels.unsqueeze(1) / 2)
    with pytest.raises(ValueError, match="3 classes need labels 0 to 2"):
        MetricLoss("dice")(logits, labels.unsqueeze(1) + 1.0)
    assert score(logits, labels.unsqueeze(1), "dice") == score(logits, labels, "dice")
