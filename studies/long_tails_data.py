"""Long-tailed Fashion-MNIST and CIFAR-10: rows of each class by an exponential profile, batches on one device.

    python -m studies.long_tails_data --data ../shared/data --out FOLDER   # only the rows that the study uses

Only 20,000 training images of CIFAR-10 are at hand, 2,000 per class, so both sets start from 2,000 rows of class 0. The
rarer classes have fewer: at 10:1 class 9 has 200 rows, at 100:1 it has 20. A quarter of the rows of each class is held
out. The seed decides which rows these are and, at 100:1, which rows are left.
"""

from __future__ import annotations

import argparse
import gzip
import io
from pathlib import Path
from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

CLASSES, HEAD = 10, 2000
#: Rows per class of the test set.
TEST_ROWS = {"fashion-mnist": 1000, "cifar10": 300}
#: Pixels by which random crops are shifted.
SHIFTS = {"fashion-mnist": 2, "cifar10": 4}
#: Images per row of a mosaic.
COLUMNS = 100


class Images(NamedTuple):
    """Pixels ``(n, height, width, channels)`` as bytes, and class numbers ``(n,)``."""

    pixels: NDArray[np.uint8]
    labels: NDArray[np.int64]


class Split(NamedTuple):
    """Numbers of rows in the pool of training images."""

    train: Tensor
    held_out: Tensor


def class_sizes(ratio: float) -> list[int]:
    """Rows of each class, training and held-out rows together."""
    return [round(HEAD * ratio ** (-k / (CLASSES - 1))) for k in range(CLASSES)]


