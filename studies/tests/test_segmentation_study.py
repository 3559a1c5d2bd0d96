"""The segmentation study: scores as of scikit-learn, a search that counts right, a tiny run, and the page."""

import importlib
import json
from pathlib import Path

import pytest
import torch
from sklearn.metrics import f1_score, jaccard_score

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture
def study(monkeypatch):
    """Import a script by name, as running it would find it."""
    threads = torch.get_num_threads()
    yield lambda name: importlib.import_module(f"studies.{name}")
    torch.set_num_threads(threads)


def made_up_scores(study, classes):
    scores = study("segmentation_scores")
    random = torch.Generator().manual_seed(classes)
    labels = torch.randint(max(2, classes), (4, 6, 9), generator=random)
    labels[0, :2] = 11  # void
    labels[1][labels[1] == 0] = 1  # a class that one image does not have
    return scores, scores.Scored.of(torch.randn(4, classes, 6, 9, generator=random), labels)


@pytest.mark.parametrize("metric", ["dice", "jaccard"])
def test_scores_are_those_of_scikit_learn(study, metric):
    scores, scored = made_up_scores(study, 5)
    decided = scored.logits.argmax(1)
    oracle = f1_score if metric == "dice" else jaccard_score
    images = []
    for labels, own in zip(scored.labels, decided, strict=True):
        counted = labels != 11
        present = labels[counted].unique().tolist()
        images.append(oracle(labels[counted], own[counted], labels=present, average="macro", zero_division=0))
    counts = scores.counts_of(decided, scored)
    assert float(scores.value(counts, f"{metric}, image")) == pytest.approx(sum(images) / 4)
    counted = scored.labels != 11
    whole = oracle(scored.labels[counted], decided[counted], average="macro", zero_division=0)
    assert float(scores.value(counts, f"{metric}, set")) == pytest.approx(whole)


@pytest.mark.parametrize("classes", [1, 5])
def test_the_search_for_offsets_counts_what_deciding_would(study, classes):
    scores, scored = made_up_scores(study, classes)
    offsets, grid = 0.3 * torch.randn(scored.logits.shape[1]), torch.linspace(-2, 2, 9)
    positives = scores.counts_of(scored.logits.argmax(1), scored)[2]
    for k in range(scored.first_class, len(offsets)):
        along = scores._counts_along(scored, offsets, k, grid, positives)
        for place, change in enumerate(grid):
            tried = offsets.clone()
            tried[k] += change
            direct = scores.counts_of((scored.logits + tried[:, None]).argmax(1), scored)
            assert all(torch.equal(part[place], other) for part, other in zip(along, direct, strict=True))
    zero = torch.zeros_like(offsets)
    tuned = scores.tuned_offsets(scored, "dice, image", [zero])
    reached, default = (
        float(scores.value(scores.counts_of((scored.logits + each[:, None]).argmax(1), scored), "dice, image"))
        for each in (tuned, zero)
    )
    assert reached > default


def test_the_study_runs_and_its_cells_fill_the_page(study, tmp_path, monkeypatch):
    segmentation, page = study("segmentation"), study("segmentation_page")
    monkeypatch.setattr(segmentation, "LOSSES", ("cross-entropy", "cross-entropy, then metric F1"))
    monkeypatch.setattr(segmentation, "RATES", (1e-3, 3e-3))
    monkeypatch.setattr(page, "findings", lambda results: "")  # they are about all losses
    monkeypatch.setattr(study("segmentation_scores"), "GRIDS", ((1.0, 2),))
    files = [tmp_path / f"{name}.jsonl" for name in page.SETS]
    for name, file in zip(page.SETS, files, strict=True):
        segmentation.main(["--measure", name, "--quick", "--cells", str(file)])
        assert len(file.read_text(encoding="utf-8").splitlines()) == 4  # two seeds
    before = files[0].read_text(encoding="utf-8")
    segmentation.main(["--measure", "camvid", "--quick", "--cells", str(files[0])])
    assert files[0].read_text(encoding="utf-8") == before  # finished cells are not run again
    page.main([*map(str, files), "--out", str(tmp_path)])
    written = (tmp_path / "docs" / "evidence" / "losses.md").read_text(encoding="utf-8")
    assert "CamVid 2 seeds, 2 steps; membrane 2 folds" in written
    assert len(list((tmp_path / "docs" / "img").glob("*.svg"))) == 1


@pytest.mark.pages
def test_the_page_shows_the_stored_results(study):
    page, common = study("segmentation_page"), study("common")
    results = json.loads(page.RESULTS.read_text(encoding="utf-8"))
    text = (common.DOCS / page.PAGE).read_text(encoding="utf-8")
    assert common.fill(text, page.parts_of_page(results)) == text, "run: python -m studies.segmentation_page"
    units = (common.DOCS / page.UNITS_PAGE).read_text(encoding="utf-8")
    assert common.fill(units, page.parts_of_units_page(results)) == units, "run: python -m studies.segmentation_page"
