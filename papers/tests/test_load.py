"""Datasets by name, from tiny files in the formats of the real ones."""

import gzip
import lzma

import numpy as np
import pandas as pd
import pytest

from metricfit_papers.datasets import STUDY, load, names
from metricfit_papers.datasets.catalogue import CATALOGUE, find_dataset_file


def write(frame, folder, file):
    path = folder / file
    path.parent.mkdir(parents=True, exist_ok=True)
    frame.to_parquet(path) if file.endswith(".parquet") else frame.to_csv(path, index=False)
    return folder


MAMMOGRAPHY = pd.DataFrame({f"attr{i}": [0.5 * i, 1.0, -1.0] for i in range(1, 7)} | {"target": [0, 1, 0]})


@pytest.mark.parametrize("ending", [".parquet", ".csv", ".csv.gz", ".csv.xz"])
def test_every_format_gives_the_same_table(tmp_path, ending):
    table = load("mammography", write(MAMMOGRAPHY, tmp_path, f"tabular/mammography{ending}"), verify=False)
    pd.testing.assert_frame_equal(table.X, MAMMOGRAPHY.drop(columns="target"))
    assert table.y.tolist() == [0, 1, 0]
    assert table.y.dtype == np.int64
    assert (table.groups, table.published_split) == (None, None)
    assert "310" in table.source
    assert repr(table) == "Table('mammography', 3 x 6, 33.33% positive: a microcalcification)"


def test_a_set_of_imbalanced_learn(tmp_path):
    frame = pd.DataFrame({"f0": [1, 2], "f1": [0.5, 0.25], "target": [1, 0]})
    table = load("scene", write(frame, tmp_path, "imblearn_bench/scene.csv.xz"), verify=False)
    assert table.X.columns.tolist() == ["f0", "f1"]
    assert table.y.tolist() == [1, 0]


def test_labels_of_minus_one_and_one_are_accepted(tmp_path):
    frame = pd.DataFrame({"f0": [1, 2, 3], "target": [-1, 1, -1]})
    assert load("oil", write(frame, tmp_path, "imblearn_bench/oil.csv"), verify=False).y.tolist() == [0, 1, 0]


def test_cocktailparty_keeps_22_features_and_groups_by_frame(tmp_path):
    points = ("x", "y", "cosa", "sina")
    people = ("dyad1", "dyad2", "context1", "context2", "context3", "context4")
    features = [f"{p}_{q}" for p in people for q in points if not (p.startswith("dyad") and q == "y")]
    beside = {"frame": [7, 7], "timestamp_us": [1, 1], "person1": [1, 1], "person2": [2, 3], "imputed": [0, 1]}
    frame = pd.DataFrame(beside | {name: [0.1, 0.2] for name in features} | {"target": [0, 1]})
    table = load("cocktailparty", write(frame, tmp_path, "tabular/cocktailparty_dyads.csv.gz"), verify=False)
    assert table.X.columns.tolist() == features
    assert len(features) == 22
    assert table.groups.tolist() == [7, 7]


ADULT = pd.DataFrame(
    {
        "age": [30, 40, 50],
        "workclass": ["Private", None, "Never-worked"],
        "fnlwgt": [1, 2, 3],
        "split": ["train", "train", "test"],
        "target": [0, 1, 1],
    }
)


def test_adult_has_its_own_split(tmp_path):
    table = load("adult", write(ADULT, tmp_path, "tabular/adult.parquet"), verify=False)
    assert table.X.columns.tolist() == ["age", "workclass", "fnlwgt"]
    assert table.published_split.tolist() == ["train", "train", "test"]


def test_kaggle_s_own_credit_card_file_is_taken(tmp_path):
    frame = pd.DataFrame({"Time": [0, 9], "V1": [0.1, 0.2], "Amount": [0.0, 99.999], "Class": [0, 1]})
    table = load("creditcard", write(frame, tmp_path, "tabular/creditcard.csv"), verify=False)
    assert table.y.tolist() == [0, 1]
    assert table.X.columns.tolist() == ["Time", "V1", "Amount"]


def test_a_missing_file_is_reported_with_its_place_and_its_source(tmp_path):
    with pytest.raises(FileNotFoundError) as error:
        load("adult", tmp_path)
    for part in ("tabular/adult.csv", "archive.ics.uci.edu", f"metricfit datasets --fetch adult --data {tmp_path}"):
        assert part in str(error.value)
    assert "\n" not in str(error.value)
    with pytest.raises(FileNotFoundError) as error:
        load("oil", tmp_path)
    assert "zenodo.org/records/61452" in str(error.value)


def test_another_file_than_expected_is_refused(tmp_path):
    folder = write(MAMMOGRAPHY, tmp_path, "tabular/mammography.parquet")
    with pytest.raises(ValueError, match="should have 11183 rows with 260 positives, this one has 3 with 1"):
        load("mammography", folder)


@pytest.mark.parametrize(
    ("labels", "message"),
    [
        ({"target": [0, 1, 2]}, "two labels in the column 'target', it has 3"),
        ({"target": ["no", "yes", "no"]}, "holds no, yes; make it 0 and 1, or -1 and 1"),
        ({"target": [-1, 0, -1]}, "holds -1, 0; make it 0 and 1, or -1 and 1"),
        ({"target": [0, None, 1]}, "1 rows without a label"),
        ({"other": [0, 1, 1]}, "neither a column 'target' nor 'class'"),
    ],
)
def test_wrong_labels_are_refused(tmp_path, labels, message):
    frame = MAMMOGRAPHY.drop(columns="target").assign(**labels)
    folder = write(frame, tmp_path, "tabular/mammography.csv")
    with pytest.raises(ValueError, match=message):
        load("mammography", folder, verify=False)


def test_an_unknown_dataset_lists_the_known_ones():
    with pytest.raises(ValueError, match=r"no dataset is called 'nope'; there are abalone, .*yeast_ml8"):
        load("nope", "anywhere")


def test_the_study_s_sets_are_known():
    assert len(set(STUDY)) == 19
    assert set(STUDY) <= set(names())


def test_positives_are_the_rarer_class_everywhere():
    assert all(2 * known.positives < known.rows for known in CATALOGUE.values())


@pytest.mark.parametrize("ending", [".csv.gz", ".csv.xz", ".parquet"])
def test_datasets_by_name_are_checked_too(tmp_path, monkeypatch, ending):
    frame = pd.DataFrame({"a": np.zeros(100_000), "target": 0})
    place = tmp_path / "tabular" / f"mammography{ending}"
    place.parent.mkdir()
    if ending == ".parquet":
        frame.to_parquet(place)
    else:
        pack = gzip.compress if ending == ".csv.gz" else lzma.compress
        place.write_bytes(pack(frame.to_csv(index=False).encode()))
    assert find_dataset_file("mammography", tmp_path) == place
    monkeypatch.setenv("METRICFIT_MAX_TABLE_GB", str(2**-10))
    with pytest.raises(ValueError, match=r"needs at least .* GiB of memory, more than the limit"):
        load("mammography", tmp_path)
