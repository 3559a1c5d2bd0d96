"""Reading CSV and other text tables, with clear messages for files that are none."""

from __future__ import annotations

import codecs
import csv
import io
import re
import warnings
import zlib
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import pandas as pd

from metricfit.data.column_names import MAX_COLUMNS, check_names, describe_too_wide
from metricfit.data.file_formats import OTHER_FORMATS
from metricfit.data.limits import checked_chunks, open_unpacked
from metricfit.data.text_format import TableWarning, TextFormat, TextOptions, guess_encoding, guess_format
from metricfit.errors import TableError, first_line, quote, shorten

#: Bytes that no Windows-1252 text has: control characters, and those without a character.
_NO_TEXT = bytes([*range(0x09), *range(0x0E, 0x20), 0x81, 0x8D, 0x8F, 0x90, 0x9D])
_RAGGED = re.compile(r"Expected (\d+) fields in line (\d+), saw (\d+)")


class Scan(NamedTuple):
    """What one pass over a text file says.

    Attributes:
        start: The first chunk.
        holds_nul: Whether there are NUL bytes.
        is_utf8: Whether it is UTF-8.
        is_text: Whether it has only bytes that Windows-1252 text has.
    """

    start: bytes
    holds_nul: bool
    is_utf8: bool
    is_text: bool


def scan(path: Path, *, in_batches: bool = False) -> Scan:
    """Read a text file once, in chunks, to check its size, its encoding and, if it is packed, its integrity.

    Args:
        path: The file.
        in_batches: Whether it will be read in batches of rows, so that any size is allowed.

    Raises:
        TableTooLargeError: Parsing the table would take more memory than is allowed, or a line is too long for a batch.
        TableError: The file is packed and damaged.
    """
    start, holds_nul, is_utf8, is_text = b"", False, True, True
    decoder = codecs.getincrementaldecoder("utf-8")()
    try:
        for chunk in checked_chunks(path, in_batches=in_batches):
            start = start or chunk
            holds_nul = holds_nul or b"\x00" in chunk
            is_text = is_text and len(chunk.translate(None, _NO_TEXT)) == len(chunk)
            is_utf8 = is_utf8 and _decodes(decoder, chunk)
    except (EOFError, OSError, zlib.error) as error:
        raise TableError(f"{path} is not a whole gzip file: {shorten(error)}.") from None
    return Scan(start, holds_nul, is_utf8 and _decodes(decoder, b"", final=True), is_text)


def read_csv(
    path: Path, usual: str, target: str | None, options: TextOptions, text: Sequence[str] = ()
) -> pd.DataFrame:
    """Read a text table.

    Args:
        path: The file.
        usual: The separator of its format.
        target: Name of the column with the labels, or None.
        options: What the user said about it, checked; the rest is guessed. A TableWarning says what was unusual.
        text: Columns that are read as text.

    Raises:
        TableError: The file is no text table; the message says why.
        TableTooLargeError: Reading the table would take more memory than is allowed.
    """
    written, names = csv_layout(path, usual, options)
    with explained_errors(path, written, names):
        frame: pd.DataFrame = _parse(path, written, low_memory=False, dtype=dict.fromkeys(text, str))
    if written.guessed is not None:
        warnings.warn(f"{path.name} {written.guessed}.", TableWarning, stacklevel=6)
    if target is not None and target in frame.columns and frame[target].isna().any():
        frame[target] = _read_target_column(path, written, frame, target)
    return _without_empty_columns(path, frame, names)


def _without_empty_columns(path: Path, frame: pd.DataFrame, names: list[str]) -> pd.DataFrame:
    """Leave out columns that have neither a name nor an entry, as separators at the ends of lines make them."""
    unnamed = [at for at, name in enumerate(names[: frame.shape[1]]) if not name]
    empty = [at for at in unnamed if frame.iloc[:, at].isna().all()]
    if not empty:
        return frame
    columns = "1 column" if len(empty) == 1 else f"{len(empty)} columns"
    warnings.warn(
        f"{path.name} is read without {columns} that have no name and no entries.", TableWarning, stacklevel=7
    )
    return frame.drop(columns=frame.columns[empty])


def csv_layout(
    path: Path, usual: str, options: TextOptions, *, in_batches: bool = False
) -> tuple[TextFormat, list[str]]:
    """Find out how a text table is written and which names its header has.

    Args:
        path: The file.
        usual: The separator of its format.
        options: What the user said about it, checked; the rest is guessed.
        in_batches: Whether it will be read in batches of rows, so that it may be larger than the memory.

    Raises:
        TableError: The file is no text table, or two columns have one name.
        TableTooLargeError: It is to be read at once, and would take more memory than is allowed.
    """
    try:
        start, written = _find_format(path, usual, options, in_batches)
        names = _header_names(start, written)
    except UnicodeError as error:  # UTF-16 without a byte order mark, which the encoding "utf-16" needs
        raise TableError(_describe_encoding(path, str(options.encoding), error)) from None
    if len(names) > MAX_COLUMNS:
        raise TableError(describe_too_wide(path, len(names)))
    check_names([name for name in names if name], path)  # pandas names those without a name
    return written, names