def split_rows(labels: Tensor, ratio: float, seed: int) -> Split:
    """Draw the rows of each class, and hold a quarter of them out."""
    generator = torch.Generator().manual_seed(seed)
    train, held_out = [], []
    for k, size in enumerate(class_sizes(ratio)):
        rows = (labels == k).nonzero().squeeze(1)
        drawn = rows[torch.randperm(len(rows), generator=generator)][:size]
        held_out.append(drawn[: size // 4])
        train.append(drawn[size // 4 :])
    return Split(torch.cat(train), torch.cat(held_out))


def read_images(data: Path, name: str) -> tuple[Images, Images]:
    """The pool of training rows and the test rows, from the original files or from the packed ones."""
    packed = data / f"{name}.npz"
    if packed.exists():
        arrays = np.load(packed)
        parts = [Images(_pixels(arrays[part]), arrays[f"{part}_labels"].astype(np.int64)) for part in ("train", "test")]
        return parts[0], parts[1]
    folder = data / "images" / name
    train, test = _read_cifar(folder) if name == "cifar10" else _read_fashion(folder)
    return _first_of_each(train, class_sizes(10)), _first_of_each(test, [TEST_ROWS[name]] * CLASSES)


def _first_of_each(images: Images, sizes: list[int]) -> Images:
    rows = np.concatenate([np.flatnonzero(images.labels == k)[:size] for k, size in enumerate(sizes)])
    return Images(images.pixels[rows], images.labels[rows])


def _read_cifar(folder: Path) -> tuple[Images, Images]:
    labels = np.load(folder / "labels.npz")
    by_length = {len(labels[key]): labels[key].astype(np.int64) for key in labels.files}
    batches = [_pixels(np.frombuffer((folder / f"data_batch_{i}.webp").read_bytes(), np.uint8)) for i in (1, 2)]
    pixels = np.concatenate([batch[:10_000] for batch in batches])
    test = _pixels(np.frombuffer((folder / "test_batch.webp").read_bytes(), np.uint8))
    return Images(pixels, by_length[50_000][: len(pixels)]), Images(test, by_length[10_000])


def _read_fashion(folder: Path) -> tuple[Images, Images]:
    parts = []
    for part in ("train", "t10k"):
        pixels = gzip.decompress((folder / f"{part}-images-idx3-ubyte.gz").read_bytes())[16:]
        labels = gzip.decompress((folder / f"{part}-labels-idx1-ubyte.gz").read_bytes())[8:]
        images = np.frombuffer(pixels, np.uint8).reshape(-1, 28, 28, 1)
        parts.append(Images(images, np.frombuffer(labels, np.uint8).astype(np.int64)))
    return parts[0], parts[1]


def _pixels(stored: NDArray[np.uint8]) -> NDArray[np.uint8]:
    """Pixels as they are, or out of an encoded mosaic (bytes, one dimension)."""
    if stored.ndim > 1:
        return stored
    from PIL import Image

    mosaic = np.asarray(Image.open(io.BytesIO(stored.tobytes())).convert("RGB"))
    rows, columns = (side // 32 for side in mosaic.shape[:2])
    return mosaic.reshape(rows, 32, columns, 32, 3).swapaxes(1, 2).reshape(-1, 32, 32, 3)


def pack(data: Path, name: str, out: Path, *, encoded: bool) -> None:
    """Write the rows that the study uses; images in colour as a lossless WebP mosaic if ``encoded``."""
    arrays = {}
    for part, images in zip(("train", "test"), read_images(data, name), strict=True):
        arrays[f"{part}_labels"] = images.labels.astype(np.uint8)
        arrays[part] = _encode(images.pixels) if encoded else images.pixels
    np.savez_compressed(out / f"{name}.npz", **arrays)


def _encode(pixels: NDArray[np.uint8]) -> NDArray[np.uint8]:
    from PIL import Image

    n = len(pixels)
    padded = np.concatenate([pixels, np.zeros((-n % COLUMNS, 32, 32, 3), np.uint8)])
    mosaic = padded.reshape(-1, COLUMNS, 32, 32, 3).swapaxes(1, 2).reshape(-1, 32 * COLUMNS, 3)
    buffer = io.BytesIO()
    Image.fromarray(mosaic).save(buffer, "webp", lossless=True, quality=60, method=4)
    return np.frombuffer(buffer.getvalue(), np.uint8)


class Batches:
    """All images of a set on one device, and the batches of several seeds: random rows, crops and mirror images.

    Every model of a seed sees the same batches, whatever its loss and its learning rate.

    Args:
        name: "fashion-mnist" or "cifar10".
        data: The folder with the images.
        device: Where the images are kept.
    """

    def __init__(self, name: str, data: Path, device: torch.device) -> None:
        pool, test = read_images(data, name)
        self.shift, self.device = SHIFTS[name], device
        counted = pool.pixels.reshape(-1, pool.pixels.shape[-1])[::7].astype(np.float32)
        self.mean = torch.tensor(counted.mean(0), device=device)
        self.deviation = torch.tensor(counted.std(0), device=device)
        self.pool_labels = torch.from_numpy(pool.labels)
        self.labels = self.pool_labels.to(device)
        self.pixels = torch.from_numpy(pool.pixels.copy()).to(device)
        margin = (0, 0, self.shift, self.shift, self.shift, self.shift)
        self.padded = torch.nn.functional.pad(self.pixels, margin)
        self.test_pixels = torch.from_numpy(test.pixels.copy()).to(device)
        self.test_labels = torch.from_numpy(test.labels)

    @property
    def channels(self) -> int:
        """Number of channels of an image."""
        return self.pixels.shape[-1]

    def standardised(self, pixels: Tensor) -> Tensor:
        """Pixels ``(..., height, width, channels)`` as numbers ``(..., channels, height, width)``, channels last."""
        return ((pixels.float() - self.mean) / self.deviation).movedim(-1, -3)

    def draw(self, splits: list[Split], steps: int, size: int) -> None:
        """Choose rows, crops and mirror images of all steps; the rows of an epoch do not repeat."""
        rows, moves = [], []
        for seed, split in enumerate(splits):
            generator = torch.Generator().manual_seed(1000 + seed)
            number = len(split.train)
            epochs = -(-steps * size // number)
            order = torch.cat([torch.randperm(number, generator=generator) for _ in range(epochs)])[: steps * size]
            rows.append(split.train[order].reshape(steps, size))
            crops = torch.randint(2 * self.shift + 1, (steps, size, 2), generator=generator)
            mirrored = torch.randint(2, (steps, size, 1), generator=generator)
            moves.append(torch.cat([crops, mirrored], dim=2))
        self.rows = torch.stack(rows, dim=1).to(self.device)  # (steps, seeds, size)
        self.moves = torch.stack(moves, dim=1).to(self.device)

    def batch(self, step: Tensor) -> tuple[Tensor, Tensor]:
        """Images ``(seeds, size, channels, height, width)`` and labels of a step, whose number is a tensor ``(1,)``."""
        rows, moves = self.rows.index_select(0, step)[0], self.moves.index_select(0, step)[0]
        down, right, mirrored = moves.unbind(-1)
        along = torch.arange(self.pixels.shape[1], device=self.device)
        y = down[..., None] + along
        x = right[..., None] + torch.where(mirrored[..., None] > 0, along.flip(0), along)
        pixels = self.padded[rows[..., None, None], y[..., None], x[..., None, :]]
        return self.standardised(pixels), self.labels[rows]


def main(arguments: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--out", type=Path, required=True)
    options = parser.parse_args(arguments)
    for name in TEST_ROWS:
        pack(options.data, name, options.out, encoded=name == "cifar10")


if __name__ == "__main__":
    main()
