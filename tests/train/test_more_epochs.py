"""A run that is continued with more epochs equals a run that had all of them from the start, to the bit."""

import json
from functools import partial

import pytest
import torch
from exactly import assert_same
from interrupted_runs import contents, interrupt
from runs_to_kill import data, network
from torch import nn
from torch.optim.lr_scheduler import (
    ChainedScheduler,
    CosineAnnealingLR,
    ExponentialLR,
    LambdaLR,
    LinearLR,
    OneCycleLR,
    PolynomialLR,
    SequentialLR,
)

from metricfit import AugmentedLagrangian, MetricLoss, RunningCounts, steps
from metricfit.losses import WeightedBCELoss
from metricfit.train import Callback, Checkpoints, Stage, Steps, fit, fit_population
from metricfit.train.checkpoint.folder import RunFolder

X, Y = data()
BCE = WeightedBCELoss()


def one_model(folder, epochs, objective=BCE, every=None, **settings):
    usual = {"validation": data(seed=1), "batch_size": 64, "seed": 3, "lr": 0.01, "progress": False}
    usual |= {"checkpoint_dir": folder and Checkpoints(folder, every), "resume": True}
    return fit(network(), (X, Y), objective, epochs=epochs, **usual | settings)


def population(folder, epochs, **settings):
    """The first of two members does not move, and stops after its second epoch."""
    usual = {"validation": data(seed=1), "batch_size": 64, "lr": [1e-12, 0.03], "patience": 1, "device": "cpu"}
    usual |= {"checkpoint_dir": folder, "resume": True, "progress": False}
    return fit_population([network(seed, norm=nn.LayerNorm) for seed in range(2)], (X, Y), BCE, epochs=epochs, **usual)


def stages(epochs):
    memory = MetricLoss("f1", memory=RunningCounts())
    constrained = AugmentedLagrangian(memory, ["recall >= 0.9"], mu=0.5)
    return [Stage(BCE, epochs=2), Stage(constrained, epochs=epochs)]


RUNS = {
    "one": one_model,
    "average": partial(one_model, steps=Steps(ema=0.9), monitor=["best f1", "auroc"], every=3),
    "stages": lambda folder, epochs, **rest: one_model(folder, 7, stages(epochs), **rest),
    "population": population,
    "schedule": partial(one_model, scheduler=lambda made: ExponentialLR(made, 0.5)),
    "long_cycle": partial(one_model, scheduler=partial(OneCycleLR, max_lr=0.1, total_steps=40)),
}


@pytest.mark.parametrize("run", RUNS.values(), ids=RUNS)
def test_a_finished_run_is_continued(tmp_path, run):
    run(tmp_path / "whole", 4)
    run(tmp_path / "parts", 2)
    assert RunFolder(tmp_path / "parts").finished
    run(tmp_path / "parts", 4)
    whole, parts = RunFolder(tmp_path / "whole"), RunFolder(tmp_path / "parts")
    assert_same(parts.result(), whole.result())
    assert whole.steps_made <= parts.steps_made <= whole.steps_made + 3
    assert json.loads((tmp_path / "parts" / "run.json").read_text())["stages"][-1]["epochs"] == 4
    before = contents(tmp_path / "parts")
    run(tmp_path / "parts", 4)  # it is finished again
    assert contents(tmp_path / "parts") == before
    with pytest.raises(ValueError, match=r"epochs: 4 then, 2 now.*only those of the last stage can be raised"):
        run(tmp_path / "parts", 2)


def test_an_interrupted_run_is_continued(tmp_path):
    one_model(tmp_path / "whole", 4)
    interrupt(lambda folder, **rest: one_model(folder, 2, **rest), tmp_path / "parts", 5)
    one_model(tmp_path / "parts", 4)
    assert_same(RunFolder(tmp_path / "parts").result(), RunFolder(tmp_path / "whole").result())


