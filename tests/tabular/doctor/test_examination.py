"""What examine_table finds, against tables that were damaged on purpose and naive counts."""

import json

import numpy as np
import pandas as pd
import pytest

from metricfit._files import to_json_value
from metricfit.errors import MetricfitError
from metricfit.tabular import examine_table
from metricfit.tabular.doctor.finding import KINDS, SEVERITIES

rng = np.random.default_rng(0)


def sound(rows=400):
    """A table without faults."""
    frame = pd.DataFrame(
        {
            "amount": rng.lognormal(size=rows).round(6),
            "town": rng.choice(["Ulm", "Bonn", "Kiel"], rows),
            "age": rng.integers(18, 80, rows),
        }
    )
    frame["y"] = np.where(frame["amount"] + rng.normal(size=rows) > 2, "yes", "no")
    return frame


GOOD = sound()


def kinds(table, target="y", **options):
    return {finding.kind: finding for finding in examine_table(table, target, **options).findings}


def test_a_sound_table_has_no_findings():
    examination = examine_table(GOOD, "y")
    assert examination.findings == ()
    assert (examination.rows, examination.columns, examination.positive) == (400, 3, "yes")
    assert dict(examination.classes) == GOOD["y"].value_counts().to_dict()


def spoil(**columns):
    return GOOD.assign(**columns)


