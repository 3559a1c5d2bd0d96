"""Held-out rows of Parquet files: judged as the same rows in memory are."""

import numpy as np
import pandas as pd
import pytest

from metricfit import MetricClassifier
from metricfit.data.reading import ParquetTable
from metricfit.errors import InvalidValueError
from metricfit.tabular.insight.importance import measure_importance
from metricfit.tabular.insight.judged_rows import find_worst_rows, judged_file_rows, read_sample


@pytest.fixture
def files(frame, tmp_path):
    for part, rows in enumerate((slice(0, 700), slice(700, None))):
        frame[rows].to_parquet(tmp_path / f"{part}.parquet", row_group_size=150)
    return ParquetTable([tmp_path / "0.parquet", tmp_path / "1.parquet"])


def test_rows_are_read_in_any_order_and_repeatedly(files, frame):
    numbers = np.array([1400, 3, 699, 700, 3])
    expected = frame.iloc[numbers]
    found = files.rows(np.arange(len(frame))).take(numbers)
    pd.testing.assert_frame_equal(found, expected, check_dtype=False)


@pytest.mark.usefixtures("small_is_large")
def test_files_are_judged_as_rows_in_memory(files, frame, labels, tmp_path):
    files, frame = files.without(["note"]), frame.drop(columns="note")
    model = MetricClassifier("f1", models=["linear"], random_state=0).fit(files, labels)
    rows = judged_file_rows(model, files)
    in_memory = MetricClassifier("f1", models=["linear"], random_state=0).fit(frame, labels)
    expected, found = in_memory.worst(frame, labels, n=5, out_of_fold=True), find_worst_rows(rows, 5)
    assert found.numbers.tolist() == expected.numbers.tolist()
    assert (found.total, found.wrong) == (expected.total, expected.wrong)
    pd.testing.assert_frame_equal(found.table, expected.table, check_dtype=False)
    measured = measure_importance(read_sample(rows), repeats=1).table
    pd.testing.assert_frame_equal(measured, in_memory.importance(frame, labels, repeats=1, out_of_fold=True).table)
    with pytest.raises(InvalidValueError, match="fitted on these files"):
        judged_file_rows(model, ParquetTable([tmp_path / "0.parquet"]))
