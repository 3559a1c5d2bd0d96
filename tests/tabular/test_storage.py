"""Saved models: the same predictions in a fresh process; what was changed or cut short is refused."""

import copy
import hashlib
import json
import shutil
import subprocess
import sys

import numpy as np
import pytest
from torch import nn

from metricfit import MetricClassifier

FRESH = """
import sys, numpy as np, pandas as pd
from metricfit import MetricClassifier
model = MetricClassifier.load(sys.argv[1])
np.save(sys.argv[3], model.predict_proba(pd.read_parquet(sys.argv[2])))
"""


def rewrite(folder, found):
    """Another model.json, and a manifest that vouches for it."""
    content = json.dumps(found).encode()
    (folder / "model.json").write_bytes(content)
    manifest = json.loads((folder / "manifest.json").read_text())
    manifest["sha256"]["model.json"] = hashlib.sha256(content).hexdigest()
    (folder / "manifest.json").write_text(json.dumps(manifest))


@pytest.fixture(scope="module")
def trained(tmp_path_factory, quick_settings, messy):
    """A model and the folder it was saved in, which tests must not change."""
    frame, y = messy
    model = MetricClassifier(**{**quick_settings, "network": "embedded", "epochs": 3}, class_weight={"no": 1, "yes": 2})
    model.fit(frame, y, sample_weight=np.linspace(1, 2, len(y)), groups=np.arange(len(y)) // 2)
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
    assert again.threshold_ == model.threshold_
    assert again.threshold_interval_ == model.threshold_interval_
    assert again.value_interval_ == model.value_interval_
    assert len(again.history_) == len(model.history_)
    assert again.history_[0].keys() == model.history_[0].keys()
    assert np.array_equal(again.predict(frame), model.predict(frame))
    assert again.score(frame, y) == model.score(frame, y)
    assert again.rethreshold(0.2).threshold_ == model.rethreshold(0.2).threshold_


@pytest.mark.parametrize("network", ["blend", "tabm", "mlp"])
def test_several_classes_and_other_networks(network, tmp_path, quick, blobs):
    X, _ = blobs
    y = np.digitize(X[:, 0], [-0.7, 0.7])
    model = MetricClassifier(**{**quick, "network": network, "members": 2, "epochs": 2}).fit(X, y)
    model.rethreshold({0: 0.5, 1: 0.25, 2: 0.25}).save(tmp_path / "model")
    again = MetricClassifier.load(tmp_path / "model")
    assert np.array_equal(again.predict_proba(X), model.predict_proba(X))
    assert np.array_equal(again.offsets_, model.offsets_)
    assert again.classes_.dtype == model.classes_.dtype


def test_own_functions_are_given_again(tmp_path, quick, blobs):
    X, y = blobs

    def precise(c):
        return c.tp / (c.tp + 2 * c.fp + c.fn)

    def line(inputs, outputs):
        return nn.Linear(inputs, outputs)

    model = MetricClassifier(precise, **{**quick, "network": line}).fit(X, y)
    model.save(tmp_path / "model")
    with pytest.raises(ValueError, match=r"load\(path, metric="):
        MetricClassifier.load(tmp_path / "model")
    with pytest.raises(ValueError, match=r"load\(path, network="):
        MetricClassifier.load(tmp_path / "model", metric=precise)
    again = MetricClassifier.load(tmp_path / "model", metric=precise, network=line)
    assert np.array_equal(again.predict_proba(X), model.predict_proba(X))


@pytest.mark.parametrize("name", ["model.json", "arrays.safetensors"])
@pytest.mark.parametrize("harm", ["changed", "cut short", "gone"])
def test_a_harmed_folder_is_refused(saved, name, harm):
    _, folder = saved
    content = (folder / name).read_bytes()
    if harm == "gone":
        (folder / name).unlink()
    else:
        middle = len(content) // 2
        changed = content[:middle] + bytes([content[middle] ^ 1]) + content[middle + 1 :]
        (folder / name).write_bytes(changed if harm == "changed" else content[:middle])
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


@pytest.mark.parametrize("what", ["network", "column", "parameter", "members"])
def test_a_folder_with_a_new_manifest_can_name_only_what_this_package_builds(saved, what):
    """Whoever rewrites the hashes too still gets no code run: names are looked up, never imported or unpickled."""
    _, folder = saved
    found = json.loads((folder / "model.json").read_text())
    if what == "network":
        found["network"]["name"] = "os.system"
    elif what == "column":
        next(each for each in found["table"]["columns"] if each)["kind"] = "builtins.eval"
    elif what == "parameter":
        found["parameters"]["__class__"] = "os.system"
    else:
        found["members"] = 99
    rewrite(folder, found)
    with pytest.raises(ValueError, match=r"no model of this version|parameters that this version does not have"):
        MetricClassifier.load(folder)


@pytest.fixture(scope="module")
def small(tmp_path_factory, quick_settings, blobs):
    """A model of two classes as a folder, and what its model.json holds."""
    X, y = blobs
    folder = tmp_path_factory.mktemp("small") / "model"
    MetricClassifier(**{**quick_settings, "members": 2, "epochs": 2}).fit(X, y).save(folder)
    return folder, (folder / "model.json").read_text()


@pytest.mark.parametrize(
    ("where", "value", "reason"),
    [
        ("classes.labels", [1], r"classes: 1 of at least 2"),
        ("classes.labels", [1, 1], r"stands there twice"),
        ("classes.labels", [0, 1, 2], r"network: 1 outputs, the classes need 3"),
        ("parameters.metric.name", "f7", r"parameters: .*f7"),
        ("parameters.subject_to", ["f7 >= 0.5"], r"parameters: .*f7"),
        ("members", 1, r"members: 1 are named, the weights are of 2"),
        ("features.number", 3, r"features: 3, of a table of 4 columns"),
        ("features.names", ["a"], r"features: their names"),
        ("temperature", -1.0, r"temperature -1"),
        ("decision.threshold", None, r"decision: threshold None"),
    ],
)
def test_parts_that_are_not_of_one_model_are_refused(small, where, value, reason):
    folder, text = small
    found = inside = json.loads(text)
    *path, last = where.split(".")
    for name in path:
        inside = inside[name]
    inside[last] = value
    rewrite(folder, found)
    with pytest.raises(ValueError, match=f"no whole model.*{reason}"):
        MetricClassifier.load(folder)
    rewrite(folder, json.loads(text))
    MetricClassifier.load(folder)


def test_a_folder_in_use_is_not_overwritten(saved):
    model, folder = saved
    with pytest.raises(FileExistsError, match="new or an empty folder"):
        model.save(folder)


def test_nothing_is_pickled(saved):
    _, folder = saved
    assert sorted(each.name for each in folder.iterdir()) == ["arrays.safetensors", "manifest.json", "model.json"]
    json.loads((folder / "model.json").read_text(), parse_constant=lambda name: pytest.fail(f"{name} is no JSON"))
