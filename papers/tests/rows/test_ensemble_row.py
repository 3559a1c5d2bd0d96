"""Tables of images: how trials are drawn, ensembles against a twin written out, and the tables of the package."""

import functools
import itertools
import re

import numpy as np
import pytest
import torch
from sklearn.metrics import roc_auc_score

import metricfit_papers as papers
from metricfit.constraints import AugmentedLagrangian, RankingConstraint
from metricfit.losses import MarginLoss
from metricfit.runs import CellError
from metricfit.stats import delong_test
from metricfit.train.data.batches import derive_seed
from metricfit_papers.datasets.trials import make_trials
from metricfit_papers.images import image_tasks
from metricfit_papers.images.image_tasks import CifarPair
from metricfit_papers.models.byte_images import small_cnn
from metricfit_papers.models.construction import build_network
from metricfit_papers.pages.search_choices import choices
from metricfit_papers.populations import fit_population
from metricfit_papers.results import markdown, result_files
from metricfit_papers.results.table_run import UnfinishedCellsError
from metricfit_papers.rows import ensemble_row
from metricfit_papers.specs import vocabulary
from metricfit_papers.specs.table_spec import ProtocolSpec

SPLITS = ProtocolSpec("paper", "says", varied="splits")
FEW = {"negatives": 12, "watched": 8}
EACH = 32


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """CIFAR-10 with few images, of classes 0, 1 and 5; those of class 1 are darker."""
    where = tmp_path_factory.mktemp("data")
    (where / "cifar-10-batches-bin").mkdir()
    rng = np.random.default_rng(0)
    for name in (*(f"data_batch_{number}" for number in range(1, 6)), "test_batch"):
        labels = rng.permutation(np.resize(np.array([0, 1, 5, 0, 1, 0], np.uint8), EACH))
        pixels = rng.integers(0, 256, (EACH, 3072)) * (1 - 0.1 * (labels == 1)[:, None])
        rows = np.concatenate([labels[:, None], pixels.astype(np.uint8)], axis=1)
        (where / "cifar-10-batches-bin" / f"{name}.bin").write_bytes(rows.tobytes())
    yield str(where)
    image_tasks.read.cache_clear()


def test_trials_are_drawn_as_the_paper_says(folder):
    task = CifarPair(0, 1, 4, **FEW)
    pixels, labels = task.images(folder)
    train, test = (image_tasks.read("cifar10", folder).train, image_tasks.read("cifar10", folder).test)
    first = np.isin(train.labels, (0, 1)).sum()
    drawn = list(task.trials(folder, 3, SPLITS))
    assert task.content(folder) == "160 training images"
    for each in drawn:
        counts = [np.bincount(labels[rows]).tolist() for rows in (each.train, each.validation)]
        assert counts == [[12, 3], [8, 2]]
        assert not set(each.train) & set(each.validation)
        assert max(*each.train, *each.validation) < first <= min(each.every_test)
        np.testing.assert_array_equal(each.test, drawn[0].test)
    assert len({tuple(each.train) for each in drawn}) == 3
    other = list(CifarPair(0, 1, 4, **FEW, draw=1).trials(folder, 3, SPLITS))
    assert {tuple(each.train) for each in other}.isdisjoint({tuple(each.train) for each in drawn})
    assert set(other[0].test) != set(drawn[0].test)
    assert other[0].every_test.tolist() == drawn[0].every_test.tolist()
    negatives, positives = (test.labels == 0).sum(), (test.labels == 1).sum()
    assert np.bincount(labels[drawn[0].test]).tolist() == [negatives, round(negatives / 4)]
    assert np.bincount(labels[drawn[0].every_test]).tolist() == [negatives, positives]
    assert set(drawn[0].test) < set(drawn[0].every_test)
    np.testing.assert_array_equal(pixels[first:], test.pixels[np.isin(test.labels, (0, 1))])
    with pytest.raises(ValueError, match="images of a class are needed, but there are only"):
        next(CifarPair(0, 1, 1, negatives=90).trials(folder, 1, SPLITS))


TOML = """
title = "A twin"
paper = "Nobody (2026)"
where = "nowhere"
trials = 3
prepare = "pixels"
datasets.pair = { made = "cifar10_pair(0, 1, 4, negatives=12, watched=8)" }
protocols.paper = { says = "Splits.", varied = "splits", decided = "half" }
[columns]
auc = { metric = "auroc" }
fpr = { metric = "fpr at tpr 0.9, all test images" }
one = { metric = "auroc of one" }
p = { metric = "p of DeLong's test" }
p_on = { metric = "p of DeLong's test against training on" }
all_p_on = { metric = "p of DeLong's test against training on, all test images", shown = false }
[training]
network = "small_cnn(widths=[2, 4])"
lr = 0.01
batch_size = 8
epochs = 3
monitor = "auroc"
[rows."with"]
kind = "ensemble"
loss = "MarginLoss(asymmetric=True)"
settings.grid = { margin = [0.5, 4.0] }
settings.constraint = { mu = [0.2, 0.3], rho = [2, 3], margin = [1.0, 2.0], without = [[0.2, 2]] }
[rows.without]
of = "with"
decided = "unconstrained"
"""


