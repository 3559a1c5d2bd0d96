"""Tables from files: CSV (also gzipped), Parquet, Arrow and JSON lines; every way they can be wrong said in words."""

from __future__ import annotations

import csv
import gzip
import io
import os
import warnings
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pandas as pd

from metricfit.cli.errors import UserError
from metricfit.cli.printing import say

#: A compressed file may unpack to a hundred times its size, and always to the first, but never to more than the second.
ALWAYS, LARGEST = 2**30, 8 * 2**30
MOST_COLUMNS = 20_000
DISGUISED = {
    b"PAR1": ("Parquet", ".parquet"),
    b"ARROW1": ("Arrow", ".arrow"),
    b"\x1f\x8b": ("gzip", ".csv.gz"),
    b"PK\x03\x04": ("spreadsheet or zip", ".csv once saved as CSV"),
}
CHUNK = 2**22

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
    kind, packed = _kind(where)
    _check_file(where)
    readers: dict[str, Callable[[Path, bool], pd.DataFrame]] = {
        "csv": lambda where, packed: _csv(where, packed, ",", target),
        "tsv": lambda where, packed: _csv(where, packed, "\t", target),
        "parquet": lambda where, packed: _columnar(where, pd.read_parquet, "Parquet"),
        "arrow": lambda where, packed: _arrow(where),
        "json lines": _json_lines,
    }
    frame = readers[kind](where, packed)
    frame.columns = [str(name) for name in frame.columns]
    return _checked(frame, where)


def split_target(frame: pd.DataFrame, target: str, where: str) -> tuple[pd.DataFrame, pd.Series]:
    """The columns to learn from, and the labels; rows without a label are an error."""
    if target not in frame.columns:
        near = [name for name in frame.columns if name.strip().lower() == target.strip().lower()]
        hint = f" Did you mean {near[0]!r}?" if near else _separator_hint(list(frame.columns))
        shown = ", ".join(repr(name) for name in frame.columns[:12]) + (", ..." if frame.shape[1] > 12 else "")
        raise UserError(f"{where} has no column {target!r}. It has {frame.shape[1]}: {shown}.{hint}")
    missing = int(frame[target].isna().sum())
    if missing:
        raise UserError(
            f"The target {target!r} is missing in {missing} of {len(frame)} rows of {where} (empty cells, or words "
            "such as NA among numbers). Remove those rows, or give them a label."
        )
    features = frame.drop(columns=target)
    if features.shape[1] == 0:
        raise UserError(f"{where} has no column but the target {target!r}: there is nothing to learn from.")
    return features, _plain(frame[target])


def _plain(labels: pd.Series) -> pd.Series:
    """Categories as what they name, those in use alone; dates as text, the same text whatever dates are beside them."""
    if isinstance(labels.dtype, pd.CategoricalDtype):
        labels = labels.astype(labels.cat.categories.dtype)
    if pd.api.types.infer_dtype(labels) in ("datetime64", "datetime", "date"):
        return labels.map(lambda day: str(day).removesuffix(" 00:00:00")).astype("str")
    return labels


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
    rarest = labels.value_counts()
    if int(rarest.iloc[-1]) < 2:
        raise UserError(
            f"The class {shown(rarest.index[-1])} has a single row in {where}; a class needs at least two, one to "
            "learn from and one to check on. Merge it with another, or remove it."
        )


def _kind(where: Path) -> tuple[str, bool]:
    packed = where.suffix.lower() == ".gz"
    ending = Path(where.stem).suffix.lower() if packed else where.suffix.lower()
    kind = KINDS.get(ending)
    if kind is None or (packed and kind in ("parquet", "arrow")):
        known = ", ".join(sorted({*KINDS, ".csv.gz", ".jsonl.gz"}))
        raise UserError(f"Cannot tell what {where.name!r} is from the end of its name. Known endings: {known}.")
    return kind, packed


def _check_file(where: Path) -> None:
    try:
        if where.is_dir():
            raise UserError(f"{where} is a folder; give a file.")
        if not where.exists():
            raise UserError(f"There is no file {where}.")
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