@contextmanager
def explained_errors(path: Path, written: TextFormat, names: list[str]) -> Iterator[None]:
    """Say what is wrong with a file that pandas cannot read.

    Raises:
        TableError: pandas has failed.
    """
    try:
        with warnings.catch_warnings():
            # pandas warns about fields without a name, and would drop them.
            warnings.simplefilter("error", pd.errors.ParserWarning)
            yield
    except UnicodeError as error:
        raise TableError(_describe_encoding(path, written.encoding, error)) from None
    except pd.errors.EmptyDataError:
        raise TableError(f"{path} has no columns.") from None
    except pd.errors.ParserWarning:
        hint = separator_hint(names) or " Name every column, also that of row names (in R: write.csv)."
        raise TableError(
            f"{path} has {len(names)} names in its header and more fields in its rows, so names cannot be assigned "
            f"to fields.{hint}"
        ) from None
    except (pd.errors.ParserError, ValueError) as error:
        raise TableError(_describe_ragged(path, written, names, error)) from None


def csv_settings(written: TextFormat) -> dict[str, Any]:
    """Return the arguments of ``pandas.read_csv`` for a text table."""
    return {
        "sep": written.separator,
        "decimal": written.decimal,
        "encoding": written.encoding,
        "skiprows": written.skipped,
        "index_col": False,
    }


def separator_hint(names: list[str]) -> str:
    """Explain a table with one column whose name holds another separator than the expected one."""
    if len(names) != 1:
        return ""
    for separator, description in ((";", "semicolons"), ("\t", "tabs"), ("|", "bars"), (",", "commas")):
        if separator in names[0]:
            given = "tab" if separator == "\t" else f"'{separator}'"
            return f" Its columns seem to be separated by {description}: give --sep {given}."
    return ""


def _find_format(path: Path, usual: str, options: TextOptions, in_batches: bool) -> tuple[bytes, TextFormat]:
    """Return the beginning of a file, and how the file is written."""
    scanned = scan(path, in_batches=in_batches)
    for magic, (kind, ending) in OTHER_FORMATS.items():
        if scanned.start.startswith(magic):
            raise TableError(f"{path} is a {kind} file by its first bytes, not CSV: name it {ending}.")
    encoding = options.encoding or guess_encoding(
        scanned.start, is_utf8=scanned.is_utf8, is_text=scanned.is_text, path=path
    )
    if scanned.holds_nul and not encoding.lower().replace("_", "-").startswith(("utf-16", "utf-32", "utf16", "utf32")):
        raise TableError(f"{path} holds NUL bytes, which a text file does not. Is it a binary file, or damaged?")
    return scanned.start, guess_format(scanned.start, encoding, usual, options)


def _parse(path: Path, written: TextFormat, **settings: Any) -> pd.DataFrame:
    with open_unpacked(path) as content:
        frame: pd.DataFrame = pd.read_csv(content, **csv_settings(written), **settings)
        return frame


def _read_target_column(path: Path, written: TextFormat, frame: pd.DataFrame, target: str) -> pd.Series:
    """Read the target again: empty cells are missing, and words such as NA are labels if the others are words."""
    if pd.api.types.infer_dtype(frame[target], skipna=True) not in ("string", "empty"):
        return frame[target]
    index = frame.columns.get_loc(target)
    labels = _parse(path, written, usecols=[index], dtype=str, keep_default_na=False, na_values=[""]).iloc[:, 0]
    words = labels[frame[target].isna() & labels.notna()]
    for word, rows in words.value_counts().items():
        warnings.warn(
            f"{quote(word)} occurs in {rows} rows of the target {target!r}; it is read as a label, not as a "
            "missing value.",
            TableWarning,
            stacklevel=7,
        )
    return labels


def _header_names(start: bytes, written: TextFormat) -> list[str]:
    """Return the names in the first line that has any; pandas would rename those that occur twice."""
    text = codecs.getincrementaldecoder(written.encoding)(errors="replace").decode(start).removeprefix("\ufeff")
    lines = io.StringIO(text, newline="")
    for _ in range(written.skipped):
        lines.readline()
    try:
        return next((names for names in csv.reader(lines, delimiter=written.separator) if names), [])
    except csv.Error:  # a quote that never ends, which pandas explains better
        return []


def _describe_encoding(path: Path, encoding: str, error: UnicodeError) -> str:
    where = f"byte {error.start}" if isinstance(error, UnicodeDecodeError) else first_line(error)
    return (
        f"{path} is not {encoding} text ({where}). Leave the encoding out to have it guessed, or name another one, "
        "such as cp1252."
    )


def _describe_ragged(path: Path, written: TextFormat, names: list[str], error: Exception) -> str:
    ragged = _RAGGED.search(str(error))
    if ragged is None:
        return f"{path} is not a table: {first_line(error)}.{separator_hint(names)}"
    expected, line, fields = ragged.groups()
    hint = separator_hint(names) or (
        f" Put quotation marks around fields that hold the separator {quote(written.separator)}, or correct the line."
    )
    return f"{path} is not a table: line {line} has {fields} fields, the lines before it have {expected}.{hint}"


def _decodes(decoder: codecs.IncrementalDecoder, chunk: bytes, *, final: bool = False) -> bool:
    try:
        decoder.decode(chunk, final)
    except UnicodeDecodeError:
        return False
    return True
