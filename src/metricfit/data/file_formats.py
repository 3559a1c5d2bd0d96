"""The formats of files with tables, known from the endings of their names or from their first bytes."""

from __future__ import annotations

from pathlib import Path

from metricfit.errors import TableError

#: The first bytes of files that are no text, what they are, and the ending of their names.
OTHER_FORMATS = {
    b"PAR1": ("Parquet", ".parquet"),
    b"ARROW1": ("Arrow", ".arrow"),
    b"\x1f\x8b": ("gzip", ".csv.gz"),
    b"PK\x03\x04": ("spreadsheet or zip", ".csv once saved as CSV"),
}

FORMATS = {
    ".csv": "csv",
    ".tsv": "tsv",
    ".txt": "tsv",
    ".parquet": "parquet",
    ".pq": "parquet",
    ".arrow": "arrow",
    ".feather": "arrow",
    ".ipc": "arrow",
    ".jsonl": "json lines",
    ".ndjson": "json lines",
}
SPREADSHEETS = (".xlsx", ".xls", ".xlsm", ".ods", ".numbers")


def has_known_format(path: Path) -> bool:
    """Return whether a file's name ends as those of tables do."""
    return _format_of(path) is not None


def file_format(path: Path) -> str:
    """Return the format of a file by the ending of its name: "csv", "tsv", "parquet", "arrow" or "json lines".

    Raises:
        TableError: The ending is not known.

    Example:
        >>> file_format(Path("rows.csv.gz"))
        'csv'
    """
    known = _format_of(path)
    if known is None:
        endings = ", ".join(sorted({*FORMATS, ".csv.gz", ".jsonl.gz"}))
        sheet = " Save the sheet as CSV UTF-8 first." if path.suffix.lower() in SPREADSHEETS else ""
        raise TableError(
            f"The format of {path.name!r} is not known from the ending of its name. Known endings: {endings}.{sheet}"
        )
    return known


def ending_of(content: bytes) -> str:
    """Guess the ending that a file of this content should have, from its first bytes."""
    for magic, ending in {b"PAR1": ".parquet", b"ARROW1": ".arrow", b"\xff\xff\xff\xff": ".arrow"}.items():
        if content.startswith(magic):
            return ending
    if content.startswith(b"\x1f\x8b"):
        return ".csv.gz"
    return ".jsonl" if content.lstrip()[:1] == b"{" else ".csv"


def _format_of(path: Path) -> str | None:
    packed = path.suffix.lower() == ".gz"
    known = FORMATS.get(Path(path.stem).suffix.lower() if packed else path.suffix.lower())
    return None if packed and known in ("parquet", "arrow") else known
