"""Rows of the kinds searched, shares and timed, against rows of the kind network and a clock of the test's own."""

import itertools
from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
import torch

import metricfit_papers as papers
from metricfit_papers.datasets.trials import make_trials
from metricfit_papers.models.construction import build_network
from metricfit_papers.rows import search_row, timing_row
from metricfit_papers.rows.batch_share_row import train_with_batch_shares
from metricfit_papers.rows.job import RowJob, positive_logits
from metricfit_papers.rows.network_row import train_networks
from metricfit_papers.rows.search_row import train_after_search
from metricfit_papers.rows.timing_row import time_steps

TOML = """
title = "A twin"
paper = "Nobody (2026)"
where = "nowhere"
trials = 2
prepare = "bridging the gap"
datasets.mine = { file = "mine.csv", target = "label", positive = "yes" }
protocols.paper = { says = "Two splits.", varied = "splits", decided = "half" }
columns.f1.metric = "f1"
columns.times.metric = "seconds, times BCE"
training = { network = "mlp(hidden=[4], dropout=0.0, out_features=2)", lr = 0.02, batch_size = 32, epochs = 4 }
[rows.CE]
loss = "WeightedCrossEntropyLoss"
[rows.F1]
loss = "MetricLoss('f1', step=Linear(0.2), task='multiclass')"
"""


@pytest.fixture(scope="module")
def mine(tmp_path_factory):
    where = tmp_path_factory.mktemp("mine")
    rng = np.random.default_rng(1)
    x = rng.normal(size=(150, 4))
    label = np.where(x[:, 0] + 0.5 * rng.normal(size=150) > 0.5, "yes", "no")
    pd.DataFrame(x, columns=list("abcd")).assign(label=label).to_csv(where / "mine.csv", index=False)
    (where / "twin.toml").write_text(TOML)
    return where


def job_and_trials(mine, row="CE", **settings):
    spec = papers.find_table(str(mine / "twin.toml"))
    chosen = replace(spec.rows[row], settings=settings)
    protocol = spec.protocols["paper"]
    job = RowJob(chosen, protocol, chosen.training["paper"], chosen.loss["paper"], {"f1": "f1"}, ["half"], "cpu")
    return job, make_trials(spec.datasets["mine"], None, spec.prepare, protocol, 2, str(mine))


def values(trained):
    return [each.values["half"]["f1"] for each in trained]


@pytest.mark.parametrize("row", ["CE", "F1"])
def test_a_search_takes_the_settings_of_the_lowest_validation_loss(mine, row):
    wide = "mlp(hidden=[16], dropout=0.0, out_features=2)"
    grid = {"lr": [1e-6, 0.02], "network": ["mlp(hidden=[4], dropout=0.0, out_features=2)", wide]}
    job, trials = job_and_trials(mine, row, **grid)
    losses = {}
    for lr, text in itertools.product(*grid.values()):
        alone = replace(job, training=replace(job.training, lr=lr, network=text))
        losses[lr, text] = search_row.fit_trials(alone, trials[:1])[0].best
    lr, text = min(losses, key=losses.get)
    assert lr == 0.02
    found = train_after_search(job, trials)
    assert [dict(each.chosen) for each in found] == [{"network": text, "lr": lr}] * 2
    best = replace(job, training=replace(job.training, lr=lr, network=text))
    assert values(found) == values(train_networks(best, trials))


@pytest.mark.parametrize("grid", [{"lr": 0.1}, {"lr": []}, {"epochs": [1, 2]}])
def test_an_invalid_grid_is_refused(mine, grid):
    job, trials = job_and_trials(mine, **grid)
    with pytest.raises(ValueError, match="lists of network, optimizer, lr, batch_size to try"):
        train_after_search(job, trials)


def test_two_outputs_decide_as_their_softmax():
    logits = torch.randn(50, 2)
    torch.testing.assert_close(torch.sigmoid(positive_logits(logits)), torch.softmax(logits, 1)[:, 1])
    assert torch.equal(positive_logits(logits) > 0, logits.argmax(1) == 1)


def test_a_share_of_the_training_rows_is_a_batch(mine):
    job, trials = job_and_trials(mine, share=0.1)
    assert len(trials[0].train) == 96
    nine = replace(job, training=replace(job.training, batch_size=9))
    assert values(train_with_batch_shares(job, trials)) == values(train_networks(nine, trials))
    assert values(train_networks(nine, trials)) != values(train_networks(job, trials))


@pytest.mark.parametrize("settings", [{}, {"share": 2.0}, {"share": 0.0}, {"share": "all"}])
def test_an_invalid_share_is_refused(mine, settings):
    job, trials = job_and_trials(mine, **settings)
    with pytest.raises(ValueError, match=r"settings\.share, above 0 and at most 1"):
        train_with_batch_shares(job, trials)


def test_minima_of_steps_taken_in_turn(mine, monkeypatch):
    job, trials = job_and_trials(mine)
    training = replace(job.training, network="perceptron", epochs=3)
    job = replace(job, training=training, loss="SquaredErrorLoss", metrics={"times": "seconds, times BCE"})
    taken = itertools.cycle([5.0, 2.0, 3.0, 4.0, 6.0, 9.0])  # own, BCE, own, BCE, own, BCE: 3 and 2 are the least
    clock = itertools.chain.from_iterable((0.0, each) for each in taken)
    monkeypatch.setattr(timing_row.time, "perf_counter", lambda: next(clock))
    for each in time_steps(job, trials):
        assert each.values == {"half": {"times": 1.5}}
        assert (each.seconds_per_epoch, each.epochs) == (3.0, 3)


def test_every_fold_of_anyloss_starts_with_new_weights():
    first, again, second = (build_network("anyloss_mlp", 400, trial)[0].weight for trial in (0, 0, 1))
    assert torch.equal(first, again)
    assert not torch.equal(first, second)
    assert first.std().item() == pytest.approx((2 / 400) ** 0.5, rel=0.1)
