"""Tables with a column of sentences, from ``fit`` to ``predict``."""

import numpy as np
import pandas as pd
import pytest
from typer.testing import CliRunner

from metricfit.cli.app import app
from metricfit.tabular import MetricClassifier


@pytest.fixture
def reviews(tmp_path):
    rng = np.random.default_rng(0)
    good = rng.random(160) < 0.4
    words = np.array(["tea", "box", "shop", "price", "day", "leaf", "cup", "mail"])
    notes = [
        f"{' '.join(rng.choice(words, 6))} {'fresh' if each else 'stale'} {number}" for number, each in enumerate(good)
    ]
    table = pd.DataFrame({"stars": rng.integers(1, 6, 160), "note": notes, "y": np.where(good, "good", "bad")})
    table.to_csv(tmp_path / "reviews.csv", index=False)
    return tmp_path / "reviews.csv"


@pytest.mark.parametrize(
    ("models", "reading"),
    [
        ("text", "the model 'text' reads TF-IDF of words and letters, the others 30 components of its letters."),
        ("linear", "30 components of its letters."),
    ],
)
def test_fit_says_how_text_is_read(models, reading, reviews, tmp_path):
    options = ["--target", "y", "--models", models, "--folds", "2", "--no-insight", "--out", str(tmp_path / "out")]
    ended = CliRunner().invoke(app, ["fit", str(reviews), *options])
    assert ended.exit_code == 0, ended.output
    assert f"Free text in 'note': {reading}" in " ".join(ended.stdout.split())


def test_predictions_of_a_file_are_those_of_python(reviews, tmp_path):
    options = ["--target", "y", "--models", "text", "--folds", "2", "--no-insight", "--out", str(tmp_path / "out")]
    assert CliRunner().invoke(app, ["fit", str(reviews), *options]).exit_code == 0
    model = str(tmp_path / "out" / "model")
    ended = CliRunner().invoke(app, ["predict", model, str(reviews), "--out", str(tmp_path / "new.csv")])
    assert ended.exit_code == 0, ended.output
    table, predicted = pd.read_csv(reviews), pd.read_csv(tmp_path / "new.csv")
    expected = MetricClassifier.load(model).predict(table[["stars", "note"]])
    column = next(name for name in predicted.columns[::-1] if set(predicted[name]) <= {"good", "bad"})
    assert predicted[column].tolist() == expected.tolist()
    assert np.mean(expected == table["y"]) > 0.9
