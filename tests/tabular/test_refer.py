"""Estimators that refer rows to a person: the third label, scores, storage, pages and commands."""

import json

import numpy as np
import pandas as pd
import pytest
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import f1_score
from typer.testing import CliRunner

from metricfit import MetricClassifier, TunedDecisionClassifier
from metricfit.cli.app import app
from metricfit.errors import ExportError
from metricfit.metrics.feasibility import InfeasibleWarning


@pytest.fixture(scope="module")
def rows():
    rng = np.random.default_rng(0)
    X = rng.normal(size=(400, 3))
    return X, (X[:, 0] + rng.normal(size=400) > 1.2).astype(int)


def models(metric="f1", **parameters):
    return [
        MetricClassifier(metric, models=["linear"], members=3, random_state=0, **parameters),
        TunedDecisionClassifier(LogisticRegression(), metric, cv=3, random_state=0, **parameters),
    ]


@pytest.mark.parametrize("model", models())
def test_rows_in_the_region_are_referred_and_the_others_stay(model, rows):
    X, y = rows
    before = model.fit(X, y).predict(X)
    threshold = model.threshold_
    assert model.refer_region_ is None
    assert model.referred_share_ == 0.0
    predicted = model.refer(max_share=0.1).predict(X)
    low, high = model.refer_region_
    p = model.predict_proba(X)[:, 1]
    referred = predicted == "refer"
    assert low <= model.threshold_ == threshold <= high
    assert (referred == ((p >= low) & (p < high))).all()
    assert (predicted[~referred] == before[~referred]).all()
    assert 0 < model.referred_share_ <= 0.1
    assert model.score(X, y) == pytest.approx(f1_score(y[~referred], before[~referred]))
    assert model.value_interval_[0] < model.value_ < model.value_interval_[1]
    assert set(model.rethreshold().predict(X).tolist()) == {0, 1}
    assert model.refer_region_ is None


@pytest.mark.parametrize("model", models())
def test_the_smallest_share_for_a_requirement(model, rows):
    X, y = rows
    model.fit(X, y).refer(subject_to="precision >= 0.7")
    assert model.requirements_["precision >= 0.7"].met
    smaller = model.referred_share_
    assert model.refer(subject_to="precision >= 0.8").referred_share_ >= smaller > 0
    with pytest.warns(InfeasibleWarning, match="no region of at most 1 % of the rows"):
        model.refer(max_share=0.01, subject_to="precision >= 0.99")
    assert not model.requirements_met_


@pytest.mark.parametrize(
    ("names", "label", "dtype"), [(("no", "yes"), "refer", "U"), ((0, 1), -9, "i"), ((False, True), "person", "O")]
)
def test_labels_have_the_type_of_the_classes_where_they_can(rows, names, label, dtype):
    X, y = rows
    model = models()[1].fit(X, np.array(names)[y]).refer(max_share=0.2, label=label)
    predicted = model.predict(X)
    assert predicted.dtype.kind == dtype
    assert set(predicted.tolist()) == {*names, label}


@pytest.mark.parametrize("model", models())
def test_a_saved_model_refers_the_same_rows(model, rows, tmp_path):
    X, y = rows
    model.fit(X, y).refer(max_share=0.1, label="to Ann").save(tmp_path / "model")
    loaded = type(model).load(tmp_path / "model")
    assert (loaded.predict(X) == model.predict(X)).all()
    assert "to Ann" in loaded.predict(X)
    for name in ("refer_region_", "referred_share_", "value_", "value_interval_"):
        assert getattr(loaded, name) == getattr(model, name)


def test_a_class_may_be_called_refer(rows, tmp_path):
    X, y = rows
    model = models()[0].fit(X, np.array(["keep", "refer"])[y])
    model.save(tmp_path / "model")
    MetricClassifier.load(tmp_path / "model")
    with pytest.raises(ValueError, match="one of the classes"):
        model.refer(max_share=0.1)
    assert "person" in model.refer(max_share=0.1, label="person").predict(X)


def test_what_cannot_be_referred_is_refused(rows):
    X, y = rows
    model = models()[0].fit(X, y)
    with pytest.raises(ValueError, match=r"max_share=0\.05, or what"):
        model.refer()
    certified = models("precision", subject_to="recall >= 0.6", confidence=0.9)[0].fit(X, y)
    with pytest.raises(ValueError, match="pass refer\\(confidence="):
        certified.refer(max_share=0.1)
    assert certified.refer(max_share=0.5, confidence=0.9).confidence_ == 0.9
    table = pd.DataFrame(X, columns=list("abc")).assign(amount=3.0)
    with pytest.raises(ValueError, match="threshold of its own"):
        models("cost(fp=1, fn='amount')")[0].fit(table, y).refer(max_share=0.1)


