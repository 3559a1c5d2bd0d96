"""The exported graph in onnxruntime, beside the model, on the same rows."""

import copy
import json
import subprocess
import sys
from dataclasses import replace

import numpy as np
import onnx
import onnxruntime
import pandas as pd
import pytest
from sklearn.linear_model import LogisticRegression
from sklearn.naive_bayes import GaussianNB

from metricfit import MetricClassifier
from metricfit.errors import ExportError, InvalidTypeError
from metricfit.export.onnx import export_onnx, models
from metricfit.tabular import Network

EXACT, KERNEL = 1e-12, 1e-5  # the family "kernel" works in single precision in Python
SECOND = pd.Timedelta(seconds=1)


def feed(session: onnxruntime.InferenceSession, X: pd.DataFrame) -> dict[str, np.ndarray]:
    """Fill the inputs as a user would, without anything of metricfit."""
    arrays = {}
    for entry in session.get_inputs():
        column = X[entry.name]
        if entry.type == "tensor(string)":
            values = column.fillna("").astype(str).to_numpy(object)
        elif column.dtype.kind == "M":
            values = ((column - pd.Timestamp("1970-01-01")) / SECOND).to_numpy(float)
        else:
            values = column.to_numpy(float, na_value=np.nan)
        arrays[entry.name] = values[:, None]
    return arrays


def run(path, X: pd.DataFrame) -> tuple[np.ndarray, np.ndarray]:
    session = onnxruntime.InferenceSession(path)
    label, probability = session.run(["label", "probability"], feed(session, X))
    return label, probability


FAMILIES = {
    "linear": EXACT,
    "kernel": KERNEL,
    "boosting": EXACT,
    "boosting_small": EXACT,
    "boosting_metric": EXACT,
    "extra_trees": EXACT,
}


QUICK = [("linear", 2), ("kernel", 3), ("boosting", 2), ("extra_trees", 3)]
CASES = [
    pytest.param(family, classes, marks=() if (family, classes) in QUICK else pytest.mark.slow)
    for family in FAMILIES
    for classes in (2, 3)
]


@pytest.mark.parametrize(("family", "classes"), CASES)
def test_every_family_decides_as_in_python(family, classes, mixed, new_rows, tmp_path):
    trained, new = mixed.X.drop(columns="town")[:120], new_rows.drop(columns="town")
    model = MetricClassifier("f1", models=[family], members=2, random_state=0)
    model.fit(trained, (mixed.two if classes == 2 else mixed.three)[:120])
    result = model.export_onnx(tmp_path / "model.onnx", trained)
    assert result.different_rows == ()
    assert result.checked_rows == len(trained)
    for X in (trained, new):
        label, probability = run(result.path, X)
        assert label.tolist() == model.predict(X).tolist()
        assert np.abs(probability - model.predict_proba(X)).max() < FAMILIES[family]


@pytest.mark.parametrize(
    "kind", ["embedded", *(pytest.param(kind, marks=pytest.mark.slow) for kind in ("mlp", "tabm"))]
)
def test_networks_decide_as_in_python(kind, mixed, new_rows, tmp_path):
    X, target = mixed.X[["amount", "visits", "answer"]], mixed.three if kind == "embedded" else mixed.two
    model = MetricClassifier("f1", models=[Network(kind, epochs=2)], members=2, random_state=0).fit(X, target)
    label, probability = run(model.export_onnx(tmp_path / "model.onnx").path, new_rows)
    assert label.tolist() == model.predict(new_rows[X.columns]).tolist()
    assert np.abs(probability - model.predict_proba(new_rows[X.columns])).max() < EXACT


@pytest.fixture(scope="module")
def linear(mixed) -> MetricClassifier:
    return MetricClassifier("f1", models=["linear"], members=2, random_state=0).fit(mixed.X, mixed.two)


@pytest.fixture(scope="module")
def exported(linear, mixed, tmp_path_factory):
    return linear.export_onnx(tmp_path_factory.mktemp("onnx") / "model.onnx", mixed.X)


