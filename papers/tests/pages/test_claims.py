"""The file of the papers' claims, and the figures that are computed for them."""

import re

import pytest

import metricfit_papers as papers
from metricfit_papers.pages import claims, repository, stored_results
from metricfit_papers.pages.claim_figures import Figure, describe_figure
from metricfit_papers.specs.toml_section import SpecError

FIGURE = '{ kind = "values", table = "btg-1", protocol = "paper", rows = ["BCE"], column = "f1" }'
CLAIM = f"""[[claim]]
id = "btg-one"
paper = "Bridging the Gap"
claim = "A claim"
verdict = "holds"
shows = "What the runs show."
tables = ["btg-2"]
figures = [{FIGURE}]
"""


@pytest.fixture
def file(tmp_path):
    folder = tmp_path / "papers" / "verdicts"
    folder.mkdir(parents=True)
    return folder / "claims.toml"


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ('id = "btg-one"', "", "id: is missing"),
        ('id = "btg-one"', 'id = "One"', "an anchor is two or more words"),
        ('id = "btg-one"', 'id = "btg-1"', "an anchor is two or more words"),
        ('verdict = "holds"', 'verdict = "true"', "should be one of holds, holds in part"),
        ('verdict = "holds"', 'verdict = "not judged"', "settled_by: is missing"),
        ("shows", "show", "shows: is missing"),
        ("tables", "table", "did you mean 'tables'"),
        ('"btg-2"', '"btg-99"', "there is no table 'btg-99'"),
        (f"figures = [{FIGURE}]", "", "figures: is missing"),
        ('"f1"', '"f9"', "figure 1.column: should be one of f1, accuracy"),
        ('["BCE"]', '["XYZ"]', "btg-1 has no 'XYZ'"),
        ('protocol = "paper"', 'protocol = "draft"', "figure 1.protocol: should be one of paper, code"),
        (FIGURE, '{ kind = "page", page = "no.md", text = "x" }', "there is no page 'no.md'"),
    ],
)
def test_mistakes_are_errors_that_name_the_key(file, old, new, message):
    assert old in CLAIM
    file.write_text(CLAIM.replace(old, new), encoding="utf-8")
    with pytest.raises(SpecError, match=re.escape(message)):
        claims.read_claims(file)


def test_an_anchor_is_not_used_twice(file):
    file.write_text(CLAIM, encoding="utf-8")
    assert [claim.id for claim in claims.read_claims(file)] == ["btg-one"]
    file.write_text(CLAIM + CLAIM, encoding="utf-8")
    with pytest.raises(SpecError, match="'btg-one' is used twice"):
        claims.read_claims(file)


def stored(**rows):
    run = {"smaller": "", "trials": 6}
    measured = {row: {"values": {"f1": values}, "run": run} for row, values in rows.items()}
    return {"btg-1": {"protocols": {"paper": {"adult": measured}}}}


def test_a_figure_has_the_mean_the_deviation_and_the_p_of_the_pairs():
    rising = [0.5, 0.6, 0.7, 0.5, 0.6, 0.7]
    results = stored(BCE=rising, **{"F1*": [value + 0.01 * n for n, value in enumerate(rising, start=1)]})
    figure = Figure("values", "btg-1", "paper", ("F1*", "BCE"), "f1")
    text = describe_figure(figure, results, "page.md")
    # the six differences are all positive, so the exact p is 2 / 2^6
    assert "Adult 0.635 ± 0.100 v 0.600 ± 0.089 (6 trials, p = 0.031)" in text
    assert text.endswith("([btg-1, paper](page.md#btg-1-paper))")


def test_rows_with_unequal_numbers_of_trials_have_no_p():
    text = describe_figure(
        Figure("values", "btg-1", "paper", ("F1*", "BCE"), "f1"), stored(BCE=[0.5] * 6, **{"F1*": [0.6] * 3}), ""
    )
    assert "(3 v 6 trials)" in text


def test_a_figure_without_stored_results_is_an_error():
    with pytest.raises(SpecError, match=r"btg-1\.json has no such rows"):
        describe_figure(Figure("values", "btg-1", "paper", ("F1*",), "f1"), stored(BCE=[0.5]), "")


def test_differences_between_sets_are_those_of_the_page():
    """The builder of the AnyLoss page computes them on its own."""
    name = "anyloss-perceptron"
    results = {name: stored_results.read(repository.RESULTS / f"{name}.json")}
    text = describe_figure(Figure("sets", name, "paper", ("AnyLoss", "BCE, tuned"), "f1"), results, "")
    cell = re.search(r"difference (\S+) .* worse (\d+ : \d+), (p = \S+)", text).groups()
    page = (repository.PAGES / "anyloss.md").read_text(encoding="utf-8")
    assert f"{cell[0]} ({cell[1]}, {cell[2]})" in page.split("minus BCE, tuned")[2]


def test_links_of_the_summary_lead_to_claims():
    anchors = {claim.id for claim in claims.read_claims(repository.VERDICTS / "claims.toml")}
    summary = (repository.ROOT / "docs" / "evidence" / "papers.md").read_text(encoding="utf-8")
    linked = re.findall(r"papers/pages/index\.md#([a-z0-9-]+)\)", summary)
    assert len(linked) > 10
    assert set(linked) <= anchors | {"verdicts", "what-was-run"}


def test_every_claim_has_its_anchor_on_the_page():
    page = (repository.PAGES / "index.md").read_text(encoding="utf-8")
    for claim in claims.read_claims(repository.VERDICTS / "claims.toml"):
        assert page.count(f'<a id="{claim.id}"></a>') == 1
        assert set(claim.tables) <= set(papers.table_names())
