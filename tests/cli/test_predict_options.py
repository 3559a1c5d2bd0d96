"""predict: columns that are carried through, another threshold, referred rows."""

import json

import numpy as np
import pandas as pd
import pytest
from json_validation import validate
from typer.testing import CliRunner

from metricfit import MetricClassifier
from metricfit.cli.app import app

TINY = {"models": ["linear"], "members": 2, "time_budget": None, "random_state": 0}


def call(*arguments):
    return CliRunner().invoke(app, [str(each) for each in arguments])


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    r, folder = np.random.default_rng(0), tmp_path_factory.mktemp("predicting")
    frame = pd.DataFrame(r.normal(size=(120, 2)), columns=["a", "b"])
    frame["two"] = np.where(frame["a"] + 0.5 * r.normal(size=120) > 0.7, "yes", "no")
    frame["three"] = np.select([frame["a"] > 0.5, frame["b"] > 0.5], ["x", "y"], "z")
    frame["customer"] = [f"{number:05}" for number in range(120)]
    frame["predicted"] = 1
    frame.to_csv(folder / "rows.csv", index=False)
    model = MetricClassifier("f1", **TINY).fit(frame[["a", "b"]], frame["two"])
    model.save(folder / "two")
    model.refer(max_share=0.2).save(folder / "refers")
    MetricClassifier("f1", **TINY).fit(frame[["a", "b"]], frame["three"]).save(folder / "three")
    return folder


def predicted(folder, tmp_path, model, *options):
    found = call("predict", folder / model, folder / "rows.csv", "--out", tmp_path / "p.csv", "--json", *options)
    assert found.exit_code == 0, found.output
    return pd.read_csv(tmp_path / "p.csv", dtype={"customer": str}), validate("predict", json.loads(found.stdout))


def test_columns_are_carried_through_letter_by_letter(folder, tmp_path):
    rows, _ = predicted(folder, tmp_path, "two", "--id", "customer", "--id", "a", "--id", "customer")
    table = pd.read_csv(folder / "rows.csv", dtype={"customer": str})
    assert list(rows) == ["customer", "a", "predicted", "probability of no", "probability of yes"]
    assert rows["customer"].tolist() == table["customer"].tolist()
    assert rows["a"].to_numpy() == pytest.approx(table["a"].to_numpy())


@pytest.mark.parametrize("model", ["two", "three", "refers"])
@pytest.mark.parametrize("ending", ["csv", "parquet"])
@pytest.mark.parametrize("source", ["rows.csv", "rows.csv.gz", "rows.parquet", "rows.arrow"])
def test_a_table_without_rows_gives_predictions_without_rows(folder, tmp_path, model, ending, source):
    rows = pd.read_csv(folder / "rows.csv", dtype={"customer": str})
    for number, part in ((0, rows[:0]), (1, rows[:5])):
        (tmp_path / str(number)).mkdir()
        path = tmp_path / str(number) / source
        if source.endswith("parquet"):
            part.to_parquet(path)
        elif source.endswith("arrow"):
            part.to_feather(path)
        else:
            part.to_csv(path, index=False)
    written = []
    for number, rows_of in enumerate(([0], [0, 1, 0], [1])):
        out = tmp_path / f"p{number}.{ending}"
        files = [tmp_path / str(part) / source for part in dict.fromkeys(rows_of)]
        result = call("predict", folder / model, *files, "--out", out, "--id", "customer", "--json")
        assert result.exit_code == 0, result.output
        validate("predict", json.loads(result.stdout))
        written.append(pd.read_csv(out, dtype={"customer": str}) if ending == "csv" else pd.read_parquet(out))
    assert [len(table) for table in written] == [0, 5, 5]
    assert list(written[0]) == list(written[2])
    pd.testing.assert_frame_equal(written[1], written[2])


def test_another_threshold_decides(folder, tmp_path):
    for model in ("two", "refers"):
        rows, result = predicted(folder, tmp_path, model, "--threshold", "0.9")
        called = np.where(rows["probability of yes"] >= 0.9, "yes", "no")
        assert rows["predicted"].tolist() == called.tolist()
        assert "referred" not in rows
        assert result["threshold"] == 0.9
        assert result["predicted"] == {"no": (called == "no").sum(), "yes": (called == "yes").sum()}
        (tmp_path / "p.csv").unlink()


def test_referred_rows_are_marked_and_counted(folder, tmp_path):
    rows, result = predicted(folder, tmp_path, "refers")
    low, high = MetricClassifier.load(folder / "refers").refer_region_
    inside = rows["probability of yes"].between(low, high)
    assert rows["referred"].tolist() == inside.tolist()
    assert (rows.loc[inside, "predicted"] == "refer").all()
    assert result["referred"] == inside.sum() > 0
    assert sum(result["predicted"].values()) + result["referred"] == 120
    text = call("predict", folder / "refers", folder / "rows.csv", "--out", tmp_path / "q.csv").stdout
    assert f"{inside.sum()} referred to a person." in text


def test_every_class_has_a_column_of_probabilities(folder, tmp_path):
    rows, result = predicted(folder, tmp_path, "three")
    assert list(rows)[1:] == ["probability of x", "probability of y", "probability of z"]
    assert rows.iloc[:, 1:].sum(axis=1).to_numpy() == pytest.approx(np.ones(120))
    assert result["threshold"] is None


@pytest.mark.parametrize(
    ("model", "options", "words"),
    [
        ("three", ["--threshold", "0.5"], "--threshold is for two classes"),
        ("two", ["--threshold", "1.5"], "less than or equal to 1"),
        ("two", ["--id", "custmer"], "has no column 'custmer' to carry through. Did you mean 'customer'?"),
        ("two", ["--id", "predicted"], "--id 'predicted' has the name of a column of the predictions"),
    ],
)
def test_what_makes_no_sense_is_refused(folder, tmp_path, model, options, words):
    found = call("predict", folder / model, folder / "rows.csv", "--out", tmp_path / "p.csv", *options)
    assert found.exit_code == 2
    assert words in " ".join(found.stderr.replace("│", " ").split())
    assert not (tmp_path / "p.csv").exists()
