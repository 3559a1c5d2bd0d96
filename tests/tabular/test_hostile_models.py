"""Saved models whose model.json and manifest were edited: they are refused, or still work."""

import copy
import hashlib
import json
import random
import warnings

import numpy as np
import pandas as pd
import pytest

import metricfit
from metricfit import MetricClassifier
from metricfit.tabular.networks import Network

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
def saved(tmp_path_factory):
    frame, y = table()
    folder = tmp_path_factory.mktemp("models") / "model"
    model = MetricClassifier("f1", network="blend", members=2, epochs=1, time_budget=None, random_state=0)
    model.fit(frame, y).save(folder)
    return folder, json.loads((folder / "model.json").read_text())


def rewrite(folder, text):
    (folder / "model.json").write_text(text)
    manifest = json.loads((folder / "manifest.json").read_text())
    manifest["sha256"]["model.json"] = hashlib.sha256(text.encode()).hexdigest()
    (folder / "manifest.json").write_text(json.dumps(manifest))


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


@pytest.mark.parametrize(
    ("where", "value", "message"),
    [
        ("temperature", BIG, r"temperature must be a finite number, got an integer of 1329 bits"),
        ("parameters.surprise", 1, r"parameters that this version does not have: 'surprise'"),
        ("parameters.lr", BIG, r"parameters: lr is an integer of 1329 bits, too large"),
        ("network.width", 10**6, r"need at least \d+ weights, arrays.safetensors holds \d+"),
        ("classes.dtype", "<U90000000", r"classes.dtype is '<U90000000', the longest label has 3 characters"),
        ("members", BIG, r"members must be a whole number"),
        ("parameters.metric.name", "f" * 10**6, r"cannot read the metric 'f{80}'\.\.\. \(1,000,000 characters\)"),
        ("table.columns", "x" * 10**6, r"table.columns must describe columns"),
        ("parameters.metric", 1, r"parameters.metric must have a name \(text\) and own \(true or false\), got 1"),
        ("parameters.metric.own", "yes", r"parameters.metric must have a name"),
        ("decision.value_interval", 3, r"decision.value_interval must be null or a list of two numbers, got 3"),
        ("decision.value_interval", [0.0, BIG], r"decision.value_interval must be a finite number, got an integer"),
        ("decision.interval", [0.0], r"decision.interval must be null or a list of two numbers"),
    ],
    ids=lambda value: value if isinstance(value, str) and len(value) < 30 else "",
)
def test_a_hostile_value_is_refused_in_a_short_message(saved, where, value, message):
    folder, description = saved
    rewrite(folder, json.dumps(replaced(description, where.split("."), value)))
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


def test_a_manifest_nested_too_deeply_is_refused(saved, tmp_path):
    (tmp_path / "manifest.json").write_text(DEEP)
    with pytest.raises(ValueError, match=r"manifest.json cannot be read"):
        MetricClassifier.load(tmp_path)


def test_declared_sizes_are_compared_with_the_stored_weights_before_a_network_is_built(saved, monkeypatch):
    folder, description = saved

    def build(*arguments):
        raise AssertionError("a network was built")

    monkeypatch.setattr(Network, "build", build)
    for name in ("in_features", "width", "out_features"):
        changed = replaced(description, ("network", name), 10**5)
        rewrite(folder, json.dumps(changed))
        with pytest.raises(ValueError, match=r"holds no whole model .*100000"):
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


def test_text_in_a_column_of_numbers_is_quoted_in_part(saved):
    folder, description = saved
    rewrite(folder, json.dumps(description))
    model, (frame, _) = MetricClassifier.load(folder), table()
    for entry in ("x" * 10**6, BIG):
        with pytest.raises(ValueError, match="columns that held numbers in fit hold something else now: a") as error:
            model.predict(frame.assign(a=pd.Series([entry] * 60, dtype=object)))
        assert len(str(error.value)) < 500
