"""Saved models whose model.json and manifest were edited: they are refused, or still work."""

import copy
import hashlib
import json
import random
import warnings

import numpy as np
import pandas as pd
import pytest
from safetensors.numpy import load as arrays_from
from safetensors.numpy import save as bytes_of

import metricfit
from metricfit import MetricClassifier
from metricfit.tabular.families.network_models import Architecture
from metricfit.tabular.storage import name_of_estimator

BIG = 10**400
DEEP = "[" * 200_000 + "]" * 200_000
HOSTILE = [None, True, -1, 0, 10**7, 2**63, BIG, -BIG, 1e308, -0.5, "", "x", "x" * 10_000, [], {}, [1], {"a": 1}, [[]]]


def table():
    rng = np.random.default_rng(0)
    frame = pd.DataFrame({"a": rng.normal(size=60), "town": rng.choice(["Ulm", "Bonn"], 60)})
    frame["day"] = pd.date_range("2024-01-01", periods=60).astype(str)
    frame["note"] = [f"note {n} of {n % 7}" for n in range(60)]
    return frame, np.where(frame["a"] > 0.5, "yes", "no")


@pytest.fixture(scope="module")
def saved(tmp_path_factory, fit_every_family):
    frame, y = table()
    folder = tmp_path_factory.mktemp("models") / "model"
    fit_every_family(frame, y).save(folder)
    return folder, json.loads((folder / "model.json").read_text())


def replace_file(folder, name, content):
    """Replace a file, and write a manifest that vouches for it."""
    (folder / name).write_bytes(content)
    manifest = json.loads((folder / "manifest.json").read_text())
    manifest["sha256"][name] = hashlib.sha256(content).hexdigest()
    (folder / "manifest.json").write_text(json.dumps(manifest))


def rewrite(folder, text):
    replace_file(folder, "model.json", text.encode())


def attempt(folder, text):
    """The message of the error of loading and using the model, or None; other errors fail the test."""
    rewrite(folder, text)
    caught = None
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", UserWarning)  # a model without feature names
            MetricClassifier.load(folder).predict_proba(table()[0])
    except ValueError as error:
        caught = error
    if caught is None or "feature names" in str(caught):  # scikit-learn's own message
        return None
    assert isinstance(caught, metricfit.MetricfitError), repr(caught)
    return str(caught)


def paths_of(value, path=()):
    """Every place in nested lists and objects."""
    yield path
    if isinstance(value, dict):
        for key, item in value.items():
            yield from paths_of(item, (*path, key))
    if isinstance(value, list):
        for at, item in enumerate(value[:3]):
            yield from paths_of(item, (*path, at))


def replaced(description, path, value):
    changed = copy.deepcopy(description)
    if not path:
        return value
    inside = changed
    for key in path[:-1]:
        inside = inside[key]
    inside[path[-1]] = value
    return changed


def keys_of(where):
    return [int(key) if key.isdigit() else key for key in where.split(".")]


@pytest.mark.parametrize(
    ("where", "value", "message"),
    [
        ("ensemble.calibration.temperature", BIG, r"temperature must be a finite number, got an integer of 1329 bits"),
        ("ensemble.members.0.weight", 0, r"members.0: weight must be a finite number above 0"),
        ("ensemble.members.0.weight", -1.0, r"members.0: weight must be a finite number above 0"),
        (
            "ensemble.members.1.calibration.temperature",
            BIG,
            r"members.1.calibration.temperature must be a finite number",
        ),
        ("ensemble.members.0.name", 1, r"members.0.name must be text"),
        ("ensemble.members.0.model", [], r"members.0.model must be an object"),
        ("ensemble.members.0.model.kind", "x" * 10**6, r"kind must be one of .*'x{80}'\.\.\. \(1,000,000 characters\)"),
        ("ensemble.members.2.model.folds", BIG, r"folds must be a whole number"),
        ("ensemble.members.2.model.folds", 0, r"folds must be a whole number from 1 to 1000"),
        ("ensemble.members.4.model.gamma", -1, r"gamma must be a finite number above 0"),
        ("ensemble.members.5.model.architecture.width", 10**6, r"need at least \d+ weights"),
        ("ensemble.members.5.model.architecture.hidden", [BIG], r"hidden.0 must be a whole number"),
        ("ensemble.members.5.model.architecture.hidden", [10**9, 10**9], r"need at least \d+ weights"),
        ("ensemble.members.5.model.members", 10**6, r"members must be a list"),
        ("ensemble.members.5.model.architecture.kind", "os.system", r"no network of the kind 'os.system'"),
        ("ensemble.members.6.model.models", [], r"there are no models"),
        ("parameters.surprise", 1, r"parameters that this version does not have: 'surprise'"),
        ("parameters.time_budget", BIG, r"time_budget is an integer of 1329 bits, too large"),
        ("parameters.models", {"network": {"kind": "os.system"}}, r"kind is one of"),
        ("parameters.models", {"file": "manifest.json"}, r"is no parameter"),
        ("parameters.cv", [1], r"is no parameter"),
        ("models", [{"name": "linear", "weight": "much"}], r"models.0.weight must be a finite number"),
        (
            "chosen.basis.names.classes.dtype",
            "<U90000000",
            r"classes.dtype is '<U90000000', the longest label has 3 characters",
        ),
        ("parameters.members", -1, r"members is a whole number"),
        ("parameters.metric.name", "f" * 10**6, r"cannot read the metric 'f{80}'\.\.\. \(1,000,000 characters\)"),
        ("encoder.columns", "x" * 10**6, r"encoder.columns must be a list"),
        ("parameters.metric", 1, r"parameters.metric must be an object, got 1"),
        ("parameters.metric.own", "yes", r"parameters.metric.own must be true or false"),
        (
            "chosen.decision.evidence.value_interval",
            3,
            r"value_interval must be null or a list of 2, got 3",
        ),
        (
            "chosen.decision.evidence.value_interval",
            [0.0, BIG],
            r"value_interval.1 must be a finite number, got an integer",
        ),
        ("chosen.decision.interval", [0.0], r"decision.interval must be null or a list of 2"),
    ],
    ids=lambda value: value if isinstance(value, str) and len(value) < 30 else "",
)
def test_a_hostile_value_is_refused_in_a_short_message(saved, where, value, message):
    folder, description = saved
    rewrite(folder, json.dumps(replaced(description, keys_of(where), value)))
    with pytest.raises(ValueError, match=message) as error:
        MetricClassifier.load(folder)
    assert isinstance(error.value, metricfit.MetricfitError)
    assert len(str(error.value)) < 1500


