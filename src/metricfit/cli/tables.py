"""Tables from files: CSV (also gzipped), Parquet, Arrow and JSON lines; every way they can be wrong said in words."""

from __future__ import annotations

import csv
import io
import os
import warnings
import zlib
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pandas as pd

from metricfit.cli.errors import UserError
from metricfit.cli.json_lines import check_json_lines
from metricfit.cli.printing import say
from metricfit.data.limits import CELL, PEAK, check_memory, checked_chunks, open_unpacked, read_parquet
from metricfit.errors import QUOTED, MetricfitError, quote, shorten

MOST_COLUMNS = 20_000
DISGUISED = {
    b"PAR1": ("Parquet", ".parquet"),
    b"ARROW1": ("Arrow", ".arrow"),
    b"\x1f\x8b": ("gzip", ".csv.gz"),
    b"PK\x03\x04": ("spreadsheet or zip", ".csv once saved as CSV"),
}

KINDS = {
    ".csv": "csv",
    ".tsv": "tsv",
    ".parquet": "parquet",
    ".pq": "parquet",
    ".arrow": "arrow",
    ".feather": "arrow",
    ".ipc": "arrow",
    ".jsonl": "json lines",
    ".ndjson": "json lines",
}


def read_table(path: str | os.PathLike[str], target: str | None = None) -> pd.DataFrame:
    """A table from a file, by the ending of its name; column names are text, and all different.

    Words such as NA are missing in a text file, but in the target where labels are words too.
    """
    where = Path(path)
    kind = _kind(where)
    _check_file(where)
    readers: dict[str, Callable[[Path], pd.DataFrame]] = {
        "csv": lambda where: _csv(where, ",", target),
        "tsv": lambda where: _csv(where, "\t", target),
        "parquet": lambda where: _columnar(where, read_parquet, "Parquet"),
        "arrow": lambda where: _columnar(where, _arrow, "Arrow"),
        "json lines": _json_lines,
    }
    frame = readers[kind](where)
    frame.columns = [str(name) for name in frame.columns]
    return _checked(frame, where)


def split_target(frame: pd.DataFrame, target: str, where: str) -> tuple[pd.DataFrame, pd.Series]:
    """The columns to learn from, and the labels; rows without a label are an error."""
    if target not in frame.columns:
        near = [name for name in frame.columns if name.strip().lower() == target.strip().lower()]
        hint = f" Did you mean {quote(near[0])}?" if near else _separator_hint(list(frame.columns))
        shown = ", ".join(quote(name, 40) for name in frame.columns[:12]) + (", ..." if frame.shape[1] > 12 else "")
        raise UserError(f"{where} has no column {quote(target)}. It has {frame.shape[1]}: {shown}.{hint}")
    missing = int(frame[target].isna().sum())
    if missing:
        raise UserError(
            f"The target {quote(target)} is missing in {missing} of {len(frame)} rows of {where} (empty cells, "
            "infinite numbers, or words such as NA among numbers). Remove those rows, or give them a label."
        )
    features = frame.drop(columns=target)
    if features.shape[1] == 0:
        raise UserError(f"{where} has no column but the target {quote(target)}: there is nothing to learn from.")
    labels = _plain(frame[target])
    _check_label_types(labels, target, where)
    return features, labels


def _plain(labels: pd.Series) -> pd.Series:
    """Categories as what they name, those in use alone; dates as text, the same text whatever dates are beside them."""
    if isinstance(labels.dtype, pd.CategoricalDtype):
        labels = labels.astype(labels.cat.categories.dtype)
    if pd.api.types.infer_dtype(labels) in ("datetime64", "datetime", "date"):
        return labels.map(lambda day: str(day).removesuffix(" 00:00:00")).astype("str")
    return labels


def _check_label_types(labels: pd.Series, target: str, where: str) -> None:
    """Refuse labels that are neither text, nor numbers of an array's type, nor true and false."""
    if not pd.api.types.is_object_dtype(labels):
        return
    examples = {type(label): label for label in labels}
    if set(examples) in ({str}, {bool}):
        return
    large = [label for label in labels if isinstance(label, int) and not -(2**63) <= label < 2**64]
    examples = {int: large[0]} if large else examples
    listed = " and ".join(f"{shown(label)} ({kind.__name__})" for kind, label in list(examples.items())[:3])
    raise UserError(
        f"The target {quote(target)} of {where} holds {listed}; labels are all text, all whole numbers of at most 64 "
        "bits, or all true and false. Write them as text, or choose another column."
    )


