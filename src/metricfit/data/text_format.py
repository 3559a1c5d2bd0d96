"""How a text table is written: separator, decimal mark, encoding and header, given or guessed."""

from __future__ import annotations

import codecs
import csv
import io
import lzma
import re
import warnings
import zlib
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from itertools import islice
from pathlib import Path
from typing import Any, NamedTuple

import pandas as pd

from metricfit.data.columns import MAX_COLUMNS, check_names, describe_too_wide, separator_hint
from metricfit.data.files import OTHER_FORMATS, checked_chunks, open_unpacked
from metricfit.errors import InvalidValueError, TableError, first_line, quote, shorten

#: The usual separators of text files.
SEPARATORS = {"csv": ",", "tsv": "\t"}
#: What pandas reads as a missing value, an empty field too.
MISSING_WORDS = (
    *("", " ", "#N/A", "#N/A N/A", "#NA", "-1.#IND", "-1.#QNAN", "-NaN", "-nan", "1.#IND", "1.#QNAN", "<NA>", "N/A"),
    *("NA", "NULL", "NaN", "None", "n/a", "nan", "null"),
)
#: Separators that are guessed, and how messages call them.
SPOKEN_SEPARATORS = {",": "','", ";": "';'", "\t": "a tab", "|": "'|'"}
#: Byte order marks. UTF-32 comes first, because its mark begins with the mark of UTF-16.
MARKS = {
    codecs.BOM_UTF8: "utf-8",
    codecs.BOM_UTF32_LE: "utf-32",
    codecs.BOM_UTF32_BE: "utf-32",
    codecs.BOM_UTF16_LE: "utf-16",
    codecs.BOM_UTF16_BE: "utf-16",
}
#: Records, and characters of the beginning, from which separator and decimal mark are guessed.
RECORDS, CHARACTERS = 200, 2**18
#: The share of records that must have as many fields as the header.
CONSISTENT = 0.9
#: Lines above a header that are taken for titles, and names that a header below them must have.
MAX_TITLES, MIN_NAMES = 10, 3

_DECIMAL_COMMA = re.compile(r"[+-]?\d+,\d+(?:[eE][+-]?\d+)?")
_DECIMAL_POINT = re.compile(r"[+-]?\d*\.\d+(?:[eE][+-]?\d+)?")
_THOUSANDS = re.compile(r"[+-]?\d{1,3}(?:,\d{3})+")
_WHOLE = re.compile(r"[+-]?\d+")


class TableWarning(UserWarning):
    """Something in a table may not mean what its author intended."""


class TextOptions(NamedTuple):
    """What the user says about a text table; None for what is to be guessed.

    Attributes:
        sep: The separator: one character, or "tab".
        decimal: The decimal mark: "." or ",".
        encoding: The name of an encoding, such as "cp1252".
    """

    sep: str | None = None
    decimal: str | None = None
    encoding: str | None = None

    def checked(self) -> TextOptions:
        """Return the options as pandas takes them.

        Raises:
            InvalidValueError: An option cannot be used.
        """
        sep = {"tab": "\t", "\\t": "\t", "comma": ",", "semicolon": ";", "space": " "}.get(self.sep or "", self.sep)
        if sep is not None and (len(sep) != 1 or sep in '"\r\n' or sep.isalnum()):
            raise InvalidValueError(f"sep is one character, such as ';', or 'tab'; got {quote(self.sep)}")
        if self.decimal not in (None, ".", ","):
            raise InvalidValueError(f"decimal is '.' or ','; got {quote(self.decimal)}")
        if sep is not None and sep == self.decimal:
            raise InvalidValueError(f"sep and decimal are both {quote(sep)}; they must differ")
        if self.encoding is not None:
            try:
                "a".encode(self.encoding)
            except (LookupError, ValueError):
                raise InvalidValueError(
                    f"there is no encoding {quote(self.encoding)}; write a name such as 'utf-8', 'cp1252' or 'utf-16'"
                ) from None
        return TextOptions(sep, self.decimal, self.encoding)


#: Everything about a text table is guessed.
GUESSED = TextOptions()


class TextFormat(NamedTuple):
    """How a text table is written.

    Attributes:
        separator: One character.
        decimal: "." or ",".
        encoding: Name of the encoding.
        skipped: Lines before the header: Excel's ``sep=;``, and titles above the header.
        guessed: What was guessed and is unusual, in words; None if nothing was.
    """

    separator: str
    decimal: str
    encoding: str
    skipped: int
    guessed: str | None


