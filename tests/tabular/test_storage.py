"""Saved models: the same predictions in a fresh process; what was changed or cut short is refused."""

import copy
import hashlib
import json
import shutil
import subprocess
import sys

import numpy as np
import pytest
from sklearn.base import BaseEstimator, ClassifierMixin
from sklearn.ensemble import RandomForestClassifier
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import StratifiedKFold
from torch import nn

from metricfit import MetricClassifier
from metricfit.errors import InvalidTypeError
from metricfit.tabular.families.network import Network

FRESH = """
import sys, numpy as np, pandas as pd
from metricfit import MetricClassifier
model = MetricClassifier.load(sys.argv[1])
np.save(sys.argv[3], model.predict_proba(pd.read_parquet(sys.argv[2])))
"""
QUICK = {"models": ["linear"], "members": 2, "time_budget": None, "random_state": 0}


def vouch(folder, name, content):
    """Replace a file, and write a manifest that vouches for it."""
    (folder / name).write_bytes(content)
    manifest = json.loads((folder / "manifest.json").read_text())
    manifest["sha256"][name] = hashlib.sha256(content).hexdigest()
    (folder / "manifest.json").write_text(json.dumps(manifest))


def rewrite(folder, description):
    vouch(folder, "model.json", json.dumps(description).encode())


@pytest.fixture(scope="module")
def trained(tmp_path_factory, fit_every_family, messy):
    """A model of every family and the folder it was saved in, which tests must not change."""
    frame, y = messy
    model = fit_every_family(
        frame,
        y,
        sample_weight=np.linspace(1, 2, len(y)),
        groups=np.arange(len(y)) // 2,
        class_weight={"no": 1, "yes": 2},
    )
    folder = tmp_path_factory.mktemp("trained") / "model"
    model.save(folder)
    return model, folder


@pytest.fixture
def saved(trained, tmp_path):
    """Copies of the model and of its folder."""
    model, folder = trained
    return copy.deepcopy(model), shutil.copytree(folder, tmp_path / "model")


def test_a_fresh_process_predicts_identically(saved, messy, tmp_path):
    model, folder = saved
    frame, _ = messy
    frame.to_parquet(tmp_path / "rows.parquet")
    command = [sys.executable, "-c", FRESH, str(folder), str(tmp_path / "rows.parquet"), str(tmp_path / "out.npy")]
    subprocess.run(command, check=True, timeout=300)
    assert np.array_equal(np.load(tmp_path / "out.npy"), model.predict_proba(frame))


def test_everything_comes_back(saved, messy):
    model, folder = saved
    frame, y = messy
    again = MetricClassifier.load(folder)
    assert again.get_params() == model.get_params()
    for name in ("threshold_", "threshold_interval_", "value_", "value_interval_", "models_", "pos_label_"):
        assert getattr(again, name) == getattr(model, name), name
    assert [(member.name, member.weight) for member in again.ensemble_.members] == [
        (member.name, member.weight) for member in model.ensemble_.members
    ]
    for member, original in zip(again.ensemble_.members, model.ensemble_.members, strict=True):
        assert type(member.model) is type(original.model)
    assert np.array_equal(again.predict(frame), model.predict(frame))
    assert again.score(frame, y) == model.score(frame, y)
    assert again.rethreshold(0.2).threshold_ == model.rethreshold(0.2).threshold_


def test_a_loaded_model_can_be_saved_again(saved, messy, tmp_path):
    model, folder = saved
    MetricClassifier.load(folder).save(tmp_path / "second")
    assert np.array_equal(
        MetricClassifier.load(tmp_path / "second").predict_proba(messy[0]), model.predict_proba(messy[0])
    )


def test_several_classes(tmp_path, fit_every_family, blobs):
    X, _ = blobs
    y = np.digitize(X[:, 0], [-0.7, 0.7])
    model = fit_every_family(X, y)
    model.rethreshold({0: 0.5, 1: 0.25, 2: 0.25}).save(tmp_path / "model")
    again = MetricClassifier.load(tmp_path / "model")
    assert np.array_equal(again.predict_proba(X), model.predict_proba(X))
    assert np.array_equal(again.offsets_, model.offsets_)
    assert again.classes_.dtype == model.classes_.dtype


def test_functions_of_the_user_are_passed_again(tmp_path, blobs):
    X, y = blobs

    def precise(c):
        return c.tp / (c.tp + 2 * c.fp + c.fn)

    def line(inputs, outputs):
        return nn.Linear(inputs, outputs)

    model = MetricClassifier(precise, **{**QUICK, "models": [Network(line, epochs=2)]}).fit(X, y)
    model.save(tmp_path / "model")
    with pytest.raises(ValueError, match=r"load\(path, metric="):
        MetricClassifier.load(tmp_path / "model")
    with pytest.raises(ValueError, match=r"load\(path, network="):
        MetricClassifier.load(tmp_path / "model", metric=precise)
    again = MetricClassifier.load(tmp_path / "model", metric=precise, network=line)
    assert np.array_equal(again.predict_proba(X), model.predict_proba(X))
    assert again.models == model.models


