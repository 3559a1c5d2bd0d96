"""A run that is interrupted and resumed equals an uninterrupted run to the bit."""

import json
import random

import numpy as np
import pytest
import torch
from exactly import assert_same
from interrupted_runs import Interrupted, StopAt, assert_resumed, interrupt
from runs_to_kill import EVERY, data, network, one_model, population, stages
from torch import nn
from torch.utils.data import DataLoader, Dataset, TensorDataset

from metricfit.losses import WeightedBCELoss
from metricfit.train import Callback, Checkpoints, Hardware, Stage, fit
from metricfit.train.checkpoint.folder import RunFolder
from metricfit_papers.populations import fit_population


@pytest.mark.parametrize("step", [1, 20, 21, 22, 33, 48, 49])
def test_every_kind_of_moment(uninterrupted, tmp_path, step):
    """The first step, about the change of stages, the middle of an epoch, the last step."""
    folder = RunFolder(tmp_path)
    interrupt(one_model, tmp_path, step)
    result = one_model(tmp_path)
    assert_resumed(folder, uninterrupted["one_model"])
    assert_same(result.model.state_dict(), folder.result()["members"][0]["model"])
    assert_same(result.history.rows, folder.result()["members"][0]["history"])
    assert_same(result.objective.state_dict(), folder.result()["members"][0]["objective"])


def test_checkpoints_change_nothing(uninterrupted):
    result = one_model(None)
    (expected,) = uninterrupted["one_model"].result()["members"]
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
    def run(folder, **settings):
        return one_model(folder, every=None, **settings)

    interrupt(run, tmp_path, 27)
    assert [path.name[:15] for path in RunFolder(tmp_path).checkpoints()] == ["step-0000000021", "step-0000000021"]
    run(tmp_path)
    assert_resumed(RunFolder(tmp_path), uninterrupted["one_model"], every=7)


def test_the_interval_may_be_another_when_resuming(uninterrupted, tmp_path):
    interrupt(one_model, tmp_path, 33)
    one_model(tmp_path, every=2)
    assert_resumed(RunFolder(tmp_path), uninterrupted["one_model"])


def test_the_same_objects_resume(uninterrupted, tmp_path):
    """In a notebook: the objective and the model that were interrupted are given again."""
    model, objective = network(), stages()
    settings = {"validation": data(seed=1), "batch_size": 32, "seed": 3, "hardware": Hardware(accelerator="cpu")}
    settings |= {"checkpoint_dir": Checkpoints(tmp_path, EVERY), "resume": True}
    with pytest.raises(Interrupted):
        fit(model, data(), objective, callbacks=[StopAt(45)], **settings)
    fit(model, data(), objective, **settings)
    assert_resumed(RunFolder(tmp_path), uninterrupted["one_model"])


def test_all_members_have_stopped_before_the_end(uninterrupted, tmp_path):
    """The last checkpoint is then one without active members."""

    class StopAtEnd(Callback):
        def finished(self):
            raise Interrupted

    def run(folder, **settings):
        return population(folder, every=1, **settings)

    with pytest.raises(Interrupted):
        run(tmp_path, callbacks=[StopAtEnd()])
    steps = RunFolder(tmp_path).steps_made
    run(tmp_path)
    assert_same(RunFolder(tmp_path).result(), uninterrupted["population"].result())
    assert RunFolder(tmp_path).steps_made == steps


class Augmented(Dataset):
    """Items with random noise, of each generator in use."""

    def __init__(self):
        self.x, self.targets = data()

    def __len__(self):
        return len(self.x)

    def __getitem__(self, index):
        noise = random.gauss(0, 0.1) + np.random.normal(0, 0.1)  # noqa: NPY002 (what users' datasets draw from)
        return self.x[index] + 0.1 * torch.randn(6) + noise, self.targets[index]


