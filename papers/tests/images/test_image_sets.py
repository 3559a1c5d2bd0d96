"""Image sets, from tiny files in each of the layouts of the real ones, and from the real ones where they are."""

import gzip
import io
import os
import pickle
import sys
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from metricfit_papers.images import BadImageFile, caltech256, cifar10, fashion_mnist

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
    assert repr(found) == "ImageSet('cifar10', 200 of 50000 + 100 images of 3 x 32 x 32, 10 classes)"


def test_mosaics_need_not_have_the_first(tmp_path):
    written = write_mosaics(tmp_path, ["data_batch_2", "data_batch_5", "test_batch"])
    found = cifar10(tmp_path)
    np.testing.assert_array_equal(found.train.pixels, np.concatenate([each[0] for each in written[:2]]))
    np.testing.assert_array_equal(found.train.labels, np.concatenate([each[1] for each in written[:2]]))


@pytest.mark.parametrize("write", [write_pickles, write_binary, write_mosaics])
def test_cifar10_takes_the_folder_of_batches_itself(tmp_path, write):
    written = write(tmp_path)
    inner = next(tmp_path.rglob("test_batch*")).parent
    found = cifar10(inner)
    np.testing.assert_array_equal(found.train.labels, np.concatenate([each[1] for each in written[:5]]))
    np.testing.assert_array_equal(found.test.pixels, written[5][0])


def test_batches_in_their_usual_place_come_before_those_in_the_folder_itself(tmp_path):
    write_pickles(tmp_path)
    for path in (tmp_path / "cifar-10-batches-py").iterdir():
        path.rename(tmp_path / path.name)
    written = write_binary(tmp_path)
    np.testing.assert_array_equal(cifar10(tmp_path).test.pixels, written[5][0])


@pytest.mark.parametrize("encoding", ["bytes", "latin1"])
@pytest.mark.parametrize("protocol", [0, 1, 2, 3, 4, 5])
def test_pickles_saved_again_by_python_3_are_read(tmp_path, protocol, encoding):
    written = write_pickles(tmp_path)
    for path in (tmp_path / "cifar-10-batches-py").iterdir():
        batch = pickle.loads(path.read_bytes()) | {b"batch_label": b""}
        if encoding == "latin1":
            batch = {key.decode(): value for key, value in batch.items()}
        path.write_bytes(pickle.dumps(batch, protocol=protocol))
    found = cifar10(tmp_path)
    np.testing.assert_array_equal(found.train.pixels, np.concatenate([each[0] for each in written[:5]]))
    np.testing.assert_array_equal(found.test.labels, written[5][1])
    assert found.test.pixels.flags.writeable


class Evil:
    def __reduce__(self):
        return os.system, ("true",)


def batch_of_one(labels):
    return pickle.dumps({b"data": np.zeros((1, 3072), np.uint8), b"labels": labels}, protocol=4)


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
        (pickle.dumps({b"data": np.zeros((0, 3072), np.uint8), b"labels": []}, protocol=4), "holds no images"),
        (batch_of_one(["ship"]), "has labels that are text, not numbers"),
        (batch_of_one([b"ship"]), "has labels that are bytes, not numbers"),
        (batch_of_one([None]), "has labels that are object, not numbers"),
        (batch_of_one([[1], [1, 2]]), "has labels of different lengths, not one number an image"),
        (batch_of_one([[1, 2]]), "has labels of the shape (1, 2), not one number an image"),
        (batch_of_one([0.5]), "has labels that are no whole numbers, such as 0.5"),
        (batch_of_one([float("nan")]), "has labels that are no whole numbers, such as nan"),
        (batch_of_one([float("inf")]), "has labels from inf to inf"),
        (b"c_codecs\nencode\n(Vx\nVrot13\ntR.", "it has bytes written as rot13"),
        (b"c__builtin__\nbytes\n(I9\ntR.", "is not a batch of CIFAR-10"),
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


def savez(**arrays):
    content = io.BytesIO()
    np.savez(content, **arrays)
    return content.getvalue()


def of_500(**changed):
    return savez(**({"y_train": np.zeros(500, np.uint8), "y_test": np.zeros(100, np.uint8)} | changed))


DAMAGED = bytearray(of_500())
DAMAGED[100:110] = b"x" * 10


@pytest.mark.parametrize(
    ("content", "says"),
    [
        (b"", "is empty"),
        (b"PK", "is damaged, or is no file of numpy.savez"),
        (b"PK\x03\x04 and no more", "is damaged, or is no file of numpy.savez"),
        (of_500()[:-30], "is damaged, or is no file of numpy.savez"),
        (pickle.dumps({"y_train": [0]}), "is damaged, or is no file of numpy.savez"),
        (bytes(DAMAGED), "has an array y_train that is damaged, or holds no numbers"),
        (of_500(y_train=np.array([[0], [0, 1]] * 250, dtype=object)), "has an array y_train that is damaged, or holds"),
        (of_500(y_train=np.full(500, "ship")), "has labels that are text, not numbers"),
        (of_500(y_train=np.full(500, 0.5)), "has labels that are no whole numbers, such as 0.5"),
        (of_500(y_train=np.zeros((500, 1))), "has labels of the shape (100, 1), not one number an image"),
        (of_500(y_train=np.zeros(502)), "has y_train of the shape (502,), which is not 5 batches of one length"),
        (of_500(y_train=np.array(3)), "has y_train of the shape (), which is not 5 batches of one length"),
        (of_500(y_train=np.zeros(505)), "has 101 labels for 100 images"),
        (of_500(y_test=np.full(100, -1)), "has labels from -1 to -1, there are 10 classes"),
        (savez(y_train=np.zeros(500)), "has no array y_test, only y_train"),
    ],
)
def test_labels_of_mosaics_that_are_no_labels_are_refused(tmp_path, content, says):
    write_mosaics(tmp_path, ["data_batch_1", "test_batch"])
    (tmp_path / "images" / "cifar10" / "labels.npz").write_bytes(content)
    with pytest.raises(BadImageFile, match=r"labels\.npz") as caught:
        cifar10(tmp_path)
    assert says in str(caught.value)
    assert "; save whole numbers from 0 to 9 there: numpy.savez(path, y_train=..., y_test=...)" in str(caught.value)
    assert "allow_pickle" not in shown_to_the_user(caught.value)


