"""Reading the TOML file of a table. The format is described in papers/pages/add-a-table.md."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from importlib import resources
from pathlib import Path

from metricfit_papers.datasets.preparations import PIXELS, PREPARATIONS
from metricfit_papers.specs import column_names, vocabulary
from metricfit_papers.specs.expressions import check_expression
from metricfit_papers.specs.row_parser import at_least, check_decided, rows_of
from metricfit_papers.specs.table_spec import (
    ALL,
    AUROC,
    CHECKPOINTS,
    SPLITS,
    THRESHOLDED,
    UNCONSTRAINED,
    VARIED,
    ColumnSpec,
    DatasetSpec,
    ProtocolSpec,
    PublishedNumber,
    RowSpec,
    TableSpec,
)
from metricfit_papers.specs.toml_section import Section, SpecError, read_toml

#: The keys that a table may take from another one.
SHARED = ("paper", "trials", "prepare", "datasets", "training", "protocols", "rows")
FOLDER = Path(str(resources.files("metricfit_papers"))) / "tables"


def table_names() -> list[str]:
    """Return the names of the tables of this package.

    Returns:
        The names, sorted by paper and number.

    Example:
        >>> "btg-1" in table_names()
        True
    """
    return sorted((path.stem for path in FOLDER.glob("*.toml")), key=_by_number)


def find_table(name: str) -> TableSpec:
    """Find a table.

    Args:
        name: Name of a table of the package, or the path of a ``.toml`` file.

    Returns:
        The table.

    Raises:
        SpecError: There is no such table, or its file has a mistake; the message names the file and the key.

    Example:
        >>> find_table("btg-1").trials
        10
    """
    if name.endswith(".toml"):
        return parse(Path(name))
    if name not in table_names():
        raise SpecError(
            f"no table is called {name!r}; there are {', '.join(table_names())}; or give the path of a .toml file"
        )
    return parse(FOLDER / f"{name}.toml")


def parse(path: Path) -> TableSpec:
    """Read the table that a file describes; errors name the file, the key and the remedy."""
    file = _completed(read_toml(path), path)
    protocols = {name: _protocol(name, section) for name, section in file.section("protocols").sections()}
    if not protocols:
        raise file.error("protocols", "needs at least one, such as [protocols.paper]")
    spec = TableSpec(
        name=path.stem,
        file=str(path),
        title=file.take("title", str),
        paper=file.take("paper", str),
        where=file.take("where", str),
        trials=at_least(file, "trials"),
        prepare=file.one_of("prepare", [*PREPARATIONS, PIXELS]),
        notes=tuple(file.take("notes", list, [])),
        against=file.take("against", str, None),
        datasets={name: _dataset(name, section) for name, section in _datasets(file.section("datasets"))},
        columns={name: _column(section) for name, section in file.section("columns").sections()},
        protocols=protocols,
        rows={row.name: row for row in rows_of(file, protocols)},
        published={},
    )
    published = dict(_published(file.section("published", optional=True), spec))
    searched = dict(_searched(file.section("searched", optional=True), spec))
    file.done()
    _check_references(spec)
    return replace(spec, published=published, searched=searched)


def _completed(file: Section, path: Path, visited: tuple[Path, ...] = ()) -> Section:
    """Add the keys from the file that the key ``like`` names, which may itself have a key ``like``."""
    like = file.take("like", str, None)
    if like is None:
        return file
    places = [path.parent / f"{like}.toml", FOLDER / f"{like}.toml"]
    source = next((place for place in places if place.is_file() and place != path), None)
    if source is None:
        raise file.error("like", f"there is no table {like!r} beside this file, nor one of {', '.join(table_names())}")
    if source in visited:
        raise file.error("like", f"is circular, through {source.name}; write the shared keys into one of the files")
    other = _completed(read_toml(source), source, (*visited, path)).whole
    shared = {key: other[key] for key in SHARED if key in other}
    return Section(file.file, file.path, shared | {key: value for key, value in file.whole.items() if key != "like"})


def _by_number(name: str) -> tuple[str, int, str]:
    paper, _, number = name.rpartition("-")
    digits = "".join(character for character in number if character.isdigit())
    return paper, int(digits or 0), name


def _datasets(section: Section) -> Iterator[tuple[str, Section]]:
    for name in list(section.remaining):
        if isinstance(section.remaining[name], str):
            section.remaining[name] = {"title": section.remaining[name]}
    yield from section.sections()


def _dataset(name: str, section: Section) -> DatasetSpec:
    made = section.checked("made", str, lambda text: check_expression(text, vocabulary.DATASETS), None)
    file = section.take("file", str, None)
    target, positive = section.take("target", str, None), section.take("positive", (str, int), None)
    if file is not None and (target is None or positive is None):
        raise section.error("file", "needs target, the column of labels, and positive, the positive label")
    if file is None and made is None:
        vocabulary.check_dataset(section, name)
    dataset = DatasetSpec(
        name, section.take("title", str, name), made, file, target, None if positive is None else str(positive)
    )
    section.done()
    return dataset


def _column(section: Section) -> ColumnSpec:
    metric = section.checked("metric", str, column_names.check_column)
    column = ColumnSpec(section.take("title", str, metric), metric, section.take("shown", bool, True))
    section.done()
    return column


def _protocol(name: str, section: Section) -> ProtocolSpec:
    usual = ProtocolSpec(name, section.take("says", str))
    fractions = section.take("fractions", list, list(usual.fractions))
    if not _are_fractions(fractions):
        raise section.error("fractions", f"are of training, validation and test rows and add up to 1, got {fractions}")
    protocol = replace(
        usual,
        split=section.one_of("split", SPLITS, usual.split),
        fractions=tuple(fractions),
        varied=section.one_of("varied", VARIED, usual.varied),
        published_test=section.take("published_test", bool, usual.published_test),
        thresholded=section.one_of("thresholded", THRESHOLDED, usual.thresholded),
        auroc=section.one_of("auroc", AUROC, usual.auroc),
        checkpoint=section.one_of("checkpoint", CHECKPOINTS, usual.checkpoint),
        decided=section.checked("decided", str, check_decided, usual.decided),
        epochs=section.take("epochs", int, None),
        constraint=section.take("constraint", dict, {}),
    )
    section.done()
    return protocol


def _are_fractions(values: list[object]) -> bool:
    shares = [value for value in values if isinstance(value, (int, float)) and value >= 0]
    return len(values) == len(shares) == 3 and abs(sum(shares) - 1) < 1e-6 and shares[0] > 0 and shares[2] > 0


def _published(section: Section, spec: TableSpec) -> Iterator[tuple[tuple[str, str, str], PublishedNumber]]:
    for dataset, rows in section.sections():
        if dataset not in (*spec.datasets, ALL):
            raise section.error(dataset, f"is neither {ALL!r} nor one of the datasets {', '.join(spec.datasets)}")
        for row, values in rows.sections():
            if row not in spec.rows:
                raise rows.error(row, f"is none of the rows {', '.join(spec.rows)}")
            for column in list(values.remaining):
                if column not in spec.columns:
                    raise values.error(column, f"is none of the columns {', '.join(spec.columns)}")
                pair = values.take(column, list)
                if len(pair) not in (1, 2) or not all(isinstance(number, (int, float)) for number in pair):
                    raise values.error(column, f"should be [mean, standard deviation] or [mean], got {pair}")
                yield (
                    (dataset, row, column),
                    PublishedNumber(float(pair[0]), float(pair[1]) if len(pair) == 2 else None),
                )


def _searched(section: Section, spec: TableSpec) -> Iterator[tuple[tuple[str, str], str]]:
    for dataset, rows in section.sections():
        if dataset not in spec.datasets:
            raise section.error(dataset, f"is none of the datasets {', '.join(spec.datasets)}")
        for row in list(rows.remaining):
            if row not in spec.rows:
                raise rows.error(row, f"is none of the rows {', '.join(spec.rows)}")
            yield (dataset, row), rows.take(row, str)


def _check_references(spec: TableSpec) -> None:
    if spec.against is not None and spec.against not in spec.rows:
        raise SpecError(f"{spec.file}: against: is none of the rows {', '.join(spec.rows)}, got {spec.against!r}")
    for row in spec.rows.values():
        for key, column in spec.columns.items() if row.own_trials else ():
            if not column_names.measures(row.kind, column.metric):
                raise SpecError(
                    f"{spec.file}: columns.{key}: {column.metric!r} is not measured for rows of kind {row.kind!r}, "
                    f"as {row.name!r} is"
                )
        if UNCONSTRAINED in spec.views() and row.own_trials and row.kind != "ensemble":
            raise SpecError(
                f"{spec.file}: rows.{row.name}.kind: where a row or protocol is {UNCONSTRAINED!r}, all are ensembles, "
                f"got {row.kind!r}"
            )
        if row.gathers:
            _check_gathered(spec, row)
        if row.of is not None and (row.of not in spec.rows or spec.rows[row.of].of is not None):
            raise SpecError(f"{spec.file}: rows.{row.name}.of: should be a row that is trained, got {row.of!r}")
        if row.of is not None and row.decided is None:
            raise SpecError(f"{spec.file}: rows.{row.name}.decided: is missing; a row 'of' another differs by it alone")


def _check_gathered(spec: TableSpec, row: RowSpec) -> None:
    key = f"{spec.file}: rows.{row.name}.gathers"
    if set(row.gathers) != set(spec.columns):
        raise SpecError(f"{key}: should name a row for each of the columns {', '.join(spec.columns)}")
    for column, name in row.gathers.items():
        if name not in spec.rows or spec.rows[name].gathers:
            raise SpecError(f"{key}.{column}: should be another row with numbers of its own, got {name!r}")
