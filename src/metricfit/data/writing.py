"""Tables written in batches of rows; the file has its final name only once it is complete."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from metricfit._files import new_file
from metricfit.errors import InvalidValueError, TableError, first_line

if TYPE_CHECKING:
    import pandas as pd

#: The endings of files that can be written.
WRITABLE = (".csv", ".parquet")
#: Appends rows to a file; all batches have the columns of the first.
Write = Callable[["pd.DataFrame"], None]


@contextmanager
def new_table(path: Path) -> Iterator[Write]:
    r"""Write a table in batches, under a temporary name that is changed at the end.

    After any failure the temporary file is removed. A process that is killed leaves no file of the final name.

    Args:
        path: The file, whose name ends in .csv or .parquet.

    Yields:
        A function that takes any number of batches of rows.

    Raises:
        InvalidValueError: The name has another ending.

    Example:
        >>> import pandas as pd, tempfile
        >>> path = Path(tempfile.mkdtemp(), "rows.csv")
        >>> with new_table(path) as write:
        ...     write(pd.DataFrame({"a": [1]}))
        ...     write(pd.DataFrame({"a": [2]}))
        >>> path.read_text()
        'a\n1\n2\n'
    """
    ending = path.suffix.lower()
    if ending not in WRITABLE:
        raise InvalidValueError(f"tables are written as {' or '.join(WRITABLE)}; {path.name!r} ends in neither")
    with new_file(path) as unfinished, ExitStack() as stack:
        yield (_write_csv if ending == ".csv" else _write_parquet)(unfinished, stack)


def _write_csv(path: Path, stack: ExitStack) -> Write:
    file = stack.enter_context(open(path, "w", encoding="utf-8", newline=""))  # noqa: SIM115

    def write(frame: pd.DataFrame) -> None:
        frame.to_csv(file, index=False, header=not file.tell())

    return write


def _write_parquet(path: Path, stack: ExitStack) -> Write:
    import pyarrow as pa
    import pyarrow.parquet as pq

    writer: Any = None

    def write(frame: pd.DataFrame) -> None:
        nonlocal writer
        if writer is None:
            schema = pa.Schema.from_pandas(frame, preserve_index=False)
            # A column without entries in the first batch may have text in later ones.
            fields = [field.with_type(pa.string()) if pa.types.is_null(field.type) else field for field in schema]
            writer = stack.enter_context(pq.ParquetWriter(path, pa.schema(fields), write_page_checksum=True))
        try:
            table = pa.Table.from_pandas(frame, schema=writer.schema, preserve_index=False)
        except (pa.ArrowInvalid, pa.ArrowTypeError) as error:
            raise TableError(
                f"a column has another type in later rows than in the first: {first_line(error)}. Write .csv instead"
            ) from None
        writer.write_table(table)

    return write
