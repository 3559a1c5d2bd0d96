"""Tables that would take too much memory are refused before they are read."""

import gzip
import json

import numpy as np
import pandas as pd
import pytest

from metricfit.data import files
from metricfit.data.reading import read_batches, read_table
from metricfit.errors import TableTooLargeError

VARIABLE = "METRICFIT_MAX_TABLE_GB"
MIB = 1 / 1024  # of a GiB
REFUSED = r"more than the limit of .* GiB.*environment variable METRICFIT_MAX_TABLE_GB"


def packed_csv(path):
    path.write_bytes(gzip.compress(b"a,b,y\n" + b"1,2,0\n" * 300_000))


def short_lines_under_a_wide_header(path):
    path.write_text(",".join(f"c{n}" for n in range(5000)) + "\n" + "1\n" * 2000)


def long_text(path):
    path.write_text("a,y\n" + "x" * 5_000_000 + ",1\n")


def repeated_numbers(path):
    pd.DataFrame({"a": np.zeros(2_000_000), "y": 1}).to_parquet(path)


def repeated_text(path):
    pd.DataFrame({"a": [str(n) * 20 for n in range(100_000)], "y": 1}).to_parquet(path, compression="zstd")


def packed_batches(path):
    pd.DataFrame({"a": np.zeros(1_000_000), "y": 1}).to_feather(path, compression="zstd")


def a_new_name_in_every_line(path):
    path.write_text("".join(f'{{"c{n}": 1}}\n' for n in range(3000)))


def many_lines(path):
    path.write_text('{"a": 1, "y": 0}\n' * 50_000)


LARGE = [
    ("t.csv.gz", packed_csv),
    ("t.csv", short_lines_under_a_wide_header),
    ("t.csv", long_text),
    ("t.parquet", repeated_numbers),
    ("t.parquet", repeated_text),
    ("t.arrow", packed_batches),
    ("t.jsonl", a_new_name_in_every_line),
    ("t.jsonl", many_lines),
]


@pytest.mark.parametrize(("name", "write"), LARGE, ids=[write.__name__ for _, write in LARGE])
def test_a_table_above_the_limit_is_refused_and_the_limit_is_named(tmp_path, monkeypatch, name, write):
    write(tmp_path / name)
    monkeypatch.setenv(VARIABLE, str(4 * MIB))
    with pytest.raises(ValueError, match=REFUSED):
        read_table(tmp_path / name)


@pytest.mark.parametrize(("name", "write"), LARGE, ids=[write.__name__ for _, write in LARGE])
def test_a_higher_limit_admits_the_table(tmp_path, monkeypatch, name, write):
    write(tmp_path / name)
    monkeypatch.setenv(VARIABLE, "2")
    assert len(read_table(tmp_path / name))


def test_a_compressed_file_is_not_decompressed_far_beyond_the_limit(tmp_path, monkeypatch):
    with gzip.open(tmp_path / "t.csv.gz", "wb", compresslevel=1) as file:
        for _ in range(64):
            file.write(b"0" * 2**20)
    unpacked = []
    original = gzip.GzipFile.read
    monkeypatch.setattr(gzip.GzipFile, "read", lambda file, size=-1: unpacked.append(size) or original(file, size))
    monkeypatch.setenv(VARIABLE, str(8 * MIB))
    with pytest.raises(ValueError, match=REFUSED):
        read_table(tmp_path / "t.csv.gz")
    assert all(size > 0 for size in unpacked)
    assert sum(unpacked) <= 16 * 2**20


@pytest.mark.parametrize("ending", [".csv.gz", ".jsonl.gz"])
def test_a_line_that_no_table_has_is_refused(tmp_path, monkeypatch, ending):
    monkeypatch.setattr(files, "LONGEST_LINE", 2**20)
    monkeypatch.setattr(files, "CHUNK", 2**16)
    path = tmp_path / f"t{ending}"
    path.write_bytes(gzip.compress(b"a,y\n1,0\n" + b"x" * 2**21 + b",1\n", 1))
    with pytest.raises(TableTooLargeError, match="a line of more than 1 MiB, which no table has"):
        read_table(path)
    with pytest.raises(TableTooLargeError, match="a line of more than 1 MiB"):
        list(read_batches([path]))
    path.write_bytes(gzip.compress((b"a,y\n" if "csv" in ending else b"") + b'{"a": 1}\n' * 2**18, 1))
    assert sum(len(batch.frame) for batch in read_batches([path])) == 2**18


@pytest.mark.parametrize("value", ["many", "0", "-1", "nan"])
def test_a_limit_that_is_not_a_number_is_refused(tmp_path, monkeypatch, value):
    (tmp_path / "t.csv").write_text("a,y\n1,0\n")
    monkeypatch.setenv(VARIABLE, value)
    with pytest.raises(ValueError, match=f"{VARIABLE} is a number of GiB above 0, such as 16; got '{value}'"):
        read_table(tmp_path / "t.csv")


def flip(path, place):
    content = bytearray(path.read_bytes())
    content[place] ^= 1
    path.write_bytes(content)


def test_a_parquet_file_that_does_not_match_its_checksums_is_refused(tmp_path):
    path = tmp_path / "t.parquet"
    frame = pd.DataFrame({"a": np.arange(1000) * 1.5, "y": np.arange(1000) % 2})
    frame.to_parquet(path, compression=None, write_page_checksum=True)
    pd.testing.assert_frame_equal(read_table(path), frame)
    flip(path, 3000)
    assert (pd.read_parquet(path) != frame).to_numpy().sum() == 1  # without checksums nothing tells of it
    with pytest.raises(Exception, match=r"not a whole Parquet file: .*checksum"):
        read_table(path)


def test_json_lines_that_do_not_fit_a_table_are_refused_with_their_number(tmp_path):
    cases = {
        '{"a": ' + "[" * 200_000 + "]" * 200_000 + "}": "line 2: it is nested too deeply",
        "[1, 2]": r"line 2 is \[1, 2\]",
        '{"a": [1]}': r"lists or objects \(line 2\)",
        '{"a": 1' + "0" * 400 + "}": "'a' holds an integer of 1329 bits .line 2.*Write it as text",
        '{"a": ' + "9" * 5000 + "}": "line 2: Exceeds the limit",
        '{"a": ': "line 2: Expecting value",
    }
    for line, message in cases.items():
        (tmp_path / "t.jsonl").write_text(json.dumps({"a": 1, "y": 0}) + "\n" + line + "\n")
        with pytest.raises(Exception, match=message) as error:
            read_table(tmp_path / "t.jsonl")
        assert len(str(error.value)) < 1000
