"""Tables of whole image sets: how they are cut, paths of losses and metrics, classes, and the package's tables."""

import gzip
import json
import shutil
from functools import partial

import numpy as np
import pytest
import torch
from PIL import Image
from sklearn.metrics import f1_score, precision_score, recall_score
from torch import nn

import metricfit_papers as papers
from metricfit.losses import WeightedBCELoss
from metricfit.runs import CellError
from metricfit.train import Callback
from metricfit.train.engine.learner import Learner
from metricfit_papers import models
from metricfit_papers.datasets.preparations import PIXELS
from metricfit_papers.datasets.trials import Trial
from metricfit_papers.images import image_tasks
from metricfit_papers.images.image_tasks import WholeSet
from metricfit_papers.models.augmentation import Centred
from metricfit_papers.models.byte_images import MeanImage, augmented
from metricfit_papers.populations import fit_population
from metricfit_papers.rows.class_row import by_class
from metricfit_papers.rows.job import RowJob
from metricfit_papers.rows.path_row import Recorded
from metricfit_papers.rows.trial_fitting import fit_trials
from metricfit_papers.specs import table_parser, vocabulary
from metricfit_papers.specs.table_spec import ProtocolSpec, RowSpec, TrainingSpec

EACH, CLASSES = 20, 10


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """Both sets with few images, two of each class in every file; brighter ones have higher classes."""
    where = tmp_path_factory.mktemp("data")
    (where / "cifar-10-batches-bin").mkdir()
    (where / "FashionMNIST" / "raw").mkdir(parents=True)
    rng = np.random.default_rng(0)
    for name in (*(f"data_batch_{number}" for number in range(1, 6)), "test_batch"):
        labels = rng.permutation(np.arange(EACH) % CLASSES).astype(np.uint8)
        pixels = rng.integers(0, 120, (EACH, 3072)) + 12 * labels[:, None]
        rows = np.concatenate([labels[:, None], pixels.astype(np.uint8)], axis=1)
        (where / "cifar-10-batches-bin" / f"{name}.bin").write_bytes(rows.tobytes())
    for part, count in (("train", 100), ("t10k", 20)):
        labels = rng.permutation(np.arange(count) % CLASSES).astype(np.uint8)
        pixels = (rng.integers(0, 120, (count, 28, 28)) + 12 * labels[:, None, None]).astype(np.uint8)
        for kind, array in (("images-idx3", pixels), ("labels-idx1", labels)):
            head = bytes([0, 0, 8, array.ndim]) + b"".join(size.to_bytes(4, "big") for size in array.shape)
            path = where / "FashionMNIST" / "raw" / f"{part}-{kind}-ubyte.gz"
            path.write_bytes(gzip.compress(head + array.tobytes()))
    yield str(where)
    image_tasks.read.cache_clear()


def drawn(task, folder, **how):
    return list(task.trials(folder, 3, ProtocolSpec("paper", "says", **how)))


def test_whole_sets_are_cut_as_the_protocol_says(folder):
    task = WholeSet("cifar10", (0, 8))
    labels = task.images(folder)[1]
    assert labels.mean() == 0.2
    assert set(WholeSet("cifar10").images(folder)[1]) == set(range(10))
    fractions = (0.5, 0.25, 0.25)
    for split in ("random", "stratified"):
        for varied, different in (("weights", 1), ("splits", 3)):
            cuts = drawn(task, folder, fractions=fractions, split=split, varied=varied)
            assert len({tuple(each.train) for each in cuts}) == different
            for each in cuts:
                assert [len(rows) for rows in each[:3]] == [60, 30, 30]
                assert sorted(np.concatenate(each[:3])) == list(range(120))
                if split == "stratified":
                    assert [labels[rows].mean() for rows in each[:3]] == [0.2] * 3
    own = drawn(task, folder, fractions=(0.72, 0.08, 0.2), published_test=True, varied="splits")
    assert [len(rows) for rows in own[0][:3]] == [90, 10, 20]
    assert all(each.test.tolist() == list(range(100, 120)) for each in own)
    with pytest.raises(ValueError, match="not into folds"):
        drawn(task, folder, varied="folds")


class Losses(Callback):
    def __init__(self):
        self.steps = []

    def stepped(self, step, losses):
        self.steps.append(losses.cpu().double())


