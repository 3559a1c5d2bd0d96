"""The networks of the studies on tables: stacks train like single models, and measures are what their names say."""

import importlib
import json
import math
from pathlib import Path

import numpy as np
import pytest
import torch
from sklearn.metrics import f1_score, roc_curve
from torch import nn

from metricfit.curves import best_threshold

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture
def study(monkeypatch):
    """Import a script by name, as running it would find it."""
    return lambda name: importlib.import_module(f"studies.{name}")


@pytest.mark.parametrize(("width", "versions"), [(0, 1), (4, 1), (4, 2)])
def test_a_stack_trains_like_single_models(study, width, versions):
    stacked = study("stacked_networks")
    x = torch.randn(2, 40, 3, generator=torch.Generator().manual_seed(0))
    y = (torch.rand(2, 40, versions, generator=torch.Generator().manual_seed(1)) < 0.3).long()
    stack = stacked.Stack(range(2), 3, width, versions, prior=0.3)
    first = [weight.detach().clone() for weight in stack.weights]
    loss = nn.BCEWithLogitsLoss()
    looks = stacked.train(stack, stacked.Part(x, y), [loss], 0.05, lambda: torch.zeros(2, versions, 1), steps=15)
    assert len(looks) == 15
    for split in range(2):
        for version in range(versions):
            layers = [nn.Linear(3, width), nn.ReLU(), nn.Linear(width, 1)] if width else [nn.Linear(3, 1)]
            model = nn.Sequential(*layers)
            part = slice(version * max(width, 1), (version + 1) * max(width, 1))
            with torch.no_grad():
                model[0].weight.copy_(first[0][split, :, part].T)
                model[0].bias.copy_(first[1][split, 0, part])
                if width:
                    model[2].weight.copy_(first[2][split, version][None])
                    model[2].bias.copy_(first[3][split, version])
                assert math.isclose(model[-1].bias.sigmoid().item(), 0.3, rel_tol=1e-5)
            optimizer = torch.optim.AdamW(model.parameters(), lr=0.05, weight_decay=stacked.DECAY)
            for _ in range(15):
                optimizer.zero_grad()
                loss(model(x[split]).squeeze(1), y[split, :, version].float()).backward()
                optimizer.step()
            torch.testing.assert_close(stack(x)[split, :, version], model(x[split]).squeeze(1), rtol=1e-3, atol=1e-4)


def test_a_second_stage_starts_from_the_best_look_of_each_split(study):
    stacked = study("stacked_networks")
    x, y = torch.ones(2, 4, 1), torch.ones(2, 4, dtype=torch.long)
    stack = stacked.Stack(range(2), 1, 0, 1, prior=0.5)
    seen = []

    def look():
        seen.append(stack(x)[:, 0, 0].clone())
        value = torch.tensor([len(seen), -len(seen)]).float() if len(seen) < 9 else torch.full((2,), -99.0)
        return value.view(2, 1, 1)  # the last look of the first split is its best, the first look of the second

    def without_gradient(logits, y):
        return 0.0 * logits.sum()

    stages = [nn.BCEWithLogitsLoss(), without_gradient]
    looks = stacked.train(stack, stacked.Part(x, y), stages, 0.1, look, steps=16)
    assert (len(looks), len(seen)) == (8, 16)
    moved = (seen[8] - torch.stack([seen[7][0], seen[0][1]])).abs()
    assert (moved < (seen[7][1] - seen[0][1]).abs() / 2).all()  # the optimiser's momentum is the rest


def test_f1_and_its_best_threshold_are_those_of_the_library(study):
    stacked = study("stacked_networks")
    generator = torch.Generator().manual_seed(0)
    logits = torch.randn(2, 50, 3, generator=generator).round(decimals=1)
    y = (torch.rand(2, 50, 3, generator=generator) < 0.3).long()
    value, threshold = stacked.best_f1(logits, y)
    torch.testing.assert_close(stacked.f1_at(logits, y, threshold), value)
    for split in range(2):
        for version in range(3):
            z, t = logits[split, :, version], y[split, :, version]
            assert value[split, version].item() == pytest.approx(float(best_threshold(z, t, "f1").value))
            at_half = stacked.f1_at(logits, y)[split, version].item()
            assert at_half == pytest.approx(f1_score(t.numpy(), (z >= 0).numpy()))


def test_noise_changes_the_stated_share_of_each_class(study):
    noise = study("label_noise")
    y = torch.zeros(2, 100, dtype=torch.long)
    y[:, 60:] = 1
    noisy = noise.with_noise(y, range(2), 0)
    for version, (of_positives, of_negatives) in enumerate(noise.NOISE.values()):
        wrong = noisy[..., version] != y
        assert wrong[:, 60:].sum(1).tolist() == [round(40 * of_positives)] * 2
        assert wrong[:, :60].sum(1).tolist() == [round(60 * of_negatives)] * 2
    names = list(noise.NOISE)
    little, much = (noisy[..., names.index(f"symmetric {rate}")] != y for rate in (0.2, 0.4))
    assert (much | ~little).all()


def test_false_positive_rates_are_those_of_the_roc_curve(study):
    low_fpr = study("low_fpr")
    logits = torch.randn(3, 200, generator=torch.Generator().manual_seed(0)).round(decimals=2)
    y = torch.zeros(3, 200, dtype=torch.long)
    y[:, 150:] = 1
    rates = low_fpr.fpr_at_tpr(logits, y)
    for split in range(3):
        fpr, tpr, _ = roc_curve(y[split], logits[split], drop_intermediate=False)
        expected = [fpr[np.argmax(tpr >= rate - 1e-9)] for rate in low_fpr.TPR]
        assert rates[split].tolist() == pytest.approx(expected)


def test_no_line_is_better_than_the_best_line(study, monkeypatch):
    wrong_model = study("wrong_model")
    monkeypatch.setattr(wrong_model, "ROWS", 500)
    monkeypatch.setattr(wrong_model, "DRAWS", 2)
    rows = wrong_model.draws(0)
    best = wrong_model.best_line(rows)
    for draw in range(wrong_model.DRAWS):
        x, y = rows.x[draw], rows.y[draw]
        for angle in (0.0, 0.3, 2.2):
            score = x @ torch.tensor([math.cos(angle), math.sin(angle)])
            assert float(best_threshold(score, y, "f1").value) <= best[draw].item() + 0.01  # a grid of one degree


@pytest.mark.pages
@pytest.mark.parametrize("name", ["little_capacity_page", "wrong_model", "label_noise_page", "low_fpr_page"])
def test_the_page_shows_the_stored_results(study, name):
    page = study(name)
    stored = json.loads(page.RESULTS.read_text(encoding="utf-8"))
    text = study("pays_tables").PAGE.read_text(encoding="utf-8")
    assert study("common").fill(text, page.parts_of_page(stored)) == text, f"run: python studies/{name}.py"
