"""Time budgets: epochs first, then members; a TabM only where it is affordable."""

import logging

import numpy as np
import pytest

from metricfit import MetricClassifier
from metricfit.estimators import training
from metricfit.estimators.budget import affordable, full_epochs


def test_full_training_where_there_is_time():
    assert affordable(0.001, 10, 1, epochs=None, members=8, budget=None).epochs == full_epochs(10) == 250
    assert affordable(0.001, 10, 1, epochs=None, members=8, budget=1000).members == 8
    assert (full_epochs(1), full_epochs(1000)) == (500, 40)


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
    assert (least.epochs, least.members) == (10, 3)
    assert "more than the time budget" in caplog.text


def test_epochs_that_were_asked_for_are_kept():
    kept = affordable(0.1, 10, 1, epochs=100, members=8, budget=400)
    assert (kept.epochs, kept.members) == (100, 4)


@pytest.mark.parametrize(("step", "network"), [(0.001, "tabm"), (100.0, "embedded")])
def test_auto_takes_a_tabm_where_it_is_affordable(step, network, monkeypatch, blobs):
    monkeypatch.setattr(training, "seconds_per_step", lambda *given: step)
    X, y = blobs
    model = MetricClassifier(members=2, epochs=2, time_budget=60, random_state=0).fit(X[:80], y[:80])
    assert model.network_.name == network


def test_auto_under_constraints_is_no_tabm(blobs):
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