def _bytes(where: Path, packed: bool) -> io.BytesIO:
    """The file's content, unpacked up to a limit."""
    if not packed:
        return io.BytesIO(where.read_bytes())
    content = io.BytesIO()
    most = min(LARGEST, max(ALWAYS, 100 * where.stat().st_size))
    try:
        with gzip.open(where, "rb") as file:
            while part := file.read(CHUNK):
                content.write(part)
                if content.tell() > most:
                    raise UserError(
                        f"{where} unpacks to more than {most / 2**30:.3g} GiB, from {where.stat().st_size / 2**20:.3g} "
                        "MiB. If that is meant, unpack it and give the file inside."
                    )
    except (EOFError, OSError, ValueError) as error:
        raise UserError(f"{where} is not a whole gzip file: {error}.") from None
    content.seek(0)
    return content


def _csv(where: Path, packed: bool, separator: str, target: str | None) -> pd.DataFrame:
    content = _bytes(where, packed)
    start = content.getvalue()[: 2**20]
    for magic, (kind, ending) in DISGUISED.items():
        if start.startswith(magic):
            raise UserError(f"{where} is a {kind} file by its first bytes, not CSV: name it {ending}.")
    if b"\x00" in content.getvalue():
        hint = " It looks like UTF-16: save it as UTF-8." if start[:2] in (b"\xff\xfe", b"\xfe\xff") else ""
        raise UserError(f"{where} holds NUL bytes, which a text file does not.{hint}")
    names = _header(start, separator)
    if len(names) > MOST_COLUMNS:
        raise UserError(_too_wide(where, len(names)))
    _check_names([name for name in names if name], where)  # pandas names those without a name
    try:
        with warnings.catch_warnings():
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
        frame[target] = _as_it_stands(content, separator, frame, target)
    return frame


def _as_it_stands(content: io.BytesIO, separator: str, frame: pd.DataFrame, target: str) -> pd.Series:
    """The target with an empty cell missing, and a word such as NA a label among labels that are words."""
    if pd.api.types.infer_dtype(frame[target], skipna=True) not in ("string", "empty"):
        return frame[target]
    content.seek(0)
    place = frame.columns.get_loc(target)
    found = pd.read_csv(
        content, sep=separator, index_col=False, usecols=[place], dtype=str, keep_default_na=False, na_values=[""]
    ).iloc[:, 0]
    taken = found[frame[target].isna() & found.notna()]
    for word, rows in taken.value_counts().items():
        say(f"Warning: {word!r} stands in {rows} rows of the target {target!r}; it is a label, not a missing one.")
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
    except Exception as error:  # pyarrow's errors share no base but this
        raise UserError(f"{where} is not a whole {kind} file: {_first_line(error)}.") from None


def _arrow(where: Path) -> pd.DataFrame:
    import pyarrow as pa

    def read(path: Path) -> pd.DataFrame:
        with pa.memory_map(str(path)) as file:
            try:
                frame: pd.DataFrame = pa.ipc.open_file(file).read_pandas()
            except pa.ArrowInvalid:
                file.seek(0)
                frame = pa.ipc.open_stream(file).read_pandas()
            return frame

    return _columnar(where, read, "Arrow")


def _json_lines(where: Path, packed: bool) -> pd.DataFrame:
    try:
        return pd.read_json(_bytes(where, packed), lines=True)
    except (ValueError, UnicodeDecodeError, AssertionError) as error:
        raise UserError(f"{where} is not JSON lines, one object a line: {_first_line(error)}.") from None


def _checked(frame: pd.DataFrame, where: Path) -> pd.DataFrame:
    if frame.shape[1] > MOST_COLUMNS:
        raise UserError(_too_wide(where, frame.shape[1]))
    _check_names(list(frame.columns), where)
    if len(frame) == 0:
        raise UserError(f"{where} has a header and no rows.")
    nested = [name for name in frame.columns if frame[name].map(lambda value: isinstance(value, (list, dict))).any()]
    if nested:
        raise UserError(f"{where}: the column {nested[0]!r} holds lists or objects; a table needs one value a cell.")
    return frame.replace([np.inf, -np.inf], np.nan)


def _check_names(names: list[str], where: Path) -> None:
    twice = sorted({name for name in names if names.count(name) > 1}) if len(set(names)) < len(names) else []
    if twice:
        raise UserError(f"{where} has more than one column named {twice[0]!r}; name them apart.")


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
    """A label as it can be told from others: text in quotes."""
    return repr(value) if isinstance(value, str) else str(value)


def _first_line(error: Exception) -> str:
    return str(error).strip().splitlines()[0].rstrip(".") if str(error).strip() else type(error).__name__
