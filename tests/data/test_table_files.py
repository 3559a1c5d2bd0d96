"""Files of every kind, and of many wrong kinds."""

import gzip

import numpy as np
import pandas as pd
import pytest

from metricfit.data.columns import check_classes, split_target
from metricfit.data.reading import read_table
from metricfit.data.text_format import TableWarning
from metricfit.errors import TableError

FRAME = pd.DataFrame({"age": [31.0, 42.0, np.nan], "town": ["Ulm", "Bonn", "Ulm"], "fraud": [0, 1, 0]})


def write(path, frame=FRAME):
    kind = "".join(path.suffixes)
    if kind in (".csv", ".csv.gz"):
        frame.to_csv(path, index=False)
    elif kind == ".tsv":
        frame.to_csv(path, index=False, sep="\t")
    elif kind == ".parquet":
        frame.to_parquet(path)
    elif kind in (".arrow", ".feather"):
        frame.to_feather(path)
    else:
        frame.to_json(path, orient="records", lines=True)
    return path


@pytest.mark.parametrize(
    "name", ["t.csv", "t.csv.gz", "t.tsv", "t.parquet", "t.arrow", "t.feather", "t.jsonl", "t.jsonl.gz"]
)
def test_every_file_format_gives_the_same_frame(tmp_path, name):
    pd.testing.assert_frame_equal(read_table(write(tmp_path / name)), FRAME, check_dtype=False)


def test_an_arrow_stream_is_read_too(tmp_path):
    import pyarrow as pa

    table = pa.Table.from_pandas(FRAME)
    with pa.OSFile(str(tmp_path / "t.arrow"), "wb") as file, pa.ipc.new_stream(file, table.schema) as stream:
        stream.write_table(table)
    pd.testing.assert_frame_equal(read_table(tmp_path / "t.arrow"), FRAME, check_dtype=False)


BAD = {
    "missing.csv": (None, "There is no file"),
    "empty.csv": (b"", "is empty"),
    "header.csv": (b"a,b\n", "a header and no rows"),
    "twice.csv": (b"a,a\n1,2\n", "more than one column named 'a'"),
    "ragged.csv": (b"a,b\n1,2\n1,2,3,4\n", "line 3 has 4 fields, the lines before it have 2"),
    "unnamed.csv": (b"a,b,y\nr1,1,2,0\nr2,3,4,1\n", "3 names in its header and more fields in its rows.*Name every"),
    "unknown encoding.csv": (b"a,b\nGr\x81n\xfc,1\n", "neither UTF-8, UTF-16 nor Windows-1252.*--encoding"),
    "nul.csv": (b"a,b\n1,\x00\n", "NUL bytes"),
    "wide.csv": (b",".join(b"c%d" % k for k in range(100_000)) + b"\n", "has 100000 columns"),
    "broken.csv.gz": (gzip.compress(b"a,b\n1,2\n" * 999)[:-9], "not a whole gzip file"),
    "plain.csv.gz": (b"a,b\n1,2\n", "not a whole gzip file"),
    "cut.parquet": (b"PAR1 and then nothing", "not a whole Parquet file"),
    "cut.arrow": (b"ARROW1", "not a whole Arrow file"),
    "bad.jsonl": (b'{"a": 1}\n{"a": \n', "not JSON lines"),
    "nested.jsonl": (b'{"a": [1, 2], "b": 1}\n', "'a' holds lists or objects"),
    "table.xlsx": (b"PK", "cannot be read as spreadsheet"),
    "table.ods": (b"PK", "Known endings"),
    "noending": (b"a,b\n1,2\n", "Known endings"),
}


@pytest.mark.parametrize("name", BAD)
def test_a_bad_file_is_reported_with_an_explanation(tmp_path, name):
    content, message = BAD[name]
    if content is not None:
        (tmp_path / name).write_bytes(content)
    with pytest.raises(TableError, match=message) as error:
        read_table(tmp_path / name)
    assert "\n" not in str(error.value)


def test_a_folder_without_tables_is_refused(tmp_path):
    (tmp_path / "t.csv").mkdir()
    with pytest.raises(TableError, match=r"t\.csv holds no file with a table"):
        read_table(tmp_path / "t.csv")