def shown_to_the_user(error):
    """The messages of an error and of what it names as its cause, as a traceback has them."""
    texts = [str(error)]
    while (error := error.__cause__ or (None if error.__suppress_context__ else error.__context__)) is not None:
        texts.append(str(error))
    return " ".join(texts)


def test_whole_numbers_may_be_saved_as_floats(tmp_path):
    written = write_mosaics(tmp_path)
    path = tmp_path / "images" / "cifar10" / "labels.npz"
    with np.load(path) as saved:
        path.write_bytes(savez(**{name: saved[name].astype(float) for name in saved.files}))
    np.testing.assert_array_equal(cifar10(tmp_path).test.labels, written[5][1])


def write_counts(folder, train, test):
    where = folder / "cifar-10-batches-bin"
    where.mkdir(exist_ok=True)
    for name, count in zip(BATCHES, [*train, test], strict=True):
        (where / f"{name}.bin").write_bytes(bytes(3073 * count))


def test_a_batch_cut_between_two_images_is_refused(tmp_path):
    write_counts(tmp_path, [3, 3, 2, 3, 3], 3)
    with pytest.raises(BadImageFile, match=r"data_batch_3.bin holds 2 images, but data_batch_1.bin 3: they are not of"):
        cifar10(tmp_path)
    write_counts(tmp_path, [3, 3, 3, 3, 0], 3)
    with pytest.raises(BadImageFile, match=r"data_batch_5.bin holds no images; download it again"):
        cifar10(tmp_path)
    write_counts(tmp_path, [3] * 5, 7)
    assert repr(cifar10(tmp_path)).startswith("ImageSet('cifar10', 15 of 50000 + 7 images of")


def test_a_test_batch_cut_between_two_images_is_refused_beside_whole_ones(tmp_path, monkeypatch):
    monkeypatch.setattr(sys.modules["metricfit_papers.images.cifar10"], "EACH", 4)  # 10,000 are 30 MB a file
    write_counts(tmp_path, [4] * 5, 3)
    with pytest.raises(BadImageFile, match=r"test_batch.bin holds 3 images, but data_batch_1.bin 4: they are not of"):
        cifar10(tmp_path)
    write_counts(tmp_path, [4] * 5, 4)
    assert len(cifar10(tmp_path).test) == 4


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
    spoil(packed, packed.read_bytes()[:50])
    with pytest.warns(
        UserWarning, match=r"ubyte.gz is not a whole gzip file .* or remove it; .*ubyte beside it is read"
    ):
        found = fashion_mnist(tmp_path)
    np.testing.assert_array_equal(found.train.pixels, pixels[:3, None])
    spoil(plain, b"broken, too")
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
    with pytest.raises(BadImageFile, match=r"labels.npz has no array y_train, only y_test"):
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
    (tmp_path / "cifar-10-batches-py" / "data_batch_1").unlink()
    with pytest.raises(FileNotFoundError, match="data_batch_1; it is part of CIFAR-10, https"):
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


def test_caltech256_refuses_shares_sides_and_folders_that_cannot_be(tmp_path):
    for name in ("001.ak47", "002.bat"):
        (tmp_path / name).mkdir()
        for number in range(5):
            Image.fromarray(np.zeros((6, 9, 3), np.uint8)).save(tmp_path / name / f"{number:04d}.png")
    for share in (2.0, 1.0, -0.1, float("nan")):
        with pytest.raises(ValueError, match=rf"test_share is {share}; give a share from 0 to less than 1"):
            caltech256(tmp_path, test_share=share)
    with pytest.raises(ValueError, match=r"test_share 0.95 takes all 5 pictures of .*001.ak47 .* give less"):
        caltech256(tmp_path, test_share=0.95)
    with pytest.raises(ValueError, match="side is 0; give the width"):
        caltech256(tmp_path, side=0)
    assert len(caltech256(tmp_path, test_share=0, side=2).train) == 10
    (tmp_path / "3").mkdir()
    with pytest.raises(BadImageFile, match=r"3 is a number without a name; call it as 001.ak47 is called"):
        caltech256(tmp_path)


def test_a_folder_with_a_number_for_a_name_is_not_caltech256(tmp_path):
    (tmp_path / "3").mkdir()
    with pytest.raises(FileNotFoundError, match="Caltech-256 is not in"):
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
