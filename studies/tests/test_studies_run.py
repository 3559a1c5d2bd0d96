"""The studies run to the end, in a tiny version, and write what they promise."""

import importlib
import json
from pathlib import Path

import numpy as np
import pytest
import torch

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture
def study(monkeypatch):
    """Import a study by name."""
    threads = torch.get_num_threads()
    yield lambda name: importlib.import_module(f"studies.{name}")
    torch.set_num_threads(threads)


@pytest.mark.parametrize(
    ("name", "page", "pictures"),
    [
        ("memory", "evidence/losses.md", 1),
        ("per_unit", "evidence/decisions.md", 1),
        ("small_batches", "evidence/losses.md", 0),
        ("start_well", "evidence/losses.md", 3),
    ],
)
def test_study_fills_its_page(study, tmp_path, name, page, pictures):
    study(name).main(["--quick", "--out", str(tmp_path)])
    assert "| --- |" in (tmp_path / "docs" / page).read_text(encoding="utf-8")
    assert json.loads((tmp_path / "studies" / "results" / f"{name}.json").read_text(encoding="utf-8"))["settings"]
    assert len(list((tmp_path / "docs" / "img").glob("*.svg"))) == pictures


def test_the_study_of_few_rows_keeps_its_samples_and_fills_its_page(study, tmp_path, monkeypatch):
    few_rows = study("few_rows")
    monkeypatch.setattr(few_rows, "NEW_ROWS", 2000)
    monkeypatch.setattr(few_rows, "RESAMPLES", 3)
    monkeypatch.setattr(few_rows, "SIZES_OF_REQUIREMENTS", ((300, 30),))
    arguments = ["--quick", "--out", str(tmp_path), "--folder", str(tmp_path / "samples")]
    few_rows.main([*arguments, "--no-page"])
    samples = (tmp_path / "samples" / "samples.jsonl").read_text()
    assert len(samples.splitlines()) == len(few_rows.all_cells(True))
    few_rows.main([*arguments, "--jobs", "0"])
    assert (tmp_path / "samples" / "samples.jsonl").read_text() == samples
    page = (tmp_path / "docs" / "evidence" / "decisions.md").read_text(encoding="utf-8")
    assert "| 3 | 200 | f1 | " in page
    results = json.loads((tmp_path / "studies" / "results" / "few_rows.json").read_text(encoding="utf-8"))
    assert set(results["value"]) == {"model", "plugin", "empirical"}


@pytest.mark.pages
def test_the_page_of_few_rows_shows_the_stored_results(study, tmp_path):
    stored = ROOT / "studies" / "results" / "few_rows.json"
    study("few_rows").write_page(json.loads(stored.read_text(encoding="utf-8")), tmp_path)
    written, page = (folder / "docs" / "evidence" / "decisions.md" for folder in (tmp_path, ROOT))
    assert written.read_text(encoding="utf-8") == page.read_text(encoding="utf-8")


def test_a_population_trains_like_its_members_in_a_row(study):
    common, memory = study("common"), study("memory")
    problems = [common.problem(seed, (500, 200, 200), 0.05, 3.0) for seed in range(3)]
    models = [common.network(seed) for seed in range(3)]
    members = common.Population(models, problems)
    members.train([memory.f1_loss(0.9) for _ in problems], steps=5, batch=64, lr=1e-2)
    together = members.logits(torch.stack([data.test.x for data in problems]))

    for member, (model, data) in enumerate(zip(models, problems, strict=True)):
        loss, optimizer = memory.f1_loss(0.9), torch.optim.Adam(model.parameters(), lr=1e-2)
        generator = torch.Generator().manual_seed(0)
        for _ in range(5):
            rows = torch.randint(500, (3, 64), generator=generator)[member]
            optimizer.zero_grad()
            loss(model(data.train.x[rows]), data.train.y[rows]).backward()
            optimizer.step()
        torch.testing.assert_close(together[member], model(data.test.x).squeeze(1), rtol=1e-4, atol=1e-5)


def test_fill_refuses_a_page_without_the_place(study):
    common = study("common")
    page = "a\n<!-- begin: t -->\nold\n<!-- end: t -->\nb"
    assert common.fill(page, {"t": "new"}) == "a\n<!-- begin: t -->\n\nnew\n\n<!-- end: t -->\nb"
    with pytest.raises(ValueError, match="0 places for 'other'"):
        common.fill(page, {"other": "new"})


