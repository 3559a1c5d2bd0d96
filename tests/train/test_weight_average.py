"""The average of the weights: torch's AveragedModel as oracle, checkpoints to the bit, members of populations."""

import copy
from functools import partial

import pytest
import torch
from exactly import assert_same
from interrupted_runs import assert_resumed, interrupt
from runs_to_kill import data, network, one_model
from small_fits import trained
from torch import nn
from torch.optim.swa_utils import AveragedModel

from metricfit import AugmentedLagrangian
from metricfit.losses import WeightedBCELoss
from metricfit.train import Callback, Checkpoints, Monitor, Stage, Steps, fit
from metricfit.train.checkpoint.folder import RunFolder
from metricfit.train.engine.learner import WeightAverage, name_averaged_buffers
from metricfit_papers.populations import fit_population

X, Y = data()
HELD_OUT = data(seed=1)
BCE = WeightedBCELoss()


def plain_network(seed=0):
    torch.manual_seed(seed)
    return nn.Sequential(nn.Linear(6, 8), nn.Tanh(), nn.Linear(8, 1))


def weights_of(model):
    return torch.cat([weight.detach().flatten() for weight in model.parameters()])


def averaged_by_torch(decay, steps):
    """Train on the whole set with torch's averaging, which counts its first update, a copy, as number 0."""
    model = plain_network()
    average = AveragedModel(model, avg_fn=lambda a, w, n: torch.lerp(w, a, min(decay, float(n) / (9 + float(n)))))
    average.update_parameters(model)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.5)
    for _ in range(steps):
        optimizer.zero_grad()
        nn.functional.binary_cross_entropy_with_logits(model(X).squeeze(1), Y.float()).backward()
        optimizer.step()
        average.update_parameters(model)
    return model, average.module


SETTINGS = {"optimizer": torch.optim.SGD, "lr": 0.5, "start_at_prior": False, "progress": False, "batch_size": 1000}


@pytest.mark.parametrize("decay", [0.999, 0.5])
def test_the_returned_model_is_the_average_of_torch(decay):
    plain, average = averaged_by_torch(decay, steps=12)
    result = fit(plain_network(), (X, Y), nn.BCEWithLogitsLoss(), epochs=12, steps=Steps(ema=decay), **SETTINGS)
    torch.testing.assert_close(weights_of(result.model), weights_of(average), rtol=1e-4, atol=1e-5)
    assert not torch.allclose(weights_of(plain), weights_of(average), atol=1e-3)


class Kept(Callback):
    def started(self, plan, step):
        self.outputs = plan.outputs

    def epoch_ended(self, rows):
        if rows[0]["value"] == rows[0]["best"]:
            self.logits = self.outputs(0, HELD_OUT[0])


@pytest.mark.parametrize("monitor", ["f1", "best f1", "loss"])
def test_training_does_not_change_and_validation_is_that_of_the_average(monitor):
    settings = {"validation": HELD_OUT, "monitor": monitor, "epochs": 6, "lr": 0.1, "batch_size": 40}
    settings |= {"progress": False}
    kept = Kept()
    usual = fit(network(), (X, Y), WeightedBCELoss(), **settings)
    result = fit(network(), (X, Y), WeightedBCELoss(), steps=Steps(ema=0.95), callbacks=[kept], **settings)
    assert result.history["train_loss"] == usual.history["train_loss"]
    assert result.history["validation_loss"] != usual.history["validation_loss"]
    logits = result.model(HELD_OUT[0]).detach()
    torch.testing.assert_close(kept.logits, logits)
    if monitor == "loss":
        value = WeightedBCELoss()(logits.squeeze(1), HELD_OUT[1]).item()
    else:
        value = Monitor("f1", threshold=result.threshold).measure(logits, HELD_OUT[1]).value
    assert result.best == pytest.approx(value, rel=1e-5)


def test_a_second_stage_starts_from_the_average_of_the_first():
    first, second = Stage(WeightedBCELoss(), epochs=5), Stage(WeightedBCELoss(), epochs=3, lr=0.1)
    both = fit(plain_network(), (X, Y), [first, second], steps=Steps(ema=0.9), **SETTINGS)
    alone = fit(plain_network(), (X, Y), first, steps=Steps(ema=0.9), **SETTINGS)
    after = fit(copy.deepcopy(alone.model), (X, Y), second, steps=Steps(ema=0.9), **SETTINGS)
    torch.testing.assert_close(weights_of(both.model), weights_of(after.model))


def test_statistics_of_norms_are_averaged_and_other_buffers_are_not():
    class Masked(nn.Module):
        def __init__(self):
            super().__init__()
            self.norm, self.last = nn.BatchNorm1d(6), nn.Linear(6, 1)
            self.register_buffer("mask", torch.tensor([0.0] * 5 + [-torch.inf]))

        def forward(self, x):
            return self.last(self.norm(x) * self.mask.exp())

    torch.manual_seed(0)
    model = Masked()
    assert name_averaged_buffers(model) == ["norm.running_mean", "norm.running_var"]
    plain = fit(copy.deepcopy(model), (X + 3, Y), WeightedBCELoss(), epochs=1, **SETTINGS).model
    averaged = fit(model, (X + 3, Y), WeightedBCELoss(), epochs=1, steps=Steps(ema=0.9), **SETTINGS).model
    torch.testing.assert_close(averaged.norm.running_mean, 0.9 * plain.norm.running_mean)  # from 0, at 1 - 0.1
    torch.testing.assert_close(averaged.norm.running_var, 0.1 + 0.9 * plain.norm.running_var)
    assert averaged.norm.num_batches_tracked == 1
    assert averaged.mask[-1] == -torch.inf


