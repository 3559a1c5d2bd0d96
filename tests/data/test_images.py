"""Image sets, from tiny files in each of the layouts of the real ones, and from the real ones where they are."""

import gzip
import os
import pickle
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from metricfit.data.images import BadImageFile, caltech256, cifar10, fashion_mnist

RNG = np.random.default_rng(0)


def write_idx(path, array, packed=True):
    content = bytes([0, 0, 8, array.ndim]) + b"".join(size.to_bytes(4, "big") for size in array.shape) + array.tobytes()
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(gzip.compress(content) if packed else content)


def write_fashion(where, packed=True):
    pixels, labels = RNG.integers(0, 256, (5, 28, 28), dtype=np.uint8), np.array([3, 0, 9, 1, 1], dtype=np.uint8)
    for part, rows in (("train", slice(0, 3)), ("t10k", slice(3, 5))):
        ending = ".gz" if packed else ""
        write_idx(where / f"{part}-images-idx3-ubyte{ending}", pixels[rows], packed)
        write_idx(where / f"{part}-labels-idx1-ubyte{ending}", labels[rows], packed)
    return pixels, labels


BATCHES = [*(f"data_batch_{number}" for number in range(1, 6)), "test_batch"]


def images(count):
    pixels = RNG.integers(0, 256, (count, 3, 32, 32), dtype=np.uint8)
    return pixels, RNG.integers(0, 10, count)


def write_pickles(folder):
    """As the origin's: protocol 2's names, keys of bytes, lists of labels."""
    where, written = folder / "cifar-10-batches-py", []
    where.mkdir()
    for name in BATCHES:
        pixels, labels = images(2)
        batch = {b"data": pixels.reshape(2, -1), b"labels": labels.tolist(), b"batch_label": b"one of six"}
        content = pickle.dumps(batch, protocol=4)
        assert b"numpy._core.multiarray" in content or b"numpy.core.multiarray" in content
        (where / name).write_bytes(content)
        written.append((pixels, labels))
    return written


def write_binary(folder):
    where, written = folder / "cifar-10-batches-bin", []
    where.mkdir()
    for name in BATCHES:
        pixels, labels = images(2)
        rows = np.concatenate([labels.astype(np.uint8)[:, None], pixels.reshape(2, -1)], axis=1)
        (where / f"{name}.bin").write_bytes(rows.tobytes())
        written.append((pixels, labels))
    return written


def write_mosaics(folder, names=BATCHES):
    where = folder / "images" / "cifar10"
    where.mkdir(parents=True)
    every = {name: images(100) for name in BATCHES}
    for name in names:
        mosaic = np.concatenate(list(every[name][0].transpose(0, 2, 3, 1)), axis=1)  # one row of a hundred
        Image.fromarray(mosaic).save(where / f"{name}.webp", lossless=True)
    train = np.concatenate([every[name][1] for name in BATCHES[:5]]).astype(np.uint8)
    np.savez(where / "labels.npz", y_train=train, y_test=every["test_batch"][1].astype(np.uint8))
    return [every[name] for name in names]


@pytest.mark.parametrize("place", ["FashionMNIST/raw", "images/fashion-mnist", "."])
@pytest.mark.parametrize("packed", [True, False])
def test_fashion_mnist_reads_back_what_was_written(tmp_path, place, packed):
    pixels, labels = write_fashion(tmp_path / place, packed)
    found = fashion_mnist(tmp_path)
    np.testing.assert_array_equal(np.concatenate([found.train.pixels, found.test.pixels]), pixels[:, None])
    assert [*found.train.labels, *found.test.labels] == labels.tolist()
    assert found.classes[found.train.labels[0]] == "dress"
    assert not found.whole


