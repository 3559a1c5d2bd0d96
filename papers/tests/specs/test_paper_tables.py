"""Every table that comes with the package, on tiny data: two trials, two epochs."""

import functools
import json
import math
import shutil
from dataclasses import replace

import numpy as np
import pandas as pd
import pytest

import metricfit_papers as papers
from metricfit.runs.cells import CellError
from metricfit_papers.datasets import Table, dataset_files, load, trials
from metricfit_papers.datasets.catalogue import CATALOGUE
from metricfit_papers.datasets.preparations import PIXELS
from metricfit_papers.results import markdown, result_files
from metricfit_papers.specs import vocabulary

SIZE = 96
FIRST = "btg-1"  # whose protocols the paper's other tables share
TIMES = "anyloss-time"  # where a threshold changes nothing
EVERY = {"btg-5": 4, "anyloss-perceptron": 5, "anyloss-mlp": 7}  # of many rows of one kind, every so manieth
UNPUBLISHED = ("btg-steps", TIMES, "anyloss-mlp")  # without published numbers, or with some that are no target


def pairs():
    """Every table under every protocol; in the fast suite this paper's, each under its first, and one under all."""
    for name in papers.table_names():
        if papers.find_table(name).prepare == PIXELS:  # see test_ensemble_row and test_whole_image_sets
            continue
        for at, protocol in enumerate(papers.find_table(name).protocols):
            fast = name == FIRST or (at == 0 and name.startswith("btg-"))
            yield pytest.param(name, protocol, marks=() if fast else pytest.mark.slow)