def case_of(labels):
    """Number the rows in fours of one label each, in an order that says nothing."""
    order = np.argsort(labels.to_numpy(), kind="stable")
    numbers = np.empty(len(labels), dtype=np.int64)
    numbers[order] = np.random.default_rng(3).permutation(len(labels) // 4).repeat(4)
    return numbers


CASES = {
    "missing_labels": (spoil(y=GOOD["y"].where(np.arange(400) > 3)), "serious", "is missing in 4 of 400 rows (1 %)"),
    "target": (spoil(y=rng.normal(size=400)), "serious", "numbers to predict, not classes"),
    "leak": (spoil(paid=np.where(GOOD["y"] == "yes", 1, 2)), "serious", "'paid' alone tells the classes apart"),
    "similar_labels": (spoil(y=np.where(GOOD["age"] > 60, "Yes", GOOD["y"])), "warning", "blanks or capital letters"),
    "few_rows": (spoil(y=np.where(np.arange(400) < 5, "rare", "no")), "warning", "The class 'rare' has 5 rows"),
    "identifier": (spoil(number=np.arange(1, 401)), "warning", "a different whole number in every row"),
    "repeated_identifier": (spoil(caseid=case_of(GOOD["y"])), "warning", "100 values in 400 rows"),
    "unnamed_column": (spoil(**{"Unnamed: 0": np.arange(400)}), "warning", "A column without a name"),
    "numbers_as_text": (
        spoil(age=GOOD["age"].astype(str).where(GOOD["age"] > 20, "?")),
        "warning",
        f"{(GOOD['age'] <= 20).sum()} of 400 rows",
    ),
    "mostly_missing": (spoil(note=pd.Series(1.5, range(10)).reindex(range(400))), "note", "in 390 of 400 rows"),
    "constant_column": (spoil(country="NL"), "note", "'country' has the value 'NL' in every row"),
    "duplicate_columns": (spoil(years=GOOD["age"]), "note", "equal in every row: 'age' and 'years'"),
    "copied_rows": (pd.concat([GOOD, GOOD[:20]]), "warning", "20 of 420 rows (4.8 %) are copies"),
    "ordered_rows": (spoil(visit=np.arange(400) // 4), "note", "The rows are in the order of 'visit'"),
    "free_text": (
        spoil(note=[f"note {number} about {number * 7}" for number in range(400)]),
        "note",
        "cannot be exported to ONNX",
    ),
    "many_values": (
        spoil(tail=[f"N{number:03}" for number in rng.integers(0, 150, 400)]),
        "note",
        "Categories of many values: 'tail' (1",
    ),
    "dates": (spoil(day="2024-01-0" + (GOOD["age"] % 9 + 1).astype(str)), "note", "'day' holds dates"),
}


@pytest.mark.parametrize("kind", CASES)
def test_each_fault_is_found_with_its_severity(kind):
    table, severity, words = CASES[kind]
    finding = kinds(table)[kind]
    assert finding.severity == severity
    assert words in finding.message


def test_every_kind_has_a_case():
    of_several = {"missing_columns", "changed_type", "unseen_labels", "unseen_categories", "shared_rows"}
    elsewhere = {"too_few_rows", "conflicting_rows", "time"}
    assert set(CASES) | of_several | elsewhere == set(KINDS)


def test_renamed_categories_are_duplicates():
    table = spoil(code=GOOD["town"].map({"Ulm": 7, "Bonn": 8, "Kiel": 9}))
    assert "different names of the same entries: 'town' and 'code'" in kinds(table)["duplicate_columns"].message


def test_contradictions_are_counted_as_a_naive_count_does():
    table = pd.DataFrame({"a": rng.integers(0, 4, 300), "b": rng.integers(0, 9, 300), "y": rng.integers(0, 3, 300)})
    sizes = table.groupby(["a", "b"])["y"]
    mixed = sizes.transform("nunique") > 1
    wrong = int((sizes.size() - sizes.agg(lambda labels: labels.value_counts().max())).sum())
    message = kinds(table)["conflicting_rows"].message
    assert message.startswith(f"{mixed.sum()} of 300 rows")
    assert f"at least {wrong} are decided wrongly" in message
    distinct = pd.concat([GOOD[:100], GOOD[:100].assign(y="yes"), GOOD[100:]])
    assert kinds(distinct)["conflicting_rows"].severity == "warning"


def test_an_identifier_does_not_hide_copies():
    table = pd.concat([GOOD, GOOD[:20]], ignore_index=True).assign(number=np.arange(420))
    assert {"identifier", "copied_rows"} <= set(kinds(table))


def test_dates_with_the_day_first_are_no_identifiers():
    days = pd.date_range("2020-01-01", periods=400)
    assert "identifier" not in kinds(GOOD.assign(day=days.strftime("%d.%m.%Y")))
    assert "identifier" in kinds(GOOD.assign(code=days.strftime("%d.%m.%Y").str.replace(".", "x")))


@pytest.mark.parametrize(("positives", "severity"), [(58, "serious"), (59, None)])
def test_rows_for_a_requirement_are_those_of_the_exact_bound(positives, severity):
    table = GOOD.assign(y=np.where(np.arange(400) < positives, "yes", "no"))
    found = kinds(table, subject_to="recall >= 0.95", confidence=0.95).get("too_few_rows")
    assert (found and found.severity) == severity
    if found is not None:
        assert "needs at least 59 positives; there are 58" in found.message
        assert kinds(table, subject_to="recall >= 0.95")["too_few_rows"].severity == "warning"
    assert "too_few_rows" not in kinds(table, subject_to="recall >= 0.5", confidence=0.95)


def test_rows_for_a_requirement_on_one_of_several_classes():
    table = GOOD.assign(y=np.repeat(["gold", "none", "silver"], [40, 200, 160]))
    found = kinds(table, subject_to="recall[gold] >= 0.95", confidence=0.95)["too_few_rows"]
    assert "recall['gold'] >= 0.95 at 95 % confidence needs at least 59 positives" in found.message
    assert "too_few_rows" not in kinds(table, subject_to="recall[none] >= 0.95", confidence=0.95)
    with pytest.raises(MetricfitError, match="bronze"):
        examine_table(table, "y", subject_to="recall[bronze] >= 0.9")


def test_further_tables_are_compared():
    test = sound(200).assign(town=["Rome"] * 50 + ["Ulm"] * 150, age="old").drop(columns="amount")
    test["y"] = "maybe"
    found = kinds(GOOD, further={"test.csv": test})
    assert "test.csv lacks 1 of the 3 columns to learn from: 'amount'" in found["missing_columns"].message
    assert "1 category in test.csv that the table to train on lacks: 'Rome', in 50 of 200 rows (25 %)" in (
        found["unseen_categories"].message
    )
    assert "'age' holds numbers, and in test.csv words such as 'old'" in found["changed_type"].message
    assert "labels that the table to train on lacks: 'maybe'" in found["unseen_labels"].message
    assert {each.table for each in found.values()} == {"test.csv"}
    shared = kinds(GOOD, further={"test.csv": pd.concat([sound(), GOOD[:100]])})
    assert list(shared) == ["shared_rows"]
    assert shared["shared_rows"].message.startswith("100 of 500 rows (20 %) of test.csv are in the table")
    assert kinds(GOOD, further={"new rows": sound().drop(columns="y")}) == {}


def test_shuffled_row_numbers_are_identifiers_and_counts_are_none():
    rng = np.random.default_rng(0)
    assert kinds(spoil(ticket=rng.permutation(700)[:400] + 5000))["identifier"].remedy.endswith("--drop ticket.")
    assert "identifier" not in kinds(spoil(amount=rng.choice(10**6, 400, replace=False)))


def test_dates_with_the_day_first_are_no_unseen_categories():
    days = pd.date_range("2020-01-01", periods=400).strftime("%d.%m.%Y")
    later = spoil(day=pd.date_range("2023-01-01", periods=400).strftime("%d.%m.%Y"))
    found = kinds(spoil(day=np.repeat(days[:100], 4)), further={"later": later})
    assert "unseen_categories" not in found
    assert found["dates"].columns == ("day",)


def test_times_out_of_order_overlapping_or_wrong():
    days = pd.Series(pd.date_range("2024-01-01", periods=400))
    assert kinds(spoil(day=days), time="day") == {}
    shuffled = spoil(day=days.sample(frac=1, random_state=0).to_numpy())
    assert (kinds(shuffled, time="day")["time"].severity, kinds(spoil(day=days.astype(str)), time="day")) == (
        "note",
        {},
    )
    assert "holds '01/02/2024'" in kinds(spoil(day="01/02/2024"), time="day")["time"].message
    assert "is missing in 3 of 400" in kinds(spoil(day=days.where(days.index > 2)), time="day")["time"].message
    assert "is missing in 400 of 400" in kinds(spoil(day=None), time="day")["time"].message
    assert "All rows have one value of 'day'" in kinds(spoil(day=days[0]), time="day")["time"].message
    test = sound(100).assign(day=pd.date_range("2025-01-15", periods=100))
    overlap = kinds(spoil(day=days), time="day", further={"later": test})["time"]
    assert overlap.severity == "serious"
    assert overlap.message == "19 of 100 rows (19 %) of later are earlier than the last row to train on (2025-02-03)."


def test_findings_come_in_the_order_of_their_seriousness():
    table = spoil(country="NL", number=np.arange(400), y=GOOD["y"].where(np.arange(400) > 3))
    found = examine_table(table, "y").findings
    places = [(SEVERITIES.index(each.severity), KINDS.index(each.kind)) for each in found]
    assert places == sorted(places)
    assert [each.kind for each in found] == ["missing_labels", "identifier", "constant_column"]


def test_labels_stay_whole_numbers_if_some_are_missing():
    table = GOOD.assign(y=(GOOD["y"] == "yes").astype(float).where(np.arange(400) > 3))
    examination = examine_table(table, "y")
    assert examination.positive == 1
    assert set(examination.to_dict()["classes"]) == {"0", "1"}


@pytest.mark.parametrize(
    "entries",
    [
        pd.array([1, None, 3, 4] * 10, dtype="Int64"),
        pd.array([True, None] * 20, dtype="boolean"),
        pd.Categorical([1, 2] * 20),
        pd.date_range("2024-01-01", periods=40, tz="Europe/Berlin"),
        pd.to_timedelta(range(40), unit="h"),
        [1, "a", None, 2.5] * 10,
        [2**70 + number for number in range(40)],
        [np.inf, -np.inf] * 20,
        [b"x"] * 40,
        ["2024-13-45"] * 40,
    ],
    ids=lambda entries: str(getattr(entries, "dtype", type(entries[0]).__name__)),
)
def test_columns_of_any_type_are_examined(entries):
    table = pd.DataFrame({"c": entries, "x": rng.normal(size=40), "y": ["a", "b"] * 20})
    for options in ({}, {"time": "c"}, {"groups": "c"}):
        found = examine_table(table, "y", further={"other": table[:10]}, **options)
        assert json.dumps(to_json_value(found.to_dict()))


@pytest.mark.parametrize(
    ("table", "options", "words"),
    [
        ([[1, 2]], {}, "pandas DataFrame"),
        (GOOD, {"target": "Y"}, "Did you mean 'y'"),
        (GOOD, {"time": "day"}, "time='day' is none of the other columns"),
        (GOOD, {"groups": "y"}, "groups='y' is none of the other columns"),
        (GOOD, {"confidence": 0.95}, "give subject_to="),
        (GOOD, {"subject_to": "recal >= 0.9"}, "recal"),
        (GOOD, {"subject_to": "f1 >= 0.9", "confidence": 0.95}, "cannot be guaranteed"),
        (GOOD.assign(y=None), {}, "missing in all rows"),
        (GOOD[["y"]], {}, "nothing to learn from"),
        (GOOD, {"pos_label": "maybe"}, "pos_label='maybe'"),
    ],
)
def test_wrong_use_is_refused(table, options, words):
    with pytest.raises(MetricfitError, match=words):
        examine_table(table, **{"target": "y"} | options)


@pytest.mark.parametrize("spelled", [str, int, "crash {}:1".format])
@pytest.mark.parametrize("name", ["caseid", "who", "customer_id"])
def test_groups_are_judged_by_their_values_and_not_by_their_name(name, spelled):
    """8,395 crashes of one to several persons in 18,351 rows, as in the table of an outside trial."""
    r = np.random.default_rng(1)
    crash = np.repeat(np.arange(8395), 1 + r.multinomial(18351 - 8395, np.ones(8395) / 8395))
    deadly = r.random(18351) < 1 / (1 + np.exp(3.5 - 2 * r.normal(size=8395)[crash]))
    number = r.permutation(90_000)[:8395]
    table = pd.DataFrame({name: [spelled(number[each]) for each in crash], "speed": r.integers(0, 300, 18351)})
    table["y"] = deadly.astype(int)
    finding = kinds(table)["repeated_identifier"]
    assert finding.columns == (name,)
    assert "8,395 values in 18,351 rows" in finding.message
    claimed = float(finding.message.partition("In five random folds, ")[2].partition("%")[0]) / 100
    random = r.permutation(18351) < 18351 // 5
    shared = np.isin(crash[random], crash[~random]).mean()
    assert claimed == pytest.approx(shared, abs=0.02)
    assert f"--group {name}" in finding.remedy
    assert "repeated_identifier" not in kinds(table, groups=name)
    assert "repeated_identifier" not in kinds(table.assign(y=r.permutation(table["y"])))


@pytest.mark.parametrize("seed", range(5))
def test_quantities_and_categories_are_not_groups(seed):
    """A price and an age predict the label as well, but so do their neighbours; 20 towns are categories."""
    r = np.random.default_rng(seed)
    price, age, town = r.integers(0, 3000, 9000), r.integers(18, 90, 9000), r.integers(0, 20, 9000)
    score = price / 1000 + age / 40 + r.normal(size=20)[town] + r.normal(size=9000)
    table = pd.DataFrame({"price": price, "age": age, "town": np.char.add("t", town.astype(str)), "y": score > 4})
    assert "repeated_identifier" not in kinds(table)


def test_sentences_and_codes_are_read_differently():
    sentences = kinds(spoil(note=[f"note {number} about {number * 7}" for number in range(400)]))["free_text"].message
    assert "30 components of its letters. The family 'text' reads 'note' as TF-IDF." in sentences
    codes = kinds(spoil(code=[f"row {number}" for number in range(400)]))["free_text"].message
    assert "TF-IDF" not in codes


def test_a_category_of_many_values_is_not_free_text():
    tail_numbers = np.char.add("N", rng.integers(0, 150, 400).astype(str))
    assert "free_text" not in kinds(spoil(tail=tail_numbers))
