"""The verdicts on the papers' claims: read from ``papers/verdicts/claims.toml``, checked, and shown as Markdown.

An entry is written by hand, except for its figures, which `claim_figures` computes. Its ``id`` is an anchor of the
page, so it never changes.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import metricfit_papers as papers
from metricfit_papers.pages.claim_figures import Figure, describe_figure, figure_datasets, read_figure, table_spec
from metricfit_papers.pages.prose import fill
from metricfit_papers.pages.run_lengths import describe_smaller
from metricfit_papers.pages.stored_results import Results
from metricfit_papers.results.markdown import markdown_line
from metricfit_papers.specs.table_spec import TableSpec
from metricfit_papers.specs.toml_section import Section, read_toml

NOT_JUDGED, TOO_SHORT = "not judged", "not judged at this length"
VERDICTS = ("holds", "holds in part", "does not hold", "an error of the published code", TOO_SHORT, NOT_JUDGED)
#: The size of runs that are not smaller than their table.
FULL = "as large as the table"
ABOUT = (
    "Each claim has an anchor, one of six verdicts, the figures that decide it, the size of the runs behind them and "
    "what would settle it. The verdict says what the runs on these pages show, and no more. All figures are computed "
    "from the stored results. `±` is the standard deviation between trials. p comes from Wilcoxon's signed-rank test "
    "of the pairs of trials, where two rows have six or more. Trials of one table share their rows, so p says how "
    'consistent a difference is there, not on other data. "Smaller" marks runs with fewer epochs than published. A '
    "[summary](../../docs/evidence/papers.md) has one screen per paper."
)


@dataclass(frozen=True)
class Claim:
    """A claim of a paper.

    Attributes:
        id: The anchor.
        paper: Title of the paper, without its authors.
        claim: What the paper claims.
        verdict: One of ``VERDICTS``.
        shows: What the runs show.
        figures: The figures that decide it.
        settled_by: What would settle it; empty if the runs have the size of the tables.
        tables: Names of the tables it is about.
    """

    id: str
    paper: str
    claim: str
    verdict: str
    shows: str
    figures: tuple[Figure, ...]
    settled_by: str
    tables: tuple[str, ...]


def read_claims(path: Path) -> list[Claim]:
    """Read the claims.

    Raises:
        SpecError: A key is missing or not known, an id is not an anchor or is used twice, a table or a page does not
            exist, or a claim has neither a figure nor a way to settle it.
    """
    file = read_toml(path)
    claims: list[Claim] = []
    for number, values in enumerate(file.take("claim", list), start=1):
        section = Section(file.file, f"claim {number}", values)
        claim = _read_claim(section, path.parents[1] / "pages")
        if claim.id in {other.id for other in claims}:
            raise section.error("id", f"{claim.id!r} is used twice; anchors are unique")
        claims.append(claim)
    file.done()
    return claims


@cache
def _paper_titles() -> tuple[str, ...]:
    return tuple(dict.fromkeys(papers.find_table(name).paper.split(" (")[0] for name in papers.table_names()))


def _read_claim(section: Section, pages: Path) -> Claim:
    anchor = section.take("id", str)
    if not re.fullmatch(r"[a-z0-9]+(-[a-z0-9]+)+", anchor) or anchor in papers.table_names():
        raise section.error("id", f"an anchor is two or more words in lower case with hyphens, got {anchor!r}")
    tables = tuple(section.take("tables", list, []))
    for table in tables:
        if table not in papers.table_names():
            raise section.error("tables", f"there is no table {table!r}; see metricfit reproduce --list")
    figures = tuple(
        read_figure(Section(section.file, f"{anchor}, figure {number}", values))
        for number, values in enumerate(section.take("figures", list, []), start=1)
    )
    for figure in figures:
        if figure.page and not (pages / figure.page.split("#")[0]).exists():
            raise section.error("figures", f"there is no page {figure.page!r}; addresses are those from {pages.name}")
    claim = Claim(
        anchor,
        section.one_of("paper", _paper_titles()),
        section.take("claim", str),
        section.one_of("verdict", VERDICTS),
        section.take("shows", str),
        figures,
        section.take("settled_by", str, ""),
        tables,
    )
    section.done()
    if claim.verdict in (NOT_JUDGED, TOO_SHORT) and not claim.settled_by:
        raise section.error("settled_by", "is missing; say what would settle a claim that is not judged")
    if claim.verdict != NOT_JUDGED and not claim.figures:
        raise section.error("figures", "is missing; a verdict has a figure that decides it")
    return claim


def show_claims(
    claims: list[Claim], results: Mapping[str, Results | None], address: Callable[[str], str]
) -> Iterator[str]:
    """Yield the paragraphs of the verdicts: a table of all claims, then the claims of each paper.

    Args:
        claims: The claims.
        results: Stored results by table.
        address: Returns the page of a table.
    """
    yield "## Verdicts"
    yield ABOUT
    head = [markdown_line(["paper", "claim", "verdict"]), markdown_line(["---"] * 3)]
    lines = [markdown_line([claim.paper, f"[{claim.claim}](#{claim.id})", claim.verdict]) for claim in claims]
    yield count_verdicts(claims)
    yield "\n".join([*head, *lines])
    for paper in dict.fromkeys(claim.paper for claim in claims):
        yield f"### {paper}"
        for claim in claims:
            if claim.paper == paper:
                yield from _show_claim(claim, results, address)


def count_verdicts(claims: list[Claim]) -> str:
    """Make a table of the number of claims of each paper with each verdict."""
    names = [*dict.fromkeys(claim.paper for claim in claims)]
    lines = [
        [
            paper,
            *(str(sum((claim.paper, claim.verdict) == (paper, verdict) for claim in claims)) for verdict in VERDICTS),
        ]
        for paper in names
    ]
    total = ["all", *(str(sum(claim.verdict == verdict for claim in claims)) for verdict in VERDICTS)]
    head = [["paper", *VERDICTS], ["---", *["---:"] * len(VERDICTS)]]
    return "\n".join(markdown_line(line) for line in [*head, *lines, total])


def measured_sizes(claim: Claim, results: Mapping[str, Results | None]) -> dict[str, str]:
    """Return for each table of a claim's figures how much of it the runs behind them are; empty if they are all."""
    rows: dict[str, list[tuple[str, str, Any]]] = {}
    for figure in claim.figures:
        for name, dataset in figure_datasets(figure, results).items():
            wanted = [row for row in (*figure.rows, figure.than) if row] or list(dataset)
            rows.setdefault(figure.table, []).extend((name, row, dataset[row]) for row in wanted if row in dataset)
    sizes = {table: describe_smaller(table_spec(table), used) for table, used in rows.items()}
    return {table: _in_words(table_spec(table), rows[table], size) for table, size in sizes.items()}