@pytest.fixture
def small_recipes(study, monkeypatch):
    """The study of recipes with two splits, two members and two epochs."""
    recipes = study("recipes")
    for name, value in (("SPLITS", 2), ("AT_ONCE", 2), ("MEMBERS", 2)):
        monkeypatch.setattr(recipes, name, value)
    monkeypatch.setattr(recipes, "settings", lambda samples: {"batch_size": 64, "epochs": 2, "patience": 1})
    return recipes


def tables(rows=120):
    generator = torch.Generator().manual_seed(0)
    x = torch.randn(rows, 3, generator=generator)
    x[0, 1] = torch.nan
    return x, (x[:, 0] > 0.8).long()


def test_the_study_of_recipes_measures_what_is_missing_and_writes_its_page(small_recipes, monkeypatch, tmp_path):
    torch.save({"one": tables(), "two": tables(100)}, tmp_path / "cache.pt")
    results = tmp_path / "recipes.json"
    small_recipes.main(["--cache", str(tmp_path / "cache.pt"), "--results", str(results)])
    found = json.loads(results.read_text(encoding="utf-8"))
    assert {len(rows) for of_table in found.values() for rows in of_table.values()} == {2}
    before = results.stat().st_mtime_ns
    small_recipes.main(["--cache", str(tmp_path / "cache.pt"), "--results", str(results)])
    assert results.stat().st_mtime_ns == before  # finished tables are not measured again
    for of_table in found.values():
        of_table["trees"] = of_table["bce"]
    page = tmp_path / "page.md"
    page.write_text(small_recipes.PAGE.read_text(encoding="utf-8"), encoding="utf-8")
    results.write_text(json.dumps(found), encoding="utf-8")
    monkeypatch.setattr(small_recipes, "RESULTS", results)
    monkeypatch.setattr(small_recipes, "PAGE", page)
    small_recipes.main([])
    assert "| one | " in page.read_text(encoding="utf-8")


def test_standardised_on_the_training_rows_alone(study):
    x, _ = tables()
    x[:, 2] = 4.0
    train = torch.arange(60)
    found = study("recipes").standardised(x, train)
    assert found.shape == (120, 2)  # the constant column is gone
    torch.testing.assert_close(found[1:60, 0].mean() * 59 / 60 + found[0, 0] / 60, torch.tensor(0.0), atol=1e-5, rtol=0)
    assert found[0, 1] == 0  # the missing number


def test_the_study_of_a_requirement_runs(study, monkeypatch, tmp_path):
    requirement = study("requirement")
    monkeypatch.setattr(requirement, "SPLITS", 2)
    x, y = tables()
    order = torch.randperm(120, generator=torch.Generator().manual_seed(1))
    parts = [list(order.roll(20 * at).split((72, 24, 24))) for at in range(2)]
    found = requirement.measure(requirement.Splits(x, y, parts), epochs=2, patience=1)
    assert {way: len(rows) for way, rows in found.items()} == {"bce": 2, "constrained": 2}
    assert "of 2" in requirement.compared({"table": found})


@pytest.mark.pages
@pytest.mark.parametrize("name", ["recipes", "requirement"])
def test_the_pages_tables_are_those_of_the_stored_results(study, name):
    module = study(name)
    found = json.loads(module.RESULTS.read_text(encoding="utf-8"))
    written = (
        {"means": module.means(found), "tables": module.tables(found)}
        if name == "recipes"
        else {"requirement": module.compared(found)}
    )
    page = module.PAGE.read_text(encoding="utf-8")
    assert study("common").fill(page, written) == page


@pytest.mark.pages
def test_the_page_of_the_tables_shows_the_stored_results(study):
    tables = study("tables")
    results = json.loads(tables.RESULTS.read_text(encoding="utf-8"))
    page = tables.PAGE.read_text(encoding="utf-8")
    for make in (tables.rivals_table, tables.tables_table):
        assert make(results) in page


