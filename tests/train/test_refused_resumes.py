"""A run is not resumed with other settings or data, nor in a folder of other files."""

import copy
from functools import partial

import pytest
import torch
from interrupted_runs import Interrupted, StopAt, contents, interrupt
from runs_to_kill import SAMPLES, data, network, one_model, population
from torch import nn

from metricfit import AugmentedLagrangian, MetricLoss
from metricfit.losses import WeightedBCELoss
from metricfit.train import Hardware, Monitor, Stage, Steps, fit


@pytest.mark.parametrize("step", [12, None])
def test_without_resume_a_run_is_not_touched(tmp_path, step):
    if step:
        interrupt(one_model, tmp_path, step)
    else:
        one_model(tmp_path)
    before = contents(tmp_path)
    with pytest.raises(FileExistsError, match="holds a run already; resume=True continues it"):
        one_model(tmp_path, resume=False)
    assert contents(tmp_path) == before


def test_a_folder_with_other_files_is_refused(tmp_path):
    (tmp_path / "thesis.tex").write_text("...")
    with pytest.raises(FileExistsError, match="holds other files; use a separate folder as checkpoint_dir"):
        one_model(tmp_path)
    assert contents(tmp_path) == {"thesis.tex": b"..."}


def other_inputs():
    x, y = data()
    return x + 1, y


def other_labels():
    x, y = data()
    return x, y.flip(0)


