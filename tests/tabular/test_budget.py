"""Time budgets: epochs first, then members; what "auto" is."""

import logging

import numpy as np
import torch

from metricfit import MetricClassifier
from metricfit.tabular import member_training as training
from metricfit.tabular.budget import affordable, fewest_epochs, full_epochs


def test_full_training_where_there_is_time():
    assert affordable(0.001, 10, 1, epochs=None, members=8, budget=None).epochs == full_epochs(10) == 250
    assert affordable(0.001, 10, 1, epochs=None, members=8, budget=1000).members == 8
    assert (full_epochs(1), full_epochs(1000)) == (500, 40)
    assert [fewest_epochs(steps, 1000) for steps in (1, 100, 200, 10_000)] == [10, 10, 5, 2]
    assert [fewest_epochs(steps, 100) for steps in (1, 18, 200)] == [10, 6, 2]


def test_epochs_are_lowered_first_then_members(caplog):
    caplog.set_level(logging.INFO)
    fewer_epochs = affordable(0.01, 10, 1, epochs=None, members=8, budget=40)
    assert (fewer_epochs.epochs, fewer_epochs.members) == (50, 8)
    assert "50 of 250 epochs, 8 of 8 members" in caplog.text
    fewer_members = affordable(0.1, 10, 2, epochs=None, members=8, budget=100)
    assert (fewer_members.epochs, fewer_members.members) == (10, 5)
    assert fewer_members.seconds <= 100
    caplog.clear()
    least = affordable(10.0, 10, 1, epochs=None, members=8, budget=100)
    assert (least.epochs, least.members) == (10, 2)
    assert "may take 2000 s, more than the time budget of 100 s" in caplog.text


def test_a_short_budget_goes_below_what_is_worthwhile_before_it_is_overrun():
    """20,000 rows in batches of 1,024, at 34 ms a step: 10 epochs of 3 members took 18 s against a budget of 4 s."""
    enough = affordable(0.0333, 18, 1, epochs=None, members=8, budget=18)
    assert (enough.epochs, enough.members) == (10, 3)
    short = affordable(0.0333, 18, 1, epochs=None, members=8, budget=8)
    assert (short.epochs, short.members) == (6, 2)
    assert short.seconds <= 8


def test_epochs_that_were_asked_for_are_kept():
    kept = affordable(0.1, 10, 1, epochs=100, members=8, budget=400)
    assert (kept.epochs, kept.members) == (100, 4)


def test_auto_is_a_plain_network_and_an_embedded_one_side_by_side(blobs):
    X, y = blobs
    model = MetricClassifier(members=2, epochs=2, time_budget=60, random_state=0).fit(X[:80], y[:80])
    assert model.network_.name == "blend"
    x = torch.from_numpy(model.encoder_.transform(X[:5])).double()
    plain, embedded = model.members_[0].parts
    assert torch.equal(model.members_[0](x), (plain(x) + embedded(x)) / 2)
    assert len(plain) < len(embedded)


def test_auto_under_constraints_is_one_network(blobs):
    X, y = blobs
    model = MetricClassifier(members=2, epochs=2, recipe="constrained", subject_to="recall >= 0.5", random_state=0)
    assert model.fit(X[:120], y[:120]).network_.name == "embedded"


def test_members_that_do_not_fit_into_memory_together_train_in_parts(monkeypatch, quick, blobs):
    X, y = blobs
    monkeypatch.setattr(training, "NUMBERS_AT_ONCE", 1)
    model = MetricClassifier(**quick).fit(X, y)
    assert sorted({row["member"] for row in model.history_}) == [0, 1, 2]
    assert np.isfinite(model.held_out_.logits.numpy()).all()
    assert model.score(X, y) > 0.7