def test_averages_of_half_precision_are_kept_in_float32():
    weight = torch.zeros(1, dtype=torch.bfloat16)
    average = WeightAverage(0.999, {"weight": weight})
    average.updates = 10**6
    average.averages["weight"] += 1
    for _ in range(100):
        average.update()
    assert average.averages["weight"].item() == pytest.approx(0.999**100)


def population(folder, **settings):
    """Two members, the first of which stops after the third epoch."""
    usual = {"validation": HELD_OUT, "lr": [1e-12, 0.1], "patience": 2, "epochs": 5, "batch_size": 50, "device": "cpu"}
    usual |= {"checkpoint_dir": Checkpoints(folder, 3), "resume": True, "progress": False}
    networks = [network(seed, norm=nn.LayerNorm) for seed in (1, 2)]
    return fit_population(networks, (X, Y), BCE, **usual | settings)


@pytest.mark.parametrize(("run", "step"), [(one_model, 33), (population, 16)])
def test_interrupted_runs_resume_to_the_bit(tmp_path, run, step):
    averaged = partial(run, steps=Steps(ema=0.9))
    averaged(tmp_path / "whole")
    interrupt(averaged, tmp_path / "resumed", step)
    averaged(tmp_path / "resumed")
    assert_resumed(RunFolder(tmp_path / "resumed"), RunFolder(tmp_path / "whole"))
    with pytest.raises(ValueError, match=r"holds another run .*ema: 0.9 then, None now"):
        run(tmp_path / "whole")


def test_the_finished_result_has_the_average(tmp_path):
    settings = {"epochs": 2, "steps": Steps(ema=0.9), "checkpoint_dir": tmp_path, "resume": True}
    result, again = (fit(plain_network(), (X, Y), BCE, **settings, **SETTINGS) for _ in range(2))
    assert_same(again.model.state_dict(), result.model.state_dict())


def test_members_that_stop_at_different_times_have_what_they_have_alone():
    networks = [plain_network(seed) for seed in range(3)]
    settings = {
        "validation": HELD_OUT,
        "epochs": 12,
        "patience": 2,
        "batch_size": 50,
        "steps": Steps(ema=0.8),
        "progress": False,
    }
    rates = [1e-12, 0.5, 0.03]  # the first does not move, and stops
    sgd = {"optimizer": torch.optim.SGD, "start_at_prior": False}
    alone = [
        fit(copy.deepcopy(model), (X, Y), WeightedBCELoss(), lr=lr, seed=member, **settings, **sgd)
        for member, (model, lr) in enumerate(zip(networks, rates, strict=True))
    ]
    together = fit_population(networks, (X, Y), WeightedBCELoss(), lr=rates, device="cpu", **settings, **sgd)
    lengths = [len(result.history) for result in together]
    assert lengths == [len(result.history) for result in alone]
    assert len(set(lengths)) > 1, "they stop at different times"
    for one, other in zip(together, alone, strict=True):
        torch.testing.assert_close(weights_of(one.model), weights_of(other.model), rtol=1e-4, atol=1e-5)
        assert one.best == pytest.approx(other.best, rel=1e-4)


def test_multipliers_on_the_validation_set_move_with_the_average():
    objective = AugmentedLagrangian(WeightedBCELoss(), "recall >= 0.99", update_on="held_out")
    result = fit(plain_network(), (X, Y), objective, validation=HELD_OUT, epochs=1, steps=Steps(ema=0.9), **SETTINGS)
    recall = Monitor("recall").measure(result.model(HELD_OUT[0]).detach(), HELD_OUT[1]).value
    multiplier = result.objective.constraints[0].multiplier.item()
    assert multiplier == pytest.approx(0.3 * (0.99 - recall))


class Interrupts(Callback):
    def epoch_ended(self, rows):
        if rows[0]["epoch"] == 3:
            raise KeyboardInterrupt


def test_an_interrupt_leaves_the_average():
    model = plain_network()
    with pytest.raises(KeyboardInterrupt):
        fit(
            model, (X, Y), nn.BCEWithLogitsLoss(), epochs=12, steps=Steps(ema=0.9), callbacks=[Interrupts()], **SETTINGS
        )
    torch.testing.assert_close(weights_of(model), weights_of(averaged_by_torch(0.9, steps=4)[1]))


@pytest.mark.parametrize("ema", [0, 1.0, -0.5, "0.9", float("nan")])
def test_other_decays_are_refused(ema):
    with pytest.raises(ValueError, match=r"ema is the decay .* such as 0.999"):
        trained(WeightedBCELoss(), steps=Steps(ema=ema))
