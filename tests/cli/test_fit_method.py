"""fit trains every method that compare compares, and compare prints the command for the one it recommends."""

import json
import shlex
from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
from json_validation import validate
from typer.testing import CliRunner

from metricfit import MetricClassifier
from metricfit.cli.app import app
from metricfit.tabular.compare import methods as module
from metricfit.tabular.compare.methods import DEFAULT


def call(*arguments):
    return CliRunner().invoke(app, [str(argument) for argument in arguments])


@pytest.fixture(scope="module")
def data(tmp_path_factory):
    rng = np.random.default_rng(0)
    frame = pd.DataFrame(rng.normal(size=(80, 2)), columns=["a", "b"])
    frame["y"] = np.where(frame["b"] + 0.3 * rng.normal(size=80) > 0.4, "yes", "no")
    path = tmp_path_factory.mktemp("data") / "t.csv"
    frame.to_csv(path, index=False)
    return path


@pytest.fixture
def quick_networks(monkeypatch):
    quick = [
        replace(method, models=tuple(m if isinstance(m, str) else replace(m, epochs=1) for m in method.models))
        for method in module.METHODS
    ]
    monkeypatch.setattr(module, "METHODS", tuple(quick))


@pytest.mark.parametrize("name", [method.name for method in module.METHODS])
def test_every_method_can_be_fitted(name, data, tmp_path, quick_networks):
    options = ["--subject-to", "recall >= 0.2"] if name in module.FOR_REQUIREMENTS else []
    result = call(
        "fit", data, "--target", "y", "--method", name, "--folds", 2, "--json", "--out", tmp_path / "m", *options
    )
    assert result.exit_code == 0, result.output
    method = next(method for method in module.METHODS if method.name == name)
    families = {row["name"] for row in json.loads(result.stdout)["models"]}
    assert families == {model if isinstance(model, str) else "network" for model in method.models}
    loaded = MetricClassifier.load(tmp_path / "m" / "model")
    assert loaded.class_weight == method.class_weight
    assert set(loaded.predict(pd.read_csv(data)[["a", "b"]])) <= {"yes", "no"}


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--method", "trees"], "there is no method 'trees'; the methods are 'metricfit', 'logistic regression'"),
        (["--method", "network (under the requirements)"], "needs a requirement, such as --subject-to 'recall >= 0.9'"),
        (["--method", "extra trees", "--models", "linear"], "--method and --models both choose the models"),
    ],
)
def test_what_cannot_be_fitted_is_refused(options, message, data, tmp_path):
    result = call("fit", data, "--target", "y", "--out", tmp_path / "m", *options)
    assert result.exit_code == 2
    assert message in " ".join(result.output.split()).lower() or message in " ".join(result.output.split())
    assert not (tmp_path / "m").exists()


@pytest.mark.usefixtures("two_inner_folds")
def test_compare_prints_the_command_that_fits_the_recommended_method(data, tmp_path):
    chosen = ["--metric", "fbeta(beta=2)", "--subject-to", "recall >= 0.2", "--positive", "yes", "--seed", "3"]
    result = call(
        "compare", data, "--target", "y", "--folds", 2, "--out", tmp_path / "c", "--json", *chosen,
        "--method", "logistic regression", "--method", DEFAULT,
    )  # fmt: skip
    assert result.exit_code == 0, result.output
    printed = validate("compare", json.loads(result.stdout))
    assert printed["recommendation"]["method"] == printed["recommended"]
    words = shlex.split(printed["command"])
    assert words[:2] == ["metricfit", "fit"]
    assert [words[words.index(option) + 1] for option in chosen[::2]] == chosen[1::2]
    if printed["recommended"] == DEFAULT:
        assert "--method" not in words
    else:
        assert words[words.index("--method") + 1] == printed["recommended"]
    fitted = call(*words[1:], "--folds", 2, "--json")
    assert fitted.exit_code == 0, fitted.output
    assert (tmp_path / "c" / "recommended" / "model").is_dir()


def test_the_quality_says_which_families_are_fitted(data, tmp_path):
    called = call("fit", data, "--target", "y", "--out", tmp_path / "out", "--quality", "fast", "--json", "--folds", 3)
    assert called.exit_code == 0, called.output
    assert {row["name"] for row in json.loads(called.stdout)["models"]} == {"linear", "boosting_small"}
    wrong = call("fit", data, "--target", "y", "--out", tmp_path / "other", "--quality", "good")
    assert wrong.exit_code == 2
    assert "--quality is one of fast, default, best" in " ".join(wrong.output.split())
