"""The progress of ``fit``: what a watcher is told, the time that is left, and stopping with the complete families."""

from dataclasses import dataclass

import numpy as np
import pytest

from metricfit import MetricClassifier
from metricfit.tabular.families.family import Deadline, Family, Features, TrainingRows
from metricfit.tabular.out_of_fold import FitTracker, FitWatcher, estimate_seconds, fit_families, watch_fit


@dataclass(frozen=True)
class Constant:
    """A model with the same logit for every row."""

    def logits(self, features):
        return np.zeros((len(features), 1))


@dataclass
class Quick(Family):
    """A family that is fitted at once, or is not for the table."""

    name: str
    skip: str | None = None

    def reason_to_skip(self, rows):
        return self.skip

    def fit(self, train, held_out, *, seed, deadline):
        deadline.check()
        return Constant()


class Recorder(FitWatcher):
    """Records what it is told, and stops training when a family begins or has so many folds."""

    shows_values = True

    def __init__(self, stop_at=None):
        super().__init__()
        self.seen, self.stop_at = [], stop_at

    def report(self, progress):
        self.seen.append(progress)
        if self.stop_at == (progress.family, progress.folds_done):
            self.stop.set()


@pytest.fixture
def rows():
    x = np.zeros((40, 1), dtype=np.float32)
    return TrainingRows(Features(x), np.arange(40) % 2, None, 2)


def fit(watcher, families, rows, values=None):
    folds = np.array_split(np.arange(len(rows)), 4)
    splits = [(np.setdiff1d(np.arange(len(rows)), fold), fold) for fold in folds]
    deadline = Deadline.after(100.0, watcher.stop)
    names = [family.name for family in families]
    value_of = None if values is None else lambda logits: next(values)
    tracker = FitTracker(watcher, names, len(splits), deadline, value_of, minimize=True)
    return fit_families(families, rows, splits, seed=0, jobs=2, deadline=deadline, tracker=tracker)


def test_every_family_and_every_group_of_folds_is_reported(rows):
    watcher = Recorder()
    fit(watcher, [Quick("a"), Quick("b", "too many rows"), Quick("c")], rows, iter([0.4, 0.2]))
    facts = [(seen.family, seen.number, seen.folds_done, seen.ended, seen.best) for seen in watcher.seen]
    of_a = [("a", 1, 0, False, None), ("a", 1, 2, False, None), ("a", 1, 4, False, None), ("a", 1, 4, True, 0.4)]
    of_b = [("b", 2, 0, False, 0.4), ("b", 2, 0, True, 0.4)]
    of_c = [("c", 3, 0, False, 0.4), ("c", 3, 2, False, 0.4), ("c", 3, 4, False, 0.4), ("c", 3, 4, True, 0.2)]
    assert facts == of_a + of_b + of_c
    assert {(seen.families, seen.folds) for seen in watcher.seen} == {(3, 4)}
    assert watcher.seen[0].seconds_left is None
    assert all(0 <= seen.seconds_left <= 100 for seen in watcher.seen[1:])
    assert watcher.seen[-1].seconds_left == 0
    lines = [str(seen) for seen in watcher.seen if seen.ended]
    assert lines[0].startswith("a: 0.400 out of fold, 0.0 s (1 of 3; about ")
    assert lines[1:] == [
        "b is left out: too many rows (2 of 3)",
        "c: 0.200 out of fold, 0.0 s (3 of 3; best so far 0.200)",
    ]


@pytest.mark.parametrize(
    ("stop_at", "reasons"),
    [
        (("b", 0), ["training was interrupted before it"] * 2),
        (("b", 2), ["it was interrupted after", "training was interrupted before it"]),
        (("c", 2), ["it was interrupted after"]),
        (("c", 4), []),
    ],
)
def test_a_stopped_fit_keeps_the_complete_families(rows, stop_at, reasons):
    results, left_out = fit(Recorder(stop_at), [Quick("a"), Quick("b"), Quick("c")], rows)
    assert [result.name for result in results] == ["a", "b", "c"][: 3 - len(reasons)]
    assert len(left_out) == len(reasons)
    assert all(family.reason.startswith(reason) for family, reason in zip(left_out, reasons, strict=True))


def test_nothing_is_kept_without_a_complete_family(rows):
    with pytest.raises(KeyboardInterrupt):
        fit(Recorder(("a", 2)), [Quick("a"), Quick("b")], rows)


def test_the_time_of_folds_and_of_families_is_estimated_in_proportion():
    assert estimate_seconds([], ["linear"]) is None
    assert estimate_seconds([], []) == 0
    assert estimate_seconds([("linear", 4.0), ("mine", 10.0)], ["extra_trees", "theirs"]) == pytest.approx(45)


def test_verbose_prints_the_values_of_the_table_of_models(blobs, capsys):
    X, y = blobs
    model = MetricClassifier(models=["linear", "kernel"], members=2, verbose=True, random_state=0).fit(X, y)
    values = {row.name: row.value for row in model.models_}
    first, second = capsys.readouterr().out.splitlines()
    assert first.startswith(f"linear: {values['linear']:.3f} out of fold, ")
    assert second.startswith(f"kernel: {values['kernel']:.3f} out of fold, ")
    assert second.endswith(f" s (2 of 2; best so far {max(values.values()):.3f})")


def test_a_watched_model_has_the_families_that_were_complete(blobs):
    X, y = blobs
    with watch_fit(Recorder(("kernel", 0))):
        model = MetricClassifier(models=["linear", "kernel"], members=2, random_state=0).fit(X, y)
    used, left_out = model.models_
    assert (used.name, used.weight) == ("linear", 1.0)
    assert (left_out.name, left_out.left_out) == ("kernel", "training was interrupted before it")
    whole = MetricClassifier(models=["linear"], members=2, random_state=0).fit(X, y)
    assert np.array_equal(model.predict_proba(X), whole.predict_proba(X))
