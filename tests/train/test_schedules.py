"""Learning rate schedules per epoch and per batch."""

from functools import partial

import pytest
import torch
from torch import nn
from torch.optim.lr_scheduler import CyclicLR, ExponentialLR, LambdaLR, OneCycleLR, ReduceLROnPlateau
from torch.utils.data import DataLoader, IterableDataset, TensorDataset

from metricfit.losses import WeightedBCELoss
from metricfit.train import Checkpoints, Stage, fit
from metricfit_papers.populations import fit_population

X = torch.randn(60, 3, generator=torch.Generator().manual_seed(0))
Y = (X[:, 0] > 0).long()
SETTINGS = {"epochs": 4, "batch_size": 20, "lr": 0.1, "progress": False, "start_at_prior": False}


class Recorded(torch.optim.SGD):
    """SGD that keeps the rate and the momentum of every step."""

    rates: list[float]

    def step(self, closure=None):
        type(self).rates.append(self.param_groups[0]["lr"])
        return super().step(closure)


def rates_of(scheduler, train=(X, Y), population=False, scheduler_step=None, **settings):
    stage = Stage(WeightedBCELoss(), scheduler=scheduler, scheduler_step=scheduler_step)

    class Mine(Recorded):
        rates = []  # noqa: RUF012

    if population:
        fit_population(
            [nn.Linear(3, 1) for _ in range(2)],
            train,
            stage,
            optimizer=partial(torch.optim.SGD, momentum=0.9),
            **SETTINGS | settings,
        )
        return []
    fit(
        nn.Linear(3, 1),
        train,
        stage,
        optimizer=partial(Mine, momentum=0.9),
        **SETTINGS | settings,
    )
    return Mine.rates


def expected(make, per_step, steps=12):
    """The rates of a loop by hand."""
    optimizer = torch.optim.SGD([nn.Parameter(torch.zeros(1))], lr=0.1, momentum=0.9)
    scheduler, rates = make(optimizer), []
    for step in range(steps):
        rates.append(optimizer.param_groups[0]["lr"])
        optimizer.step()
        if per_step or step % 3 == 2:
            scheduler.step()
    return rates


def test_one_cycle_moves_every_batch_and_ends_after_the_last():
    one_cycle = partial(OneCycleLR, max_lr=0.1, total_steps=12)
    rates = rates_of(one_cycle)
    assert rates == pytest.approx(expected(one_cycle, per_step=True))
    assert rates[-1] < 1e-5


@pytest.mark.parametrize(
    "make",
    [
        partial(OneCycleLR, max_lr=0.1),
        lambda optimizer, total_steps: OneCycleLR(optimizer, 0.1, total_steps=total_steps),
        partial(OneCycleLR, max_lr=0.1, epochs=4, steps_per_epoch=3),
    ],
)
def test_the_number_of_steps_is_given_to_a_scheduler_that_asks_for_it(make):
    assert rates_of(make) == pytest.approx(expected(partial(OneCycleLR, max_lr=0.1, total_steps=12), per_step=True))


def test_a_stage_counts_its_own_epochs():
    stages = [Stage(WeightedBCELoss(), epochs=epochs, scheduler=partial(OneCycleLR, max_lr=0.1)) for epochs in (2, 5)]
    result = fit(nn.Linear(3, 1), (X, Y), stages, optimizer=torch.optim.SGD, batch_size=20, progress=False)
    assert len(result.history) == 7


def test_the_history_has_the_last_rate_of_each_epoch():
    for make in (partial(OneCycleLR, max_lr=0.1, total_steps=12), partial(ExponentialLR, gamma=0.5)):
        rates = expected(make, per_step=make.func is OneCycleLR)
        result = fit(nn.Linear(3, 1), (X, Y), WeightedBCELoss(), scheduler=make, optimizer=torch.optim.SGD, **SETTINGS)
        assert result.history["lr"] == pytest.approx(rates[2::3])
    constant = fit(nn.Linear(3, 1), (X, Y), WeightedBCELoss(), **SETTINGS)
    assert "lr" not in constant.history.columns


def test_a_cyclic_rate_moves_every_batch():
    make = partial(CyclicLR, base_lr=0.01, max_lr=0.1, step_size_up=4)
    assert rates_of(make) == pytest.approx(expected(make, per_step=True))


def test_others_move_every_epoch_unless_told_otherwise():
    make = partial(ExponentialLR, gamma=0.5)
    assert rates_of(make) == pytest.approx(expected(make, per_step=False))
    assert rates_of(make, scheduler_step="batch") == pytest.approx(expected(make, per_step=True))
    slow = partial(OneCycleLR, max_lr=0.1, total_steps=12)
    assert rates_of(slow, scheduler_step="epoch") == pytest.approx(expected(slow, per_step=False))


