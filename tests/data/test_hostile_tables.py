"""Odd and damaged tables: every message is short, names the column or the file, and says what to do."""

import gzip
import zlib
from datetime import date, time
from decimal import Decimal

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyarrow import feather

from metricfit.data.columns import check_classes, split_target
from metricfit.data.reading import read_batches, read_table
from metricfit.errors import TableError

LARGE = "1" + "0" * 400


def table(**columns):
    return pd.DataFrame({"a": np.arange(40) * 1.5, "y": ["no", "yes"] * 20}).assign(**columns)


def prepared(path):
    """The labels, as the commands get them."""
    _, labels = split_target(read_table(path, "y"), "y", path.name)
    check_classes(labels, path.name)
    return labels


@pytest.mark.parametrize(
    ("labels", "message"),
    [
        (
            [LARGE, "3"],
            r"holds an integer of 1329 bits \(int\); labels are all text,.* Write them as text",
        ),
        (["1" + "0" * 30, "3"], r"holds 10{30} \(int\); labels are"),
        ([0.1, 0.2], r"holds 0.1, which is not a whole number"),
        (["x" * 2**20] * 2, r"same target, 'x{80}'... \(1,048,576 characters\)"),
    ],
    ids=["10**400", "10**30", "fractions", "a megabyte"],
)
def test_invalid_labels_in_csv_are_refused(tmp_path, labels, message):
    table(y=labels * 20).to_csv(tmp_path / "t.csv", index=False)
    with pytest.raises(TableError, match=message) as error:
        prepared(tmp_path / "t.csv")
    assert len(str(error.value)) < 500


DAY = 86_400
TYPES = {
    "times with nanoseconds": (pa.array([1, 10**9 + 1, None], pa.time64("ns")), [time(), time(0, 0, 1), None]),
    "times": (pa.array([1, DAY - 1, None], pa.time32("s")), [time(0, 0, 1), time(23, 59, 59), None]),
    "half precision": (pa.array(np.array([1, 2.5, np.nan], dtype=np.float16)), [1, 2.5, np.nan]),
    "days": (pa.array([0, 1, None], pa.date32()), [date(1970, 1, 1), date(1970, 1, 2), None]),
    "days after 9999": (
        pa.array([0, 5 * 10**6, None], pa.date32()),
        np.array([0, 5 * 10**6 * DAY, "NaT"], dtype="datetime64[s]"),
    ),
    "decimals of 256 bits": (
        pa.array([Decimal("1.5"), None, None], pa.decimal256(60, 2)),
        [Decimal("1.5"), None, None],
    ),
}


@pytest.mark.parametrize("name", TYPES)
@pytest.mark.parametrize("ending", ["parquet", "arrow"])
def test_types_that_pandas_lacks_are_read(tmp_path, name, ending):
    values, expected = TYPES[name]
    path, rows = tmp_path / f"t.{ending}", pa.table({"a": values, "y": [0, 1, 1]})
    if ending == "parquet":
        pq.write_table(rows, path)
    else:
        feather.write_feather(rows, path, compression="uncompressed")
    pd.testing.assert_series_equal(read_table(path)["a"], pd.Series(expected, name="a"), check_dtype=False)
    batches = read_batches([path], rows=2)
    assert sum(batch.frame["a"].notna().sum() for batch in batches) == pd.Series(expected).notna().sum()


@pytest.mark.parametrize(
    "arrow", [pa.dictionary(pa.int32(), pa.string()), pa.duration("ns"), pa.int64(), pa.string()], ids=str
)
def test_columns_that_pandas_wrote_from_types_of_arrow_are_read(tmp_path, arrow):
    values = pa.array([1, 2, None], arrow) if arrow in (pa.int64(), pa.duration("ns")) else pa.array(["a", "b", None])
    column = pd.Series(values.cast(arrow).to_pandas()).astype(pd.ArrowDtype(arrow))
    pd.DataFrame({"a": column, "y": [0, 1, 1]}).to_parquet(tmp_path / "t.parquet")
    read = read_table(tmp_path / "t.parquet")["a"]
    assert read.isna().tolist() == [False, False, True]
    assert not isinstance(read.dtype, pd.ArrowDtype)