def tiny_tables():
    rng = np.random.default_rng(0)
    numbers = rng.normal(size=(SIZE, 6))
    target = (numbers[:, 0] + 0.3 * rng.normal(size=SIZE) > 0.6).astype(int)
    plain = pd.DataFrame(numbers, columns=[f"attr{i}" for i in range(6)]).assign(target=target)
    adult = plain.assign(
        fnlwgt=1, town=rng.choice(["Ulm", "Bonn", None], SIZE), split=rng.choice(["train", "test"], SIZE)
    )
    card = plain.assign(Time=range(SIZE), Amount=rng.uniform(0, 9, SIZE))
    pairs = plain.assign(frame=np.arange(SIZE) // 4, timestamp_us=0, person1=1, person2=2, imputed=0)
    every = {entry.file: plain for entry in CATALOGUE.values()}
    own = {"adult": adult, "creditcard": card, "cocktailparty_dyads": pairs}
    return every | {f"tabular/{name}": frame for name, frame in own.items()}


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    where = tmp_path_factory.mktemp("data")
    for file, frame in tiny_tables().items():
        path = where / f"{file}.csv"
        path.parent.mkdir(exist_ok=True)
        frame.to_csv(path, index=False)
    return where


@pytest.fixture(autouse=True)
def tiny(monkeypatch):
    """Data of any size are taken, and blobs are small."""

    def blobs(keep):
        frame = tiny_tables()["tabular/mammography"]
        return Table(f"blobs {keep}", frame.drop(columns="target"), frame["target"].to_numpy(), "1", "made")

    dataset_files.load_table.cache_clear()
    monkeypatch.setattr(dataset_files, "load", functools.partial(load, verify=False))
    monkeypatch.setitem(vocabulary.DATASETS, "two_blobs", blobs)
    yield
    dataset_files.load_table.cache_clear()


@pytest.mark.parametrize(("name", "protocol"), list(pairs()))
def test_every_row_of_every_table_has_numbers(name, protocol, folder, tmp_path):
    spec = papers.find_table(name)
    only = [next(iter(spec.datasets))]
    shown = spec.shown(protocol)[:: EVERY.get(name, 1)]
    small = {"data": folder, "trials": 2, "epochs": 2, "only": only, "device": "cpu"}
    result = papers.run_table(spec, protocol, tmp_path, rows=[row.name for row in shown], **small)
    assert {row for _, row in result.rows} == {row.name for row in shown}
    for measured in result.rows.values():
        assert set(measured.values) == set(spec.columns)
        assert all(len(each) == 2 and all(map(math.isfinite, each)) for each in measured.values.values())
    plain = json.loads(json.dumps(result_files.to_plain_values(result, "a command"), allow_nan=False))
    page = markdown.format_results(spec, plain)
    assert f"2 of {spec.trials} trials, at most 2 of " in page
    assert all(row.title in page for row in shown)


@pytest.mark.parametrize("name", [name for name in papers.table_names() if name.startswith("btg-")])
def test_every_published_number_has_a_place_and_every_table_a_tuned_bce(name):
    spec = papers.find_table(name)
    assert spec.published or name in UNPUBLISHED
    assert {dataset for dataset, _, _ in spec.published} == (set() if name in UNPUBLISHED else set(spec.datasets))
    assert name == TIMES or any(row.of is not None and row.decided.startswith("tuned ") for row in spec.rows.values())


def test_the_four_tables_of_one_protocol_with_all_datasets(folder, tmp_path):
    spec = papers.find_table("btg-1")
    small = {"data": folder, "trials": 2, "epochs": 1, "rows": ["BCE"], "device": "cpu"}
    for protocol in spec.protocols:
        result = papers.run_table(spec, protocol, tmp_path, **small)
        assert [dataset for dataset, _ in result.rows] == list(spec.datasets)


def test_the_row_of_adversarial_prediction(folder, tmp_path):
    small = {"data": folder, "trials": 1, "epochs": 1, "only": ["mammography"], "device": "cpu"}
    result = papers.run_table(papers.find_table("btg-1"), "paper", tmp_path, rows=["F1†"], **small)
    assert 0 <= result.rows["mammography", "F1†"].values["f1"][0] <= 1
    with pytest.raises(ValueError, match=r"no row or tag 'ap_perf'; it has .*ap-perf"):
        papers.run_table(papers.find_table("btg-1"), "paper", tmp_path, without=["ap_perf"], **small)


def test_what_is_finished_is_not_run_again_and_tables_share_rows(folder, tmp_path, monkeypatch):
    small = {"data": folder, "trials": 2, "epochs": 1, "only": ["mammography"], "device": "cpu"}
    first = papers.run_table(papers.find_table("btg-1"), "paper", tmp_path, rows=["BCE"], **small)
    monkeypatch.setattr(dataset_files, "load", None)  # what a cell that is not there would call
    dataset_files.load_table.cache_clear()
    again = papers.run_table(papers.find_table("btg-1"), "paper", tmp_path, rows=["BCE, tuned for F1"], **small)
    other = papers.run_table(papers.find_table("btg-4"), "paper", tmp_path, rows=["BCE"], **small)
    assert other.rows["mammography", "BCE"].values == first.rows["mammography", "BCE"].values
    assert again.rows["mammography", "BCE, tuned for F1"].epochs == first.rows["mammography", "BCE"].epochs


def test_trials_differ_as_the_protocol_says(folder):
    spec = papers.find_table("btg-1")
    made = {
        name: trials.make_trials(spec.datasets["cocktailparty"], str(folder), spec.prepare, how, 3, "")
        for name, how in spec.protocols.items()
    }
    assert all(each.x is made["paper"][0].x for each in made["paper"])
    for name in ("code", "corrected"):
        tests = {tuple(each.test.tolist()) for each in made[name]}
        assert len(tests) == 3
    for each in [*made["paper"], *made["code"], *made["corrected"]]:
        parts = [set(rows.tolist()) for rows in (each.train, each.validation, each.test)]
        assert sum(map(len, parts)) == len(set.union(*parts)) == SIZE
        np.testing.assert_allclose(each.x[each.train].mean(0), 0, atol=1e-6)
    groups = np.arange(SIZE) // 4
    for each in made["corrected"]:
        assert not set(groups[each.train]) & set(groups[each.test])


def test_the_published_test_rows_of_adult(folder):
    spec = papers.find_table("btg-1")
    made = trials.make_trials(spec.datasets["adult"], str(folder), spec.prepare, spec.protocols["code"], 2, "")
    chosen = np.flatnonzero(tiny_tables()["tabular/adult"]["split"] == "test")
    for each in made:
        np.testing.assert_array_equal(each.test, chosen)
    assert made[0].train.tolist() != made[1].train.tolist()


def rewrite(folder, to, file, change):
    """Copy the tiny data to another folder, with one file changed."""
    shutil.copytree(folder, to)
    path = next(to.glob(f"{file}.*"))
    tiny = change(pd.read_parquet(path) if path.suffix == ".parquet" else pd.read_csv(path))
    path.unlink()
    tiny.to_csv(to / f"{file}.csv", index=False)
    return to


SPLIT_BY = [
    ("adult", "tabular/adult", "split", "code", "corrected"),
    ("adult", "tabular/adult", "split", "paper", "corrected"),
    ("cocktailparty", "tabular/cocktailparty_dyads", "frame", "corrected", "paper"),
]


@pytest.mark.parametrize(("name", "file", "column", "protocol", "other_way"), SPLIT_BY)
def test_a_file_without_the_column_of_the_split_is_refused(folder, tmp_path, name, file, column, protocol, other_way):
    spec = papers.find_table("btg-1")
    other = rewrite(folder, tmp_path / "data", file, lambda tiny: tiny.drop(columns=column))
    small = {"data": other, "trials": 1, "epochs": 1, "only": [name], "rows": ["BCE"], "device": "cpu"}
    with pytest.raises(ValueError, match=f"no column '{column}'.*{protocol}.*metricfit datasets --fetch {name}"):
        papers.run_table(spec, protocol, tmp_path / "out", **small)
    with pytest.raises(ValueError, match=f"no column '{column}'"):
        trials.make_trials(spec.datasets[name], str(other), spec.prepare, spec.protocols[protocol], 1, "")
    assert papers.run_table(spec, other_way, tmp_path / "out", **small).rows  # which needs no such column


@pytest.mark.parametrize(("name", "file", "column", "protocol", "other_way"), SPLIT_BY)
def test_cells_of_another_split_are_not_reused(folder, tmp_path, name, file, column, protocol, other_way):
    spec = papers.find_table("btg-1")
    other = rewrite(
        folder, tmp_path / "data", file, lambda tiny: tiny.assign(**{column: tiny[column].to_numpy()[::-1]})
    )
    small = {"trials": 1, "epochs": 1, "only": [name], "rows": ["BCE"], "device": "cpu"}
    papers.run_table(spec, protocol, tmp_path / "out", data=folder, **small)
    papers.run_table(spec, protocol, tmp_path / "out", data=folder, train=False, **small)
    with pytest.raises(papers.UnfinishedCellsError):
        papers.run_table(spec, protocol, tmp_path / "out", data=other, train=False, **small)
    papers.run_table(spec, other_way, tmp_path / "out", data=folder, **small)
    papers.run_table(
        spec, other_way, tmp_path / "out", data=other, train=False, **small
    )  # where the split is no matter


def test_the_hashes_of_the_catalogue_are_those_of_the_published_columns():
    adult, cocktailparty = dict(CATALOGUE["adult"].hashes), dict(CATALOGUE["cocktailparty"].hashes)
    parts = np.repeat(["train", "test"], [32561, 16281])  # UCI's two files, one after the other
    assert adult == {"split": dataset_files.hash_column(parts)}
    frames = np.repeat(np.arange(320), 15)  # 15 pairs of six people in each frame
    assert cocktailparty == {"frame": dataset_files.hash_column(frames)}


def test_all_missing_datasets_are_reported_before_anything_is_trained(tmp_path):
    (tmp_path / "data").mkdir()
    spec = papers.find_table("btg-1")
    with pytest.raises(FileNotFoundError) as told:
        papers.run_table(spec, "paper", tmp_path / "out", data=tmp_path / "data", trials=2, rows=["BCE"])
    for name in ("adult is not in", "cocktailparty is not in", "mammography is not in", "creditcard is not in"):
        assert name in str(told.value)
    assert not list(tmp_path.rglob("spec.json"))


def test_no_rows_left_and_an_unknown_device_are_reported(tmp_path):
    spec = papers.find_table("btg-5")
    name = "BCE, B = 4096"
    with pytest.raises(ValueError, match="no row of btg-5 is left"):
        papers.run_table(spec, "paper", tmp_path, rows=[name], without=[name])
    with pytest.raises(ValueError, match=r"the device must be cpu.*got 'tpu'"):
        papers.run_table(spec, "paper", tmp_path, rows=[name], device="tpu")


@pytest.mark.parametrize("content", ["[]", "{}", '{"result": {}, "seconds": 1, "versions": {}}'])
def test_an_invalid_report_is_refused_with_a_remedy(tmp_path, content):
    run = {"trials": 2, "epochs": 1, "rows": ["BCE, B = 4096"], "only": ["synthetic_05"], "device": "cpu"}
    spec = papers.find_table("btg-5")
    papers.run_table(spec, "paper", tmp_path, **run)
    report = next(tmp_path.rglob("report.json"))
    report.write_text(content)
    with pytest.raises(CellError, match="remove"):
        papers.run_table(spec, "paper", tmp_path, **run)


def test_more_trials_and_epochs_than_the_table_has_are_not_smaller(tmp_path):
    run = {"rows": ["BCE, B = 4096"], "only": ["synthetic_05"], "device": "cpu", "trials": 2}
    spec = papers.find_table("btg-5")
    assert (
        papers.run_table(spec, "paper", tmp_path, epochs=1, **run).smaller
        == "2 of 10 trials, at most 1 of 5,000 epochs"
    )
    few = replace(spec, trials=1)
    assert papers.run_table(few, "paper", tmp_path, epochs=1, **run).smaller == "at most 1 of 5,000 epochs"