def test_an_ensemble_weights_and_calibrates_its_families(mixed, new_rows, tmp_path):
    model = MetricClassifier("mcc", models=["linear", "kernel"], members=2, random_state=0).fit(mixed.X, mixed.two)
    assert len(model.ensemble_.members) > 1
    label, probability = run(model.export_onnx(tmp_path / "model.onnx").path, new_rows)
    assert label.tolist() == model.predict(new_rows).tolist()
    assert np.abs(probability - model.predict_proba(new_rows)).max() < KERNEL


def test_the_graph_is_valid_and_describes_itself(exported, linear):
    graph = onnx.load(exported.path)
    onnx.checker.check_model(graph, full_check=True)
    assert [entry.name for entry in graph.graph.input] == list(linear.feature_names_in_)
    facts = json.loads({entry.key: entry.value for entry in graph.metadata_props}["metricfit"])
    assert facts["classes"] == ["bad", "good"]
    assert facts["inputs"]["since"].startswith("seconds since 1970")


def test_the_graph_runs_without_torch_and_scikit_learn(exported, mixed, linear, tmp_path):
    session = onnxruntime.InferenceSession(exported.path)
    arrays = {name: values[:3].tolist() for name, values in feed(session, mixed.X).items()}
    script = (
        "import sys, json, numpy, onnxruntime\n"
        "for name in ('torch', 'sklearn', 'metricfit'): sys.modules[name] = None\n"
        "session = onnxruntime.InferenceSession(sys.argv[1])\n"
        "arrays = json.load(sys.stdin)\n"
        "types = {e.name: object if 'string' in e.type else float for e in session.get_inputs()}\n"
        "label, _ = session.run(None, {n: numpy.array(v, types[n]) for n, v in arrays.items()})\n"
        "print(json.dumps(label.tolist()))\n"
    )
    command = [sys.executable, "-c", script, str(exported.path)]
    done = subprocess.run(command, input=json.dumps(arrays), capture_output=True, text=True, check=True)
    assert json.loads(done.stdout) == linear.predict(mixed.X[:3]).tolist()


def test_dates_agree_with_pandas_on_every_kind_of_day(linear, exported, mixed):
    """Leap days, ends of centuries and times before 1970: a wrong part of a date changes the probability."""
    texts = ["1900-03-01", "1969-12-31 23:59:59", "1970-01-01", "2000-02-29 12:00:00", "2100-02-28", "2400-12-31"]
    days = np.array(texts, dtype="datetime64[s]")
    X = mixed.X.iloc[[0] * len(days)].assign(since=days)
    assert np.allclose(run(exported.path, X)[1], linear.predict_proba(X), rtol=0, atol=EXACT)


@pytest.mark.parametrize(
    ("labels", "kind"),
    [([False, True], "bool"), ([-1, 1], "int64"), ([1.0, 2.0], "double"), (["no", "yes"], "string")],
)
def test_labels_keep_their_type(labels, kind, tmp_path):
    X = np.random.default_rng(0).normal(size=(80, 2))
    target = np.array(labels)[(X[:, 0] > 0.3).astype(int)]
    model = MetricClassifier("f1", models=["linear"], members=2, random_state=0).fit(X, target)
    session = onnxruntime.InferenceSession(model.export_onnx(tmp_path / "model.onnx", X).path)
    assert session.get_outputs()[0].type == f"tensor({kind})"
    assert session.run(["label"], {"X": X})[0].tolist() == model.predict(X).tolist()


def test_rows_that_are_referred_have_their_label(linear, mixed, tmp_path):
    model = MetricClassifier("f1", models=["linear"], members=2, random_state=0).fit(mixed.X, mixed.two)
    model.refer(max_share=0.3)
    label, _ = run(model.export_onnx(tmp_path / "model.onnx", mixed.X).path, mixed.X)
    assert (label == "refer").any()
    assert label.tolist() == model.predict(mixed.X).tolist()


def test_another_class_balance_and_expected_costs_are_in_the_graph(mixed, tmp_path):
    model = MetricClassifier("weighted_kappa(power=2)", models=["linear"], members=2, random_state=0)
    model.fit(mixed.X, mixed.three).rethreshold(prevalence={0: 0.6, 1: 0.3, 2: 0.1})
    label, probability = run(model.export_onnx(tmp_path / "model.onnx", mixed.X).path, mixed.X)
    assert label.tolist() == model.predict(mixed.X).tolist()
    assert np.abs(probability - model.predict_proba(mixed.X)).max() < EXACT


