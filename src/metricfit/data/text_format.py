"""How a text table is written: its separator, decimal mark and encoding, given or guessed from its beginning."""

from __future__ import annotations

import codecs
import csv
import io
import re
from itertools import islice
from typing import NamedTuple

from metricfit.errors import InvalidValueError, TableError, quote

#: Separators that are guessed, and how messages call them.
SEPARATORS = {",": "','", ";": "';'", "\t": "a tab", "|": "'|'"}
#: Byte order marks, those of UTF-32 first, because they begin with those of UTF-16.
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


def guess_encoding(start: bytes, *, is_utf8: bool, is_text: bool, path: object) -> str:
    """Guess the encoding of a text file.

    Args:
        start: The beginning of the file.
        is_utf8: Whether the whole file is UTF-8.
        is_text: Whether the whole file has only bytes that Windows-1252 text has.
        path: The file, for the message.

    Raises:
        TableError: The file is in none of the encodings that can be guessed.
    """
    for mark, encoding in MARKS.items():
        if start.startswith(mark):
            return encoding
    sample = start[:4096]
    for first, encoding in ((1, "utf-16-le"), (0, "utf-16-be")):
        if len(sample) > 1 and sample[first::2].count(0) > 0.4 * len(sample) and sample[1 - first :: 2].count(0) == 0:
            return encoding
    if b"\x00" in start:
        raise TableError(f"{path} holds NUL bytes, which a text file does not. Is it a binary file, or damaged?")
    if is_utf8:
        return "utf-8"
    if is_text:
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
        guesses.append((f"{SEPARATORS.get(separator, quote(separator))} as separator", "sep"))
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

    They have one entry each, or at most a quarter of those of the header, which has at least three, none of them a
    number. The line below the header has as many fields.
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
    scores = {separator: _score_below_titles(text, separator) for separator in dict.fromkeys((usual, *SEPARATORS))}
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
