"""The model card beside a saved model: its numbers, escaping, and that loading ignores it."""

import re

import numpy as np
import pandas as pd
import pytest
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import f1_score, recall_score
from sklearn.multioutput import MultiOutputClassifier

from metricfit import MetricClassifier, TunedDecisionClassifier
from metricfit.tabular.facts import escaped, model_card

EVIL = "<img src=x>|[a](b)*_`\n# title"


@pytest.fixture(scope="module")
def rows():
    rng = np.random.default_rng(0)
    X = pd.DataFrame(
        {"age": rng.normal(size=120), EVIL: rng.choice(["a", "b"], 120), "amount": rng.exponential(5, 120)}
    )
    return X, np.where(X["age"] + 0.7 * rng.normal(size=120) > 0.8, "yes", "no")


@pytest.fixture(scope="module")
def model(rows, quick_settings):
    return MetricClassifier("precision", subject_to="recall >= 0.6", **quick_settings).fit(*rows)


def value_in(card, name):
    value, low, high = re.search(rf"^\| {name} \| (\S+) \| (\S+) to (\S+) \|$", card, re.MULTILINE).groups()
    assert float(low) <= float(value) <= float(high)
    return float(value)


def test_the_card_has_the_numbers_of_the_model(model, rows):
    card = model_card(model, data="churn.csv", target="left")
    decided = model.decision_.decide(model.held_out_.logits)
    truth = model.held_out_.y
    assert value_in(card, "recall") == pytest.approx(recall_score(truth, decided), rel=1e-3)
    assert value_in(card, "f1") == pytest.approx(f1_score(truth, decided), rel=1e-3)
    positives = int((rows[1] == "yes").sum())
    for line in (
        "# Model card: churn.csv, left",
        f"| yes | {positives} | {positives / 120:.2%} |",
        "- Positive class: yes",
        f"- Few rows: yes has {positives}",
        "(2 numeric, 1 categorical)",
        f"at least {model.threshold_:.4g} (95 % interval",
        f"precision is {model.value_:.4g} (95 % interval {model.value_interval_[0]:.4g} to",
        "- Requirement recall &gt;= 0.6: met on held-out rows",
        "nothing is guaranteed on new rows",
        "estimated for new rows: the value on held-out rows, on which the decision was chosen.",
        f"| linear | 1.00 | {model.models_[0].value:.4g} |",
        "not split by time",
        "- scikit-learn ",
    ):
        assert line in card
    headings = re.findall("^## (.*)$", card, re.MULTILINE)
    assert headings == ["Data", "Decision", "Values", "Models", "Limits", "Versions"]


def test_what_comes_from_the_user_is_escaped(model):
    card = model_card(model, data=EVIL, target=EVIL)
    assert "<img" not in card
    assert "\n# title" not in card
    assert r"&lt;img src=x&gt;\|\[a\](b)\*\_\` \# title" in card
    assert escaped("a" * 5000).count("a") < 200


@pytest.mark.parametrize("change", ["edit", "remove"])
def test_loading_ignores_the_card(model, rows, tmp_path, change):
    model.save(tmp_path / "model", data="churn.csv")
    card = tmp_path / "model" / "model_card.md"
    assert card.read_text(encoding="utf-8").startswith("# Model card: churn.csv")
    if change == "edit":
        card.write_text("approved by the committee")
    else:
        card.unlink()
    again = MetricClassifier.load(tmp_path / "model")
    assert (again.predict(rows[0]) == model.predict(rows[0])).all()
    assert "| linear | 1.00 |" in model_card(again)


def test_other_kinds_of_models(rows, quick_settings):
    X, y = rows
    numbers = X[["age", "amount"]]
    costs = MetricClassifier("cost(fp=1, fn='amount')", **quick_settings).fit(X, y)
    assert "a threshold of its own" in model_card(costs)
    groups = np.arange(120) // 4
    several = MetricClassifier("mcc", **quick_settings).fit(X, np.digitize(X["age"], [-0.5, 0.5]), groups=groups)
    card = model_card(several)
    assert "largest log-probability plus offset (0 " in card
    assert "held out together: 30" in card
    assert "No groups were given" not in card
    tuned = TunedDecisionClassifier(LogisticRegression(), cv=3, random_state=0).fit(numbers, y)
    tuned.rethreshold(prevalence=0.5)
    assert "LogisticRegression, fitted on 3 folds" in model_card(tuned)
    assert "decides for: 0.5 of the positive class" in model_card(tuned)
    assert "are referred to a person" in model_card(tuned.refer(max_share=0.2))
    labels = np.stack([y == "yes", X["age"] > 0], axis=1).astype(int)
    of_labels = TunedDecisionClassifier(MultiOutputClassifier(LogisticRegression()), cv=2).fit(numbers, labels)
    assert "one threshold per label" in model_card(of_labels)
    assert f"| 1 | {(X['age'] > 0).mean():.2%} |" in model_card(of_labels)
