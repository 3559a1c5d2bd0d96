"""The first screen says in words what scikit-learn counts."""

import copy
from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
from page_parts import carried, decoded, parts
from sklearn.metrics import confusion_matrix, f1_score

from metricfit import Counts, MetricClassifier, report
from metricfit.report import formatting
from metricfit.report.comparison_page import screen_of_comparison
from metricfit.report.evaluation_result import evaluation_result
from metricfit.report.first_screen import RequirementState, state_decisions
from metricfit.report.model_page import screen_of_fit, verdict_of_fit
from metricfit.tabular import Comparison, ComparisonRow
from metricfit.tabular.compare.judging import MethodDecisions
from metricfit.tabular.compare.methods import DEFAULT, REFERENCE

LINEAR = {"models": ["linear"], "members": 2, "time_budget": None, "random_state": 0}


def sentences(screen):
    return [statement.text.replace("\u00a0", " ") for statement in screen.statements]


def shown(path):
    text = " ".join(" ".join(parts(path.read_text(encoding="utf-8")).text).split())
    return text.replace("\u00a0", " ")


def whole(part, of):
    return f"{part} of {of} ({100 * part / of:.0f} %)"


@pytest.fixture(scope="module")
def rows():
    r = np.random.default_rng(0)
    X = pd.DataFrame(r.normal(size=(160, 2)), columns=["a", "b"])
    return X, (X["a"] + 0.7 * r.normal(size=160) > 0.7).astype(int).to_numpy()


@pytest.fixture(scope="module")
def model(rows):
    return MetricClassifier("f1", subject_to="recall >= 0.6", **LINEAR).fit(*rows)


def test_the_page_of_a_fit_says_what_is_found_and_which_alarms_are_right(model, tmp_path):
    scores = 1 / (1 + np.exp(-model.held_out_.logits[:, 0]))
    truth = model.held_out_.y
    (_, fp), (fn, tp) = confusion_matrix(truth, scores >= model.threshold_).tolist()
    text = shown(model.report(tmp_path / "page.html", data="t.csv", target="fraud"))
    assert "Predicting “fraud” in t.csv, judged by F1" in text
    assert f"Finds {tp} of {tp + fn} rows with fraud = 1 ({100 * tp / (tp + fn):.0f} %)." in text
    assert f"{tp} of its {tp + fp} alarms are right ({100 * tp / (tp + fp):.0f} %)." in text
    everybody = f1_score(truth, np.ones_like(truth))
    assert f"Flagging nobody 0 of {tp + fn} (0 %) no alarms 0.000" in text
    assert f"Flagging everybody {whole(tp + fn, tp + fn)} {whole(tp + fn, len(truth))} {everybody:.3f}" in text
    assert "Required: recall >= 0.6 : met on held-out rows" in text
    assert "not guaranteed on new rows" in text


def test_a_requirement_with_confidence_is_not_called_guaranteed_out_of_fold(rows, tmp_path):
    certified = MetricClassifier(
        "precision", subject_to="recall >= 0.3", confidence=0.8, **LINEAR | {"members": 4}
    ).fit(*rows)
    (state,) = screen_of_fit(certified, "y").requirements
    assert state == RequirementState("recall >= 0.3", "certified", state.explanation)
    words = "certified on cross-validated scores (approximate) at 80 % confidence"
    assert state.explanation.startswith(words)
    verdict = verdict_of_fit(certified)
    assert words.replace("certified", "Certified") in verdict
    text = shown(certified.report(tmp_path / "page.html"))
    assert words in text
    assert "guaranteed" not in text.partition("metricfit report")[2].lower()
    exact = copy.copy(certified)
    evidence = replace(certified.decision_.evidence, out_of_fold=False)
    exact._show(replace(exact.chosen_, decision=replace(certified.decision_, evidence=evidence)))
    (state,) = screen_of_fit(exact, "y").requirements
    assert (state.state, state.explanation[:30]) == ("guaranteed", "guaranteed at 80 % confidence ")
    assert "Guaranteed at 80 % confidence" in verdict_of_fit(exact)
    assert "calibration" not in verdict_of_fit(exact)


def test_rows_that_are_referred_are_not_counted(rows):
    referring = MetricClassifier("f1", **LINEAR).fit(*rows).refer(max_share=0.2)
    low, high = referring.refer_region_
    scores, truth = (1 / (1 + np.exp(-referring.held_out_.logits[:, 0]))), referring.held_out_.y
    decided = (scores < low) | (scores >= high)
    tp = int(((scores >= high) & (truth == 1)).sum())
    said = sentences(screen_of_fit(referring, "y"))
    assert said[0].startswith(f"Finds {tp} of {truth[decided].sum()} rows with y = 1")
    assert said[3].startswith(f"Refers {100 * (~decided).mean():.0f} % of the rows to a person")


