"""Compact rows: encoded when they are needed, they are what the encoder gives, to the bit."""

import numpy as np
import pandas as pd
import pytest

from metricfit.data.reading import ParquetTable
from metricfit.errors import InvalidValueError, TableTooLargeError
from metricfit.tabular import large_rows
from metricfit.tabular.encoding.encoder import TableEncoder
from metricfit.tabular.large_rows import encode_large_table


@pytest.fixture(autouse=True)
def small_batches(monkeypatch):
    monkeypatch.setattr(large_rows, "BATCH_ROWS", 400)
    monkeypatch.setattr(large_rows, "ROWS_PER_THREAD", 70)


@pytest.mark.parametrize("words", [10, 50_000])
def test_compact_rows_encode_as_the_encoder_does(frame, monkeypatch, words):
    monkeypatch.setattr(large_rows, "MOST_WORDS", words)  # at 10 the notes are kept as numbers
    encoder, features = encode_large_table(frame)
    expected = encoder.transform(frame)
    assert np.array_equal(features.encoded, expected)
    index = np.random.default_rng(0).permutation(len(frame))
    for threads in (1, 3):
        assert np.array_equal(features.encode(index, threads), expected[index])
    assert np.array_equal(features.take(index[:5]).encoded, expected[index[:5]])
    assert np.array_equal(np.concatenate(features.parts(index)), index)
    # the sample is the whole table here, so the encoder is the one of small tables
    assert np.array_equal(TableEncoder().fit(frame), expected)


def test_compact_rows_take_few_bytes(frame):
    _, features = encode_large_table(frame)
    codes = [block.codes for block in features.blocks if block.codes is not None]
    assert [each.dtype for each in codes] == [np.uint8] * 3
    stored = sum((block.numbers if block.codes is None else block.codes).nbytes for block in features.blocks)
    assert stored < features.encoded.nbytes / 3


def test_arrays_and_files_are_encoded_like_frames(frame, tmp_path):
    numbers = frame[["amount", "items", "constant"]].to_numpy(dtype=float)
    encoder, features = encode_large_table(numbers)
    assert np.array_equal(features.encoded, encoder.transform(numbers))
    frame.to_parquet(tmp_path / "a.parquet", row_group_size=333)
    table = ParquetTable([tmp_path / "a.parquet"])
    assert table.shape == frame.shape
    assert np.array_equal(encode_large_table(table)[1].encoded, encode_large_table(frame)[1].encoded)
    assert len(table.sample(100)) == pytest.approx(100, abs=5)


def test_categories_outside_the_sample_are_learned(frame, tmp_path, monkeypatch):
    monkeypatch.setattr(large_rows, "SAMPLE_ROWS", 50)
    rare = frame[["items", "kind"]].copy()
    rare.loc[777, "kind"] = "rare"
    rare.to_parquet(tmp_path / "a.parquet")
    for source in (rare, ParquetTable([tmp_path / "a.parquet"])):
        encoder, features = encode_large_table(source)
        assert encoder.columns[1].categories == ["a", "b", "c", "rare"]
        assert np.array_equal(features.encoded, encoder.transform(rare))


def test_copies_of_a_row_have_the_same_hash(frame):
    _, features = encode_large_table(frame)
    assert len(set(features.hashes()[[0, *range(100, 110)]])) == 1
    assert len(set(features.hashes())) == len(frame.drop_duplicates())


def test_rows_that_cannot_be_encoded_are_named(frame, monkeypatch):
    monkeypatch.setattr(large_rows, "SAMPLE_ROWS", 20)
    monkeypatch.setattr(large_rows, "FEW_WORDS", 3)
    bad = pd.DataFrame({"size": [str(number) for number in range(1500)], "other": range(1500)})
    bad.loc[1499, "size"] = "large"
    with pytest.raises(InvalidValueError, match=r"row 1500 of the table: the column 'size' .* 'large' here"):
        encode_large_table(bad)


def test_a_table_beyond_the_limit_of_memory_is_refused(frame, tmp_path, monkeypatch):
    frame.to_parquet(tmp_path / "a.parquet")
    monkeypatch.setenv("METRICFIT_MAX_TABLE_GB", "1e-6")
    with pytest.raises(TableTooLargeError, match="METRICFIT_MAX_TABLE_GB"):
        ParquetTable([tmp_path / "a.parquet"])
