"""Models in MLflow's format, read by MLflow's own loader."""

import mlflow
import numpy as np
import pandas as pd
import pytest
from sklearn.linear_model import LogisticRegression

from metricfit import MetricClassifier, TunedDecisionClassifier
from metricfit.errors import InvalidTypeError, ModelFileError
from metricfit.export.mlflow import log_fit, log_model, save_model


@pytest.fixture(scope="module")
def table():
    r = np.random.default_rng(0)
    X = pd.DataFrame(
        {"a": r.normal(size=90), "notes": [f"{word} {n}" for n, word in enumerate(r.choice(["x", "why"], 90))]}
    )
    return X, np.where(X["a"] > 0.4, "yes", "no")


@pytest.fixture(scope="module")
def model(table):
    return MetricClassifier("f1", models=["linear"], members=2, random_state=0).fit(*table)


@pytest.mark.filterwarnings("ignore:Operation with range:Warning:mlflow")  # MLflow 3.17 with pandas 3
def test_the_loader_gives_labels_and_probabilities(model, table, tmp_path):
    X, _ = table
    save_model(model, tmp_path / "saved", input_example=X[:3])
    loaded = mlflow.pyfunc.load_model(str(tmp_path / "saved"))
    assert loaded.metadata.get_input_schema().input_names() == ["a", "notes"]
    answer = loaded.predict(X[["notes", "a"]])
    assert list(answer) == ["label", "probability of no", "probability of yes"]
    assert answer["label"].tolist() == model.predict(X).tolist()
    assert np.array_equal(answer.iloc[:, 1:], model.predict_proba(X))
    with pytest.raises(mlflow.exceptions.MlflowException, match="missing"):
        loaded.predict(X[["a"]])


def test_a_model_is_logged_to_a_run_and_loaded_from_there(model, table, tmp_path, monkeypatch):
    X, _ = table
    monkeypatch.setenv("MLFLOW_ALLOW_FILE_STORE", "true")
    mlflow.set_tracking_uri((tmp_path / "runs").as_uri())
    with mlflow.start_run():
        info = log_model(model, "churn", metadata={"metric": "f1"})
    loaded = mlflow.pyfunc.load_model(info.model_uri)
    assert loaded.metadata.metadata == {"metric": "f1"}
    assert loaded.predict(X)["label"].tolist() == model.predict(X).tolist()


def test_a_tuned_classifier_of_several_labels_is_saved_too(tmp_path):
    from sklearn.multioutput import MultiOutputClassifier

    X = np.random.default_rng(0).normal(size=(80, 2))
    tuned = TunedDecisionClassifier(MultiOutputClassifier(LogisticRegression()), cv=2, random_state=0)
    tuned.fit(X, (X > 0.3).astype(int))
    save_model(tuned, tmp_path / "saved")
    answer = mlflow.pyfunc.load_model(str(tmp_path / "saved")).predict(X)
    assert list(answer) == ["label 0", "label 1", "probability of 0", "probability of 1"]
    assert np.array_equal(answer[["label 0", "label 1"]], tuned.predict(X))


def test_other_models_and_damaged_folders_are_refused(model, tmp_path):
    for write in (save_model, log_model):
        with pytest.raises(InvalidTypeError, match="got LogisticRegression"):
            write(LogisticRegression(), str(tmp_path / "other"))
    save_model(model, tmp_path / "saved")
    (tmp_path / "saved" / "data" / "metricfit" / "manifest.json").write_text("{")
    with pytest.raises(ModelFileError, match="holds no model of metricfit"):
        mlflow.pyfunc.load_model(str(tmp_path / "saved"))


def test_one_call_logs_the_parameters_the_metrics_the_report_and_the_model(model, table, tmp_path, monkeypatch):
    monkeypatch.setenv("MLFLOW_ALLOW_FILE_STORE", "true")
    mlflow.set_tracking_uri((tmp_path / "runs").as_uri())
    required = MetricClassifier("precision", subject_to="recall >= 0.6", models=["linear"], members=2, random_state=0)
    required.fit(table[0][["a"]], table[1])
    with mlflow.start_run() as run:
        info = log_fit(required, "churn")
    found = mlflow.get_run(run.info.run_id).data
    assert found.metrics["value"] == required.value_
    assert (found.metrics["value_low"], found.metrics["value_high"]) == required.value_interval_
    assert found.metrics["requirement recall"] == required.requirements_["recall >= 0.6"].value
    assert (found.metrics["requirements_met"], found.metrics["weight linear"]) == (1.0, 1.0)
    assert (found.params["metric"], found.params["subject_to"]) == ("precision", "recall >= 0.6")
    assert "Precision" in mlflow.artifacts.load_text(f"{run.info.artifact_uri}/report.html")
    assert mlflow.pyfunc.load_model(info.model_uri).predict(table[0][["a"]])["label"].isin(["yes", "no"]).all()