def test_several_classes_name_the_pair_that_is_most_often_confused(rows, tmp_path):
    X, _ = rows
    r = np.random.default_rng(1)
    y = np.select([X["a"] + 0.4 * r.normal(size=160) > 0.6, X["b"] > 0.6], ["soon", "now"], "later")
    several = MetricClassifier("f1", **LINEAR).fit(X, y)
    called = (several.held_out_.logits + several.offsets_).argmax(1)
    matrix = confusion_matrix(several.held_out_.y, called)
    text = shown(several.report(tmp_path / "page.html"))
    assert f"Decides {matrix.trace()} of 160 rows correctly ({100 * matrix.trace() / 160:.0f} %)." in text
    wrong = matrix - np.diag(np.diag(matrix))
    i, j = np.unravel_index(wrong.argmax(), wrong.shape)
    names = several.classes_
    assert f"{wrong[i, j]} of {matrix[i].sum()} “{names[i]}” rows are predicted “{names[j]}”" in text
    largest = names[matrix.sum(1).argmax()]
    assert f"Always “{largest}” {whole(matrix.sum(1).max(), 160)}" in text


@pytest.mark.parametrize("classes", [2, 3])
def test_a_single_kind_of_model_is_compared_in_the_same_way(rows, classes):
    """Its value in hindsight is not in the column of this model's value, which is chosen and then judged."""
    X, y = rows
    labels = y if classes == 2 else np.where(y == 1, 2, (X["b"] > 0.5).astype(int))
    two = MetricClassifier("f1", models=["linear", "extra_trees"], members=2, random_state=0).fit(X, labels)
    *_, single = screen_of_fit(two, "y").alternatives
    best = max(row.value for row in two.models_)
    assert single.value is None
    assert f"{best:.3f} at its best decision in hindsight, where this model has" in single.name
    hindsight = float(single.name.rsplit(" ", 1)[1])
    assert hindsight >= round(two.decision_.evidence.value, 3)


def test_a_decision_without_a_model_that_is_better_is_named(rows):
    X, y = rows
    model = MetricClassifier("cost(fp=1, fn=10)", **LINEAR).fit(X, y)
    wrong = np.random.default_rng(0).permutation(y)
    result = evaluation_result(model, X, pd.Series(wrong))
    everybody = (wrong == 0).mean()
    assert result["value"] > everybody
    assert result["better_without_model"] == (
        f"Flagging everybody would be better on these rows: cost(fp=1, fn=10) {everybody:.3f}."
    )
    assert evaluation_result(model, X, pd.Series(y))["better_without_model"] is None
    held = evaluation_result(
        MetricClassifier("recall", subject_to="precision >= 0.5", **LINEAR).fit(X, y), X, pd.Series(y)
    )
    assert held["better_without_model"] is None  # everybody has a recall of 1, but not the precision


def test_the_explorer_starts_with_the_costs_of_the_metric():
    scores, labels = [0.9, 0.2, 0.4, 0.1], [1, 0, 1, 0]
    priced = report.scores(scores, labels, metric="cost(fp=1, fn=10)", threshold=0.5).context["prices"]
    assert priced == {"miss": 10, "alarm": 1, "ratio": 1.0}
    assert report.scores(scores, labels, metric="f1", threshold=0.5).context["prices"] == {
        "miss": 1,
        "alarm": 1,
        "ratio": 0,
    }


def test_an_evaluation_counts_its_own_rows(model, rows, tmp_path):
    X, y = rows
    truth = pd.Series(y[:60], name="fraud")
    (_, fp), (fn, tp) = confusion_matrix(truth, model.predict(X[:60])).tolist()
    text = shown(model.report(tmp_path / "page.html", X[:60], truth, data="june.csv"))
    assert "Predicting “fraud” in june.csv, judged by F1" in text
    assert f"Finds {tp} of {tp + fn} rows with fraud = 1" in text
    assert f"{tp} of its {tp + fp} alarms are right" in text
    assert f"This model, as training expected it {model.value_:.3f}" in text
    assert "on these rows (" in text