def test_methods_are_judged_from_the_logits_of_a_cell(study, tmp_path):
    """A family that knows the labels is judged perfect, and so is every ensemble that has it."""
    tables = study("tables")
    y = (np.arange(120) % 5 == 0).astype(np.int64)
    noise = np.random.default_rng(0).normal(size=(6, 120))
    logits = {name: noise[place] for place, name in enumerate(("linear", "kernel", "boosting", "boosting_small"))}
    logits |= {"extra_trees": 20.0 * y - 10, "network": noise[4]}
    arrays = {"y": y, "y_test": y}
    for name, values in logits.items():
        arrays |= {f"{name}|held_out": values, f"{name}|test": values, f"{name}|seconds": np.array(1.0)}
    np.savez(tmp_path / "made-0.npz", **arrays)
    judged = tables.judge(tmp_path, ("made", 0))
    assert judged["values"]["f1"]["extra_trees"] == 1.0
    assert judged["values"]["f1"]["default"] == 1.0
    assert judged["values"]["f1"]["without extra_trees"] < 0.8
    assert "boosting_metric" not in judged["values"]["f1"]


def test_group_floors_measures_every_method_and_fills_its_page(study, tmp_path, monkeypatch):
    floors = study("group_floors")

    def part(seed, n=300):
        generator = torch.Generator().manual_seed(seed)
        y, group = torch.randint(2, (n,), generator=generator), torch.arange(n) % 2
        return floors.Part(torch.randn(n, 4, generator=generator) + y[:, None], y, group)

    monkeypatch.setattr(floors, "make_cell", lambda *key: floors.Cell(part(0), part(1), part(2), 2, 0))
    monkeypatch.setattr(floors, "GROUPINGS", {"sex": ("Female", "Male")})
    monkeypatch.setattr(importlib.import_module("studies.group_floors_page"), "GROUPINGS", {"sex": ("Female", "Male")})
    cells, results = tmp_path / "cells", tmp_path / "group_floors.json"
    settings = ["--folder", str(cells), "--results", str(results), "--out", str(tmp_path)]
    floors.main(["--data", "nowhere", "--splits", "1", "--sizes", "300", "--quick", *settings])
    floors.main(["--collect", "--sizes", "300", *settings])
    measured = json.loads(results.read_text(encoding="utf-8"))["300"]["sex"]["0"]
    assert len(measured["floor"]) == 12
    assert min(measured["floor"]["thresholds per group"]["validation"]["recalls"]) >= 0.85
    gap = measured["parity"]["thresholds per group"]["validation"]["recalls"]
    assert abs(gap[0] - gap[1]) <= 0.05 + 1e-5
    floors.main(settings)
    assert "| 300 | held-out counts |" in (tmp_path / "docs" / "evidence" / "requirements.md").read_text(
        encoding="utf-8"
    )
    assert (tmp_path / "docs" / "img" / "group-floors.svg").exists()


def test_the_study_of_ordered_classes_keeps_its_cells_and_fills_its_page(study, tmp_path):
    ordinal = study("ordinal")
    folder = tmp_path / "cells"
    folder.mkdir()
    for seed in range(2):
        ordinal.run(None, folder, True, ("progression", seed))
    assert ordinal.run(None, folder, True, ("progression", 0)).endswith("kept")
    ordinal.main(["--folder", str(folder), "--out", str(tmp_path)])
    assert "| cross-entropy, argmax |" in (tmp_path / "docs" / "evidence" / "decisions.md").read_text(encoding="utf-8")
    results = json.loads((tmp_path / "studies" / "results" / "ordinal.json").read_text(encoding="utf-8"))
    assert len(results["progression"]["values"]["kappa loss, argmax"]) == 2
    assert (tmp_path / "docs" / "img" / "ordinal.svg").stat().st_size > 1000


def test_the_study_of_watching_runs_in_a_small_version(study, monkeypatch):
    watch = study("watch")
    monkeypatch.setattr(watch, "LOOKS", 2500)
    monkeypatch.setattr(watch, "FALLS", (0,))
    betting, tests = (watch.measure(name, 60) for name in list(watch.METHODS)[:2])
    assert betting["false_alarms"] <= 0.1 < 0.2 < tests["false_alarms"]
    assert 300 < betting["fall at 0"]["delay"][1] < 1500


@pytest.mark.pages
def test_the_page_of_watching_shows_the_stored_results(study):
    results = json.loads((ROOT / "studies" / "results" / "watch.json").read_text(encoding="utf-8"))
    assert study("watch").page_table(results) in (ROOT / "docs" / "watch.md").read_text(encoding="utf-8")
    nominal = results["methods"]["betting"]["false_alarms"]
    assert nominal <= 0.05
    assert results["looks"] == 10_000
