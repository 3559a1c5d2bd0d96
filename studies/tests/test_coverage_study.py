"""The study behind the coverage table runs, and its table is the page's, figures apart."""

from pathlib import Path

from studies import coverage

DOCS = Path(__file__).resolve().parents[2] / "docs"


def test_the_table_matches_the_page(capsys):
    coverage.main(["--runs", "2", "--resamples", "40"])
    printed = capsys.readouterr().out.splitlines()
    page = (DOCS / "concepts" / "statistics.md").read_text(encoding="utf-8").splitlines()
    start = page.index(printed[0])
    assert len(printed) == 5
    for ours, theirs in zip(printed, page[start:], strict=False):
        assert ours.split("|")[1] == theirs.split("|")[1]
        assert ours.count("|") == theirs.count("|")