def test_the_record_of_a_population_is_that_of_its_steps():
    torch.manual_seed(0)
    x = torch.randn(30, 3)
    y = (x[:, 0] + torch.randn(30) > 0).long()
    members = [nn.Linear(3, 1) for _ in range(2)]
    decisions = [model(x[:24]).reshape(-1) >= 0 for model in members]
    losses = Losses()
    results = fit_population(
        members,
        (x, y),
        Recorded(WeightedBCELoss(), epochs=3),
        splits=[(torch.arange(24), torch.arange(24, 30))] * 2,
        lr=1e-12,  # so that decisions stay what they were
        epochs=3,
        batch_size=8,
        start_at_prior=False,
        callbacks=[losses],
        device="cpu",
        progress=False,
    )
    by_step = torch.stack(losses.steps)
    for at, (result, yes) in enumerate(zip(results, decisions, strict=True)):
        record, positive = result.objective, y[:24] > 0
        torch.testing.assert_close(record.losses, by_step[:, at].reshape(3, 3).mean(1), atol=1e-6, rtol=1e-6)
        for name, expected in (("tp", yes & positive), ("fp", yes & ~positive), ("fn", ~yes & positive)):
            assert getattr(record.counts, name).flatten().tolist() == [int(expected.sum())] * 3
        assert record.counts.n.flatten().tolist() == [24.0] * 3


def test_columns_of_classes_are_those_of_scikit_learn():
    torch.manual_seed(0)
    logits, labels = torch.randn(200, 4), torch.randint(4, (200,))
    said = logits.argmax(1)
    assert by_class(logits, labels, "macro f1") == pytest.approx(f1_score(labels, said, average="macro"))
    for name, score in (("precision", precision_score), ("recall", recall_score)):
        expected = score(labels, said, average=None)[2]
        assert by_class(logits, labels, f"{name} of class 2") == pytest.approx(expected)


def stand_in(in_features, out_features=1, **_):
    """A network in place of a deep one."""
    return nn.Sequential(
        Centred(0.5, 0.25), nn.AdaptiveAvgPool2d(2), nn.Flatten(), nn.Linear(4 * in_features, out_features)
    )


@pytest.fixture
def tiny(monkeypatch):
    for name in ("tiny_darknet", "resnet18", "resnet34"):
        monkeypatch.setitem(vocabulary.NETWORKS, name, stand_in)


SAMPLES = [
    ("btg-2", "paper", ["F1*", "BCE, tuned for F1"]),
    ("btg-2", "code", ["Accuracy*", "BCE"]),
    ("btg-2", "corrected", ["F1*"]),
    ("btg-12", "paper", ["DICEs", "BCE"]),
    ("btg-12", "code", ["DICE", "DICEs"]),
    ("surrogate-2", "paper", ["surrogate F2", "macro soft F0.5", "macro soft F3, unweighted", "MAE"]),
    ("surrogate-5", "paper", ["surrogate F0.5", "BCE", "BCE, unweighted, tuned for F1"]),
    ("surrogate-2", "published", ["BCE"]),
    ("multiclass-1", "paper", ["F-beta P*", "F-beta R*", "CE"]),
    ("multiclass-search", "paper", ["CE, searched"]),
]


@pytest.mark.parametrize(("name", "protocol", "rows"), SAMPLES)
def test_the_tables_of_the_package_have_numbers(name, protocol, rows, folder, tmp_path, tiny):
    spec = papers.find_table(name)
    only = [next(iter(spec.datasets))]
    small = {"data": folder, "trials": 2, "epochs": 2, "only": only, "rows": rows, "device": "cpu"}
    result = papers.run_table(spec, protocol, tmp_path, **small)
    assert {row for _, row in result.rows} == set(rows)
    for measured in result.rows.values():
        assert set(measured.values) == set(spec.columns)
        for column, found in measured.values.items():
            assert len(found) == 2
            assert all((-1 if column == "r" else 0) <= each <= 1 for each in found), (column, found)


def test_every_image_table_is_run_by_a_test():
    images = {name for name in papers.table_names() if papers.find_table(name).prepare == PIXELS}
    ensembles = {
        f"constrained-{which}" for which in ("2", "5", "6", "settings", "splits")
    }  # see test_ensemble_row and test_whole_image_sets
    assert images == {name for name, _, _ in SAMPLES} | ensembles | {"multiclass-1b"}


def changed(folder, old, new):
    """surrogate-2 with something else in it."""
    text = (table_parser.FOLDER / "surrogate-2.toml").read_text(encoding="utf-8")
    (folder / "mine.toml").write_text(text.replace(old, new), encoding="utf-8")
    return papers.find_table(str(folder / "mine.toml"))