@pytest.mark.parametrize("write", [write_pickles, write_binary, write_mosaics])
def test_cifar10_reads_back_what_was_written(tmp_path, write):
    written = write(tmp_path)
    found = cifar10(tmp_path)
    np.testing.assert_array_equal(found.train.pixels, np.concatenate([each[0] for each in written[:5]]))
    np.testing.assert_array_equal(found.train.labels, np.concatenate([each[1] for each in written[:5]]))
    np.testing.assert_array_equal(found.test.pixels, written[5][0])
    assert found.test.labels.tolist() == written[5][1].tolist()
    assert found.train.labels.dtype == np.int64


def test_mosaics_that_are_not_there_are_left_out(tmp_path):
    written = write_mosaics(tmp_path, ["data_batch_1", "data_batch_3", "test_batch"])
    found = cifar10(tmp_path)
    np.testing.assert_array_equal(found.train.labels, np.concatenate([each[1] for each in written[:2]]))
    assert repr(found) == "ImageSet('cifar10', 200 + 100 images (of 50000 + 100) of 3 x 32 x 32, 10 classes)"


class Evil:
    def __reduce__(self):
        return os.system, ("true",)


@pytest.mark.parametrize(
    ("content", "says"),
    [
        (pickle.dumps({b"data": Evil()}), "system, which no array of bytes needs"),
        (pickle.dumps([1]), "holds a list, not the dictionary of a batch"),
        (pickle.dumps({b"labels": [1]}), "has no array of bytes b'data' with 3072 columns"),
        (pickle.dumps({b"data": np.zeros((1, 3072)), b"labels": [1]}, protocol=4), "has no array of bytes b'data'"),
        (
            pickle.dumps({b"data": np.zeros((1, 3072), np.uint8), b"x": np.array([None])}, protocol=4),
            "an array of objects",
        ),
        (pickle.dumps({b"data": np.zeros((1, 3072), np.uint8), b"labels": []}, protocol=4), "has 0 labels for 1"),
        (pickle.dumps({b"data": np.zeros((1, 3072), np.uint8), b"labels": [10]}, protocol=4), "labels from 10 to 10"),
        (b"\x80\x04rubbish", "is not a batch of CIFAR-10"),
        (b"", "is not a batch of CIFAR-10"),
    ],
)
def test_a_pickle_of_anything_but_arrays_is_refused(tmp_path, content, says):
    write_pickles(tmp_path)
    (tmp_path / "cifar-10-batches-py" / "data_batch_2").write_bytes(content)
    with pytest.raises(BadImageFile, match="data_batch_2") as caught:
        cifar10(tmp_path)
    assert says in str(caught.value)
    assert "download it again" in str(caught.value)


def spoil(path, content):
    path.write_bytes(content)
    return path.name


def test_a_damaged_file_is_named(tmp_path):
    write_fashion(tmp_path)
    labels = tmp_path / "t10k-labels-idx1-ubyte.gz"
    whole = labels.read_bytes()
    for content, says in (
        (whole[:-9], "is not a whole gzip file"),
        (b"no gzip", "is not a whole gzip file"),
        (gzip.compress(b"\0\0\x08\x03"), "is not an idx file of bytes in 1 dimensions"),
        (gzip.compress(bytes([0, 0, 8, 1, 0, 0, 0, 2, 7])), "should hold 2 bytes, it has 1"),
        (gzip.compress(bytes([0, 0, 8, 1, 0, 0, 0, 1, 7])), "has 1 labels for 2 images"),
    ):
        spoil(labels, content)
        with pytest.raises(BadImageFile, match=labels.name) as caught:
            fashion_mnist(tmp_path)
        assert says in str(caught.value)
    write_idx(tmp_path / "train-images-idx3-ubyte.gz", np.zeros((1, 8, 8), np.uint8))
    with pytest.raises(BadImageFile, match="images of 8 x 8, not 28 x 28"):
        fashion_mnist(tmp_path)