def of_items(folder, train, workers=0, **settings):
    usual = {"checkpoint_dir": Checkpoints(folder, 3), "resume": True} if folder else {}
    return fit(
        network(),
        train,
        WeightedBCELoss(),
        validation=data(seed=1),
        epochs=3,
        batch_size=32,
        lr=0.01,
        hardware=Hardware(accelerator="cpu", workers=workers),
        **usual,
        **settings,
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
    def run(folder, **settings):
        if kind.startswith("dataset"):
            return of_items(folder, Augmented(), workers=2 if "workers" in kind else 0, **settings)
        return of_items(folder, LOADERS[kind](), **settings)

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
        def __getitem__(self, index):
            item = super().__getitem__(index)
            if index == 17:
                seen.append(item[0].sum().item())
            return item

    of_items(None, Watched())
    assert len(set(seen)) == len(seen) == 1 + 3  # fit reads the labels of all items before it starts


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


def test_a_finished_run_returns_its_result(uninterrupted, tmp_path):
    first = one_model(tmp_path)
    steps = RunFolder(tmp_path).steps_made
    before = sorted((path.name, path.stat().st_mtime_ns) for path in tmp_path.iterdir())
    again = one_model(tmp_path)
    assert_same(again.model.state_dict(), first.model.state_dict())
    assert_same(again.objective.state_dict(), first.objective.state_dict())
    assert again.history == first.history
    assert (again.best, again.threshold) == (first.best, first.threshold)
    assert not again.model.training
    assert RunFolder(tmp_path).steps_made == steps
    assert sorted((path.name, path.stat().st_mtime_ns) for path in tmp_path.iterdir()) == before


def test_a_finished_population_returns_its_result(tmp_path):
    first = population(tmp_path)
    steps = RunFolder(tmp_path).steps_made
    for one, other in zip(population(tmp_path), first, strict=True):
        assert_same(one.model.state_dict(), other.model.state_dict())
        assert_same(one.objective.state_dict(), other.objective.state_dict())
        assert one.history == other.history
    assert RunFolder(tmp_path).steps_made == steps


def no_such_word(word):
    raise AssertionError(f"{word} is not JSON")


def test_the_report_is_json_with_spec_versions_and_seed(tmp_path):
    usual = {"epochs": 1, "batch_size": 64}
    fit(
        network(),
        data(),
        WeightedBCELoss(),
        seed=7,
        checkpoint_dir=tmp_path / "one",
        hardware=Hardware(accelerator="cpu"),
        **usual,
    )
    models = [network(seed, norm=nn.LayerNorm) for seed in range(2)]
    fit_population(models, data(), WeightedBCELoss(), checkpoint_dir=tmp_path / "two", device="cpu", **usual)

    def report(name):
        return json.loads((tmp_path / name / "report.json").read_bytes(), parse_constant=no_such_word)

    one, two = report("one"), report("two")
    assert (one["best"], one["threshold"], one["epochs"], one["seed"]) == (None, None, 1, 7)
    assert (two["best"], two["threshold"], two["epochs"], two["seeds"]) == ([None] * 2, [None] * 2, [1, 1], [0, 1])
    for recorded in (one, two):
        assert recorded["versions"]["torch"] == torch.__version__
        assert recorded["spec"]["batch_size"] == 64


def test_a_lambda_resumes(tmp_path):
    """Its repr holds an address, which is another in the next process."""

    def run(folder, **options):
        stage = Stage(nn.BCEWithLogitsLoss(), optimizer=lambda weights, lr: torch.optim.SGD(weights, lr, momentum=0.9))
        settings = {
            "epochs": 2,
            "batch_size": 32,
            "hardware": Hardware(accelerator="cpu"),
            "checkpoint_dir": folder,
            "resume": True,
        }
        return fit(network(), data(), stage, **settings, **options)

    interrupt(run, tmp_path, 9)
    kept = [lambda: None for _ in range(100)]  # so that the next is at another address
    run(tmp_path)
    assert RunFolder(tmp_path).steps_made == 14 + 2
    assert kept