@pytest.mark.parametrize(
    ("now", "message"),
    [
        ({"seed": 4}, "seed: 3 then, 4 now"),
        ({"batch_size": 16}, "batch_size: 32 then, 16 now"),
        ({"train": (data()[0][:150], data()[1][:150])}, "train.samples: 200 then, 150 now"),
        ({"train": other_inputs()}, "train.hash of inputs: '"),
        ({"train": other_labels()}, "train.hash of labels: '"),
        ({"validation": data(seed=2)}, "validation.hash of inputs: '"),
        ({"objective": WeightedBCELoss(2.0)}, "objective.positive_weight: 1.0 then, 2.0 now"),
        ({"objective": Stage(WeightedBCELoss(), optimizer=torch.optim.SGD)}, r"stages\[0\].optimizer: None then"),
        ({"objective": Stage(WeightedBCELoss(), epochs=1)}, r"stages\[0\].epochs: 2 then, 1 now"),
        ({"model": network(width=12)}, r"model.0.weight\[0\]: 16 then, 12 now"),
        ({"steps": Steps(clip=1.0)}, "clip: None then, 1.0 now"),
        ({"class_weight": "balanced"}, "train.hash of weights: None then"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_other_settings_are_refused_by_name(tmp_path, now, message):
    started = {"model": network(), "train": data(), "objective": WeightedBCELoss(), "validation": data(seed=1)}
    started |= {
        "batch_size": 32,
        "seed": 3,
        "epochs": 2,
        "checkpoint_dir": tmp_path,
        "hardware": Hardware(accelerator="cpu"),
    }
    with pytest.raises(Interrupted):
        fit(**started, callbacks=[StopAt(3)])
    before = contents(tmp_path)
    with pytest.raises(ValueError, match=f"holds another run .*{message}"):
        fit(**started | now, resume=True)
    assert contents(tmp_path) == before


def layers(dropout=0.2, activation=nn.ReLU):
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(6, 16), activation(), nn.Dropout(dropout), nn.Linear(16, 1))


def with_momentum(momentum):
    return lambda weights, lr: torch.optim.SGD(weights, lr=lr, momentum=momentum)


def share_found(counts):
    return counts.tp / (counts.tp + counts.fn)


def share_found_otherwise(counts):
    return counts.tp / (counts.tp + 2 * counts.fn)


share_found_otherwise.__name__ = share_found_otherwise.__qualname__ = "share_found"

BCE = nn.BCEWithLogitsLoss

DECAYED = torch.optim.lr_scheduler.ExponentialLR

UNSEEN_IN_A_REPR = {
    "positive_weight": ({"objective": BCE()}, {"objective": BCE(pos_weight=torch.tensor(2.0))}, "objective.pos_weight"),
    "reduction": ({"objective": BCE()}, {"objective": BCE(reduction="sum")}, "objective.reduction: 'mean' then"),
    "dropout": ({"model": layers(0.2)}, {"model": layers(0.5)}, r"architecture\[3\].*p=0.2.*then.*p=0.5.*now"),
    "activation": ({"model": layers()}, {"model": layers(activation=nn.Tanh)}, r"architecture\[2\].*ReLU.*Tanh"),
    "start": ({}, {"start_at_prior": False}, "start_at_prior: None then, False now"),
    "closure": ({"optimizer": with_momentum(0.9)}, {"optimizer": with_momentum(0.5)}, "optimizer.momentum: 0.9 then"),
    "partial": (
        {"optimizer": partial(torch.optim.SGD, momentum=0.9)},
        {"optimizer": partial(torch.optim.SGD, momentum=0.5)},
        "optimizer.momentum: 0.9 then",
    ),
    "lambda": (
        {"scheduler": lambda made: DECAYED(made, 0.9)},
        {"scheduler": lambda made: DECAYED(made, 0.5)},
        "scheduler.code: ",
    ),
    "metric": (
        {"objective": MetricLoss(share_found)},
        {"objective": MetricLoss(share_found_otherwise)},
        "objective.metric.formula.code: ",
    ),
    "monitor": (
        {"monitor": Monitor(share_found)},
        {"monitor": Monitor(share_found_otherwise)},
        "metric.code: ",
    ),
    "constraint": (
        {"objective": AugmentedLagrangian(WeightedBCELoss(), lambda z, y: z.mean() - 1)},
        {"objective": AugmentedLagrangian(WeightedBCELoss(), lambda z, y: z.mean() - 2)},
        "objective.constraints.0.function.code: ",
    ),
}


@pytest.mark.parametrize(("then", "now", "message"), UNSEEN_IN_A_REPR.values(), ids=UNSEEN_IN_A_REPR)
def test_what_no_repr_shows_is_refused_too_and_the_same_is_not(tmp_path, then, now, message):
    usual = {"model": layers(), "train": data(), "objective": WeightedBCELoss(), "validation": data(seed=1)}
    usual |= {"batch_size": 64, "epochs": 1, "checkpoint_dir": tmp_path, "hardware": Hardware(accelerator="cpu")}
    fit(**usual | copy.deepcopy(then))
    fit(**usual | then, resume=True)
    with pytest.raises(ValueError, match=f"holds another run .*{message}"):
        fit(**usual | now, resume=True)


@pytest.mark.parametrize("now", [{"weight": torch.ones(2)}, {"label_smoothing": 0.1}], ids=str)
def test_another_cross_entropy_is_refused_by_a_finished_run(tmp_path, now):
    usual = {
        "train": data(),
        "batch_size": 64,
        "epochs": 1,
        "checkpoint_dir": tmp_path,
        "hardware": Hardware(accelerator="cpu"),
    }
    model = nn.Linear(6, 2)
    fit(model, objective=nn.CrossEntropyLoss(), **usual)
    with pytest.raises(ValueError, match=f"holds another run .*objective.{next(iter(now))}"):
        fit(model, objective=nn.CrossEntropyLoss(**now), resume=True, **usual)


def test_another_start_of_a_population_is_refused(tmp_path):
    population(tmp_path)
    with pytest.raises(ValueError, match="start_at_prior: None then, False now"):
        population(tmp_path, start_at_prior=False)


def test_other_splits_are_refused(tmp_path):
    def splits(shift):
        numbers = torch.arange(SAMPLES).roll(shift)
        return [(numbers[:150], numbers[150:])] * 3

    settings = {"splits": splits(0), "validation": None}
    interrupt(lambda folder, **rest: population(folder, **settings, **rest), tmp_path, 3)
    with pytest.raises(ValueError, match=r"members\[0\].train.hash of inputs"):
        population(tmp_path, **settings | {"splits": splits(10)})


def test_settings_without_a_folder():
    with pytest.raises(ValueError, match="resume needs a folder: pass checkpoint_dir"):
        one_model(None, resume=True)


def test_an_interval_of_no_steps(tmp_path):
    with pytest.raises(ValueError, match="every must be a number of steps of at least 1, got 0"):
        one_model(tmp_path, every=0)
    assert not list(tmp_path.iterdir())