def check_classes(labels: pd.Series, where: str) -> None:
    """Labels that can be learnt: at least two classes, and not a number for every row."""
    classes = labels.nunique()
    if classes < 2:
        raise UserError(
            f"All {len(labels)} rows of {where} have the same target, {shown(labels.iloc[0])}: there is nothing to "
            "tell apart."
        )
    if classes > max(20, len(labels) // 5):
        what = "numbers to predict, not classes" if pd.api.types.is_numeric_dtype(labels) else "names, not classes"
        raise UserError(
            f"The target has {classes} different values in {len(labels)} rows of {where}: these look like {what}. "
            "Choose another column, or group the values into classes."
        )
    broken = labels[labels % 1 != 0].tolist() if pd.api.types.is_float_dtype(labels) else []
    if broken:
        raise UserError(
            f"The target of {where} holds {broken[0]}, which is no whole number: numbers are labels only if they are "
            "whole. Write the labels as text or as whole numbers, or choose another column."
        )
    rarest = labels.value_counts()
    if int(rarest.iloc[-1]) < 2:
        raise UserError(
            f"The class {shown(rarest.index[-1])} has a single row in {where}; a class needs at least two, one to "
            "learn from and one to check on. Merge it with another, or remove it."
        )


def _kind(where: Path) -> str:
    packed = where.suffix.lower() == ".gz"
    ending = Path(where.stem).suffix.lower() if packed else where.suffix.lower()
    kind = KINDS.get(ending)
    if kind is None or (packed and kind in ("parquet", "arrow")):
        known = ", ".join(sorted({*KINDS, ".csv.gz", ".jsonl.gz"}))
        raise UserError(f"Cannot tell what {where.name!r} is from the end of its name. Known endings: {known}.")
    return kind


def _check_file(where: Path) -> None:
    try:
        if where.is_dir():
            raise UserError(f"{where} is a folder; give a file.")
        if not where.exists():
            lost = f"{where} is a symbolic link to nothing." if where.is_symlink() else f"There is no file {where}."
            raise UserError(lost)
        if not where.is_file():
            raise UserError(f"{where} is not a regular file; write its content to one first.")
        if where.stat().st_size == 0:
            raise UserError(f"{where} is empty.")
        with open(where, "rb"):
            pass
    except PermissionError:
        raise UserError(f"{where} cannot be read: permission denied.") from None
    except OSError as error:
        raise UserError(f"{where} cannot be read: {error.strerror or error}.") from None


def _scan(where: Path) -> tuple[bytes, bool]:
    """Read a text file once, in chunks, to check its size and, if it is packed, its integrity.

    Returns:
        The first chunk, and whether there are NUL bytes anywhere in the file.

    Raises:
        TableTooLargeError: Parsing the table would take more memory than is allowed.
        UserError: The file is packed and damaged.
    """
    start, holds_nul = b"", False
    try:
        for chunk in checked_chunks(where):
            start = start or chunk
            holds_nul = holds_nul or b"\x00" in chunk
    except (EOFError, OSError, zlib.error) as error:
        raise UserError(f"{where} is not a whole gzip file: {shorten(error)}.") from None
    return start, holds_nul


def _csv(where: Path, separator: str, target: str | None) -> pd.DataFrame:
    start, holds_nul = _scan(where)
    for magic, (kind, ending) in DISGUISED.items():
        if start.startswith(magic):
            raise UserError(f"{where} is a {kind} file by its first bytes, not CSV: name it {ending}.")
    if holds_nul:
        hint = " It looks like UTF-16: save it as UTF-8." if start[:2] in (b"\xff\xfe", b"\xfe\xff") else ""
        raise UserError(f"{where} holds NUL bytes, which a text file does not.{hint}")
    names = _header(start, separator)
    if len(names) > MOST_COLUMNS:
        raise UserError(_too_wide(where, len(names)))
    _check_names([name for name in names if name], where)  # pandas names those without a name
    try:
        with warnings.catch_warnings(), open_unpacked(where) as content:
            warnings.simplefilter("error", pd.errors.ParserWarning)  # of fields without a name, which it would drop
            frame = pd.read_csv(content, sep=separator, low_memory=False, index_col=False)
    except UnicodeDecodeError as error:
        raise UserError(
            f"{where} is not UTF-8 text (byte {error.start}); convert it, for instance with "
            f"iconv -f latin1 -t utf-8 {where.name}."
        ) from None
    except pd.errors.EmptyDataError:
        raise UserError(f"{where} has no columns.") from None
    except pd.errors.ParserWarning:
        hint = _separator_hint(names) or " Name every column, also that of row names (in R: write.csv)."
        raise UserError(
            f"{where} has {len(names)} names in its header and more fields in its rows: which name is whose is not "
            f"known.{hint}"
        ) from None
    except (pd.errors.ParserError, ValueError) as error:
        raise UserError(f"{where} is not a table: {_first_line(error)}.{_separator_hint(names)}") from None
    if target is not None and target in frame.columns and frame[target].isna().any():
        frame[target] = _as_it_stands(where, separator, frame, target)
    return frame


def _as_it_stands(where: Path, separator: str, frame: pd.DataFrame, target: str) -> pd.Series:
    """The target with an empty cell missing, and a word such as NA a label among labels that are words."""
    if pd.api.types.infer_dtype(frame[target], skipna=True) not in ("string", "empty"):
        return frame[target]
    place = frame.columns.get_loc(target)
    with open_unpacked(where) as content:
        found = pd.read_csv(
            content, sep=separator, index_col=False, usecols=[place], dtype=str, keep_default_na=False, na_values=[""]
        ).iloc[:, 0]
    taken = found[frame[target].isna() & found.notna()]
    for word, rows in taken.value_counts().items():
        say(f"Warning: {quote(word)} stands in {rows} rows of the target {target!r}; it is a label, not a missing one.")
    return found


def _header(start: bytes, separator: str) -> list[str]:
    """The names in the first line that has any; pandas would number those that are there twice."""
    lines = csv.reader(io.StringIO(start.decode("utf-8-sig", errors="replace"), newline=""), delimiter=separator)
    try:
        return next((names for names in lines if names), [])
    except csv.Error:  # a quote that never ends, which pandas tells better
        return []


def _columnar(where: Path, reader: Callable[[Path], pd.DataFrame], kind: str) -> pd.DataFrame:
    try:
        return reader(where)
    except MetricfitError:
        raise
    except Exception as error:  # pyarrow's errors share no base but this
        raise UserError(f"{where} is not a whole {kind} file: {_first_line(error)}.") from None


def _arrow(path: Path) -> pd.DataFrame:
    import pyarrow as pa

    with pa.memory_map(str(path)) as file:
        try:
            reader = pa.ipc.open_file(file)
            batches = (reader.get_batch(at) for at in range(reader.num_record_batches))
        except pa.ArrowInvalid:
            file.seek(0)
            reader = pa.ipc.open_stream(file)
            batches = iter(reader)
        kept, size = [], 0
        for batch in batches:  # one at a time, because batches may be packed
            size += max(batch.nbytes, CELL * batch.num_rows * batch.num_columns)
            check_memory(path, PEAK * size)
            kept.append(batch)
        frame: pd.DataFrame = pa.Table.from_batches(kept, schema=reader.schema).to_pandas()
        return frame


def _json_lines(where: Path) -> pd.DataFrame:
    _scan(where)
    check_json_lines(where, MOST_COLUMNS)
    try:
        with open_unpacked(where) as content:
            return pd.read_json(content, lines=True)
    except (ValueError, AssertionError) as error:
        raise UserError(f"{where} cannot be read as JSON lines: {_first_line(error)}.") from None


def _checked(frame: pd.DataFrame, where: Path) -> pd.DataFrame:
    """Refuse a table without columns or rows, or with cells that hold several values; infinite numbers are missing."""
    if frame.shape[1] > MOST_COLUMNS:
        raise UserError(_too_wide(where, frame.shape[1]))
    _check_names(list(frame.columns), where)
    if frame.shape[1] == 0:
        raise UserError(f"{where} has no columns.")
    if len(frame) == 0:
        raise UserError(f"{where} has a header and no rows.")
    for name in [name for name, dtype in frame.dtypes.items() if pd.api.types.is_object_dtype(dtype)]:
        kinds = {type(value) for value in frame[name]}
        if any(issubclass(kind, (list, dict, tuple, set, np.ndarray)) for kind in kinds):
            raise UserError(
                f"{where}: the column {quote(name)} holds lists or objects; a table needs one value per cell."
            )
    return frame.replace([np.inf, -np.inf], np.nan)


def _check_names(names: list[str], where: Path) -> None:
    twice = sorted({name for name in names if names.count(name) > 1}) if len(set(names)) < len(names) else []
    if twice:
        raise UserError(f"{where} has more than one column named {quote(twice[0])}; name them apart.")


def _too_wide(where: Path, columns: int) -> str:
    return (
        f"{where} has {columns} columns; the most is {MOST_COLUMNS}. Choose those that matter, or put features in rows."
    )


def _separator_hint(names: list[str]) -> str:
    """For a table whose columns were not told apart."""
    if len(names) != 1:
        return ""
    for mark, called, remedy in (
        (";", "semicolons", "save it with commas"),
        ("\t", "tabs", "name it .tsv"),
        ("|", "bars", "save it with commas"),
    ):
        if mark in names[0]:
            return f" Its columns seem to be parted by {called}: {remedy}."
    return ""


def shown(value: object) -> str:
    """Write a label so that it can be told from others: text in quotes, and shortened if it is long."""
    return quote(value) if isinstance(value, (str, int)) else shorten(value, QUOTED)


def _first_line(error: Exception) -> str:
    return shorten(str(error).strip().splitlines()[0].rstrip(".")) if str(error).strip() else type(error).__name__