def guess_encoding(scanned: Scan, path: Path) -> str:
    """Guess the encoding of a text file.

    Raises:
        TableError: The file is in none of the encodings that can be guessed.
    """
    for mark, encoding in MARKS.items():
        if scanned.start.startswith(mark):
            return encoding
    sample = scanned.start[:4096]
    for first, encoding in ((1, "utf-16-le"), (0, "utf-16-be")):
        if len(sample) > 1 and sample[first::2].count(0) > 0.4 * len(sample) and sample[1 - first :: 2].count(0) == 0:
            return encoding
    if scanned.is_utf8 or scanned.holds_nul:  # the caller reports NUL bytes
        return "utf-8"
    if scanned.is_text:
        return "cp1252"
    raise TableError(
        f"{path} is neither UTF-8, UTF-16 nor Windows-1252 text. If it is text, name its encoding (--encoding on the "
        "command line, encoding= in Python), or save it as UTF-8."
    )


def guess_format(start: bytes, encoding: str, usual: str, options: TextOptions) -> TextFormat:
    r"""Guess separator and decimal mark from the beginning of a file; what the options say is kept.

    Args:
        start: The beginning of the file.
        encoding: Its encoding.
        usual: The separator of its format.
        options: What the user said, checked.

    Returns:
        The format.

    Example:
        >>> guess_format("a;y\n1,5;0\n2,5;1\n".encode(), "utf-8", ",", TextOptions())[:2]
        (';', ',')
    """
    text = codecs.getincrementaldecoder(encoding)(errors="replace").decode(start[: 4 * CHARACTERS])[:CHARACTERS]
    text = text.removeprefix("\ufeff")
    declared = re.match(r"\s*\"?sep=(.)\"?\r?(?:\n|$)", text, re.IGNORECASE)
    body = text[declared.end() :] if declared else text
    separator = options.sep or (declared.group(1) if declared else _guess_separator(body, usual))
    titles = _title_lines(body, separator)
    records = _records(body[sum(map(len, titles)) :], separator)
    decimal = options.decimal or (_guess_decimal(records[1:], separator) if separator != "," else ".")
    return TextFormat(
        separator,
        decimal,
        encoding,
        (text[: declared.end()].count("\n") if declared else 0) + len(titles),
        _describe_guesses(separator, decimal, encoding, usual, options, titles),
    )


def _describe_guesses(
    separator: str, decimal: str, encoding: str, usual: str, options: TextOptions, titles: list[str]
) -> str | None:
    guesses = []
    if options.sep is None and separator != usual:
        guesses.append((f"{SPOKEN_SEPARATORS.get(separator, quote(separator))} as separator", "sep"))
    if options.decimal is None and decimal != ".":
        guesses.append(("',' as decimal mark", "decimal"))
    if options.encoding is None and encoding != "utf-8":
        guesses.append((f"{'Windows-1252' if encoding == 'cp1252' else encoding.upper()} as encoding", "encoding"))
    above = ""
    if titles:
        words = next(title for title in titles if title.strip(f"{separator}\r\n "))
        words = words.strip(f"{separator}\r\n ").replace('"', "")
        lines = "1 line" if len(titles) == 1 else f"{len(titles)} lines"
        above = f"is read without {lines} above its header ({quote(words)})"
    if not guesses:
        return above or None
    names = ", ".join(f"--{name}" for _, name in guesses)
    listed = " and ".join([", ".join(words for words, _ in guesses[:-1])] * (len(guesses) > 1) + [guesses[-1][0]])
    read = f"is read with {listed}. If that is wrong, give {names} ({names.replace('--', '')} in Python)"
    return f"{above}. It {read}" if above else read