def test_the_history_of_a_network_comes_back(tmp_path, blobs):
    model = MetricClassifier(**{**QUICK, "models": Network("mlp", epochs=2)}).fit(*blobs)
    model.save(tmp_path / "model")
    again = MetricClassifier.load(tmp_path / "model")
    assert len(again.history_) == len(model.history_) > 0
    assert again.history_[0].keys() == model.history_[0].keys()
    assert again.models == model.models


class Majority(ClassifierMixin, BaseEstimator):
    """A classifier of the user's own class."""

    def fit(self, X, y):
        self.classes_, counts = np.unique(y, return_counts=True)
        self.shares_ = counts / len(y)
        return self

    def predict_proba(self, X):
        return np.tile(self.shares_, (len(X), 1))


class TestModelsOfTheUser:
    """scikit-learn models that the user passed, in the ensemble and in the parameters."""

    def test_models_and_splitters_come_back(self, tmp_path, blobs):
        X, y = blobs
        cv = StratifiedKFold(3, shuffle=True, random_state=1)
        settings = {**QUICK, "models": [("mine", LogisticRegression(C=0.5))], "cv": cv}
        model = MetricClassifier(**settings).fit(X, y)
        model.save(tmp_path / "model")
        again = MetricClassifier.load(tmp_path / "model")
        assert np.array_equal(again.predict_proba(X), model.predict_proba(X))
        assert again.models[0][0] == "mine"
        assert again.models[0][1].get_params() == model.models[0][1].get_params()
        assert (again.cv.n_splits, again.cv.random_state) == (3, 1)

    @pytest.mark.parametrize(
        ("classifier", "name"),
        [(RandomForestClassifier(3), "sklearn.tree._tree.Tree"), (Majority(), f"{Majority.__module__}.Majority")],
        ids=["scikit-learn's trees", "the user's class"],
    )
    def test_types_that_nobody_trusts_are_refused(self, tmp_path, blobs, classifier, name):
        X, y = blobs
        model = MetricClassifier(**{**QUICK, "models": [classifier]}).fit(X, y)
        with pytest.raises(ValueError, match=rf"'{name}'.*save\(path, trusted="):
            model.save(tmp_path / "model")
        assert not (tmp_path / "model").exists()
        model.save(tmp_path / "model", trusted=[name])
        with pytest.raises(ValueError, match=rf"'{name}'.*load\(path, trusted="):
            MetricClassifier.load(tmp_path / "model")
        again = MetricClassifier.load(tmp_path / "model", trusted=[name])
        assert np.array_equal(again.predict_proba(X), model.predict_proba(X))

    def test_a_foreign_type_in_a_file_is_refused_before_anything_is_built(self, saved, monkeypatch):
        from metricfit.tabular.storage import model_to_bytes

        _, folder = saved
        file = next(path for path in folder.iterdir() if path.suffix == ".skops")
        vouch(folder, file.name, model_to_bytes(Majority()))
        monkeypatch.setattr("skops.io.loads", lambda *_, **__: pytest.fail("a model was built"))
        with pytest.raises(ValueError, match=r"Majority.*load\(path, trusted="):
            MetricClassifier.load(folder)

    def test_trusted_is_a_list_of_names(self, saved, tmp_path):
        model, folder = saved
        with pytest.raises(InvalidTypeError, match="list of names"):
            model.save(tmp_path / "second", trusted="sklearn")
        with pytest.raises(InvalidTypeError, match="list of names"):
            MetricClassifier.load(folder, trusted=[int])


@pytest.mark.parametrize("name", ["model.json", "arrays.safetensors", "skops"])
@pytest.mark.parametrize("harm", ["changed", "cut short", "gone"])
def test_a_harmed_folder_is_refused(saved, name, harm):
    _, folder = saved
    path = next(path for path in sorted(folder.iterdir()) if path.name.endswith(name))
    content = path.read_bytes()
    if harm == "gone":
        path.unlink()
    else:
        middle = len(content) // 2
        changed = content[:middle] + bytes([content[middle] ^ 1]) + content[middle + 1 :]
        path.write_bytes(changed if harm == "changed" else content[:middle])
    with pytest.raises(ValueError, match="lacks" if harm == "gone" else "not what was saved"):
        MetricClassifier.load(folder)


def test_without_a_manifest_or_of_another_format(saved):
    _, folder = saved
    manifest = json.loads((folder / "manifest.json").read_text())
    (folder / "manifest.json").write_text(json.dumps({**manifest, "format": 99}))
    with pytest.raises(ValueError, match="format 99"):
        MetricClassifier.load(folder)
    (folder / "manifest.json").write_text("{")
    with pytest.raises(ValueError, match="cannot be read"):
        MetricClassifier.load(folder)
    (folder / "manifest.json").unlink()
    with pytest.raises(ValueError, match="cut short"):
        MetricClassifier.load(folder)


