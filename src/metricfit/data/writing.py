"""Tables written in batches of rows; the file has its final name only once it is complete."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from metricfit._files import new_file
from metricfit.errors import InvalidValueError, TableError, first_line

if TYPE_CHECKING:
    import pandas as pd

#: The endings of files that can be written.
WRITABLE = (".csv", ".parquet")


class TableWriter(Protocol):
    """Writes rows to a file."""

    def write(self, frame: pd.DataFrame) -> None:
        """Append rows; all have the columns of the first."""
        ...


@contextmanager
def new_table(path: Path) -> Iterator[TableWriter]:
    r"""Write a table in batches, under a temporary name that is changed at the end.

    After any failure the temporary file is removed. A process that is killed leaves no file of the final name.

    Args:
        path: The file, whose name ends in .csv or .parquet.

    Yields:
        A writer that takes any number of batches of rows.

    Raises:
        InvalidValueError: The name has another ending.

    Example:
        >>> import pandas as pd, tempfile
        >>> path = Path(tempfile.mkdtemp(), "rows.csv")
        >>> with new_table(path) as table:
        ...     table.write(pd.DataFrame({"a": [1]}))
        ...     table.write(pd.DataFrame({"a": [2]}))
        >>> path.read_text()
        'a\n1\n2\n'
    """
    ending = path.suffix.lower()
    if ending not in WRITABLE:
        raise InvalidValueError(f"tables are written as {' or '.join(WRITABLE)}; {path.name!r} ends in neither")
    with new_file(path) as unfinished:
        writer = _CsvWriter(unfinished) if ending == ".csv" else _ParquetWriter(unfinished)
        try:
            yield writer
        finally:
            writer.close()


class _CsvWriter:
    def __init__(self, path: Path) -> None:
        self.file = open(path, "w", encoding="utf-8", newline="")  # noqa: SIM115
        self.has_header = False

    def write(self, frame: pd.DataFrame) -> None:
        frame.to_csv(self.file, index=False, header=not self.has_header)
        self.has_header = True

    def close(self) -> None:
        self.file.close()


class _ParquetWriter:
    def __init__(self, path: Path) -> None:
        self.path = path
        self.writer: Any = None

    def write(self, frame: pd.DataFrame) -> None:
        import pyarrow as pa
        import pyarrow.parquet as pq

        if self.writer is None:
            schema = pa.Schema.from_pandas(frame, preserve_index=False)
            # A column without entries in the first batch may have text in later ones.
            fields = [field.with_type(pa.string()) if pa.types.is_null(field.type) else field for field in schema]
            self.writer = pq.ParquetWriter(self.path, pa.schema(fields), write_page_checksum=True)
        try:
            table = pa.Table.from_pandas(frame, schema=self.writer.schema, preserve_index=False)
        except (pa.ArrowInvalid, pa.ArrowTypeError) as error:
            raise TableError(
                f"a column has another type in later rows than in the first: {first_line(error)}. Write .csv instead"
            ) from None
        self.writer.write_table(table)

    def close(self) -> None:
        if self.writer is not None:
            self.writer.close()