@pytest.mark.parametrize("model", models())
def test_several_classes_refer_the_rows_whose_best_class_leads_by_too_little(model, rows, tmp_path):
    X = pd.DataFrame(rows[0], columns=list("abc"))
    y = np.array(["low", "middle", "high"])[np.digitize(X["a"] + X["b"] / 2, [-0.5, 0.5])]
    before = model.fit(X, y).predict(X)
    predicted = model.refer(max_share=0.2, subject_to="recall['middle'] >= 0.2").predict(X)
    referred = predicted == "refer"
    assert 0 < model.referred_share_ <= 0.2
    assert (predicted[~referred] == before[~referred]).all()
    ratio = np.sort(np.exp(model.decision_function(X)), axis=1)
    assert (referred == (ratio[:, -1] / ratio[:, -2] < model.refer_region_[1])).all()
    assert model.score(X, y) == pytest.approx(f1_score(y[~referred], before[~referred], average="macro"))
    model.save(tmp_path / "model")
    X.assign(grade=y).to_csv(tmp_path / "rows.csv", index=False)
    arguments = ["evaluate", str(tmp_path / "model"), str(tmp_path / "rows.csv"), "--target", "grade", "--json"]
    if isinstance(model, MetricClassifier):
        model.report(tmp_path / "page.html")
        assert "times the second best are referred" in (tmp_path / "page.html").read_text()
        result = CliRunner().invoke(app, arguments)
        assert json.loads(result.stdout)["referred"] == referred.sum(), result.output
    assert (type(model).load(tmp_path / "model").predict(X) == predicted).all()
    with pytest.raises(ExportError, match="export before refer"):
        model.export_onnx(tmp_path / "model.onnx")


def test_a_confidence_is_about_the_decided_rows(rows):
    X, y = rows
    model = models()[1].fit(X, y)
    assert model.refer(subject_to="fnr <= 0.4", confidence=0.9).confidence_ == 0.9
    assert model.certificate_ == "certified on cross-validated scores (approximate)"
    low, high = model.refer_region_
    assert low <= model.threshold_ <= high
    with pytest.warns(InfeasibleWarning, match="no region can be promised"):
        model.refer(subject_to="precision >= 0.93", confidence=0.9)
    assert model.confidence_ is None


def test_the_commands_and_the_pages_tell_of_referred_rows(rows, tmp_path):
    X, y = rows
    frame = pd.DataFrame(X, columns=list("abc")).assign(fraud=y)
    frame.to_csv(tmp_path / "rows.csv", index=False)

    def call(*arguments):
        result = CliRunner().invoke(app, [str(each) for each in arguments])
        assert result.exit_code == 0, result.output
        return result.stdout

    out, data = tmp_path / "out", tmp_path / "rows.csv"
    wanted = ["--refer", 0.1, "--refer-subject-to", "precision >= 0.5"]
    text = call("fit", data, "--target", "fraud", *wanted, "--models", "linear", "--folds", 3, "--out", out)
    assert "are referred to a person" in text
    assert "Requirement precision >= 0.5: met on held-out rows only" in text
    assert "Decided and referred rows" in (out / "report.html").read_text()
    for name in ("predicted.csv", "predicted.parquet"):
        call("predict", out / "model", data, "--out", tmp_path / name)
    predicted = pd.read_csv(tmp_path / "predicted.csv")["predicted"].astype(str)
    assert pd.read_parquet(tmp_path / "predicted.parquet")["predicted"].tolist() == predicted.tolist()
    referred = predicted == "refer"
    page = tmp_path / "page.html"
    printed = json.loads(call("evaluate", out / "model", data, "--target", "fraud", "--json", "--report", page))
    assert printed["referred"] == referred.sum() > 0
    kept = ~referred.to_numpy()
    assert printed["value"] == pytest.approx(f1_score(y[kept], predicted[kept].astype(int)))
    low, high = printed["metrics"]["f1"]["interval"]
    assert low <= printed["value"] <= high
    precision = printed["metrics"]["precision"]["value"]
    assert printed["requirements"]["precision >= 0.5"]["value"] == pytest.approx(precision)
    assert f"{referred.sum()} of these rows" in page.read_text()
    assert "Decided and referred rows" in page.read_text()
    share = 100 * referred.mean()
    assert f"({share:.3g} %) are referred" in call("evaluate", out / "model", data, "--target", "fraud")