@pytest.fixture(scope="module")
def comparison():
    r = np.random.default_rng(0)
    labels = (r.random(400) < 0.3).astype(np.int64)
    decisions = {}
    for name, noise in ((DEFAULT, 0.9), ("boosted trees", 0.6), (REFERENCE, 1.5)):
        scores = 1 / (1 + np.exp(-(2 * labels - 1.2 + noise * r.normal(size=400))))
        decisions[name] = MethodDecisions(scores, (scores >= 0.45).astype(np.int64), [0.44, 0.46])
    values = {name: f1_score(labels, kept.decided) for name, kept in decisions.items()}
    values |= {"all positive": f1_score(labels, np.ones_like(labels)), "none positive": 0.0}
    table = [
        ComparisonRow(name, value, values=(value, value), held=2, plain=name not in (DEFAULT, "boosted trees"))
        for name, value in values.items()
    ]
    table.sort(key=lambda row: -row.mean)
    return Comparison(
        "f1",
        table,
        "Use it.",
        labels,
        "boosted trees",
        subject_to=("recall >= 0.2",),
        name="t.csv",
        target="kind",
        group="site",
        classes=("fine", "fraud"),
        decisions=decisions,
        groups=np.where(np.arange(400) % 3, "north", "south"),
    )


def test_a_comparison_shows_the_recommended_method_beside_the_reference_and_no_model(comparison):
    screen = screen_of_comparison(comparison)
    best = comparison.decisions["boosted trees"]
    (_, fp), (fn, tp) = confusion_matrix(comparison.labels, best.decided).tolist()
    assert sentences(screen) == [
        f"Finds {whole(tp, tp + fn).replace(' (', ' “fraud” rows (')}.",
        f"{tp} of its {tp + fp} alarms are right ({100 * tp / (tp + fp):.0f} %).",
        f"Per 1,000 rows: {2.5 * (tp + fp):.0f} alarms, {2.5 * tp:.0f} of them right, and {2.5 * fn:.0f} “fraud” rows "
        "missed.",
    ]
    assert [each.name for each in screen.alternatives] == [
        "Boosted trees",
        "LightGBM as it comes",
        "Flagging nobody",
        "Flagging everybody",
    ]
    assert [each.is_subject for each in screen.alternatives] == [True, False, False, False]
    means = {row.name: row.mean for row in comparison.rows}
    expected = [means[name] for name in ("boosted trees", REFERENCE, "none positive", "all positive")]
    assert [each.value for each in screen.alternatives] == expected
    assert "held on 2 of 2 folds" in screen.requirements[0].explanation
    assert "not guaranteed" in screen.requirements[0].explanation


def test_the_explorer_of_a_comparison_follows_the_recommended_method(comparison, tmp_path):
    html = comparison.report(tmp_path / "page.html").read_text(encoding="utf-8")
    explored = [decoded(data) for data in carried(html)]
    assert len(explored) == 3
    for name, found in zip(["boosted trees", DEFAULT, REFERENCE], explored, strict=True):
        kept = comparison.decisions[name]
        assert found.thresholds[found.chosen] == pytest.approx(0.45)
        (tn, fp), (fn, tp) = confusion_matrix(comparison.labels, kept.scores >= 0.45).tolist()
        assert [found.counts[each][found.chosen] for each in ("tp", "fp", "fn", "tn")] == [tp, fp, fn, tn]
    assert "The decisions of “boosted trees”" in html
    assert "By site, at this threshold" in html


@pytest.mark.parametrize(
    ("counts", "said"),
    [
        ((0, 0, 5, 5), ["Finds 0 of 5 “x” rows (0 %).", "It raises no alarm: it calls no row positive."]),
        ((1, 0, 4, 5), ["Finds 1 of 5 “x” rows (20 %).", "Its only alarm is right."]),
        ((0, 2, 0, 5), ["There are no “x” rows here to be found.", "0 of its 2 alarms are right (0 %)."]),
    ],
)
def test_counts_of_nothing_are_said_in_words(counts, said):
    statements = state_decisions(Counts(*counts), "“x” rows")
    assert [statement.text.replace("\u00a0", " ") for statement in statements] == said


def test_shares_near_0_and_1_keep_their_digits():
    texts = [formatting.rough_percent(share).replace("\u00a0", " ") for share in (0.994, 0.9996, 0.011, 0.00012, 0.5)]
    assert texts == ["99.4 %", "99.96 %", "1.1 %", "0.01 %", "50 %"]


def test_texts_of_the_first_screen_are_escaped():
    screen = report.FirstScreen(
        state_decisions(Counts(1, 2, 3, 4), "<b>"),
        [],
        ("<i>",),
        "<u>",
        [RequirementState("<s>", "met", "<q>")],
        "<p class=x>",
    )
    html = report.render(report.Report("t", "h", "v", first_screen=screen))
    tags = [tag for tag, _ in parts(html).tags]
    assert not {"b", "i", "u", "s", "q"} & set(tags)
    assert "&lt;b&gt;" in html
