"""Parquet and Arrow files: their rows at once or in batches, by pyarrow, and as pandas."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pandas as pd

from metricfit.data.files import CELL, PEAK, check_memory
from metricfit.errors import MetricfitError, TableError, first_line, quote


@contextmanager
def reading_columnar(path: Path, kind: str) -> Iterator[None]:
    """Say which file is damaged if pyarrow cannot read it.

    Raises:
        TableError: pyarrow has failed.
    """
    try:
        yield
    except MetricfitError:
        raise
    except Exception as error:  # pyarrow's errors have no other base class in common
        raise TableError(f"{path} is not a whole {kind.capitalize()} file: {first_line(error)}.") from None


def to_frame(rows: Any, path: Path) -> pd.DataFrame:
    """Convert a table or a batch of Arrow to pandas.

    pandas has no nanoseconds within a time of day, which are cut off, no index of half precision, which becomes
    single, and no objects for days after the year 9999, which become times in seconds. What pandas wrote about its own
    types and index is not read: the columns of the file are the table.

    Raises:
        TableError: pandas has nothing that can hold a column; the message names it.
    """
    import pyarrow as pa

    table = pa.Table.from_batches([rows]) if isinstance(rows, pa.RecordBatch) else rows
    readable = {pa.time64("ns"): pa.time64("us"), pa.float16(): pa.float32()}
    for at, column in enumerate(table.schema):
        if column.type in readable:
            values = table.column(at).cast(readable[column.type], safe=False)
            table = table.set_column(at, column.with_type(values.type), values)
    table = table.drop([name for name in table.column_names if name.startswith("__index_level_")])
    table = table.replace_schema_metadata(None)
    try:
        frame: pd.DataFrame = table.to_pandas()
        return frame
    except (ValueError, pa.ArrowException):
        dates = [str(column.name) for column in table.schema if pa.types.is_date(column.type)]
    try:
        frame = table.to_pandas(date_as_object=False)
    except (ValueError, pa.ArrowException) as error:
        raise TableError(_describe_unreadable(table, path, error)) from None
    return frame.astype(dict.fromkeys(dates, "datetime64[s]"))


def _describe_unreadable(table: Any, path: Path, error: Exception) -> str:
    """Name the first column that cannot be converted to pandas."""
    for column in table.schema:
        try:
            table.select([column.name]).to_pandas(date_as_object=False, ignore_metadata=True)
        except Exception as of_column:  # pyarrow's errors have no other base class in common
            return (
                f"{path}: the column {quote(column.name)} of type {column.type} cannot be read: "
                f"{first_line(of_column)}. Write it as another type, or as text."
            )
    return f"{path} cannot be read: {first_line(error)}."


def _parquet_file(path: Path) -> Any:
    import pyarrow.parquet as pq

    return pq.ParquetFile(path, page_checksum_verification=True, pre_buffer=False)


def parquet_batches(path: Path, columns: Collection[str] | None, rows: int) -> Iterator[tuple[Any, float]]:
    """Read a Parquet file in batches, each with the share of the file that has been read."""
    with _parquet_file(path) as file:
        # Where a column is missing, all others are read, so that a message can name the one that was meant.
        lacks_some = columns is None or not set(file.schema_arrow.names).issuperset(columns)
        done, total = 0, file.metadata.num_rows
        if not total:
            yield file.schema_arrow.empty_table(), 1.0
        for batch in file.iter_batches(rows, columns=None if lacks_some else list(columns or ())):
            done += batch.num_rows
            yield batch, done / total


def arrow_batches(path: Path) -> Iterator[tuple[Any, float]]:
    """Read the batches of an Arrow file or stream, then an empty one if there was none."""
    import pyarrow as pa

    with pa.memory_map(str(path)) as file:
        try:
            reader = pa.ipc.open_file(file)
            total = reader.num_record_batches
            batches = ((reader.get_batch(number), (number + 1) / total) for number in range(total))
        except pa.ArrowInvalid:
            file.seek(0)
            reader = pa.ipc.open_stream(file)
            batches = ((batch, min(1.0, file.tell() / file.size())) for batch in reader)
        is_empty = True
        for batch, share in batches:
            is_empty = is_empty and not batch.num_rows
            yield batch, share
        if is_empty:
            yield pa.RecordBatch.from_pylist([], schema=reader.schema), 1.0


def read_columnar(path: Path, known: str) -> pd.DataFrame:
    """Read a Parquet or Arrow file; the memory is checked before it is taken."""
    import pyarrow as pa

    with reading_columnar(path, known):
        if known == "parquet":
            with _parquet_file(path) as file:
                metadata = file.metadata
                unpacked = sum(metadata.row_group(number).total_byte_size for number in range(metadata.num_row_groups))
                check_memory(path, PEAK * max(unpacked, CELL * metadata.num_rows * metadata.num_columns))
                return to_frame(file.read(), path)
        batches, size = [], 0
        for batch, _ in arrow_batches(path):  # one at a time, because batches may be packed
            size += max(batch.nbytes, CELL * batch.num_rows * batch.num_columns)
            check_memory(path, PEAK * size)
            batches.append(batch)
        return to_frame(pa.Table.from_batches(batches), path)