@pytest.mark.parametrize("text", [DEEP, '{"parameters": ' + DEEP + "}", "", "{", "null", "[]", '"' + "x" * 10**6 + '"'])
def test_text_that_is_no_description_is_refused(saved, text):
    folder, _ = saved
    message = attempt(folder, text)
    assert message is not None
    assert len(message) < 1500


@pytest.mark.parametrize("number", [np.nan, np.inf, -np.inf])
def test_numbers_that_would_make_predictions_nan_are_refused(saved, number):
    folder, description = saved
    rewrite(folder, json.dumps(description))
    original = (folder / "arrays.safetensors").read_bytes()
    arrays = arrays_from(original)
    names = [name for name, array in arrays.items() if array.dtype.kind == "f" and array.size]
    assert {
        "chosen.shift",
        "encoder.scaling.centre",
        "encoder.columns.3.rarity",
        "encoder.columns.3.directions",
    } <= set(names)
    for name in names:
        if ".model." in name:
            continue  # damaged arrays of models have tests of their own
        changed = arrays[name].copy()
        changed.reshape(-1)[0] = number
        replace_file(folder, "arrays.safetensors", bytes_of({**arrays, name: changed}))
        with pytest.raises(metricfit.MetricfitError, match=r"not finite|finite numbers"):
            MetricClassifier.load(folder)
    replace_file(folder, "arrays.safetensors", original)


def test_a_manifest_nested_too_deeply_is_refused(saved, tmp_path):
    (tmp_path / "manifest.json").write_text(DEEP)
    with pytest.raises(ValueError, match=r"manifest.json cannot be read"):
        MetricClassifier.load(tmp_path)
    assert name_of_estimator(tmp_path) is None


def test_declared_sizes_are_compared_with_the_stored_weights_before_a_network_is_built(saved, monkeypatch):
    folder, description = saved

    def build(*arguments):
        raise AssertionError("a network was built")

    monkeypatch.setattr(Architecture, "build", build)
    for name in ("in_features", "width", "out_features"):
        changed = replaced(description, ("ensemble", "members", 5, "model", "architecture", name), 10**5)
        rewrite(folder, json.dumps(changed))
        with pytest.raises(ValueError, match=r"holds no whole model .*(100000|need at least)"):
            MetricClassifier.load(folder)


def test_random_changes_give_a_model_that_works_or_an_error_of_this_library(saved):
    folder, description = saved
    rng = random.Random(0)
    paths = list(paths_of(description))
    assert attempt(folder, json.dumps(description)) is None
    for _ in range(60):
        changed = replaced(description, rng.choice(paths), rng.choice(HOSTILE))
        message = attempt(folder, json.dumps(changed))
        assert message is None or len(message) < 2000


def test_random_changes_of_arrays_give_a_model_that_works_or_an_error_of_this_library(saved):
    """Numbers that prediction follows, such as the children of trees, must not lead it out of its memory."""
    folder, description = saved
    rewrite(folder, json.dumps(description))
    original = (folder / "arrays.safetensors").read_bytes()
    arrays = arrays_from(original)
    rng = np.random.default_rng(0)
    numbers = {name: array for name, array in sorted(arrays.items()) if array.dtype.kind in "iuf" and array.size}
    names = [name for name in numbers if ".model." in name]
    refused = 0
    for name in [*names, *rng.choice(names, 60)]:
        changed = arrays[name].copy()
        whole = changed.dtype.kind in "iu"
        extremes = np.iinfo(changed.dtype) if whole else np.finfo(changed.dtype)
        hostile = [0, 1, max(-1, extremes.min), 100, extremes.max, extremes.min] + ([] if whole else [np.nan, np.inf])
        changed.reshape(-1)[rng.integers(changed.size)] = hostile[rng.integers(len(hostile))]
        replace_file(folder, "arrays.safetensors", bytes_of({**arrays, name: changed}))
        refused += attempt(folder, json.dumps(description)) is not None
    assert refused > 10
    replace_file(folder, "arrays.safetensors", original)
    assert attempt(folder, json.dumps(description)) is None


def test_text_in_a_column_of_numbers_is_quoted_in_part(saved):
    folder, description = saved
    rewrite(folder, json.dumps(description))
    model, (frame, _) = MetricClassifier.load(folder), table()
    for entry in ("x" * 10**6, BIG):
        with pytest.raises(ValueError, match="columns that held numbers in fit hold something else now: a") as error:
            model.predict(frame.assign(a=pd.Series([entry] * 60, dtype=object)))
        assert len(str(error.value)) < 500