def test_a_loaded_model_exports_the_same_graph(linear, exported, tmp_path):
    linear.save(tmp_path / "folder")
    again = MetricClassifier.load(tmp_path / "folder").export_onnx(tmp_path / "model.onnx")
    assert again.made_up
    assert again.path.read_bytes() == exported.path.read_bytes()


def test_text_of_new_values_counts_as_missing_and_is_reported(linear, exported, new_rows, tmp_path):
    X = new_rows.assign(town=["a town of its own", *new_rows["town"][1:]])
    assert linear.export_onnx(tmp_path / "model.onnx", X).unknown_text_rows == 1
    missing = X.assign(town=[None, *X["town"][1:]])
    assert np.allclose(run(exported.path, X)[1], linear.predict_proba(missing), rtol=0, atol=EXACT)


def test_outputs_make_way_for_columns_of_their_names(tmp_path):
    X = pd.DataFrame(np.random.default_rng(0).normal(size=(80, 2)), columns=["label", "probability"])
    model = MetricClassifier("f1", models=["linear"], members=2, random_state=0).fit(X, X["label"] > 0.2)
    assert model.export_onnx(tmp_path / "model.onnx", X).outputs == ("predicted_label", "predicted_probability")


def test_free_text_is_refused_by_name(mixed, tmp_path):
    words = np.random.default_rng(0).choice(["red", "green", "blue", "old", "new", "car", "house"], (len(mixed.X), 9))
    X = mixed.X[["amount"]].assign(notes=[f"{' '.join(row)} {number}" for number, row in enumerate(words)])
    model = MetricClassifier("f1", models=["linear"], members=2, random_state=0).fit(X, mixed.two)
    with pytest.raises(ExportError, match=r"free text.*'notes'.*Train without this column"):
        model.export_onnx(tmp_path / "model.onnx")
    assert list(tmp_path.iterdir()) == []


def test_what_cannot_be_exported_is_named(mixed, tmp_path):
    X = mixed.X[["amount", "visits"]].fillna(0.0)
    own = MetricClassifier("f1", models=[GaussianNB()], members=2, random_state=0).fit(X, mixed.two)
    with pytest.raises(ExportError, match="'GaussianNB' cannot be exported: a GaussianNB is not written"):
        own.export_onnx(tmp_path / "model.onnx")
    costs = MetricClassifier("cost(fp=5, fn='visits')", models=["linear"], members=2, random_state=0)
    costs.fit(X, mixed.two)
    with pytest.raises(ExportError, match="costs in columns"):
        costs.export_onnx(tmp_path / "model.onnx")
    with pytest.raises(InvalidTypeError, match="got LogisticRegression"):
        export_onnx(LogisticRegression(), tmp_path / "model.onnx")


def test_a_graph_that_computes_something_else_is_not_written(linear, mixed, tmp_path, monkeypatch):
    monkeypatch.setattr("metricfit.export.onnx.columns.CLIP", 1.0)
    with pytest.raises(ExportError, match="does not compute what the model does"):
        linear.export_onnx(tmp_path / "model.onnx", mixed.X)
    assert list(tmp_path.iterdir()) == []


def test_rows_that_rounding_moves_are_named(linear, mixed, tmp_path, monkeypatch):
    """A threshold at the logit of row 7, and logits that are slightly lower in the graph."""
    model = copy.copy(linear)
    decision = replace(linear.decision_, threshold=float(linear._logits(mixed.X)[7, 0]))
    model._show(replace(linear.chosen_, decision=decision))
    decide = models._two_classes

    def decide_lower(graph, model, logits):
        return decide(graph, model, graph.node("Sub", logits, graph.constant(np.float64(1e-9))))

    monkeypatch.setattr(models, "_two_classes", decide_lower)
    result = model.export_onnx(tmp_path / "model.onnx", mixed.X)
    assert result.different_rows == (7,)
    assert "1 of the labels differs, at row 7 (counted from 0)" in str(result)