def test_a_warm_up_by_a_lambda():
    def warm_up(optimizer, total_steps):
        return LambdaLR(optimizer, lambda step: (step + 1) / total_steps)

    assert rates_of(warm_up, scheduler_step="batch") == pytest.approx([0.1 * (step + 1) / 12 for step in range(12)])


def test_a_loader_that_announces_its_batches_has_steps_and_one_that_does_not_has_none():
    class Stream(IterableDataset):
        def __iter__(self):
            return iter(zip(X, Y, strict=True))

    loader = DataLoader(TensorDataset(X, Y), batch_size=20)
    assert len(rates_of(partial(OneCycleLR, max_lr=0.1), train=loader)) == 12
    stream = DataLoader(Stream(), batch_size=20)
    with pytest.raises(ValueError, match="needs total_steps, but the DataLoader does not say how many batches"):
        rates_of(partial(OneCycleLR, max_lr=0.1), train=stream)
    assert len(rates_of(partial(OneCycleLR, max_lr=0.1, total_steps=12), train=stream)) == 12


@pytest.mark.parametrize("make", [partial(OneCycleLR, max_lr=0.1), partial(CyclicLR, base_lr=0.01, max_lr=0.1)])
def test_a_run_that_goes_on_within_an_epoch_is_the_one_that_was_not_interrupted(make, tmp_path):
    from metricfit.train.stage import Schedule

    class Stopped(Exception):
        pass

    def run(scheduler, folder, **settings):
        torch.manual_seed(0)
        optimizer = partial(torch.optim.SGD, momentum=0.9)
        settings = SETTINGS | {"optimizer": optimizer, "resume": True} | settings
        return fit(
            nn.Linear(3, 1),
            (X, Y),
            WeightedBCELoss(),
            scheduler=scheduler,
            checkpoint_dir=Checkpoints(folder, 2),
            **settings,
        )

    whole = run(make, tmp_path / "whole")
    started = tmp_path / "started"
    with pytest.MonkeyPatch.context() as patch:
        moved, calls = Schedule.batch_ended, []

        def batch_ended(self):
            calls.append(1)
            if len(calls) == 8:
                raise Stopped
            return moved(self)

        patch.setattr(Schedule, "batch_ended", batch_ended)
        with pytest.raises(Stopped):
            run(make, started)
    resumed = run(make, started)
    assert torch.equal(resumed.model.weight, whole.model.weight)
    assert resumed.history == whole.history


def test_members_of_a_population_are_what_they_are_alone():
    def model(seed):
        torch.manual_seed(seed)
        return nn.Linear(3, 1)

    settings = SETTINGS | {
        "scheduler": partial(OneCycleLR, max_lr=0.1),
        "optimizer": partial(torch.optim.SGD, momentum=0.9),
    }
    settings |= {"validation": (X, Y), "patience": 1}
    several = fit_population([model(0), model(1)], (X, Y), WeightedBCELoss(), seeds=[0, 1], **settings)
    for seed, member in enumerate(several):
        alone = fit(model(seed), (X, Y), WeightedBCELoss(), seed=seed, **settings)
        torch.testing.assert_close(member.model.weight, alone.model.weight, rtol=1e-5, atol=1e-6)


def test_wrong_settings_are_refused():
    with pytest.raises(ValueError, match="scheduler_step is 'epoch', 'batch' or None, got 'step'"):
        rates_of(partial(ExponentialLR, gamma=0.5), scheduler_step="step")
    with pytest.raises(ValueError, match="ReduceLROnPlateau moves once per epoch"):
        rates_of(ReduceLROnPlateau, scheduler_step="batch", validation=(X, Y))


@pytest.mark.parametrize("population", [False, True])
def test_a_cycle_that_is_too_short_is_refused_before_training(population):
    for make in (
        partial(OneCycleLR, max_lr=0.1, total_steps=11),
        partial(OneCycleLR, max_lr=0.1, epochs=3, steps_per_epoch=3),
    ):
        with pytest.raises(ValueError, match=r"this stage has 12 scheduler steps \(4 epochs of 3 batches\)"):
            rates_of(make, population=population)
    with pytest.raises(ValueError, match=r"total_steps=3, but this stage has 4 scheduler steps \(one per epoch\)"):
        rates_of(partial(OneCycleLR, max_lr=0.1, total_steps=3), scheduler_step="epoch", population=population)


@pytest.mark.parametrize("population", [False, True])
def test_a_scheduler_step_without_a_scheduler_is_refused(population):
    with pytest.raises(ValueError, match="scheduler_step needs a scheduler"):
        rates_of(None, scheduler_step="batch", population=population)
