"""Numbers in the prose of verdicts come from stored results."""

import re

import pytest

import metricfit_papers as papers
from metricfit_papers.pages import claims, prose, repository, stored_results
from metricfit_papers.specs.toml_section import SpecError

#: Numbers that are no results: settings, thresholds, published numbers and levels; and a p that a test below computes.
SETTINGS = ("0.031", "0.0001", "0.001", "0.01", "0.05", "0.005", "0.25")
#: Verdicts whose numbers are all filled in.
FILLED = ("btg-1", "btg-2", "btg-4", "btg-6", "btg-7", "btg-9", "btg-11", "btg-1b", "multiclass-1", "multiclass-2")
FILLED += ("constrained-5", "constrained-6", "btg-3", "btg-5", "btg-12", "btg-steps", "surrogate-2", "summary")
FILLED += ("anyloss-perceptron", "anyloss-mlp", "anyloss-time", "constrained-settings", "surrogate-5")


def results():
    run = {"smaller": "", "trials": 2}
    rows = {"F1*": [0.6, 0.8, 0.62, 0.64, 0.66, 0.68], "BCE": [0.5, 0.6, 0.52, 0.54, 0.56, 0.58]}
    measured = {row: {"values": {"f1": values}, "run": run} for row, values in rows.items()}
    alm = {"values": {"fpr100": [0.5]}, "run": run}
    pair = {"airplane-automobile-9": {"BCE": alm, "ALM with BCE": alm}}
    path = {"loss": [9.0, 9.0, 1.0, 2.0, 3.0], "metric": [0.2, 0.9, 0.3, 0.2, 0.1]}
    paths = {"tshirt": {"BCE": {"chosen": {"path": path, "watched": {"f1": [0.18, 0.25, 0.4, 0.18, 0.5]}}, "run": run}}}
    return {
        "btg-1": {"protocols": {"paper": {"adult": measured}}},
        "constrained-2": {"protocols": {"paper": pair}},
        "surrogate-2": {"protocols": {"paper": paths}},
        "btg-2": None,
    }


def test_places_are_filled_in():
    def one(text):
        return prose.fill(f"It is [[{text}]].", results())

    assert one("btg-1 | paper | adult | F1* | f1") == "It is 0.67."
    assert one("btg-1|paper|adult|F1*|f1|3") == "It is 0.667."
    assert one("btg-1 | paper | adult | F1* minus BCE | f1") == "It is +0.12."
    assert one("range: btg-1 | paper | adult | BCE | f1") == "It is 0.50 to 0.60."
    assert one("above: btg-1 | paper | adult | BCE | f1 | 0.55") == "It is 3 of 6."
    assert one("sets: btg-1 | paper | F1* minus BCE | f1 | 1") == "It is +0.1."
    assert one("p: btg-1 | paper | adult | F1* minus BCE | f1") == "It is 0.031."  # 2 / 2^6
    assert one("agree: btg-1 | paper | adult") == "It is 1 of 2."  # 0.67 is 0.63 ± 0.04, 0.55 is not 0.26 ± 0.12
    published = [
        papers.find_table("constrained-2").published["airplane-automobile-9", row, "fpr100"].mean
        for row in ("BCE", "ALM with BCE")
    ]
    assert (
        one("apart: constrained-2 | paper | airplane-automobile-9 | fpr100")
        == f"It is {0.5 - sum(published) / 2:+.2f}."
    )
    assert one("learns: surrogate-2 | paper | tshirt | BCE") == "It is 3."
    assert one("late: surrogate-2 | paper | tshirt | BCE") == "It is -1.000."  # of the last three of five epochs
    assert prose.fill("No [place] here.", {}) == "No [place] here."


@pytest.mark.parametrize("place", ["btg-1|paper|adult|XYZ|f1", "btg-2|paper|frog|F1*|f1", "btg-1|paper", "odd: btg-1"])
def test_a_place_without_results_is_an_error_that_names_it(place):
    with pytest.raises(SpecError, match=re.escape(f"[[{place}]]")):
        prose.fill(f"It is [[{place}]].", results())