def test_unusual_but_valid_tables_are_read(tmp_path):
    (tmp_path / "t.csv").write_bytes(b"\xef\xbb\xbfn,huge,mixed,gone\n1,99999999999999999999,x,inf\n2,3,4,1.5\n")
    frame = read_table(tmp_path / "t.csv")
    assert list(frame.columns) == ["n", "huge", "mixed", "gone"]  # no byte order mark
    assert np.isnan(frame["gone"][0])
    assert len(frame) == 2


def test_a_comma_at_the_end_of_every_row_adds_no_column(tmp_path):
    (tmp_path / "t.csv").write_bytes(b"a,b,y\n1,2,NA,\n3,4,no,\n")
    expected = pd.DataFrame({"a": [1, 3], "b": [2, 4], "y": ["NA", "no"]})
    with pytest.warns(TableWarning, match="'NA' occurs in 1 rows"):
        pd.testing.assert_frame_equal(read_table(tmp_path / "t.csv", "y"), expected)


def test_words_such_as_NA_are_labels_if_the_other_labels_are_words(tmp_path):
    (tmp_path / "t.csv").write_text("a,y\nNA,None\n1,NA\n2,x\n3,NA\n4,\n")
    with pytest.warns(TableWarning) as warned:
        result = read_table(tmp_path / "t.csv", "y")
    assert result["y"].tolist()[:4] == ["None", "NA", "x", "NA"]
    assert result["y"].isna().tolist() == [False] * 4 + [True]  # an empty cell is missing
    assert result["a"].isna().tolist() == [True] + [False] * 4  # elsewhere the words are
    message = "'NA' occurs in 2 rows of the target 'y'; it is read as a label"
    assert any(message in str(warning.message) for warning in warned)
    assert read_table(tmp_path / "t.csv")["y"].isna().sum() == 4


def test_words_such_as_NA_are_missing_if_the_other_labels_are_numbers(tmp_path):
    (tmp_path / "t.csv").write_text("a,y\n1,0\n2,NA\n3,1\n")
    frame = read_table(tmp_path / "t.csv", "y")
    with pytest.raises(TableError, match=r"missing in 1 of 3 rows .*words such as NA among numbers"):
        split_target(frame, "y", "t.csv")


def test_categories_without_rows_are_not_classes():
    frame = pd.DataFrame({"a": range(6), "y": pd.Categorical(list("ppqqpq"), list("pqr"))})
    labels = split_target(frame, "y", "t.parquet")[1]
    check_classes(labels, "t.parquet")
    assert dict(labels.value_counts()) == {"p": 3, "q": 3}


def test_date_labels_are_read_independently_of_other_columns():
    days = pd.to_datetime(["2020-01-01", "2020-01-02 06:30", "2020-01-01"], format="ISO8601")
    frame = pd.DataFrame({"a": range(3), "y": days})
    assert split_target(frame, "y", "t.parquet")[1].tolist() == ["2020-01-01", "2020-01-02 06:30:00", "2020-01-01"]
    assert split_target(frame.iloc[[0]], "y", "t.parquet")[1].tolist() == ["2020-01-01"]
    frame["y"] = frame["y"].dt.date
    assert split_target(frame, "y", "t.parquet")[1].tolist() == ["2020-01-01", "2020-01-02", "2020-01-01"]


def test_the_target_is_taken_out():
    features, labels = split_target(FRAME, "fraud", "t.csv")
    assert list(features.columns) == ["age", "town"]
    assert labels.tolist() == [0, 1, 0]


@pytest.mark.parametrize(
    ("frame", "target", "message"),
    [
        (FRAME, "Fraud", "no column 'Fraud'.*Did you mean 'fraud'"),
        (FRAME, "age", "missing in 1 of 3 rows"),
        (FRAME[["fraud"]], "fraud", "no column except the target"),
        (FRAME.assign(fraud=pd.Categorical([0, 1, None])), "fraud", "missing in 1 of 3 rows"),
    ],
)
def test_a_wrong_target_is_reported(frame, target, message):
    with pytest.raises(TableError, match=message):
        split_target(frame, target, "t.csv")


@pytest.mark.parametrize(
    ("labels", "message"),
    [
        ([1, 1, 1], "same target, 1: there is nothing to learn"),
        (list(np.arange(200) / 7), "numbers to predict, not classes"),
        ([f"name {k}" for k in range(200)], "names, not classes"),
        (["a"] * 9 + ["b"], "'b' has a single row"),
    ],
)
def test_labels_that_cannot_be_learned_are_reported(labels, message):
    with pytest.raises(TableError, match=message):
        check_classes(pd.Series(labels), "t.csv")
