"""metricfit reproduce --from and --finished, run as a user would."""

import json

import jsonschema
import numpy as np
import pandas as pd
import pytest
from typer.testing import CliRunner

from metricfit.cli.app import app
from metricfit_papers.reproduce_schema import reproduce_schema

TABLE = """
title = "T"
paper = "P"
where = "W"
trials = 2
prepare = "one-hot"
[datasets.visits]
file = "visits.csv"
target = "bought"
positive = "yes"
[columns]
f1 = { metric = "f1" }
[training]
network = "mlp(hidden=[4], dropout=0.0)"
lr = 0.01
batch_size = 32
epochs = 2
[protocols.paper]
says = "."
decided = "half"
[rows."soft F1"]
loss = "MetricLoss('f1')"
[rows.BCE]
loss = "WeightedBCELoss"
"""


@pytest.fixture(scope="module")
def mine(tmp_path_factory):
    folder = tmp_path_factory.mktemp("mine")
    rng = np.random.default_rng(0)
    frame = pd.DataFrame({"pages": rng.poisson(5, 120)})
    frame["bought"] = np.where(frame["pages"] + 2 * rng.normal(size=120) > 6, "yes", "no")
    frame.to_csv(folder / "visits.csv", index=False)
    (folder / "visits.toml").write_text(TABLE, encoding="utf-8")
    assert reproduced(folder / "visits.toml", "--out", folder / "one", "--row", "BCE").exit_code == 0
    assert reproduced(folder / "visits.toml", "--out", folder / "two", "--row", "soft F1").exit_code == 0
    return folder


def reproduced(*args):
    return CliRunner().invoke(app, ["reproduce", *map(str, args), "--quiet"])


def printed(found):
    result = json.loads(found.stdout)
    jsonschema.validate(result, reproduce_schema(), cls=jsonschema.Draft202012Validator)
    return result


def values(found):
    return printed(found)["protocols"][0]["datasets"]["visits"]


def test_cells_of_two_folders_are_shown_as_one_table(mine, tmp_path):
    both = ("--from", mine / "one", "--from", mine / "two")
    found = reproduced(mine / "visits.toml", "--out", tmp_path, *both, "--finished", "--json")
    assert found.exit_code == 0, found.output
    copied = printed(found)["copied"]
    assert [each["copied"] for each in copied] == [1, 1]
    assert set(values(found)) == {"soft F1", "BCE"}
    shown = reproduced(mine / "visits.toml", "--out", mine / "one", "--row", "BCE", "--finished", "--json")
    assert values(shown)["BCE"] == values(found)["BCE"]  # the seconds, too: it is the same training
    assert (tmp_path / "visits" / "paper.json").exists()


def test_missing_cells_are_reported_with_finished_and_trained_without_it(mine, tmp_path):
    given = (mine / "visits.toml", "--out", tmp_path, "--from", mine / "one")
    found = reproduced(*given, "--finished")
    assert found.exit_code == 2
    assert f"Error: 1 of 2 cells are not finished in {tmp_path}: visits / paper / soft F1 / 2 trials" in found.stderr
    assert "leave out --finished" in found.stderr
    assert not (tmp_path / "visits").exists()
    trained = reproduced(*given, "--json")
    assert trained.exit_code == 0, trained.output
    assert set(values(trained)) == {"soft F1", "BCE"}
    assert json.loads(trained.stdout)["copied"][0]["here"] == 1


def test_cells_are_copied_without_a_table(mine, tmp_path):
    assert printed(reproduced("--from", mine / "one", "--out", tmp_path / "json", "--json"))["table"] is None
    found = reproduced("--from", mine / "one", "--out", tmp_path)
    assert found.exit_code == 0, found.output
    assert found.stdout.split() == f"1 cells copied from {mine / 'one'}, 0 were here already.".split()
    assert len(list(tmp_path.rglob("finished"))) == 2


def test_a_folder_without_cells_is_an_error_and_nothing_is_trained(mine, tmp_path):
    found = reproduced(mine / "visits.toml", "--out", tmp_path / "out", "--from", mine / "one" / "cells")
    assert found.exit_code == 2
    assert "cells holds no cells; give a folder that was the --out of metricfit reproduce" in found.stderr
    assert not (tmp_path / "out").exists()


def test_the_list_is_valid():
    assert "btg-1" in [table["name"] for table in printed(reproduced("--list", "--json"))["tables"]]
