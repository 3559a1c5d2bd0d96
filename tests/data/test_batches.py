"""Tables in batches: the rows of the batches are the rows of the table, whatever the batches hold."""

import gzip

import numpy as np
import pandas as pd
import pytest

from metricfit.data import read_table
from metricfit.data.files import new_table
from metricfit.data.reading import ColumnTypes, read_batches
from metricfit.data.text_format import TextOptions
from metricfit.errors import InvalidValueError, TableError


@pytest.fixture(scope="module")
def table():
    r = np.random.default_rng(0)
    return pd.DataFrame(
        {
            "amount": np.where(np.arange(50) < 20, np.nan, r.normal(size=50)),  # empty in the first batches
            "items": r.integers(9, size=50),
            "code": [f"{number:03d}" if number < 40 else f"A{number}" for number in range(50)],
            "town": np.where(r.random(50) < 0.3, None, "Brno"),
            "old": r.random(50) < 0.5,
            "day": pd.date_range("2024-01-01", periods=50).astype("datetime64[us]"),
        }
    )


def write(table, path):
    if path.suffix == ".parquet":
        table.to_parquet(path, row_group_size=13)
    elif path.suffix == ".feather":
        table.to_feather(path)
    elif path.suffix == ".jsonl":
        table.assign(day=table["day"].astype(str)).to_json(path, orient="records", lines=True)
    elif path.suffix == ".gz":
        path.write_bytes(gzip.compress(table.to_csv(index=False).encode()))
    else:
        table.to_csv(path, index=False)
    return path


@pytest.mark.parametrize("name", ["rows.csv", "rows.csv.gz", "rows.parquet", "rows.feather", "rows.jsonl"])
def test_the_batches_together_are_the_table(table, tmp_path, name):
    path = write(table, tmp_path / name)
    parts = list(read_batches([path], types=ColumnTypes(["code"]), rows=7))
    shares = [part.share_read for part in parts]
    assert [part.first for part in parts] == list(range(1, 51, 7)) or name == "rows.parquet"
    assert sum(len(part.frame) for part in parts) == 50
    assert shares == sorted(shares)
    assert shares[-1] == 1
    joined = pd.concat([part.frame for part in parts], ignore_index=True)
    whole = read_table(path)
    assert joined["code"].tolist() == table["code"].tolist()
    for column in ("amount", "items"):
        np.testing.assert_array_equal(joined[column].astype(float), whole[column].astype(float))
    assert joined["town"].isna().tolist() == whole["town"].isna().tolist()


def test_only_needed_columns_of_parquet_are_read(table, tmp_path):
    path = write(table, tmp_path / "rows.parquet")
    batches = read_batches([path], columns=["items", "code"])
    assert [list(batch.frame.columns) for batch in batches] == [["items", "code"]]
    batches = read_batches([path], columns=["items", "cod"])
    assert [set(batch.frame.columns) for batch in batches] == [set(table.columns)]


def test_words_are_no_missing_values_where_they_are_labels(tmp_path):
    (tmp_path / "rows.csv").write_text("label,size,,kind\nNA,1,x,NA\n,NA,NA,b\nyes,3,z,c\n")
    batches = read_batches([tmp_path / "rows.csv"], types=ColumnTypes(["kind"], ["label"]), rows=2)
    frame = pd.concat([batch.frame for batch in batches], ignore_index=True)
    assert frame["label"].fillna("missing").tolist() == ["NA", "missing", "yes"]
    assert frame["kind"].isna().tolist() == [True, False, False]
    assert frame["size"].isna().tolist() == [False, True, False]
    assert frame["Unnamed: 2"].isna().tolist() == [False, True, False]


def test_several_files_are_read_one_after_the_other(table, tmp_path):
    write(table.iloc[:30], tmp_path / "a.csv")
    write(table.iloc[30:], tmp_path / "b.parquet")
    batches = read_batches([tmp_path], rows=20)
    found = [(batch.source.rsplit("/", 1)[-1], batch.first, len(batch.frame)) for batch in batches]
    assert found[:3] == [("a.csv", 1, 20), ("a.csv", 21, 10), ("b.parquet", 1, 20)]


def test_infinite_numbers_are_missing(tmp_path):
    (tmp_path / "rows.csv").write_text("a,b\n1,x\n-inf,y\n")
    batches = read_batches([tmp_path / "rows.csv"])
    assert next(batches).frame["a"].isna().tolist() == [False, True]


def test_a_table_larger_than_the_limit_is_read_in_batches(table, tmp_path, monkeypatch):
    paths = [write(table, tmp_path / name) for name in ("rows.csv", "rows.parquet")]
    monkeypatch.setenv("METRICFIT_MAX_TABLE_GB", "1e-6")
    for path in paths:
        assert sum(len(batch.frame) for batch in read_batches([path], rows=7)) == 50


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("a,b\n" + "1,2\n" * 9 + "1,2,3\n", "line 11 has 3 fields, the lines before it have 2"),
        ("a,b\n", "has a header and no rows"),
        ("a,a\n1,2\n", "more than one column named"),
    ],
)
def test_bad_text_files_are_explained(tmp_path, content, message):
    (tmp_path / "rows.csv").write_text(content)
    with pytest.raises(TableError, match=message):
        list(read_batches([tmp_path / "rows.csv"], rows=3))


def test_bad_columnar_files_are_explained(table, tmp_path):
    path = write(table, tmp_path / "rows.parquet")
    path.write_bytes(path.read_bytes()[:-20])
    with pytest.raises(TableError, match="not a whole Parquet file"):
        list(read_batches([path]))
    with pytest.raises(TableError, match="sep, decimal and encoding are for text"):
        next(read_batches([path], TextOptions(sep=";")))


@pytest.mark.parametrize("ending", [".csv", ".parquet"])
def test_a_table_is_written_whole_or_not_at_all(table, tmp_path, ending):
    path = tmp_path / f"rows{ending}"
    with pytest.raises(AttributeError), new_table(path) as append:
        append(table.iloc[:20]).stop_here()
    assert list(tmp_path.iterdir()) == []
    with new_table(path) as append:
        for first in range(0, 50, 20):
            append(table.iloc[first : first + 20])
            assert not path.exists()
    assert read_table(path)["items"].tolist() == table["items"].tolist()
    with pytest.raises(InvalidValueError, match=r"\.csv or \.parquet"), new_table(tmp_path / "rows.txt"):
        pass


def test_columns_of_a_written_table_keep_their_type(tmp_path):
    path = tmp_path / "rows.parquet"
    with new_table(path) as append:
        append(pd.DataFrame({"id": [1, 2], "note": [None, None]}))
        append(pd.DataFrame({"id": [3.0, np.nan], "note": ["late", None]}))
    written = pd.read_parquet(path)
    assert written["id"].fillna(0).tolist() == [1, 2, 3, 0]
    assert written["note"].fillna("").tolist() == ["", "", "late", ""]
    with new_table(tmp_path / "b.parquet") as append:
        append(pd.DataFrame({"id": [1]}))
        with pytest.raises(TableError, match="another type in later rows"):
            append(pd.DataFrame({"id": ["a"]}))
