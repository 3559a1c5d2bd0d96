"""Saved TunedDecisionClassifiers: the same predictions after loading; what was changed is refused."""

import copy
import hashlib
import json

import numpy as np
import pytest
import torch
from lightgbm import LGBMClassifier
from safetensors.torch import load_file, save
from sklearn.base import BaseEstimator, ClassifierMixin
from sklearn.datasets import make_classification, make_multilabel_classification
from sklearn.ensemble import RandomForestClassifier
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import StratifiedGroupKFold
from sklearn.multiclass import OneVsRestClassifier
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from metricfit import MetricClassifier, TunedDecisionClassifier
from metricfit.core.counts import Counts
from metricfit.errors import ModelFileError
from metricfit.tabular.families.family import MissingArgumentError
from metricfit.tabular.storage import UntrustedTypeError


@pytest.fixture(scope="module")
def rows():
    return make_classification(200, 5, weights=[0.7], random_state=0)


@pytest.fixture
def saved(rows, tmp_path):
    model = TunedDecisionClassifier(LogisticRegression(), "f1", cv=3, random_state=0).fit(*rows)
    model.save(tmp_path / "model")
    return model, tmp_path / "model"


def vouch(folder, name, content):
    """Replace a file, and write a manifest that vouches for it."""
    (folder / name).write_bytes(content)
    manifest = json.loads((folder / "manifest.json").read_text())
    manifest["sha256"][name] = hashlib.sha256(content).hexdigest()
    (folder / "manifest.json").write_text(json.dumps(manifest))


