"""Reading options of the commands: what is guessed is printed, and every command reads what the others read."""

import io
import json

import numpy as np
import pandas as pd
import pytest
from typer.testing import CliRunner

from metricfit.cli.app import app

SMALL = ("--models", "linear", "--folds", "2", "--quiet", "--json")


def call(*arguments, **options):
    return CliRunner().invoke(app, [str(argument) for argument in arguments], **options)


@pytest.fixture(scope="module")
def frame():
    rng = np.random.default_rng(0)
    rows = pd.DataFrame(rng.normal(size=(90, 2)).round(3), columns=["a", "b"])
    return rows.assign(town=rng.choice(["Köln", "Ulm"], 90), y=np.where(rows["b"] > 0.5, "ja", "nein"))


@pytest.fixture(scope="module")
def plain(frame, tmp_path_factory):
    """A model of the plain file, and the file."""
    folder = tmp_path_factory.mktemp("plain")
    frame.to_csv(folder / "rows.csv", index=False)
    result = call("fit", folder / "rows.csv", "--target", "y", "--out", folder / "model", *SMALL)
    assert result.exit_code == 0, result.output
    return folder / "model", folder / "rows.csv", json.loads(result.stdout)


def test_excels_file_gives_the_model_of_the_plain_file_and_says_how_it_was_read(frame, plain, tmp_path):
    frame.to_csv(tmp_path / "rows.csv", index=False, sep=";", decimal=",", encoding="cp1252")
    result = call("fit", tmp_path / "rows.csv", "--target", "y", "--out", tmp_path / "model", *SMALL)
    assert result.exit_code == 0, result.output
    fitted = json.loads(result.stdout)
    assert fitted["threshold"] == plain[2]["threshold"]
    assert fitted["value"] == plain[2]["value"]
    said = "rows.csv is read with ';' as separator, ',' as decimal mark and Windows-1252 as encoding."
    assert said in " ".join(result.stderr.split())
    options = ("--sep", ";", "--decimal", ",", "--encoding", "cp1252")
    quiet = call("evaluate", plain[0], tmp_path / "rows.csv", "--target", "y", *options, "--quiet", "--json")
    assert quiet.stderr == ""
    assert json.loads(quiet.stdout) == json.loads(call("evaluate", *plain[:2], "--target", "y", "--json").stdout)


def test_several_files_a_folder_and_a_pattern_are_read_by_every_command(frame, plain, tmp_path):
    parts = tmp_path / "parts"
    parts.mkdir()
    frame[:50].to_parquet(parts / "0.parquet")
    frame[50:].to_parquet(parts / "1.parquet")
    whole = call("evaluate", *plain[:2], "--target", "y", "--json").stdout
    for sources in ([parts], [parts / "*.parquet"], [parts / "0.parquet", parts / "1.parquet"]):
        assert call("evaluate", plain[0], *sources, "--target", "y", "--json").stdout == whole
    result = call("fit", parts, "--target", "y", "--out", tmp_path / "model", *SMALL)
    assert json.loads(result.stdout)["threshold"] == plain[2]["threshold"]
    result = call("predict", plain[0], parts / "0.parquet", parts / "1.parquet", "--out", tmp_path / "p.csv", "--json")
    assert json.loads(result.stdout)["rows"] == 90
    frame.rename(columns={"town": "city"}).to_parquet(parts / "1.parquet")
    result = call("fit", parts, "--target", "y", "--out", tmp_path / "other", *SMALL)
    assert result.exit_code == 2
    assert "it lacks 'town' and it has 'city' besides" in " ".join(result.stderr.split())


def test_compare_repeats_the_options_in_the_command_that_it_recommends(frame, tmp_path):
    parts = [tmp_path / "a.csv", tmp_path / "b.csv"]
    for part, rows in zip(parts, (frame[:45], frame[45:]), strict=True):
        rows.to_csv(part, index=False, sep="|")
    options = ("--target", "y", "--sep", "|", "--folds", "2", "--method", "logistic regression")
    options += ("--subject-to", "recall >= 0.1")  # the reference is not chosen for it
    result = call("compare", *parts, *options, "--out", tmp_path / "out", "--quiet", "--json")
    assert result.exit_code == 0, result.output
    command = json.loads(result.stdout)["command"]
    assert f"metricfit fit {parts[0]} {parts[1]} --target y" in command
    assert "--sep '|'" in command
    assert "a.csv and 1 more" in (tmp_path / "out" / "report.html").read_text()


def test_standard_input_is_a_table(frame, plain):
    buffer = io.BytesIO()
    frame.to_parquet(buffer)
    for content in (frame.to_csv(index=False).encode(), buffer.getvalue()):
        result = call("evaluate", plain[0], "-", "--target", "y", "--json", input=content)
        assert json.loads(result.stdout)["rows"] == 90
    result = call("evaluate", plain[0], "-", "--target", "y", input=b"")
    assert result.exit_code == 2
    assert "Error: Standard input is empty." in result.stderr


def test_wrong_columns_are_reported_with_the_nearest_name(frame, plain, tmp_path):
    frame.rename(columns={"town": "Town"}).to_csv(tmp_path / "t.csv", index=False)
    for command, said in (
        (("fit", tmp_path / "t.csv", "--target", "yy", "--out", tmp_path / "m"), "no column 'yy'.*Did you mean 'y'"),
        (
            ("fit", tmp_path / "t.csv", "--target", "y", "--group", "twon", "--out", tmp_path / "m"),
            "no column 'twon' for --group. Did you mean 'Town'",
        ),
        (("evaluate", plain[0], tmp_path / "t.csv", "--target", "y"), "lacks 1 of the columns.*Did you mean 'Town'"),
    ):
        result = call(*command)
        assert result.exit_code == 2
        assert pd.Series(" ".join(result.stderr.split())).str.contains(said).all(), result.stderr