@pytest.fixture
def mine(tmp_path):
    (tmp_path / "twin.toml").write_text(TOML)
    return tmp_path / "twin.toml"


def twin(trials):
    """The protocol written out: grids as loops, numbers by scikit-learn and by counting."""
    x, y = trials[0].x, trials[0].y

    def trained(objective, models):
        return fit_population(
            models,
            (x, y),
            objective,
            splits=[(each.train, each.validation) for each in trials],
            seeds=[derive_seed("order", number) for number in range(3)],
            lr=0.01,
            epochs=3,
            batch_size=8,
            optimizer=torch.optim.Adam,
            monitor="auroc",
            start_at_prior=False,
            device="cpu",
            progress=False,
        )

    def best(tried):
        return max(tried, key=lambda each: np.mean([one.best for one in each[1]]))

    def fresh():
        return [build_network("small_cnn(widths=[2, 4])", 3, number) for number in range(3)]

    margin, base = best([(m, trained(MarginLoss(m, asymmetric=True), fresh())) for m in (0.5, 4.0)])

    def copies_of_base():
        copies = fresh()
        for model, one in zip(copies, base, strict=True):
            model.load_state_dict(one.model.state_dict())
        return copies

    def constrained(mu, rho, delta):
        ranking = RankingConstraint(delta, size=15)
        objective = AugmentedLagrangian(MarginLoss(margin, asymmetric=True), ranking, mu=mu, rho=rho)
        return trained(objective, copies_of_base())

    pair, final = best([((mu, rho), constrained(mu, rho, 1.0)) for mu, rho in ((0.2, 3), (0.3, 2), (0.3, 3))])
    delta, final = best([(1.0, final), (2.0, constrained(*pair, 2.0))])
    chosen = {"margin": margin, "mu": pair[0], "rho": pair[1], "delta": delta}

    def outputs(results, rows):
        with torch.no_grad():
            return np.stack([each.model.eval()(x[rows]).flatten().double().numpy() for each in results])

    numbers = {}
    for name, results in (("with", final), ("without", base)):
        few, every = outputs(results, trials[0].test), outputs(results, trials[0].every_test)
        labels, all_labels = y[trials[0].test].numpy(), y[trials[0].every_test].numpy()
        positive = np.sort(every.mean(0)[all_labels == 1])
        threshold = positive[int(np.floor(0.1 * len(positive) + 1e-9))]  # nine tenths are at or above
        numbers[name] = {
            "auc": roc_auc_score(labels, few.mean(0)),
            "fpr": np.mean(every.mean(0)[all_labels == 0] >= threshold),
            "one": np.mean([roc_auc_score(labels, each) for each in few]),
        }
    control = trained(MarginLoss(margin, asymmetric=True), copies_of_base())
    for column, other, rows in (
        ("p", base, trials[0].test),
        ("p_on", control, trials[0].test),
        ("all_p_on", control, trials[0].every_test),
    ):
        both = [outputs(results, rows).mean(0) for results in (final, other)]
        numbers["with"][column] = delong_test(*both, y[rows].numpy()).p_value
    chosen["test AUC"] = roc_auc_score(y[trials[0].test].numpy(), outputs(control, trials[0].test).mean(0))
    return numbers, chosen


def test_an_ensemble_is_the_protocol_written_out(mine, folder, tmp_path):
    spec = papers.find_table(str(mine))
    result = papers.run_table(spec, "paper", tmp_path, data=folder, device="cpu")
    made = make_trials(spec.datasets["pair"], folder, spec.prepare, spec.protocols["paper"], 3, "")
    expected, chosen = twin(made)
    for row, numbers in expected.items():
        measured = result.rows["pair", row].values
        assert {name: found for name, found in measured.items() if found} == {
            name: [pytest.approx(value)] for name, value in numbers.items()
        }
    report = next((tmp_path / "cells").rglob("report.json")).read_text(encoding="utf-8")
    assert f'"margin": {chosen["margin"]}' in report
    assert f'"mu": {chosen["mu"]}' in report
    assert result.rows["pair", "with"].chosen["trained on"]["test AUC"] == pytest.approx(chosen["test AUC"])
    page = markdown.format_results(spec, result_files.to_plain_values(result, "a command"))
    assert page.count("\n| without |") == 1
    told = choices(spec, result_files.to_plain_values(result, "a command")["datasets"])
    assert told.count("\n| pair |") == 1  # once for both rows
    assert f"base: margin {chosen['margin']:g}; " in told
    assert f"constraint: mu {chosen['mu']:g}, rho {chosen['rho']}, margin {chosen['delta']:g}" in told
    assert "| - | " in page  # the p of a row without anything to compare with