@pytest.mark.parametrize("name", ["../secret.skops", "/etc/passwd", "code.py", "model.pkl", "a/b.skops", ""])
def test_a_manifest_that_names_other_files_is_refused(saved, name):
    _, folder = saved
    manifest = json.loads((folder / "manifest.json").read_text())
    manifest["sha256"][name] = "0" * 64
    (folder / "manifest.json").write_text(json.dumps(manifest))
    with pytest.raises(ValueError, match="no part of a model"):
        MetricClassifier.load(folder)


@pytest.mark.parametrize("what", ["model", "column", "parameter", "parameter's kind", "parameter's file"])
def test_a_folder_with_a_new_manifest_can_name_only_what_this_package_builds(saved, what):
    """Nothing runs even if the hashes are rewritten too: names are looked up, never imported or unpickled."""
    _, folder = saved
    description = json.loads((folder / "model.json").read_text())
    if what == "model":
        description["ensemble"]["members"][0]["model"]["kind"] = "os.system"
    elif what == "column":
        next(column for column in description["encoder"]["columns"] if column)["kind"] = "builtins.eval"
    elif what == "parameter":
        description["parameters"]["__class__"] = "os.system"
    elif what == "parameter's kind":
        description["parameters"]["models"] = {"os.system": "true"}
    else:
        description["parameters"]["models"] = {"file": "/etc/passwd"}
    rewrite(folder, description)
    with pytest.raises(ValueError, match=r"no model of this version|does not have|not known|is no parameter"):
        MetricClassifier.load(folder)


@pytest.fixture(scope="module")
def small(tmp_path_factory, blobs):
    """A model of two classes as a folder, and what its model.json holds."""
    X, y = blobs
    folder = tmp_path_factory.mktemp("small") / "model"
    MetricClassifier(**QUICK).fit(X, y).save(folder)
    return folder, (folder / "model.json").read_text()


@pytest.mark.parametrize(
    ("where", "value", "reason"),
    [
        ("chosen.basis.names.classes.labels", [1], r"at least 2|expected 1"),
        ("chosen.basis.names.classes.labels", [1, 1], r"stands there twice"),
        ("chosen.basis.names.classes.labels", [0, 1, 2], r"their order is of 2"),
        ("parameters.metric.name", "f7", r"parameters: .*f7"),
        ("parameters.subject_to", ["f7 >= 0.5"], r"parameters: .*f7"),
        ("parameters.decision", "guess", r"decision is one of"),
        ("ensemble.members", [], r"ensemble.members is empty"),
        ("features.number", 3, r"features: 3, of a table of 4 columns"),
        ("features.names", ["a"], r"features: their names"),
        ("ensemble.calibration.temperature", -1.0, r"temperature must be a finite number above 0"),
        ("chosen.decision.threshold", None, r"decision.threshold must be a finite number, got None"),
        ("models", [{"name": 1}], r"models.0.name must be text"),
    ],
)
def test_parts_that_are_not_of_one_model_are_refused(small, where, value, reason):
    folder, text = small
    description = inside = json.loads(text)
    *path, last = where.split(".")
    for name in path:
        inside = inside[name]
    inside[last] = value
    rewrite(folder, description)
    with pytest.raises(ValueError, match=f"no whole model.*({reason})"):
        MetricClassifier.load(folder)
    rewrite(folder, json.loads(text))
    MetricClassifier.load(folder)


def test_a_folder_in_use_is_not_overwritten(saved):
    model, folder = saved
    with pytest.raises(FileExistsError, match="new or an empty folder"):
        model.save(folder)


def test_nothing_is_pickled(saved):
    _, folder = saved
    assert {path.suffix for path in folder.iterdir()} == {".safetensors", ".json", ".skops", ".md"}
    json.loads((folder / "model.json").read_text(), parse_constant=lambda name: pytest.fail(f"{name} is no JSON"))


def test_a_model_is_replaced_if_asked_for_and_nothing_else_is(blobs, tmp_path):
    X, y = blobs
    first, second = (MetricClassifier(metric, **QUICK).fit(X, y) for metric in ("f1", "mcc"))
    first.save(tmp_path / "model")
    with pytest.raises(FileExistsError):
        second.save(tmp_path / "model")
    second.save(tmp_path / "model", overwrite=True)
    assert MetricClassifier.load(tmp_path / "model").metric == "mcc"
    (tmp_path / "other").mkdir()
    (tmp_path / "other" / "notes.txt").write_text("mine")
    with pytest.raises(FileExistsError):
        second.save(tmp_path / "other", overwrite=True)
