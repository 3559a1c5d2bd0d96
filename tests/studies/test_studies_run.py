"""The demo and the studies run to the end, in a tiny version, and write what they promise."""

import importlib
import json
from pathlib import Path

import pytest
import torch

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture
def study(monkeypatch):
    """Import a script by name, as running it would find it."""
    threads = torch.get_num_threads()
    for folder in ("examples", "docs/studies"):
        monkeypatch.syspath_prepend(str(ROOT / folder))
    yield importlib.import_module
    torch.set_num_threads(threads)


def test_demo_writes_a_self_contained_page(study, tmp_path, capsys):
    study("demo").main(["--quick", "--out", str(tmp_path)])
    page = (tmp_path / "index.html").read_text(encoding="utf-8")
    assert "data:image/png;base64," in page
    assert "http" not in page
    report = json.loads((tmp_path / "report.json").read_text(encoding="utf-8"))
    assert len(report["scores"]) == 3 * report["splits"]
    assert capsys.readouterr().out.rstrip().endswith("index.html")


@pytest.mark.parametrize(
    ("name", "page", "pictures"),
    [
        ("memory", "memory.md", 1),
        ("small_batches", "small-batches.md", 0),
        ("start_well", "start-well.md", 3),
    ],
)
def test_study_fills_its_page(study, tmp_path, name, page, pictures):
    study(name).main(["--quick", "--out", str(tmp_path)])
    assert "| --- |" in (tmp_path / page).read_text(encoding="utf-8")
    assert json.loads((tmp_path / "studies" / "results" / f"{name}.json").read_text(encoding="utf-8"))["settings"]
    assert len(list((tmp_path / "img").glob("*.svg"))) == pictures


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