def test_the_path_of_the_first_trial_is_kept(folder, tmp_path, tiny):
    small = {"data": folder, "trials": 2, "epochs": 4, "rows": ["surrogate F1"], "device": "cpu"}
    result = papers.run_table(changed(tmp_path, "lr = 0.01", "lr = 1.0"), "paper", tmp_path, **small)
    report = next((tmp_path / "cells").rglob("report.json")).read_text(encoding="utf-8")
    found = json.loads(report)["result"]["chosen"]
    path = found["path"]
    assert {name: len(each) for name, each in path.items()} == {"loss": 4, "metric": 4, "f1": 4, "accuracy": 4}
    assert path["f1"] == pytest.approx(path["metric"])
    assert len(found["watched"]["f1"]) == 4
    of_all = {name: [len(each) for each in trials] for name, trials in found["curves"].items()}
    assert of_all == {"f1": [4, 4], "validation f1": [4, 4]}
    assert found["curves"]["f1"][0] == path["f1"]
    assert found["curves"]["f1"][1] != path["f1"]
    assert found["curves"]["validation f1"][0] == found["watched"]["f1"]
    tests, measured = found["tests"], result.rows["tshirt", "surrogate F1"].values
    assert {name: [len(each) for each in trials] for name, trials in tests.items()} == {
        "test metric": [4, 4],
        "test accuracy": [4, 4],
    }
    for column, name in (("f1", "test metric"), ("accuracy", "test accuracy")):
        for value, curve in zip(measured[column], tests[name], strict=True):  # of the best weights on validation images
            assert min(abs(value - each) for each in curve) < 1e-9
    r = result.rows["tshirt", "surrogate F1"].values["r"][0]
    assert r == pytest.approx(np.corrcoef(path["loss"], path["f1"])[0, 1])


@pytest.mark.parametrize(("name", "row"), [("surrogate-2", "MAE"), ("btg-2", "F1*"), ("multiclass-1", "CE")])
def test_an_interrupted_row_continues_from_its_last_checkpoint(name, row, folder, tmp_path, tiny, monkeypatch):
    spec = papers.find_table(name)
    small = {"data": folder, "trials": 2, "epochs": 6, "only": [next(iter(spec.datasets))], "rows": [row]}
    steps, real = [], Learner.step

    def counted(learner, batch):
        steps.append(batch)
        if len(steps) == stop_after:
            raise KeyboardInterrupt
        return real(learner, batch)

    monkeypatch.setattr(Learner, "step", counted)
    stop_after = None
    whole = papers.run_table(spec, "paper", tmp_path / "whole", device="cpu", **small)
    needed = len(steps)
    stop_after = 2 * needed // 3
    steps.clear()
    with pytest.raises(KeyboardInterrupt):
        papers.run_table(spec, "paper", tmp_path / "half", device="cpu", **small)
    stop_after = None
    steps.clear()
    resumed = papers.run_table(spec, "paper", tmp_path / "half", device="cpu", **small)
    assert 0 < len(steps) <= needed // 2
    assert [each.values for each in resumed.rows.values()] == [each.values for each in whole.rows.values()]
    assert [each.chosen for each in resumed.rows.values()] == [each.chosen for each in whole.rows.values()]
    assert not list((tmp_path / "half").rglob("*.safetensors"))


def test_a_part_of_a_set_is_reported(folder, tmp_path, tiny):
    spec = papers.find_table("surrogate-5")
    small = {"data": folder, "trials": 1, "epochs": 1, "rows": ["MAE"], "device": "cpu"}
    said = papers.run_table(spec, "paper", tmp_path, **small).smaller
    assert said == "1 of 5 trials, at most 1 of 120 epochs, 100 of 50,000 training images"
    assert image_tasks.CifarPair(0, 1, 2).part(folder) == "100 of 50,000 training images"