def test_everything_comes_back(rows, tmp_path):
    X, y = rows
    model = TunedDecisionClassifier(
        make_pipeline(StandardScaler(), RandomForestClassifier(5, random_state=0)),
        "precision",
        subject_to=["recall >= 0.6"],
        cv=StratifiedGroupKFold(3),
        pos_label="b",
        random_state=0,
    )
    labels = np.array(["a", "b"])[y]
    model.fit(X, labels, np.linspace(1, 2, len(y)), np.arange(len(y)) // 2).rethreshold(0.4)
    trusted = ["sklearn.tree._tree.Tree"]
    model.save(tmp_path / "model", trusted)
    again = TunedDecisionClassifier.load(tmp_path / "model", trusted)
    for name in ("threshold_", "threshold_interval_", "value_", "value_interval_", "requirements_", "pos_label_"):
        assert getattr(again, name) == getattr(model, name), name
    assert np.array_equal(again.predict_proba(X), model.predict_proba(X))
    assert np.array_equal(again.curve_.value, model.curve_.value)
    assert again.score(X, labels) == model.score(X, labels)
    assert again.cv.n_splits == 3
    assert again.estimator[-1].n_estimators == 5
    assert not hasattr(again.estimator[-1], "estimators_")
    assert again.rethreshold(metric="f1").threshold_ == model.rethreshold(metric="f1").threshold_


def test_several_classes_and_a_fitted_estimator(rows, tmp_path):
    X, _ = rows
    y = np.digitize(X[:, 0], [-0.7, 0.7])
    model = TunedDecisionClassifier(LogisticRegression().fit(X[:100], y[:100]), cv="prefit").fit(X[100:], y[100:])
    model.save(tmp_path / "model")
    again = TunedDecisionClassifier.load(tmp_path / "model")
    assert again.estimator is again.estimator_
    assert np.array_equal(again.offsets_, model.offsets_)
    assert np.array_equal(again.predict(X), model.predict(X))


def test_several_labels(tmp_path):
    X, y = make_multilabel_classification(150, 6, n_classes=3, random_state=0)
    model = TunedDecisionClassifier(OneVsRestClassifier(LogisticRegression()), average="samples", cv=2).fit(X, y)
    model.save(tmp_path / "model")
    again = TunedDecisionClassifier.load(tmp_path / "model")
    assert np.array_equal(again.thresholds_, model.thresholds_)
    assert np.array_equal(again.threshold_interval_, model.threshold_interval_)
    assert np.array_equal(again.predict(X), model.predict(X))
    assert again.average == "samples"


def test_lightgbm_is_saved_if_its_types_are_trusted(rows, tmp_path):
    X, y = rows
    model = TunedDecisionClassifier(LGBMClassifier(n_estimators=5, verbose=-1), cv=2, random_state=0).fit(X, y)
    with pytest.raises(UntrustedTypeError, match="lightgbm"):
        model.save(tmp_path / "model")
    assert not (tmp_path / "model").exists()
    trusted = ["lightgbm.sklearn.LGBMClassifier", "lightgbm.basic.Booster", "collections.defaultdict"]
    model.save(tmp_path / "model", trusted=trusted)
    with pytest.raises(UntrustedTypeError, match="lightgbm"):
        TunedDecisionClassifier.load(tmp_path / "model")
    again = TunedDecisionClassifier.load(tmp_path / "model", trusted=trusted)
    assert np.allclose(again.predict_proba(X), model.predict_proba(X))


class Own(ClassifierMixin, BaseEstimator):
    """A classifier of the user."""

    def fit(self, X, y):
        self.classes_ = np.unique(y)
        return self

    def decision_function(self, X):
        return X[:, 0]


def test_types_of_the_user_are_named(rows, tmp_path):
    model = TunedDecisionClassifier(Own(), cv=2, random_state=0).fit(*rows)
    with pytest.raises(UntrustedTypeError, match="Own"):
        model.save(tmp_path / "model")


def hits(counts: Counts):
    return counts.tp / (counts.positives + 1)


def test_a_metric_of_the_user_is_an_argument(rows, tmp_path):
    model = TunedDecisionClassifier(LogisticRegression(), hits, cv=2, random_state=0).fit(*rows)
    model.save(tmp_path / "model")
    with pytest.raises(MissingArgumentError, match="metric="):
        TunedDecisionClassifier.load(tmp_path / "model")
    again = TunedDecisionClassifier.load(tmp_path / "model", metric=hits)
    assert again.score(*rows) == model.score(*rows)


def test_a_folder_of_another_class_is_refused(saved, rows, tmp_path):
    _, folder = saved
    with pytest.raises(ModelFileError, match=r"metricfit\.TunedDecisionClassifier\.load"):
        MetricClassifier.load(folder)
    MetricClassifier(models="linear", members=2, time_budget=None).fit(*rows).save(tmp_path / "other")
    with pytest.raises(ModelFileError, match=r"metricfit\.MetricClassifier\.load"):
        TunedDecisionClassifier.load(tmp_path / "other")


@pytest.mark.parametrize(
    ("where", "value", "reason"),
    [
        ("chosen.decision.threshold", None, "decision.threshold must be a finite number, got None"),
        ("chosen.decision.evidence.value", "high", "decision.evidence.value must be a finite number"),
        ("scorer.smallest_probability", 0, "smallest_probability above 0"),
        ("scorer.smallest_probability", None, "smallest_probability"),
        ("scorer.estimators", [], "an estimator and"),
        ("scorer.estimators", True, "estimators must be a list"),
        ("scorer.estimators", [{"file": "fold-3.skops"}], r"fold-3\.skops' is missing"),
        ("scorer.one", {"file": "estimator.skops"}, r"estimator\.skops' is missing"),
        ("parameters.ensemble", "mean", "ensemble is True or False"),
        ("parameters.estimator", "fitted", "with fit; got"),
        ("parameters.average", "mean", "average is one of"),
        ("parameters.decision", "best", "decision is one of"),
        ("parameters.surprise", 1, "parameters that this version does not have"),
        ("parameters.estimator", {"file": "model.json"}, "is no parameter"),
        ("parameters.estimator", {"import": "os"}, "is no parameter"),
        ("parameters.metric", {"name": "f_one", "own": False}, "no metric"),
        ("chosen.basis.names.classes.labels", [0, 1, 2], "their order is of 2"),
        ("chosen.basis.names.classes.labels", [7, 8], "knows no class of this model"),
        ("chosen.basis.names.classes.dtype", "V100", "labels of type"),
        ("chosen.basis.seed", -1, "seed must be a whole number"),
        ("scorer.calibration.temperature", -1.0, "temperature must be a finite number above 0"),
        ("scorer.calibration.bias", [0.0, 1.0], "calibration: there must be finite numbers"),
    ],
)
def test_a_folder_that_was_edited_with_its_manifest_is_refused(saved, where, value, reason):
    _, folder = saved
    description = json.loads((folder / "model.json").read_text())
    inside = description
    *path, last = where.split(".")
    for name in path:
        inside = inside[name]
    inside[last] = value
    vouch(folder, "model.json", json.dumps(description).encode())
    with pytest.raises(ValueError, match=reason):
        TunedDecisionClassifier.load(folder)


@pytest.mark.parametrize(
    ("name", "array", "reason"),
    [
        ("chosen.basis.held_out.shares", torch.tensor([torch.nan, 1.0]), "numbers that are not finite"),
        ("chosen.basis.held_out.y", torch.full((200,), 5), "labels of other classes"),
        ("chosen.basis.held_out.logits", torch.zeros(3, 1), "logits and labels of other shapes"),
    ],
)
def test_arrays_that_do_not_fit_are_refused(saved, name, array, reason):
    _, folder = saved
    arrays = load_file(folder / "arrays.safetensors")
    vouch(folder, "arrays.safetensors", save({**arrays, name: array}))
    with pytest.raises(ModelFileError, match=reason):
        TunedDecisionClassifier.load(folder)


def test_files_that_are_cut_short_or_missing_are_refused(saved):
    model, folder = saved
    content = (folder / "scorer.estimators.1.skops").read_bytes()
    (folder / "scorer.estimators.1.skops").write_bytes(content[:-10])
    with pytest.raises(ModelFileError, match="cut short or changed"):
        TunedDecisionClassifier.load(folder)
    vouch(folder, "scorer.estimators.1.skops", content[:-10])
    with pytest.raises(ModelFileError, match="cannot be read"):
        TunedDecisionClassifier.load(folder)
    manifest = json.loads((folder / "manifest.json").read_text())
    without = copy.deepcopy(manifest)
    del without["sha256"]["scorer.estimators.1.skops"]
    (folder / "manifest.json").write_text(json.dumps(without))
    with pytest.raises(ModelFileError, match=r"scorer\.estimators\.1\.skops' is missing"):
        TunedDecisionClassifier.load(folder)
    assert model.threshold_ is not None