def _in_words(spec: TableSpec, used: list[tuple[str, str, Any]], size: str) -> str:
    """Return how many of the table's datasets were used, if not all, and how much smaller the runs were."""
    datasets = len({name for name, _, _ in used})
    count = [] if datasets == len(spec.datasets) else [f"{datasets} of {len(spec.datasets)} datasets"]
    return "; ".join([*count, *([] if size == "no" else [size])])


def _show_claim(claim: Claim, results: Mapping[str, Results | None], address: Callable[[str], str]) -> Iterator[str]:
    yield f'<a id="{claim.id}"></a>\n\n#### {claim.claim}'
    yield f"**{claim.verdict.capitalize()}.** {' '.join(fill(claim.shows, results).split())}"
    lines = [
        describe_figure(figure, results, address(figure.table) if figure.table else "") for figure in claim.figures
    ]
    sizes = measured_sizes(claim, results)
    if sizes:
        lines.append(f"Rests on {'; '.join(f'{table}: {size or FULL}' for table, size in sizes.items())}.")
    if claim.settled_by:
        lines.append(f"Would be settled by: {' '.join(claim.settled_by.split())}")
    elif sizes:
        lines.append("The runs have the size of the tables. Other data would test it further.")
    shown = {figure.table for figure in claim.figures}
    others = [f"[{table}]({address(table)}#{table})" for table in claim.tables if table not in shown]
    if others:
        lines.append(f"See also {', '.join(others)}.")
    yield "\n".join(f"- {line}" for line in lines)