def test_one_class_of_256_is_run_on_a_tiny_folder(tmp_path, tiny):
    for number in [*range(1, 57), 257]:
        name = {56: "056.dog", 257: "257.clutter"}.get(number, f"{number:03d}.kind")
        (tmp_path / "256_ObjectCategories" / name).mkdir(parents=True)
        for copy in range(5):
            picture = Image.fromarray(np.full((6, 5, 3), 4 * number % 256, np.uint8))
            picture.save(tmp_path / "256_ObjectCategories" / name / f"{copy}.png")
    task = WholeSet("caltech256")
    assert len(np.unique(task.images(str(tmp_path))[1])) == 56
    assert task.part(str(tmp_path)) == "224 of 29,724 training images"
    small = {"data": tmp_path, "trials": 1, "epochs": 1, "device": "cpu"}
    result = papers.run_table(papers.find_table("multiclass-1b"), "paper", tmp_path / "out", **small)
    assert [row for _, row in result.rows] == ["F-beta P*", "F-beta R*", "CE"]
    assert all(0 <= each.values["f1"][0] <= 1 for each in result.rows.values())


def test_cells_of_other_images_are_not_reused(folder, tmp_path, tiny):
    other = tmp_path / "other"
    shutil.copytree(folder, other)
    batch = other / "cifar-10-batches-bin" / "test_batch.bin"
    changed_byte = bytearray(batch.read_bytes())
    changed_byte[-1] ^= 1
    batch.write_bytes(changed_byte)
    small = {"trials": 1, "epochs": 1, "rows": ["MAE"], "device": "cpu"}
    spec = papers.find_table("surrogate-5")
    papers.run_table(spec, "paper", tmp_path / "out", data=folder, **small)
    papers.run_table(spec, "paper", tmp_path / "out", data=folder, train=False, **small)
    with pytest.raises(CellError, match=r"airplane / paper / MAE .* was trained on other images than those in .*other"):
        papers.run_table(spec, "paper", tmp_path / "out", data=other, **small)


def test_a_row_of_paths_needs_a_metric(folder, tmp_path, tiny):
    spec = changed(tmp_path, 'settings.metric = "f1"', "")
    with pytest.raises(CellError, match=r"a row of kind paths needs settings.metric"):
        papers.run_table(spec, "paper", tmp_path, data=folder, rows=["MAE"], device="cpu")


@pytest.mark.slow
def test_a_residual_network_with_batch_norm_and_augmentation_trains_as_a_population(folder):
    pixels, labels = map(torch.from_numpy, WholeSet("fashion_mnist", (0, 1, 2)).images(folder))

    def build(**settings):
        return models.ResNet((1, 1, 1, 1), **settings)

    members = [augmented(build, mean=[0.286], image_size=28) for _ in range(2)]
    before = [member[-1].stem[0].weight.clone() for member in members]
    parts = torch.arange(8), torch.arange(8, 16)
    settings = {"epochs": 1, "batch_size": 4, "optimizer": torch.optim.SGD, "device": "cpu", "progress": False}
    results = fit_population(members, (pixels[:16], labels[:16]), WeightedBCELoss(), splits=[parts] * 2, **settings)
    for result, weight in zip(results, before, strict=True):
        assert not torch.equal(result.model[-1].stem[0].weight, weight)


def test_published_inputs_subtract_the_mean_image_and_two_logits_are_one(folder, monkeypatch):
    pixels, labels = map(torch.from_numpy, WholeSet("fashion_mnist", (0, 1, 2)).images(folder))
    small = partial(models.ResNet, (1, 1, 1, 1))
    network = partial(augmented, small, image_size=28, pixel_mean=True, two_logits=True)
    monkeypatch.setitem(vocabulary.NETWORKS, "resnet18", lambda in_features, **_: network())
    training = TrainingSpec("resnet18", "SGD", 0.01, 8, 1, 0)
    rows = torch.arange(16)
    trial = Trial(0, pixels[:16], labels[:16], rows[:12], rows[12:14], rows[14:])
    job = RowJob(RowSpec("BCE", "BCE"), ProtocolSpec("paper", "says"), training, "WeightedBCELoss", {}, [], "cpu")
    (result,) = fit_trials(job, [trial])
    model = result.model.eval()
    layer = next(each for each in model.modules() if isinstance(each, MeanImage))
    mean = pixels[:12].double().mean(0) / 255
    torch.testing.assert_close(layer.mean[:, 2:-2, 2:-2], mean.float())
    assert not layer.mean[:, :2].any()
    centred = layer(nn.functional.pad(pixels[14:16], [2] * 4))
    torch.testing.assert_close(centred[:, :, 2:-2, 2:-2], (pixels[14:16] / 255 - mean).float())
    both = model[:-1](pixels[14:16])
    assert both.shape == (2, 2)
    torch.testing.assert_close(model(pixels[14:16]).sigmoid(), both.softmax(1)[:, 1:])
