"""Odd and damaged tables: every message is short, names the column or the file, and says what to do."""

import gzip
import zlib
from decimal import Decimal

import numpy as np
import pandas as pd
import pytest

from metricfit.data.labels import check_classes, split_target
from metricfit.data.table_files import read_table
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