def test_a_control_is_trained_further_without_the_constraint(mine, folder, tmp_path):
    text = TOML[: TOML.index("settings.grid")] + "settings.grid = { margin = [0.5] }\n"
    mine.write_text(text + "settings.again = true\n" + TOML[TOML.index("[rows.without]") :])
    result = papers.run_table(papers.find_table(str(mine)), "paper", tmp_path, data=folder, device="cpu")
    mine.write_text(text)
    base = papers.run_table(papers.find_table(str(mine)), "paper", tmp_path, data=folder, device="cpu")
    with_more, without = (result.rows["pair", row] for row in ("with", "without"))
    assert {**without.values, "p": []} == base.rows["pair", "with"].values
    assert with_more.values["p_on"] == []  # it is the control itself
    assert len(with_more.values["p"]) == 1
    assert with_more.values["one"] != without.values["one"]
    assert with_more.epochs == [6]


def test_a_protocol_has_its_own_constraint_and_limit_of_epochs(mine, folder, tmp_path, monkeypatch):
    """As in the authors' repository: other values to choose from, and mu grows after a large fall of the AUC alone."""
    tried = []

    def recorded(*arguments, **settings):
        tried.append((arguments[1].margin, settings))
        return AugmentedLagrangian(*arguments, **settings)

    monkeypatch.setattr(ensemble_row, "AugmentedLagrangian", recorded)
    own = "{ mu = [0.01, 0.5], rho = [2], margin = [0.0], fall = 0.05 }"
    for number, more in enumerate(("", f", constraint = {own}, epochs = 1")):
        mine.write_text(TOML.replace('says = "Splits."', f'says = "Splits."{more}'))
        spec = papers.find_table(str(mine))
        result = papers.run_table(
            spec, "paper", tmp_path / str(number), data=folder, epochs=2 - number, trials=2, rows=["with"], device="cpu"
        )
        cell = spec.cell("paper", "pair", spec.rows["with"], 2, None)["protocol"]
        assert (bool(cell["constraint"]), "epochs" in cell) == (bool(more), False)
    assert {tuple(settings) for _, settings in tried[:-2]} == {("mu", "rho")}
    growth = {"rho": 2, "fall": 0.05}
    assert tried[-2:] == [(0.0, growth | {"mu": mu, "mu_max": mu * 8}) for mu in (0.01, 0.5)]
    assert result.smaller.startswith("2 of 3 trials, at most 1 of ")
    with pytest.raises(UnfinishedCellsError, match="3 trials, 1 epochs"):
        papers.run_table(spec, "paper", tmp_path / "1", data=folder, rows=["with"], train=False)


def test_settings_of_the_training_are_chosen_with_the_loss(mine, folder, tmp_path):
    text = TOML[: TOML.index("settings.grid")].replace("MarginLoss(asymmetric=True)", "WeightedBCELoss")
    mine.write_text(text + "settings.training = { lr = [1e-9, 0.03], batch_size = [5, 10] }\n")
    spec = papers.find_table(str(mine))
    result = papers.run_table(spec, "paper", tmp_path, data=folder, device="cpu")
    chosen = result.rows["pair", "with"].chosen
    values = {}
    for lr, size in itertools.product((1e-9, 0.03), (5, 10)):
        mine.write_text(text.replace("lr = 0.01", f"lr = {lr}").replace("batch_size = 8", f"batch_size = {size}"))
        alone = papers.run_table(papers.find_table(str(mine)), "paper", tmp_path, data=folder, device="cpu")
        values[lr, size] = alone.rows["pair", "with"].chosen["validation AUC of the base"]
    best = max(values, key=values.get)
    assert chosen["training"] == {"lr": best[0], "batch_size": best[1]}
    assert chosen["validation AUC of the base"] == pytest.approx(values[best])