@pytest.mark.parametrize("written", [b'{"columns": [{"name": "a", "numpy_type": "geometry"}]}', b"{", b"[]", b"3"])
def test_what_pandas_cannot_read_of_its_own_notes_in_a_file_is_ignored(tmp_path, written):
    rows = pa.table({"a": [1, 2, 3], "y": [0, 1, 1]}).replace_schema_metadata({b"pandas": written})
    pq.write_table(rows, tmp_path / "t.parquet")
    assert read_table(tmp_path / "t.parquet")["a"].tolist() == [1, 2, 3]


def test_a_type_that_cannot_be_read_is_named(tmp_path):
    nowhere = pa.array([0, 1], pa.timestamp("ms", tz="Mars/Base"))
    pq.write_table(pa.table({"a": [1, 2], "when": nowhere}), tmp_path / "t.parquet")
    with pytest.raises(TableError, match=r"the column 'when' of type timestamp\[ms, tz=Mars/Base\] cannot be read"):
        read_table(tmp_path / "t.parquet")


def test_labels_that_are_periods_become_text(tmp_path):
    table(y=pd.Series(pd.period_range("2024-01", periods=2, freq="M")).repeat(20).to_numpy()).to_parquet(
        tmp_path / "t.parquet"
    )
    assert prepared(tmp_path / "t.parquet").unique().tolist() == ["2024-01", "2024-02"]


@pytest.mark.parametrize(
    ("columns", "message"),
    [
        ({"a": [[1, 2]] * 40}, "the column 'a' holds lists or objects"),
        ({"a": [{"b": 1}] * 40}, "the column 'a' holds lists or objects"),
        ({"y": [[1, 2]] * 40}, "the column 'y' holds lists or objects"),
        ({"y": [b"a", b"b"] * 20}, r"holds b'b' \(bytes\); labels are all text"),
        ({"y": [Decimal(1), Decimal(2)] * 20}, r"holds 2 \(Decimal\); labels are all text"),
    ],
    ids=["a list", "a structure", "a list for a label", "bytes for a label", "a decimal for a label"],
)
def test_unusable_columns_of_parquet_are_refused(tmp_path, columns, message):
    table(**columns).to_parquet(tmp_path / "t.parquet")
    with pytest.raises(TableError, match=message):
        prepared(tmp_path / "t.parquet")


def test_labels_of_several_types_are_refused_by_example(tmp_path):
    (tmp_path / "t.jsonl").write_text('{"a": 1, "y": 1}\n{"a": 2, "y": "x"}\n' * 20)
    with pytest.raises(TableError, match=r"holds 1 \(int\) and 'x' \(str\); labels are all text"):
        prepared(tmp_path / "t.jsonl")


def test_json_objects_without_keys_are_not_a_table(tmp_path):
    (tmp_path / "t.jsonl").write_text("{}\n" * 20)
    with pytest.raises(TableError, match="has no columns"):
        prepared(tmp_path / "t.jsonl")


def test_a_symbolic_link_to_itself_is_reported_as_such(tmp_path):
    (tmp_path / "t.csv").symlink_to(tmp_path / "t.csv")
    with pytest.raises(TableError, match="is a symbolic link to nothing"):
        read_table(tmp_path / "t.csv")


def test_every_changed_byte_of_a_compressed_file_is_detected_or_harmless(tmp_path):
    text = table().to_csv(index=False).encode()
    packed = gzip.compress(text, mtime=0)
    zlib_errors = 0
    for place in range(len(packed)):
        changed = bytearray(packed)
        changed[place] ^= 0xFF
        (tmp_path / "t.csv.gz").write_bytes(changed)
        try:
            gzip.decompress(changed)
        except zlib.error:
            zlib_errors += 1
        except (OSError, EOFError):
            pass
        try:
            result = read_table(tmp_path / "t.csv.gz")
        except TableError as error:
            message = str(error)
        else:
            pd.testing.assert_frame_equal(result, table())  # the time or the system in the header
            continue
        assert "is not a whole gzip file" in message
    assert zlib_errors  # which have no base class in common with the others


def test_a_column_name_of_a_megabyte_is_shortened_in_messages(tmp_path):
    table().rename(columns={"y": "z" * 2**20}).to_csv(tmp_path / "t.csv", index=False)
    with pytest.raises(TableError, match=r"has no column 'y'. It has 2: 'a', 'z{40}'... \(1,048,576 characters\)"):
        prepared(tmp_path / "t.csv")