def test_damaged_mosaics_and_binaries_are_named(tmp_path):
    write_binary(tmp_path)
    spoil(tmp_path / "cifar-10-batches-bin" / "data_batch_5.bin", b"x" * 3074)
    with pytest.raises(BadImageFile, match=r"data_batch_5.bin has 3074 bytes, which are no whole number of 3073"):
        cifar10(tmp_path)
    other = tmp_path / "other"
    write_mosaics(other)
    where = other / "images" / "cifar10"
    spoil(where / "data_batch_4.webp", b"no picture")
    with pytest.raises(BadImageFile, match=r"data_batch_4.webp cannot be read as a picture"):
        cifar10(other)
    Image.fromarray(np.zeros((32, 64, 3), np.uint8)).save(where / "data_batch_4.webp")
    with pytest.raises(BadImageFile, match="is 64 x 32 pixels, not 100 images of 32 across"):
        cifar10(other)
    np.savez(where / "labels.npz", y_test=np.zeros(100))
    with pytest.raises(BadImageFile, match=r"labels.npz has no labels of data_batch_1"):
        cifar10(other)
    (where / "labels.npz").unlink()
    with pytest.raises(FileNotFoundError, match=r"no file .*labels.npz; the mosaics of CIFAR-10 need it"):
        cifar10(other)


@pytest.mark.parametrize("load", [cifar10, fashion_mnist, caltech256])
def test_what_is_missing_says_what_to_download_and_where_it_goes(tmp_path, load):
    with pytest.raises(FileNotFoundError, match=r"is not in .* Download .* https://.*(there|raw)$"):
        load(tmp_path)


def test_a_missing_part_is_named(tmp_path):
    write_fashion(tmp_path)
    (tmp_path / "t10k-images-idx3-ubyte.gz").unlink()
    with pytest.raises(FileNotFoundError, match=r"t10k-images-idx3-ubyte.gz; it is part of Fashion-MNIST, https"):
        fashion_mnist(tmp_path)
    write_pickles(tmp_path)
    (tmp_path / "cifar-10-batches-py" / "data_batch_3").unlink()
    with pytest.raises(FileNotFoundError, match="data_batch_3; it is part of CIFAR-10, https"):
        cifar10(tmp_path)


def test_caltech256_is_a_folder_of_folders(tmp_path):
    colours = {"001.ak47": 10, "002.bat": 200}
    for name, value in colours.items():
        where = tmp_path / "256_ObjectCategories" / name
        where.mkdir(parents=True)
        for number in range(5):
            Image.fromarray(np.full((6 + number, 9, 3), value, np.uint8)).save(where / f"{number:04d}.png")
        (where / "notes.txt").write_text("not a picture", encoding="utf-8")
    found = caltech256(tmp_path, side=4)
    assert found.classes == ("ak47", "bat")
    assert found.train.pixels.shape == (8, 3, 4, 4)
    assert found.test.labels.tolist() == [0, 1]
    for part in (found.train, found.test):
        np.testing.assert_array_equal(part.pixels.min((1, 2, 3)), np.array([10, 200])[part.labels])
    (tmp_path / "256_ObjectCategories" / "003.none").mkdir()
    with pytest.raises(FileNotFoundError, match=r"003.none has no pictures"):
        caltech256(tmp_path)


REAL = Path(os.environ.get("METRICFIT_DATA", "nowhere")) / "images"


@pytest.mark.slow
@pytest.mark.skipif(not REAL.is_dir(), reason="METRICFIT_DATA names no folder with images")
def test_the_real_files():
    fashion = fashion_mnist(REAL.parent)
    assert fashion.whole
    assert np.bincount(fashion.train.labels).tolist() == [6000] * 10
    assert round(fashion.train.pixels.mean() / 255, 4) == 0.2860  # the published mean
    cifar = cifar10(REAL.parent)
    assert np.bincount(cifar.test.labels).tolist() == [1000] * 10
    assert cifar.train.labels[:5].tolist() == [6, 9, 9, 4, 1]  # frog, truck, truck, deer, automobile
    # Neighbours in a picture are alike; a mosaic cut at the wrong places would not be.
    first = cifar.train.pixels[0].astype(float)
    assert np.abs(np.diff(first, axis=-1)).mean() < 25
    assert len(cifar.train) in (20_000, 50_000)
