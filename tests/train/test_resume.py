"""A run that was killed and resumed is the run that was not: to the bit, and with few steps made twice."""

import copy
import json
import os
import random
import signal
import subprocess
import sys
import time
import warnings
from functools import partial
from pathlib import Path

import numpy as np
import pytest
import torch
from damages import damage
from exactly import assert_same
from runs_to_kill import EVERY, SAMPLES, data, network, one_model, population, stages
from torch import nn
from torch.utils.data import DataLoader, Dataset, TensorDataset

from metricfit import AugmentedLagrangian, MetricLoss
from metricfit.losses import WeightedBCELoss
from metricfit.train import Callback, CheckpointWarning, Monitor, Stage, fit, fit_population
from metricfit.train.checkpoint.folder import RunFolder

STEPS = 49


class Interrupted(Exception):
    pass


class StopAt(Callback):
    def __init__(self, step):
        self.step = step

    def stepped(self, step, losses):
        if step == self.step:
            raise Interrupted


class Forge:
    """Makes runs in processes of their own, and ends them."""

    def __init__(self):
        script = Path(__file__).with_name("runs_to_kill.py")
        self.process = subprocess.Popen(
            [sys.executable, str(script)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env=os.environ | {"OMP_NUM_THREADS": str(torch.get_num_threads())},  # or the runs would round differently
        )
        assert self._answer() == "ready"

    def _answer(self):
        return json.loads(self.process.stdout.readline())

    def _order(self, **order):
        self.process.stdin.write(json.dumps(order) + "\n")
        self.process.stdin.flush()
        return self._answer()

    def complete(self, run, folder):
        self._order(run=run, folder=str(folder))
        assert self._answer() == 0, "the run failed; see its traceback on standard error"

    def kill(self, run, folder, when, delay=0.0, **order):
        """Kills a run by SIGKILL as soon as ``when`` holds, plus a delay; the order makes the run wait for it."""
        child = self._order(run=run, folder=str(folder), **order)
        deadline = time.monotonic() + 300
        while not when():
            assert time.monotonic() < deadline, "the moment for the kill never came"
            time.sleep(0.0002)
        time.sleep(delay)
        os.kill(child, signal.SIGKILL)
        assert self._answer() == -signal.SIGKILL, "the run was over before it was killed"

    def close(self):
        self.process.stdin.close()
        self.process.wait(30)
        self.process.stdout.close()


@pytest.fixture(scope="module")
def forge():
    made = Forge()
    yield made
    made.close()


@pytest.fixture(scope="module")
def uninterrupted(forge, tmp_path_factory):
    folders = {}
    for run in ("one_model", "population"):
        folders[run] = RunFolder(tmp_path_factory.mktemp("uninterrupted") / run)
        forge.complete(run, folders[run].path)
    return folders


def unfinished(folder):
    return list(folder.path.glob(".step-*.unfinished")) if folder.path.exists() else []


def assert_resumed(folder, expected, kills=1, every=EVERY):
    assert folder.finished
    assert_same(folder.result(), expected.result())
    assert expected.steps_made <= folder.steps_made <= expected.steps_made + kills * every
    assert not list(folder.path.glob(".*.unfinished"))


def kill_at_random(forge, folder, rng, mid_write, run="one_model", steps=STEPS):
    at = rng.randrange(0, steps - EVERY)
    if mid_write:
        forge.kill(
            run,
            folder.path,
            lambda: folder.steps_made >= at and unfinished(folder),
            delay=rng.uniform(0, 0.02),
            hold_writes={"steps_made": at, "existing": ".step-*.unfinished"},
        )
        assert unfinished(folder), "the kill was to land before the checkpoint was in its place"
    else:
        forge.kill(
            run,
            folder.path,
            lambda: folder.steps_made >= at,
            delay=rng.uniform(0, 0.004),
            slow_steps=0.004,
            hold_at=at + EVERY - 1,
        )
    assert not folder.finished
    assert folder.steps_made < steps


def test_the_run_to_kill_has_the_properties_it_needs(uninterrupted):
    result = uninterrupted["one_model"].result()
    assert uninterrupted["one_model"].steps_made == STEPS
    assert [row["stage"] for row in result["history"]] == ["bce"] * 3 + ["constrained"] * 4
    state = result["objective"]
    assert state["constraints.0.multiplier"].abs().sum() > 0
    assert state["constraints.1.multiplier"].shape == (SAMPLES,)
    assert state["constraints.1.multiplier"].abs().sum() > 0
    assert state["objective.step.a"] == 1
    assert state["objective.memory.total"].sum() > 0
    assert state["observed"] < 0, "the violation of the last epoch, which moves the penalty when it grows"


KILLS = [(number, number % 5 < 2) for number in range(20)]
IN_MAKE_TEST = 3


@pytest.mark.parametrize(
    ("number", "mid_write"),
    [pytest.param(*kill, marks=[] if kill[0] < IN_MAKE_TEST else pytest.mark.slow) for kill in KILLS],
)
def test_killed_once(forge, uninterrupted, tmp_path, number, mid_write):
    folder = RunFolder(tmp_path / "run")
    kill_at_random(forge, folder, random.Random(1000 + number), mid_write)
    forge.complete("one_model", folder.path)
    assert_resumed(folder, uninterrupted["one_model"])


@pytest.mark.slow
def test_killed_again_and_again(forge, uninterrupted, tmp_path):
    folder = RunFolder(tmp_path / "run")
    moments = (4, 11, 22, 33, 46)
    for at in moments:
        forge.kill("one_model", folder.path, lambda at=at: folder.steps_made >= at, hold_at=at + 1)
        assert not folder.finished
    forge.complete("one_model", folder.path)
    assert_resumed(folder, uninterrupted["one_model"], kills=len(moments))


def test_killed_while_it_begins(forge, uninterrupted, tmp_path):
    folder = RunFolder(tmp_path / "run")
    pattern = ".run.json.*.unfinished"

    def begins():
        return folder.path.exists() and any(folder.path.glob(pattern))

    forge.kill("one_model", folder.path, begins, hold_writes={"steps_made": 0, "existing": pattern})
    assert begins()
    assert not folder.started
    forge.complete("one_model", folder.path)
    assert_resumed(folder, uninterrupted["one_model"])


def test_killed_while_it_finishes(forge, uninterrupted, tmp_path):
    folder = RunFolder(tmp_path / "run")
    report = folder.path / "report.json"
    forge.kill("one_model", folder.path, report.exists, hold_writes={"steps_made": STEPS, "existing": report.name})
    assert not folder.finished
    forge.complete("one_model", folder.path)
    assert_resumed(folder, uninterrupted["one_model"])


def test_killed_population(forge, uninterrupted, tmp_path):
    """Where one member has stopped and others go on."""
    expected = uninterrupted["population"]
    ends = [[row["step"] for row in member["history"]] for member in expected.result()["members"]]
    stops = sorted(max(each) for each in ends)
    assert stops[0] < stops[-1] - 1, "the members were to stop at different times"
    folder = RunFolder(tmp_path / "run")
    forge.kill("population", folder.path, lambda: folder.steps_made > stops[0], hold_at=stops[0] + 1)
    assert not folder.finished
    assert stops[0] < folder.steps_made < stops[-1]
    forge.complete("population", folder.path)
    assert_resumed(folder, expected)


def interrupt(run, folder, step):
    with pytest.raises(Interrupted):
        run(folder, callbacks=[StopAt(step)])


@pytest.mark.parametrize("step", [1, 20, 21, 22, 33, 48, 49])
def test_every_kind_of_moment(uninterrupted, tmp_path, step):
    """The first step, about the change of stages, the middle of an epoch, the last step."""
    folder = RunFolder(tmp_path)
    interrupt(one_model, tmp_path, step)
    result = one_model(tmp_path)
    assert_resumed(folder, uninterrupted["one_model"])
    assert_same(result.model.state_dict(), folder.result()["model"])
    assert_same(result.history.rows, folder.result()["history"])
    assert_same(result.objective.state_dict(), folder.result()["objective"])


def test_checkpoints_change_nothing(uninterrupted):
    result = one_model(None)
    expected = uninterrupted["one_model"].result()
    assert_same(result.model.state_dict(), expected["model"])
    assert_same(result.history.rows, expected["history"])
    assert_same(result.objective.state_dict(), expected["objective"])


@pytest.fixture
def set_threads():
    before = torch.get_num_threads()
    yield torch.set_num_threads
    torch.set_num_threads(before)


@pytest.mark.parametrize("threads", [1, 2])
def test_a_resumed_run_is_equal_to_the_bit_with_the_same_number_of_threads(set_threads, tmp_path, threads):
    set_threads(threads)
    one_model(tmp_path / "whole")
    interrupt(one_model, tmp_path / "resumed", 33)
    one_model(tmp_path / "resumed")
    assert_resumed(RunFolder(tmp_path / "resumed"), RunFolder(tmp_path / "whole"))


def test_the_number_of_threads_is_recorded_and_may_change(set_threads, tmp_path):
    """Batch normalisation on a CPU adds up one part per thread, so the last bits depend on their number."""
    set_threads(2)
    interrupt(one_model, tmp_path, 12)
    set_threads(1)
    one_model(tmp_path)
    assert json.loads((tmp_path / "run.json").read_text())["threads"] == 2
    assert RunFolder(tmp_path).finished


def test_once_an_epoch_by_default(uninterrupted, tmp_path):
    def run(folder, **given):
        return one_model(folder, checkpoint_every=None, **given)

    interrupt(run, tmp_path, 27)
    assert [path.name[:15] for path in RunFolder(tmp_path).checkpoints()] == ["step-0000000021", "step-0000000021"]
    run(tmp_path)
    assert_resumed(RunFolder(tmp_path), uninterrupted["one_model"], every=7)


def test_the_interval_may_be_another_when_resuming(uninterrupted, tmp_path):
    interrupt(one_model, tmp_path, 33)
    one_model(tmp_path, checkpoint_every=2)
    assert_resumed(RunFolder(tmp_path), uninterrupted["one_model"])


def test_the_same_objects_resume(uninterrupted, tmp_path):
    """In a notebook: the objective and the model that were interrupted are given again."""
    model, given = network(), stages()
    settings = {"validation": data(seed=1), "batch_size": 32, "seed": 3, "accelerator": "cpu"}
    settings |= {"checkpoint_dir": tmp_path, "checkpoint_every": EVERY, "resume": True}
    with pytest.raises(Interrupted):
        fit(model, data(), given, callbacks=[StopAt(45)], **settings)
    fit(model, data(), given, **settings)
    assert_resumed(RunFolder(tmp_path), uninterrupted["one_model"])


def test_all_members_have_stopped_before_the_end(uninterrupted, tmp_path):
    """The last checkpoint is then one without active members."""

    class StopAtEnd(Callback):
        def finished(self):
            raise Interrupted

    def run(folder, **given):
        return population(folder, checkpoint_every=1, **given)

    with pytest.raises(Interrupted):
        run(tmp_path, callbacks=[StopAtEnd()])
    made = RunFolder(tmp_path).steps_made
    run(tmp_path)
    assert_same(RunFolder(tmp_path).result(), uninterrupted["population"].result())
    assert RunFolder(tmp_path).steps_made == made


class Augmented(Dataset):
    """Items with random noise, of each generator in use."""

    def __init__(self):
        self.x, self.targets = data()

    def __len__(self):
        return len(self.x)

    def __getitem__(self, at):
        noise = random.gauss(0, 0.1) + np.random.normal(0, 0.1)  # noqa: NPY002 (what users' datasets draw from)
        return self.x[at] + 0.1 * torch.randn(6) + noise, self.targets[at]


def of_items(folder, train, **given):
    usual = {"checkpoint_dir": folder, "checkpoint_every": 3, "resume": True} if folder else {}
    return fit(
        network(),
        train,
        WeightedBCELoss(),
        validation=data(seed=1),
        epochs=3,
        batch_size=32,
        lr=0.01,
        accelerator="cpu",
        **usual,
        **given,
    )


def seeded_loader():
    return DataLoader(Augmented(), batch_size=32, shuffle=True, generator=torch.Generator().manual_seed(1))


LOADERS = {
    "shuffled tensors": lambda: DataLoader(TensorDataset(*data()), batch_size=32, shuffle=True),
    "augmented": lambda: DataLoader(Augmented(), batch_size=32, shuffle=True),
    "augmented by workers": lambda: DataLoader(Augmented(), batch_size=32, shuffle=True, num_workers=2),
    "a generator of its own": seeded_loader,
}


@pytest.mark.parametrize("kind", ["dataset", "dataset by workers", *LOADERS])
def test_random_items_and_orders(tmp_path, kind):
    def run(folder, **given):
        if kind.startswith("dataset"):
            return of_items(folder, Augmented(), workers=2 if "workers" in kind else 0, **given)
        return of_items(folder, LOADERS[kind](), **given)

    whole = run(None)
    interrupt(run, tmp_path, 12)
    resumed = run(tmp_path)
    assert_same(resumed.model.state_dict(), whole.model.state_dict())
    assert_same(resumed.history.rows, whole.history.rows)
    assert RunFolder(tmp_path).steps_made == 21 + 3


def test_augmentation_is_new_every_epoch():
    """Or the test above would hold for items that are drawn once."""
    seen = []

    class Watched(Augmented):
        def __getitem__(self, at):
            item = super().__getitem__(at)
            if at == 17:  # fit looks at the labels of the first 16 before it starts
                seen.append(item[0].sum().item())
            return item

    of_items(None, Watched())
    assert len(set(seen)) == len(seen) == 3


def test_the_users_random_numbers_are_left_alone(tmp_path):
    def numbers():
        return torch.rand(1).item(), random.random(), np.random.rand()  # noqa: NPY002

    def seed():
        torch.manual_seed(0)
        random.seed(0)
        np.random.seed(0)  # noqa: NPY002

    seed()
    expected = numbers()
    interrupt(one_model, tmp_path, 12)
    seed()
    one_model(tmp_path)
    assert numbers() == expected


@pytest.mark.parametrize("how", ["truncated", "flipped", "empty", "garbage with its hash", "other state with its hash"])
def test_a_damaged_checkpoint_falls_back_to_the_one_before(uninterrupted, tmp_path, how):
    folder = RunFolder(tmp_path)
    interrupt(one_model, tmp_path, 38)
    newest, before = folder.checkpoints()
    newest = damage(newest, how)
    with pytest.warns(CheckpointWarning, match=rf"{newest.name} \(.*\); the run continues from {before.name}"):
        one_model(tmp_path)
    assert_resumed(folder, uninterrupted["one_model"], kills=2)


def test_swapped_checkpoints_are_noticed(uninterrupted, tmp_path):
    """The content of one under the name of the other, and one under the number of another step."""
    folder = RunFolder(tmp_path)
    interrupt(one_model, tmp_path, 38)
    newest, before = folder.checkpoints()
    contents = newest.read_bytes(), before.read_bytes()
    newest.write_bytes(contents[1])
    with pytest.warns(CheckpointWarning, match=rf"{newest.name} \(its \d+ bytes do not have the hash in its name\)"):
        interrupt(one_model, tmp_path, 31)
    before.write_bytes(contents[0])
    with pytest.raises(ValueError, match=r"no checkpoint in .* is intact"):
        one_model(tmp_path)
    newest.write_bytes(contents[0])
    before.write_bytes(contents[1])
    renamed = before.rename(before.with_name(before.name.replace("30", "90")))
    with pytest.warns(
        CheckpointWarning, match=rf"{renamed.name} \(it belongs to step 30, not to the step in its name\)"
    ):
        one_model(tmp_path)
    assert_same(folder.result(), uninterrupted["one_model"].result())


def test_a_checkpoint_of_another_model_is_refused_with_the_remedy(tmp_path):
    def run(folder, width=16, **given):
        settings = {"epochs": 3, "accelerator": "cpu", "checkpoint_dir": folder, "resume": True, "progress": False}
        return fit(network(width=width), data(), WeightedBCELoss(), **settings, **given)

    interrupt(partial(run, width=8), tmp_path / "theirs", 2)
    interrupt(run, tmp_path / "mine", 2)
    for path in RunFolder(tmp_path / "mine").checkpoints():
        path.unlink()
    theirs = RunFolder(tmp_path / "theirs").checkpoints()[0]
    (tmp_path / "mine" / theirs.name).write_bytes(theirs.read_bytes())
    with pytest.raises(ValueError, match=r"step 1 in .* does not fit this model: [\s\S]*delete it and run again"):
        run(tmp_path / "mine")


def test_a_damaged_checkpoint_is_dropped_by_the_next(tmp_path):
    folder = RunFolder(tmp_path)
    interrupt(one_model, tmp_path, 38)
    newest, before = folder.checkpoints()
    newest.rename(tmp_path / newest.name.replace("35", "36"))  # a step at which no other will be written
    (damaged, _) = folder.checkpoints()
    damage(damaged, "flipped")
    with pytest.warns(CheckpointWarning), pytest.raises(Interrupted):
        one_model(tmp_path, callbacks=[StopAt(35)])
    assert damaged in folder.checkpoints()
    with pytest.warns(CheckpointWarning), pytest.raises(Interrupted):
        one_model(tmp_path, callbacks=[StopAt(42)])
    assert [path.name[:15] for path in folder.checkpoints()] == ["step-0000000040", "step-0000000035"]
    assert before.name.startswith("step-0000000030")


@pytest.mark.parametrize("how", ["flipped", "zeros", "garbage with its hash"])
def test_where_all_are_damaged_nothing_is_changed_until_the_user_deletes_them(uninterrupted, tmp_path, how):
    folder = RunFolder(tmp_path)
    interrupt(one_model, tmp_path, 38)
    damaged = [damage(path, how) for path in folder.checkpoints()]
    names = ".*".join(path.name for path in damaged)
    with pytest.raises(ValueError, match=rf"no checkpoint in .* is intact: {names}.*delete them and run again"):
        one_model(tmp_path)
    assert folder.checkpoints() == damaged
    assert folder.steps_made == 38
    for path in damaged:
        path.unlink()
    one_model(tmp_path)
    assert_same(folder.result(), uninterrupted["one_model"].result())
    assert folder.steps_made == 38 + STEPS


def test_a_finished_run_returns_its_result(uninterrupted, tmp_path):
    first = one_model(tmp_path)
    made = RunFolder(tmp_path).steps_made
    before = sorted((path.name, path.stat().st_mtime_ns) for path in tmp_path.iterdir())
    again = one_model(tmp_path)
    assert_same(again.model.state_dict(), first.model.state_dict())
    assert_same(again.objective.state_dict(), first.objective.state_dict())
    assert again.history == first.history
    assert (again.best, again.threshold) == (first.best, first.threshold)
    assert not again.model.training
    assert RunFolder(tmp_path).steps_made == made
    assert sorted((path.name, path.stat().st_mtime_ns) for path in tmp_path.iterdir()) == before


def test_a_finished_population_returns_its_result(tmp_path):
    first = population(tmp_path)
    made = RunFolder(tmp_path).steps_made
    for one, other in zip(population(tmp_path), first, strict=True):
        assert_same(one.model.state_dict(), other.model.state_dict())
        assert_same(one.objective.state_dict(), other.objective.state_dict())
        assert one.history == other.history
    assert RunFolder(tmp_path).steps_made == made


def no_such_word(word):
    raise AssertionError(f"{word} is not JSON")


def test_the_report_is_json_with_spec_versions_and_seed(tmp_path):
    usual = {"epochs": 1, "batch_size": 64}
    fit(network(), data(), WeightedBCELoss(), seed=7, checkpoint_dir=tmp_path / "one", accelerator="cpu", **usual)
    models = [network(seed, norm=nn.LayerNorm) for seed in range(2)]
    fit_population(models, data(), WeightedBCELoss(), checkpoint_dir=tmp_path / "two", device="cpu", **usual)

    def report(name):
        return json.loads((tmp_path / name / "report.json").read_bytes(), parse_constant=no_such_word)

    one, two = report("one"), report("two")
    assert (one["best"], one["threshold"], one["epochs"], one["seed"]) == (None, None, 1, 7)
    assert (two["best"], two["threshold"], two["epochs"], two["seeds"]) == ([None] * 2, [None] * 2, [1, 1], [0, 1])
    for told in (one, two):
        assert told["versions"]["torch"] == torch.__version__
        assert told["spec"]["batch_size"] == 64


def contents(folder):
    return {path.name: path.read_bytes() for path in folder.iterdir()}


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
    ("now", "told"),
    [
        ({"seed": 4}, "seed: 3 then, 4 now"),
        ({"batch_size": 16}, "batch_size: 32 then, 16 now"),
        ({"train": (data()[0][:150], data()[1][:150])}, "train.samples: 200 then, 150 now"),
        ({"train": other_inputs()}, "train.hash of inputs: '"),
        ({"train": other_labels()}, "train.hash of labels: '"),
        ({"validation": data(seed=2)}, "validation.hash of inputs: '"),
        ({"objective": WeightedBCELoss(2.0)}, "objective: 'WeightedBCELoss"),
        ({"objective": Stage(WeightedBCELoss(), optimizer=torch.optim.SGD)}, r"stages\[0\].optimizer: None then"),
        ({"objective": Stage(WeightedBCELoss(), epochs=7)}, r"stages\[0\].epochs: 2 then, 7 now"),
        ({"model": network(width=12)}, r"model.0.weight\[0\]: 16 then, 12 now"),
        ({"clip": 1.0}, "clip: None then, 1.0 now"),
        ({"class_weight": "balanced"}, "train.hash of weights: None then"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_other_settings_are_refused_by_name(tmp_path, now, told):
    started = {"model": network(), "train": data(), "objective": WeightedBCELoss(), "validation": data(seed=1)}
    started |= {"batch_size": 32, "seed": 3, "epochs": 2, "checkpoint_dir": tmp_path, "accelerator": "cpu"}
    with pytest.raises(Interrupted):
        fit(**started, callbacks=[StopAt(3)])
    before = contents(tmp_path)
    with pytest.raises(ValueError, match=f"holds another run .*{told}"):
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
        r"code.scheduler\(\)",
    ),
    "metric": (
        {"objective": MetricLoss(share_found)},
        {"objective": MetricLoss(share_found_otherwise)},
        r"code.objective.metric.formula\(\)",
    ),
    "monitor": (
        {"monitor": Monitor(share_found)},
        {"monitor": Monitor(share_found_otherwise)},
        r"code.monitor.metric\(\)",
    ),
    "constraint": (
        {"objective": AugmentedLagrangian(WeightedBCELoss(), lambda z, y: z.mean() - 1)},
        {"objective": AugmentedLagrangian(WeightedBCELoss(), lambda z, y: z.mean() - 2)},
        r"code.objective.constraints.0.function\(\)",
    ),
}


@pytest.mark.parametrize(("then", "now", "told"), UNSEEN_IN_A_REPR.values(), ids=UNSEEN_IN_A_REPR)
def test_what_no_repr_shows_is_refused_too_and_the_same_is_not(tmp_path, then, now, told):
    usual = {"model": layers(), "train": data(), "objective": WeightedBCELoss(), "validation": data(seed=1)}
    usual |= {"batch_size": 64, "epochs": 1, "checkpoint_dir": tmp_path, "accelerator": "cpu"}
    fit(**usual | copy.deepcopy(then))
    fit(**usual | then, resume=True)
    with pytest.raises(ValueError, match=f"holds another run .*{told}"):
        fit(**usual | now, resume=True)


@pytest.mark.parametrize("now", [{"weight": torch.ones(2)}, {"label_smoothing": 0.1}], ids=str)
def test_another_cross_entropy_is_refused_by_a_finished_run(tmp_path, now):
    usual = {"train": data(), "batch_size": 64, "epochs": 1, "checkpoint_dir": tmp_path, "accelerator": "cpu"}
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

    given = {"splits": splits(0), "validation": None}
    interrupt(lambda folder, **rest: population(folder, **given, **rest), tmp_path, 3)
    with pytest.raises(ValueError, match=r"splits\[0\]"):
        population(tmp_path, **given | {"splits": splits(10)})


def test_a_lambda_resumes(tmp_path):
    """Its repr holds an address, which is another in the next process."""

    def run(folder, **given):
        stage = Stage(nn.BCEWithLogitsLoss(), optimizer=lambda weights, lr: torch.optim.SGD(weights, lr, momentum=0.9))
        settings = {"epochs": 2, "batch_size": 32, "accelerator": "cpu", "checkpoint_dir": folder, "resume": True}
        return fit(network(), data(), stage, **settings, **given)

    interrupt(run, tmp_path, 9)
    kept = [lambda: None for _ in range(100)]  # so that the next is at another address
    run(tmp_path)
    assert RunFolder(tmp_path).steps_made == 14 + 2
    assert kept


@pytest.mark.parametrize("name", ["run.json", "result.safetensors", "report.json", "finished"])
@pytest.mark.parametrize("how", ["truncated", "flipped", "empty"])
def test_damaged_files_of_a_finished_run_are_reported_with_a_remedy(uninterrupted, tmp_path, name, how):
    one_model(tmp_path)
    whole = (tmp_path / name).read_bytes()
    damage(tmp_path / name, how)
    if name == "run.json":
        with pytest.raises(ValueError, match=r"run.json is damaged .* copy its run.json|holds another run"):
            one_model(tmp_path)
        (tmp_path / name).write_bytes(whole)
        one_model(tmp_path)
        return
    named = r"\S+" if name == "finished" else name  # whose flipped bit makes another file look damaged
    with pytest.raises(ValueError, match=f"{named} in .* Delete the file 'finished' there"):
        one_model(tmp_path)
    (tmp_path / "finished").unlink()
    one_model(tmp_path)  # the remedy, as it is told
    assert_resumed(RunFolder(tmp_path), uninterrupted["one_model"])


def test_a_missing_result_is_reported(tmp_path):
    one_model(tmp_path)
    (tmp_path / "result.safetensors").unlink()
    with pytest.raises(ValueError, match=r"result\.safetensors in .* damaged or missing"):
        one_model(tmp_path)


def test_a_second_run_in_the_same_folder_is_refused(forge, tmp_path):
    """In another process, and in this one."""
    folder = RunFolder(tmp_path / "run")

    def other_is_refused():
        if not folder.steps_made:
            return False
        with pytest.raises(BlockingIOError, match=r"process \d+ is training in this folder now"):
            one_model(folder.path)
        return True

    forge.kill("one_model", folder.path, other_is_refused, hold_at=1)

    class Again(Callback):
        def stepped(self, step, losses):
            with pytest.raises(BlockingIOError, match="this process is training in this folder now"):
                one_model(folder.path)
            raise Interrupted

    with pytest.raises(Interrupted):
        one_model(folder.path, callbacks=[Again()])
    one_model(folder.path)
    assert folder.finished


def test_settings_without_a_folder():
    with pytest.raises(ValueError, match="resume needs a folder: pass checkpoint_dir"):
        one_model(None, resume=True)
    with pytest.raises(ValueError, match="checkpoint_every needs a folder"):
        one_model(None, checkpoint_every=2)


def test_an_interval_of_no_steps(tmp_path):
    with pytest.raises(ValueError, match="checkpoint_every must be a number of steps of at least 1, got 0"):
        one_model(tmp_path, checkpoint_every=0)
    assert not list(tmp_path.iterdir())


def test_state_that_cannot_be_saved_is_reported_before_the_first_step(tmp_path):
    class Odd(nn.Module):
        def forward(self, logits, target):
            return nn.functional.binary_cross_entropy_with_logits(logits, target)

        def get_extra_state(self):
            return {"names": {"a set"}}

        def set_extra_state(self, state):
            pass

    with pytest.raises(TypeError, match=r"state\['learner'\]\['objective'\]\['_extra_state'\]\['names'\] is set"):
        fit(network(), data(), Odd(), checkpoint_dir=tmp_path, accelerator="cpu")
    assert RunFolder(tmp_path).steps_made == 0


FULL_DISK = Path(__file__).with_name("full_disk.py")


def why_not_mounted():
    probe = "mount -t tmpfs -o size=64k tmpfs /mnt"
    try:
        done = subprocess.run(["unshare", "-rm", "sh", "-c", probe], capture_output=True, text=True, timeout=20)
    except (OSError, subprocess.TimeoutExpired) as error:
        return str(error)
    return done.stderr.strip() if done.returncode else ""


def test_a_full_disk_is_reported_and_the_run_can_be_resumed(tmp_path):
    problem = why_not_mounted()
    if problem:
        pytest.skip(f"no small tmpfs can be mounted here: {problem}")
    mount = f"mount -t tmpfs -o size=1m tmpfs {tmp_path} && exec {sys.executable} {FULL_DISK} {tmp_path}"
    environment = os.environ | {"OMP_NUM_THREADS": "1"}
    done = subprocess.run(
        ["unshare", "-rm", "sh", "-c", mount], capture_output=True, text=True, env=environment, timeout=120
    )
    assert done.returncode == 0, done.stderr
    told = json.loads(done.stdout)
    kept = told["kept"]
    assert (
        f"the last good checkpoint, {kept}, is unchanged. Free some space and run again with resume=True"
        in told["error"]
    )
    assert "No space left" not in told["error"]
    assert "no space left for step-" in told["error"]
    assert told["error_number"] == 28
    assert told["kept_is_whole"]
    assert told["unfinished"] == []
    assert told["steps_when_full"] > 0
    assert told["same"]
    assert told["steps_made"] <= STEPS + EVERY
    assert told["no_step_counted"].startswith(
        "[Errno 28] no space left for the count of steps; there was no checkpoint"
    )
    assert told["not_begun"].startswith("[Errno 28] no space left for run.json")


def test_nothing_warns_when_nothing_is_damaged(tmp_path):
    interrupt(one_model, tmp_path, 12)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        warnings.filterwarnings("ignore", message="recall >= 0.9 does not hold")  # after so few epochs
        one_model(tmp_path)
