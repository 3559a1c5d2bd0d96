"""Fashion-MNIST, from tiny files in the layouts of the real ones."""

import gzip

import numpy as np
import pytest

from metricfit_papers.images import BadImageFile, fashion_mnist

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


@pytest.mark.parametrize("place", ["FashionMNIST/raw", "images/fashion-mnist", "."])
@pytest.mark.parametrize("packed", [True, False])
def test_fashion_mnist_reads_back_what_was_written(tmp_path, place, packed):
    pixels, labels = write_fashion(tmp_path / place, packed)
    found = fashion_mnist(tmp_path)
    np.testing.assert_array_equal(np.concatenate([found.train.pixels, found.test.pixels]), pixels[:, None])
    assert [*found.train.labels, *found.test.labels] == labels.tolist()
    assert found.classes[found.train.labels[0]] == "dress"
    assert not found.whole


def unpack(path):
    plain = path.with_suffix("")
    plain.write_bytes(gzip.decompress(path.read_bytes()))
    return plain


@pytest.mark.parametrize("unpacked", ["train-images", "train-labels", "t10k-images", "t10k-labels"])
def test_fashion_mnist_may_be_unpacked_in_part(tmp_path, unpacked):
    pixels, labels = write_fashion(tmp_path)
    path = next(tmp_path.glob(f"{unpacked}*"))
    unpack(path)
    path.unlink()
    found = fashion_mnist(tmp_path)
    np.testing.assert_array_equal(np.concatenate([found.train.pixels, found.test.pixels]), pixels[:, None])
    assert [*found.train.labels, *found.test.labels] == labels.tolist()


def test_a_broken_gzip_file_does_not_hide_the_unpacked_one(tmp_path):
    pixels, _ = write_fashion(tmp_path)
    packed = tmp_path / "train-images-idx3-ubyte.gz"
    plain = unpack(packed)
    packed.write_bytes(packed.read_bytes()[:50])
    with pytest.warns(
        UserWarning, match=r"ubyte.gz is not a whole gzip file .* or remove it; .*ubyte beside it is read"
    ):
        found = fashion_mnist(tmp_path)
    np.testing.assert_array_equal(found.train.pixels, pixels[:3, None])
    plain.write_bytes(b"broken, too")
    with (
        pytest.warns(UserWarning, match=r"ubyte.gz is not a whole gzip file"),
        pytest.raises(BadImageFile, match=r"ubyte is not an idx file"),
    ):
        fashion_mnist(tmp_path)


def test_fashion_mnist_without_images_is_refused(tmp_path):
    write_fashion(tmp_path)
    write_idx(tmp_path / "t10k-images-idx3-ubyte.gz", np.zeros((0, 28, 28), np.uint8))
    write_idx(tmp_path / "t10k-labels-idx1-ubyte.gz", np.zeros(0, np.uint8))
    with pytest.raises(BadImageFile, match=r"t10k-images-idx3-ubyte.gz holds no images"):
        fashion_mnist(tmp_path)


def test_a_damaged_file_is_named(tmp_path):
    write_fashion(tmp_path)
    labels = tmp_path / "t10k-labels-idx1-ubyte.gz"
    whole = labels.read_bytes()
    for content, says in (
        (whole[:-9], "is not a whole gzip file"),
        (b"no gzip", "is not a whole gzip file"),
        (gzip.compress(b"\0\0\x08\x03"), "is not an idx file of bytes in 1 dimensions"),
        (gzip.compress(bytes([0, 0, 8, 1, 0, 0, 0, 2, 7])), "should hold 2 bytes, but has 1"),
        (gzip.compress(bytes([0, 0, 8, 1, 0, 0, 0, 1, 7])), "has 1 labels for 2 images"),
    ):
        labels.write_bytes(content)
        with pytest.raises(BadImageFile, match=labels.name) as caught:
            fashion_mnist(tmp_path)
        assert says in str(caught.value)
    write_idx(tmp_path / "train-images-idx3-ubyte.gz", np.zeros((1, 8, 8), np.uint8))
    with pytest.raises(BadImageFile, match="images of 8 x 8, not 28 x 28"):
        fashion_mnist(tmp_path)


def test_a_missing_file_is_named(tmp_path):
    write_fashion(tmp_path)
    (tmp_path / "t10k-images-idx3-ubyte.gz").unlink()
    with pytest.raises(FileNotFoundError, match=r"t10k-images-idx3-ubyte.gz; it is part of Fashion-MNIST, https"):
        fashion_mnist(tmp_path)