@pytest.mark.parametrize(
    ("change", "says"),
    [
        (("settings.grid", "settings.training = { rate = [1] }\nsettings.grid"), "are lists of network, optimizer, lr"),
        (('monitor = "auroc"', 'monitor = "loss"'), "chosen by training.monitor = \"auroc\", got 'loss'"),
        (
            ("settings.grid", "settings.gird"),
            "settings of an ensemble are training, grid, class_counts, constraint, again, got gird",
        ),
        (("margin = [1.0, 2.0], ", ""), "a constraint's settings are lists of mu, rho, margin, without"),
        (("margin = [0.5, 4.0]", 'margin = ["third"]'), "text in a grid must be like N, N/3 or 2N/3, got 'third'"),
    ],
)
def test_invalid_settings_are_reported(mine, folder, tmp_path, change, says):
    assert change[0] in TOML
    mine.write_text(TOML.replace(*change))
    with pytest.raises(CellError) as caught:
        papers.run_table(papers.find_table(str(mine)), "paper", tmp_path, data=folder, device="cpu")
    assert says in str(caught.value)


def test_columns_of_ensembles_are_refused_for_other_rows(mine):
    mine.write_text(TOML + '[rows.plain]\nloss = "WeightedBCELoss"\n')
    with pytest.raises(
        papers.SpecError, match=r"columns.fpr: .* is not measured for rows of kind 'network', as 'plain'"
    ):
        papers.find_table(str(mine))
    mine.write_text(TOML.replace('auc = { metric = "auroc" }', 'auc = { metric = "f1" }'))
    with pytest.raises(papers.SpecError, match=r"columns.auc: 'f1' is not measured for rows of kind 'ensemble'"):
        papers.find_table(str(mine))
    rows = TOML[TOML.index('[rows."with"]') : TOML.index("[rows.without]")]
    text = TOML.replace(rows, '[rows."with"]\nloss = "WeightedBCELoss"\n')
    columns = text[text.index("fpr = ") : text.index("[training]")]
    mine.write_text(text.replace(columns, ""))
    with pytest.raises(papers.SpecError, match=r"rows.with.kind: where a row or protocol is 'unconstrained', all are"):
        papers.find_table(str(mine))


def test_images_need_a_folder(mine, tmp_path):
    with pytest.raises(ValueError, match="pair is read from a folder: give --data FOLDER"):
        papers.run_table(papers.find_table(str(mine)), "paper", tmp_path)


def test_the_tables_of_the_package_and_the_one_that_shares_their_networks(folder, tmp_path, monkeypatch):
    monkeypatch.setitem(vocabulary.DATASETS, "cifar10_pair", functools.partial(CifarPair, **FEW))
    monkeypatch.setitem(
        vocabulary.NETWORKS, "small_cnn", lambda in_features, widths: small_cnn(in_features, widths=[2])
    )
    small = {"data": folder, "trials": 2, "epochs": 1, "device": "cpu"}
    chosen = {"only": ["airplane-automobile-2"], "rows": ["CB-BCE", "MBAUC", "ALM with W-BCE"]}
    first = papers.run_table(papers.find_table("constrained-2"), "paper", tmp_path, **small, **chosen)
    for (_, row), measured in first.rows.items():
        lengths = {name: len(found) for name, found in measured.values.items()}
        compared = int(row.startswith("ALM"))
        assert lengths == {name: compared if name.removeprefix("all_").startswith("p") else 1 for name in lengths}
    monkeypatch.setattr(ensemble_row, "fit_trials", None)  # what a cell that is not there would call
    again = papers.run_table(papers.find_table("constrained-6"), "paper", tmp_path, **small, **chosen)
    assert {key: each.values for key, each in again.rows.items()} == {
        key: each.values for key, each in first.rows.items()
    }
    shown = markdown.format_table(again.spec, result_files.to_plain_values(again, ""), "airplane-automobile-2")
    assert shown.count("AUC (published)") == 1
    assert re.search(r"\| MBAUC \| 0\.\d+ \(0\.9366\) \|", shown)


def test_every_row_of_the_paper_has_its_published_numbers():
    for name, columns in (("constrained-2", 5), ("constrained-5", 4), ("constrained-6", 4)):
        spec = papers.find_table(name)
        published = [row.name for row in spec.rows.values() if "control" not in row.tags]
        assert len(published) == 17
        assert len(spec.published) == 3 * 17 * columns
        assert all(spec.columns[column].shown for _, _, column in spec.published)
        assert all(0 < each.mean < 1 for each in spec.published.values())
        for dataset in spec.datasets:
            for row in published:
                rates = [spec.published[dataset, row, key].mean for key in spec.shown_columns if "fpr" in key]
                misprint = (name, dataset, row) == ("constrained-6", "airplane-automobile-2", "MBAUC")
                assert misprint != (rates == sorted(rates, reverse=True))