class StopsAfterSecondEpoch(Callback):
    def epoch_ended(self, rows):
        if rows[0]["epoch"] == 1:
            self.stop()


def test_a_run_that_a_callback_stopped_is_continued(tmp_path):
    whole = one_model(None, 5, resume=False)
    assert len(one_model(tmp_path, 4, callbacks=[StopsAfterSecondEpoch()]).history) == 2
    result = one_model(tmp_path, 5)
    assert result.history == whole.history
    assert_same(result.model.state_dict(), whole.model.state_dict())


def test_a_run_that_patience_ended_stays_as_it_is(tmp_path):
    settings = {"lr": 1e-12, "patience": 2}
    ended = one_model(tmp_path, 5, **settings)
    again = one_model(tmp_path, 50, **settings)
    assert len(ended.history) == 3
    assert again.history == ended.history


def test_a_kill_before_the_longer_run_is_noted_changes_no_result(tmp_path):
    first = one_model(tmp_path, 2)
    (tmp_path / "finished").unlink()
    again = one_model(tmp_path, 2)
    assert_same(again.model.state_dict(), first.model.state_dict())
    assert RunFolder(tmp_path).finished


def sequence(made):
    parts = [LinearLR(made, 0.1, total_iters=1), CosineAnnealingLR(made, 2)]
    return SequentialLR(made, parts, milestones=[1])


def chain(made):
    return ChainedScheduler([ExponentialLR(made, 0.9), PolynomialLR(made, total_iters=2)], made)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"scheduler": partial(OneCycleLR, max_lr=0.1)}, "OneCycleLR was made for the steps of 2 epochs"),
        ({"scheduler": partial(CosineAnnealingLR, T_max=2)}, "CosineAnnealingLR ends after T_max=2 of 4"),
        ({"scheduler": lambda made: LambdaLR(made, lambda epoch: 1 - epoch / 2)}, "not known whether .* LambdaLR"),
        ({"scheduler": sequence}, "CosineAnnealingLR ends after T_max=2 of 3"),
        ({"scheduler": chain}, "PolynomialLR ends after total_iters=2 of 4"),
        ({"objective": MetricLoss("f1", step=steps.Annealed(steps.Sigmoid(2), steps.Linear()))}, "Annealed step moves"),
    ],
    ids=["one_cycle", "cosine", "lambda", "sequence", "chain", "annealed"],
)
def test_runs_that_would_have_been_others_are_refused_and_not_changed(tmp_path, settings, message):
    one_model(tmp_path, 2, **settings)
    before = contents(tmp_path)
    with pytest.raises(ValueError, match=f"{message}.*Start a new run"):
        one_model(tmp_path, 4, **settings)
    assert contents(tmp_path) == before


def test_a_cosine_that_was_planned_longer_goes_on(tmp_path):
    cosine = partial(CosineAnnealingLR, T_max=6)
    whole = one_model(None, 4, scheduler=cosine, resume=False)
    one_model(tmp_path, 2, scheduler=cosine)
    assert one_model(tmp_path, 4, scheduler=cosine).history == whole.history


def test_only_the_last_stage_can_be_longer(tmp_path):
    one_model(tmp_path, 1, [Stage(BCE), Stage(BCE)])
    with pytest.raises(ValueError, match=r"stages\[0\].epochs: 1 then, 2 now.*only those of the last stage"):
        one_model(tmp_path, 2, [Stage(BCE), Stage(BCE)])


def test_without_its_checkpoints_a_finished_run_cannot_be_continued(tmp_path):
    one_model(tmp_path, 1)
    for path in RunFolder(tmp_path).checkpoints():
        path.unlink()
    before = contents(tmp_path)
    with pytest.raises(ValueError, match="finished run of 1 epochs without its checkpoints"):
        one_model(tmp_path, 2)
    assert contents(tmp_path) == before
    assert len(one_model(tmp_path, 1).history) == 1
    assert not torch.equal(one_model(tmp_path, 1).model[0].weight, network()[0].weight)
