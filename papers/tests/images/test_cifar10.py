"""CIFAR-10, from tiny files in each of the layouts of the real ones."""

import io
import os
import pickle
import sys

import numpy as np
import pytest
from PIL import Image

from metricfit_papers.images import BadImageFile, cifar10

RNG = np.random.default_rng(0)


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


def test_the_first_mosaic_may_be_missing(tmp_path):
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
        (batch_of_one([[1], [1, 2]]), "has labels of different lengths, not one number per image"),
        (batch_of_one([[1, 2]]), "has labels of the shape (1, 2), not one number per image"),
        (batch_of_one([0.5]), "has labels that are not whole numbers, such as 0.5"),
        (batch_of_one([float("nan")]), "has labels that are not whole numbers, such as nan"),
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
        (b"PK", "is damaged, or was not written by numpy.savez"),
        (b"PK\x03\x04 and no more", "is damaged, or was not written by numpy.savez"),
        (of_500()[:-30], "is damaged, or was not written by numpy.savez"),
        (pickle.dumps({"y_train": [0]}), "is damaged, or was not written by numpy.savez"),
        (bytes(DAMAGED), "has an array y_train that is damaged, or holds no numbers"),
        (of_500(y_train=np.array([[0], [0, 1]] * 250, dtype=object)), "has an array y_train that is damaged, or holds"),
        (of_500(y_train=np.full(500, "ship")), "has labels that are text, not numbers"),
        (of_500(y_train=np.full(500, 0.5)), "has labels that are not whole numbers, such as 0.5"),
        (of_500(y_train=np.zeros((500, 1))), "has labels of the shape (100, 1), not one number per image"),
        (of_500(y_train=np.zeros(502)), "has y_train of the shape (502,), which is not 5 batches of one length"),
        (of_500(y_train=np.array(3)), "has y_train of the shape (), which is not 5 batches of one length"),
        (of_500(y_train=np.zeros(505)), "has 101 labels for 100 images"),
        (of_500(y_test=np.full(100, -1)), "has labels from -1 to -1, but 10 classes"),
        (savez(y_train=np.zeros(500)), "has no array y_test, only y_train"),
    ],
)
def test_invalid_labels_of_mosaics_are_refused(tmp_path, content, says):
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
    monkeypatch.setattr(
        sys.modules["metricfit_papers.images.cifar10"], "BATCH_SIZE", 4
    )  # 10,000 images are 30 MB per file
    write_counts(tmp_path, [4] * 5, 3)
    with pytest.raises(BadImageFile, match=r"test_batch.bin holds 3 images, but data_batch_1.bin 4: they are not of"):
        cifar10(tmp_path)
    write_counts(tmp_path, [4] * 5, 4)
    assert len(cifar10(tmp_path).test) == 4


def test_damaged_mosaics_and_binaries_are_named(tmp_path):
    write_binary(tmp_path)
    (tmp_path / "cifar-10-batches-bin" / "data_batch_5.bin").write_bytes(b"x" * 3074)
    with pytest.raises(BadImageFile, match=r"data_batch_5.bin has 3074 bytes, which is not a multiple of 3073"):
        cifar10(tmp_path)
    other = tmp_path / "other"
    write_mosaics(other)
    where = other / "images" / "cifar10"
    (where / "data_batch_4.webp").write_bytes(b"no picture")
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


def test_a_missing_batch_is_named(tmp_path):
    write_pickles(tmp_path)
    (tmp_path / "cifar-10-batches-py" / "data_batch_3").unlink()
    with pytest.raises(FileNotFoundError, match="data_batch_3; it is part of CIFAR-10, https"):
        cifar10(tmp_path)
    (tmp_path / "cifar-10-batches-py" / "data_batch_1").unlink()
    with pytest.raises(FileNotFoundError, match="data_batch_1; it is part of CIFAR-10, https"):
        cifar10(tmp_path)
