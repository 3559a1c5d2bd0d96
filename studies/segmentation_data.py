"""The images of the segmentation study: CamVid and the membrane slices, in memory, and the random crops of training."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from PIL import Image
from torch import Tensor

#: CamVid's label of pixels without a class, which are left out of training and scores.
VOID = 11
CAMVID_CLASSES = 11
#: Slices of a stack resemble their neighbours, so a fold is a block of neighbouring slices.
MEMBRANE_FOLDS = 5


@dataclass(frozen=True)
class Images:
    """Images and their labels.

    Attributes:
        pixels: uint8 ``(n, height, width, channels)``.
        labels: uint8 ``(n, height, width)``.
    """

    pixels: Tensor
    labels: Tensor

    def __len__(self) -> int:
        return len(self.pixels)

    def take(self, places: list[int]) -> Images:
        """Return some of the images."""
        index = torch.tensor(places, device=self.pixels.device)
        return Images(self.pixels[index], self.labels[index])

    def to(self, device: torch.device) -> Images:
        """Return the images on a device."""
        return Images(self.pixels.to(device), self.labels.to(device))


@dataclass(frozen=True)
class Split:
    """One problem: images to train on, to choose on and to score on.

    Attributes:
        train: The training images.
        validation: Learning rates, thresholds, offsets and calibration are chosen on these.
        test: The images that are scored.
        classes: Number of classes; 1 for a mask.
        crop: Height and width of the crops of training.
    """

    train: Images
    validation: Images
    test: Images
    classes: int
    crop: tuple[int, int]


def read_camvid(folder: Path, device: torch.device) -> Split:
    """Read CamVid with its own split; label 11 is void."""
    parts = []
    for name in ("train", "val", "test"):
        files = sorted((folder / "camvid" / name).glob("*.webp"))
        pixels = np.stack([np.asarray(Image.open(file).convert("RGB")) for file in files])
        labels = np.stack([np.asarray(Image.open(file.with_name(f"{file.stem}_label.png"))) for file in files])
        parts.append(Images(torch.from_numpy(pixels), torch.from_numpy(labels)).to(device))
    return Split(*parts, classes=CAMVID_CLASSES, crop=(128, 160))


def read_membrane(folder: Path, fold: int, device: torch.device) -> Split:
    """Read the slices; a fold is scored, the next one is for choices, and the others are for training.

    The membranes are the positive class, about a fifth of the pixels.
    """
    files = sorted((folder / "membrane").glob("??.png"))
    pixels = np.stack([np.asarray(Image.open(file)) for file in files])[..., None]
    inside = np.stack([np.asarray(Image.open(file.with_name(f"{file.stem}_label.png"))) > 0 for file in files])
    images = Images(torch.from_numpy(pixels), torch.from_numpy(1 - inside.astype(np.uint8))).to(device)
    blocks = np.array_split(np.arange(len(files)), MEMBRANE_FOLDS)
    test, validation = fold, (fold + 1) % MEMBRANE_FOLDS
    train = [place for number, block in enumerate(blocks) if number not in (test, validation) for place in block]
    return Split(
        images.take(train),
        images.take(list(blocks[validation])),
        images.take(list(blocks[test])),
        classes=1,
        crop=(192, 192),
    )


def normalised(pixels: Tensor) -> Tensor:
    """Return uint8 pixels ``(n, h, w, channels)`` as numbers of about unit spread, ``(n, channels, h, w)``."""
    return ((pixels.float() - 128) / 64).permute(0, 3, 1, 2)


class Crops:
    """Random crops and mirror images for a number of training steps, drawn beforehand on the device.

    Nothing in a batch waits for Python, so a step can be captured in a CUDA graph. The same seed gives the same batches
    to every loss.

    Args:
        split: The problem.
        batch: Images per batch.
        steps: Number of batches.
        seed: The seed.
    """

    def __init__(self, split: Split, batch: int, steps: int, seed: int) -> None:
        images, (height, width) = split.train, split.crop
        self.images, self.batch = images, batch
        device = images.pixels.device
        random = torch.Generator().manual_seed(seed)
        rounds = -(-batch * steps // len(images))
        order = torch.cat([torch.randperm(len(images), generator=random) for _ in range(rounds)])[: batch * steps]
        top, left = (
            torch.randint(size - part + 1, (steps, batch), generator=random)
            for size, part in zip(images.labels.shape[1:], split.crop, strict=True)
        )
        turned = torch.rand(steps, batch, generator=random) < 0.5
        flipped = (torch.rand(steps, batch, generator=random) < 0.5) & (split.classes == 1)  # streets stand upright
        rows, columns = top[..., None] + torch.arange(height), left[..., None] + torch.arange(width)
        self.rows = torch.where(flipped[..., None], rows.flip(-1), rows).to(device)
        self.columns = torch.where(turned[..., None], columns.flip(-1), columns).to(device)
        self.order = order.reshape(steps, batch).to(device)
        self.gain = (0.8 + 0.4 * torch.rand(steps, batch, 1, 1, 1, generator=random)).to(device)

    def at(self, step: Tensor) -> tuple[Tensor, Tensor]:
        """Return the inputs ``(batch, channels, h, w)`` and labels of a step, whose number is a tensor ``(1,)``."""
        order, rows, columns, gain = (
            part.index_select(0, step).squeeze(0) for part in (self.order, self.rows, self.columns, self.gain)
        )
        where = order[:, None, None], rows[:, :, None], columns[:, None, :]
        return normalised(self.images.pixels[where]) * gain, self.images.labels[where].long()