def bare_numbers(text):
    """Return decimal numbers outside of places, links and code, without those that are said to be published."""
    text = re.sub(r"\[\[.*?\]\]|`[^`]*`|\]\([^)]*\)", "", text, flags=re.DOTALL)
    text = re.sub(r"(published|instead of)[^.]*?\d\.\d+( ± \d\.\d+)?( (and|to) \d\.\d+)?", "", text)
    return [number for number in re.findall(r"\d\.\d{2,}", text) if number not in SETTINGS]


@pytest.mark.parametrize("name", FILLED)
def test_verdicts_have_no_numbers_written_by_hand(name):
    assert bare_numbers((repository.VERDICTS / f"{name}.md").read_text(encoding="utf-8")) == []


def test_claims_have_no_numbers_written_by_hand():
    for claim in claims.read_claims(repository.VERDICTS / "claims.toml"):
        numbers = [number for number in bare_numbers(claim.shows) if number != "0.728"]  # arithmetic, of another page
        assert numbers == [], claim.id


def test_claims_say_what_would_settle_them_unless_the_runs_are_as_large_as_the_tables():
    stored = dict.fromkeys(papers.table_names())
    stored |= {path.stem: stored_results.read(path) for path in repository.RESULTS.glob("*.json")}
    for claim in claims.read_claims(repository.VERDICTS / "claims.toml"):
        sizes = claims.measured_sizes(claim, stored)
        assert claim.settled_by or not any(sizes.values()), claim.id
        assert sizes or claim.settled_by or all(figure.page for figure in claim.figures), claim.id


def test_verdicts_on_the_surrogate_follow_the_runs_of_full_length():
    """One repeat of 120 epochs of three rows with beta 1; beta 2 and 3 have 15 and 20."""
    verdicts = {claim.id: claim.verdict for claim in claims.read_claims(repository.VERDICTS / "claims.toml")}
    stored = stored_results.read(repository.RESULTS / "surrogate-2.json")
    rows = stored["protocols"]["paper"]["tshirt"]
    assert {len(row["chosen"]["path"]["loss"]) for row in rows.values()} == {120}
    assert "surrogate F2" not in rows
    for name in ("highest-f1", "soft-f-beta-does-not-move", "large-betas-need-epochs"):  # of CIFAR-10, of other betas
        assert verdicts[f"surrogate-{name}"] == claims.TOO_SHORT
    best = {row: max(each["values"]["watched"]) for row, each in rows.items()}
    assert best["BCE"] > best["macro soft F1"] > best["surrogate F1"]
    assert verdicts["surrogate-bce-fails"] == "does not hold"
    late = {
        row: float(prose.fill(f"[[late: surrogate-2|paper|tshirt|{row}]]", {"surrogate-2": stored})) for row in rows
    }
    assert max(late.values()) < -0.9


def test_the_surrogate_learns_where_macro_soft_f1_does_not():
    """McNemar's exact test of the ten repeats with beta 1: six learn with the surrogate alone, so p is 2 / 2^6."""
    only = [0, 0]
    for table, dataset in (("surrogate-2", "tshirt"), ("surrogate-5", "airplane")):
        rows = stored_results.read(repository.RESULTS / f"{table}.json")["protocols"]["short"][dataset]
        surrogate, macro = (rows[row]["values"]["f1"] for row in ("surrogate F1", "macro soft F1"))
        for first, second in zip(surrogate, macro, strict=True):
            learns = first > 0.25, second > 0.25
            only = [only[0] + (learns == (True, False)), only[1] + (learns == (False, True))]
    assert only == [6, 0]
    assert "p = 0.031" in (repository.VERDICTS / "surrogate-5.md").read_text(encoding="utf-8")
    assert round(2 / 2**6, 3) == 0.031
