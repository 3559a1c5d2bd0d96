"""metricfit datasets --fetch and metricfit reproduce --fetch, run as a stranger would, with a local server."""

import json

import jsonschema
import numpy as np
import pytest
from local_server import serve
from typer.testing import CliRunner

from metricfit.cli.app import app
from metricfit_papers.datasets.http_files import MIRROR
from metricfit_papers.reproduce_schema import datasets_schema, reproduce_schema

ARFF = "api.openml.org/data/v1/download/52214/mammography.arff"


def mammography():
    """A file of OpenML's form with the published number of rows and positives."""
    rng = np.random.default_rng(0)
    labels = np.where(np.arange(11183) < 260, 1, -1)
    values = rng.normal(size=(11183, 6)).round(3) + labels[:, None]
    head = [f"@ATTRIBUTE attr{number} REAL" for number in range(1, 7)]
    rows = [",".join(map(str, [*row, label])) for row, label in zip(values.tolist(), labels.tolist(), strict=True)]
    return "\n".join(["@RELATION mammography", *head, "@ATTRIBUTE class {-1,1}", "@DATA", *rows, ""]).encode()


@pytest.fixture
def internet(monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    with serve() as server:
        monkeypatch.setenv(MIRROR, server.address)
        described = {"data_set_description": {"url": f"https://{ARFF}"}}
        server.files = {"www.openml.org/api/v1/json/data/310": json.dumps(described).encode(), ARFF: mammography()}
        yield server


def run(*args):
    return CliRunner().invoke(app, [*map(str, args)])


def printed(done, schema):
    assert done.exit_code == 0, done.output
    result = json.loads(done.stdout)
    jsonschema.validate(result, schema, cls=jsonschema.Draft202012Validator)
    return result


def test_the_commands_of_the_page_fetch_and_reproduce_a_small_table(internet, tmp_path):
    done = run("datasets", "--fetch", "mammography")
    assert done.exit_code == 0, done.output
    assert "metricfit-data/tabular/mammography.csv" in done.stdout
    assert "Downloading openml-310.arff, " in done.stderr
    assert "Licence: public, says OpenML" in done.stderr
    small = ("--trials", 1, "--epochs", 1, "--row", "BCE", "--device", "cpu", "--json")
    result = printed(run("reproduce", "btg-3", *small), reproduce_schema())
    assert list(result["protocols"][0]["datasets"]) == ["mammography"]
    assert len(internet.asked) == 2


def test_reproduce_fetches_what_is_missing(internet, tmp_path):
    small = ("--trials", 1, "--epochs", 1, "--row", "BCE", "--device", "cpu", "--json", "--quiet")
    printed(run("reproduce", "btg-3", "--fetch", "--data", "here", *small), reproduce_schema())
    assert (tmp_path / "here" / "tabular" / "mammography.csv").is_file()
    again = run("reproduce", "btg-3", "--fetch", "--data", "here", *small)
    assert again.exit_code == 0
    assert len(internet.asked) == 2


def test_missing_data_are_one_line_each(internet):
    run("datasets", "--fetch", "mammography", "--quiet")
    done = run(
        "reproduce",
        "anyloss-perceptron",
        "--quiet",
        "--only",
        "ecoli",
        "--only",
        "diabetes_100k",
        "--only",
        "mammography",
    )
    assert done.exit_code == 2
    ecoli, diabetes, last = done.stderr.splitlines()
    assert ecoli.startswith("ecoli is not in metricfit-data: metricfit datasets --fetch ecoli --data metricfit-data")
    assert diabetes.startswith("diabetes_100k is not in metricfit-data: Kaggle asks for an account: open https:")
    assert last.startswith("Error: 2 of 3 datasets are missing; --fetch downloads them where a program can.")
    assert last.endswith("To run the others only: --only mammography")


def test_fetched_datasets_as_json(internet):
    result = printed(run("datasets", "--fetch", "mammography", "--json", "--quiet"), datasets_schema())
    assert result["fetched"] == [
        {
            "name": "mammography",
            "path": "metricfit-data/tabular/mammography.csv",
            "licence": "public, says OpenML; cite Woods et al. 1993",
            "new": True,
        }
    ]
    assert printed(run("datasets", "--fetch", "mammography", "--json"), datasets_schema())["fetched"][0]["new"] is False


def test_mistakes_and_a_missing_network_end_without_a_traceback(internet, monkeypatch):
    for name, says in (("diabetes_100k", "log in, click Download"), ("nope", "no dataset is called 'nope'")):
        done = run("datasets", "--fetch", name)
        assert done.exit_code == 2
        assert says in " ".join(done.stderr.split())
    monkeypatch.setenv(MIRROR, "http://127.0.0.1:1")
    done = run("datasets", "--fetch", "mammography")
    assert done.exit_code == 2
    assert "Is there a network?" in " ".join(done.stderr.split())


def test_the_list_shows_data_time_and_size(internet):
    def entry(*args):
        listed = printed(run("reproduce", "--list", "--json", *args), reproduce_schema())["tables"]
        return {table["name"]: table for table in listed}

    tables = entry()
    assert tables["btg-3"]["data"] == [{"name": "mammography", "present": False, "fetch": True}]
    assert tables["btg-5"]["data"] == []  # generated
    assert tables["btg-2"]["data"] == [{"name": "cifar10", "present": False, "fetch": True}]
    assert {"name": "diabetes_100k", "present": False, "fetch": False} in tables["anyloss-time"]["data"]
    run_already = {name: table["run"]["minutes"].replace(",", "") for name, table in tables.items()}
    for name in ("multiclass-1b", "multiclass-search", "constrained-splits"):
        assert run_already.pop(name) == ""  # in the queue
    assert all(int(minutes) > 0 for minutes in run_already.values())
    assert "missing: mammography" in run("reproduce", "--list").stdout
    run("datasets", "--fetch", "mammography", "--quiet")
    assert entry()["btg-3"]["data"][0]["present"]
    assert not entry("--data", "elsewhere")["btg-3"]["data"][0]["present"]
    assert "there: mammography" in run("reproduce", "--list").stdout