def _title_lines(text: str, separator: str) -> list[str]:
    """Return the lines above the header, as exports of spreadsheets have them: a title, and lines without entries.

    They have one entry each, or at most a quarter as many as the header, which has at least three, and no
    numbers. The line below the header has as many fields.
    """
    lines = list(islice(io.StringIO(text, newline=""), MAX_TITLES + 2))
    try:
        fields = [next(csv.reader([line], delimiter=separator), []) for line in lines]
    except csv.Error:  # a field that is too long, which pandas explains better
        return []
    filled = [[field for field in record if field.strip()] for record in fields]
    most = max(map(len, filled), default=0)
    header = next((number for number, entries in enumerate(filled) if len(entries) > max(1, most // 4)), 0)
    titles = lines[:header]
    if not any(filled[:header]) or header + 1 >= len(lines) or any(line.count('"') % 2 for line in titles):
        return []
    names = filled[header]
    if len(names) < MIN_NAMES or any(map(_is_number, names)) or len(fields[header + 1]) != len(fields[header]):
        return []
    return titles


def _records(text: str, separator: str) -> list[list[str]]:
    """Return the first records that have fields; the last one may be cut, and is left out of many."""
    records: list[list[str]] = []
    try:
        for record in csv.reader(io.StringIO(text, newline=""), delimiter=separator):
            if record:
                records.append(record)
            if len(records) == RECORDS:
                break
    except csv.Error:  # a field that is too long, or a quote that never ends, which pandas explains better
        pass
    return records[:-1] if len(text) == CHARACTERS and len(records) > 1 else records


def _guess_separator(text: str, usual: str) -> str:
    """Choose the usual separator, unless another one divides the records better."""
    scores = {
        separator: _score_below_titles(text, separator) for separator in dict.fromkeys((usual, *SPOKEN_SEPARATORS))
    }
    return max(scores, key=lambda separator: scores[separator])  # the first of equal ones, which is the usual one


def _score_below_titles(text: str, separator: str) -> tuple[int, int]:
    titles = sum(map(len, _title_lines(text, separator)))
    return _score(_records(text[titles:], separator))


def _score(records: list[list[str]]) -> tuple[int, int]:
    """Rate how well a separator divides records: by the fields that are numbers, then by the number of columns.

    Both are 0 where there is one column, or where the records differ in length from the header.
    """
    columns = len(records[0]) if records else 0
    alike = [len(record) == columns or (len(record) == columns + 1 and not record[-1]) for record in records]
    if columns < 2 or sum(alike) < CONSISTENT * len(alike):
        return 0, 0
    return sum(_is_number(field.strip()) for record in records[1:] for field in record), columns


def _is_number(field: str) -> bool:
    return any(kind.fullmatch(field) for kind in (_WHOLE, _DECIMAL_POINT, _DECIMAL_COMMA))


def _guess_decimal(records: list[list[str]], separator: str) -> str:
    """Return "," if a column has numbers with a decimal comma, and no column has numbers with a decimal point."""
    with_comma = False
    for column in range(max(map(len, records), default=0)):
        fields = [record[column].strip() for record in records if column < len(record)]
        filled = [field for field in fields if field]
        if not filled or not all(map(_is_number, filled)):
            continue
        commas = [field for field in filled if "," in field]
        if any("." in field for field in filled):
            return "."
        # Behind tabs, 1,234 may be a thousand; behind semicolons it is not.
        with_comma |= any(separator == ";" or not _THOUSANDS.fullmatch(field) for field in commas)
    return "," if with_comma else "."


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
    except (EOFError, OSError, zlib.error, lzma.LZMAError) as error:
        kind = "xz" if path.suffix.lower() == ".xz" else "gzip"
        raise TableError(f"{path} is not a whole {kind} file: {shorten(error)}.") from None
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
    written, names = find_layout(path, usual, options)
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


def find_layout(
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
    scanned = scan(path, in_batches=in_batches)
    for magic, (kind, ending) in OTHER_FORMATS.items():
        if scanned.start.startswith(magic):
            raise TableError(f"{path} is a {kind} file by its first bytes, not CSV: name it {ending}.")
    encoding = options.encoding or guess_encoding(scanned, path)
    if scanned.holds_nul and not encoding.lower().replace("_", "-").startswith(("utf-16", "utf-32", "utf16", "utf32")):
        raise TableError(f"{path} holds NUL bytes, which a text file does not. Is it a binary file, or damaged?")
    try:
        written = guess_format(scanned.start, encoding, usual, options)
        names = _header_names(scanned.start, written)
    except UnicodeError as error:  # UTF-16 without a byte order mark, which the encoding "utf-16" needs
        raise TableError(_describe_encoding(path, encoding, error)) from None
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
        hint = separator_hint(names) or " Name every column, also the column of row names (in R: write.csv)."
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
