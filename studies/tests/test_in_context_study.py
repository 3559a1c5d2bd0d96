"""The in-context classifier: made-up tables, the network and its NumPy twin, training that resumes, the yardstick."""

import json

import numpy as np
import pytest
import torch
from sklearn.metrics import f1_score, matthews_corrcoef, roc_auc_score

from metricfit.tabular.families import context_network
from studies.in_context import cells, evaluate, network, prior, train

TINY = network.Settings(width=32, heads=2, cell_layers=2, row_width=32, row_heads=2, row_layers=1, classes=4, places=8)
PLAN = train.Plan(tokens=1500, columns=4, rows=(40, 64), easy_steps=1, rate=4e-3)
CPU = torch.device("cpu")


def random_network(seed=0):
    net = network.Network(TINY, seed)
    with torch.no_grad():
        for name, value in net.named_parameters():
            generator = torch.Generator().manual_seed(seed)
            if name in network.ZERO:
                value.normal_(0, value.shape[-2] ** -0.5, generator=generator)
            elif name.endswith("_scale"):
                value.normal_(1.0, 0.3, generator=generator)
    return net


def twin(net):
    return context_network.ContextNetwork(
        {name: value.detach().numpy() for name, value in net.named_parameters()}, TINY.as_dict()
    )


@pytest.fixture
def table():
    x, y = prior.draw_tables(prior.Shape(1, 60, 5), seed=3)
    x[0, 5, 0] = x[0, 50, 2] = float("nan")
    x[0, :, 4] = x[0, :, 4].round()
    y[0, :2] = torch.tensor([0, 1])
    place = torch.randn(1, 5, TINY.places, generator=torch.Generator().manual_seed(1))
    return x, y[:, :40], place


def test_numpy_computes_the_same_as_torch(table):
    x, y, place = table
    net = random_network()
    with torch.no_grad():
        expected = net(x, y, place, torch.tensor([0]), 40)
    logits = twin(net).forward(x[0].numpy(), y[0].numpy(), place[0].numpy())
    assert expected.logits[0, :, 1].std() > 0.02
    np.testing.assert_allclose(logits, expected.logits[0], rtol=1e-4, atol=1e-4)
    assert (context_network.WAVES, context_network.SMALLEST_SHARE) == (network.WAVES, network.SMALLEST_SHARE)


def test_only_visible_rows_and_the_metric_change_a_prediction(table):
    x, y, place = table
    net = random_network()

    def logit(cells_of_row_45, visible, metric=0):
        changed = x.clone()
        changed[0, 45] += cells_of_row_45
        with torch.no_grad():
            return net(changed, y, place, torch.tensor([metric]), visible).decisions[0, -1].item()

    assert logit(0.0, 40) == pytest.approx(logit(3.0, 40), abs=1e-6)
    assert abs(logit(0.0, 50) - logit(3.0, 50)) > 1e-4
    assert abs(logit(0.0, 40) - logit(0.0, 40, metric=1)) > 1e-4


def test_several_classes_and_classes_without_rows(table):
    x, y, place = table
    y = y.clone()
    y[0, :6] = 2
    with torch.no_grad():
        shares = random_network()(x, y, place, torch.tensor([0])).logits.softmax(-1)[0]
    assert shares.shape == (20, 4)
    assert shares[:, 3].max() < 1e-3
    assert shares[:, 2].min() > 1e-6


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
@pytest.mark.parametrize(("rows", "columns"), [(7, 2), (5, 13), (3, 64), (3, 101)])
@pytest.mark.parametrize("kind", [torch.float32, torch.bfloat16])
def test_the_kernel_attends_to_columns_as_torch_does(monkeypatch, rows, columns, kind):
    torch.manual_seed(0)
    query, key, value, change = torch.randn(4, rows, columns, 2, 32, device="cuda").to(kind)
    results = []
    for kernel in (True, False):
        monkeypatch.setattr(network, "KERNEL", kernel)
        inputs = [part.clone().requires_grad_() for part in (query, key, value)]
        out = network.attend_columns(*inputs)
        results.append([out, *torch.autograd.grad((out * change).sum(), inputs)])
    for mine, theirs in zip(*results, strict=True):
        torch.testing.assert_close(mine, theirs, rtol=3e-2, atol=3e-2 if kind == torch.bfloat16 else 5e-3)


def test_cells_are_described_by_values_ranks_and_ties():
    x = torch.tensor([[[1.0], [2.0], [2.0], [float("nan")], [9.0]]])
    described = network.describe_cells(x, 4)[0, :, 0]
    mean, spread = 5 / 3, np.std([1, 2, 2])
    z = (np.array([1, 2, 2, 9]) - mean) / spread
    np.testing.assert_allclose(described[[0, 1, 2, 4], 0], np.sign(z) * np.log1p(abs(z)), rtol=1e-4)
    np.testing.assert_allclose(described[[0, 1, 2, 4], 1], [-2 / 3, 1 / 3, 1 / 3, 1], rtol=1e-5)
    np.testing.assert_allclose(described[[0, 1, 2, 4], 2], [1 / 3, 2 / 3, 2 / 3, 0], rtol=1e-5)
    np.testing.assert_array_equal(described[3], np.arange(network.INPUTS) == 3)
    np.testing.assert_allclose(described[0, 4:6], [np.sin(-np.pi / 3), np.cos(-np.pi / 3)], rtol=1e-5)


def test_made_up_tables_are_varied_and_depend_on_the_seed_alone():
    shares, missing, levels = [], [], []
    for seed in range(6):
        x, y = prior.draw_tables(prior.Shape(20, 200, 5), seed)
        assert x.shape == (20, 200, 5)
        assert not x.isinf().any()
        shares += y.float().mean(1).tolist()
        missing += x.isnan().float().mean((1, 2)).tolist()
        levels += [len(column.unique()) for table in x.nan_to_num() for column in table.T]
    again, _ = prior.draw_tables(prior.Shape(20, 200, 5), 5)
    torch.testing.assert_close(again, x, equal_nan=True)
    assert min(shares) < 0.05
    assert 0.1 < np.mean(shares) < 0.3
    assert 0.02 < np.mean(np.array(missing) > 0) < 0.5
    assert min(levels) <= 3
    assert max(levels) == 200
    _, y = prior.draw_tables(prior.Shape(20, 200, 5, classes=7), 0)
    assert set(y.unique().tolist()) == set(range(7))


def test_soft_values_of_certain_decisions_are_the_metrics():
    rng = np.random.default_rng(0)
    y, called = rng.random((3, 50)) < 0.3, rng.random((3, 50)) < 0.4
    losses = train.soft_values(torch.where(torch.tensor(called), 60.0, -60.0), torch.tensor(y).long())
    f1 = [1 - f1_score(*pair) for pair in zip(y, called, strict=True)]
    mcc = [1 - matthews_corrcoef(*pair) for pair in zip(y, called, strict=True)]
    costs = (~y & called).mean(1) + 10 * (y & ~called).mean(1)
    names = list(network.METRICS)
    np.testing.assert_allclose(losses[names.index("f1")], f1, rtol=1e-4)
    np.testing.assert_allclose(losses[names.index("mcc")], mcc, rtol=1e-4)
    expected = costs / (costs + 10 * y.mean(1))
    np.testing.assert_allclose(losses[names.index("cost(fp=1, fn=10)")], expected, rtol=1e-4)
    assert losses[0].eq(0).all()


def test_muons_change_is_nearly_orthogonal():
    matrices = torch.randn(3, 2, 24, 16, generator=torch.Generator().manual_seed(0))
    singular = torch.linalg.svdvals(train.orthogonalise(matrices))
    assert singular.min() > 0.4
    assert singular.max() < 1.4


def one_rule(shape, seed, device):
    """Tables in which the first column alone decides, in either direction."""
    generator = torch.Generator(device=device).manual_seed(seed)
    x = torch.randn(shape.tables, shape.rows, shape.columns, generator=generator)
    sign = torch.randn(shape.tables, 1, generator=generator).sign()
    return x, (x[..., 0] * sign > 0.5).long()


def test_training_learns_to_learn_a_rule(monkeypatch):
    monkeypatch.setattr(train, "draw_tables", one_rule)
    training = train.Training(TINY, PLAN, CPU)
    losses = [training.step(min(1.0, step / 20)).relative.item() for step in range(220)]
    assert np.mean(losses[:20]) > 0.95
    assert np.mean(losses[-20:]) < 0.85


def test_a_killed_run_goes_on_from_its_state(tmp_path):
    whole, first, second = (train.Training(TINY, PLAN, CPU) for _ in range(3))
    for _ in range(14):
        whole.step(1.0)
    for _ in range(7):
        first.step(1.0)
    first.save(tmp_path)
    assert not second.restore(tmp_path / "nothing")
    assert second.restore(tmp_path)
    for _ in range(7):
        second.step(1.0)
    assert second.counters == whole.counters
    assert second.steps == 14
    for name, value in whole.network.named_parameters():
        torch.testing.assert_close(second.network.get_parameter(name), value, rtol=0, atol=0)
        torch.testing.assert_close(second.average[name], whole.average[name], rtol=0, atol=0)


def test_a_session_saves_averaged_weights_that_the_next_one_and_numpy_read(tmp_path):
    copies = tmp_path / "copies" / "network.safetensors"
    arguments = ["--seconds", "0.1", "--plan", json.dumps({"tokens": 2000, "columns": 3, "rows": [40, 64]})]
    sizes = ["--settings", json.dumps(TINY.as_dict())]
    train.main([str(tmp_path / "a"), *arguments, *sizes, "--copies", str(copies)])
    saw = context_network.read_metadata(copies, "saw")
    assert saw["steps"] >= 1
    assert saw["sessions"] == 1
    train.main([str(tmp_path / "b"), *arguments, "--weights", str(copies)])
    assert context_network.read_metadata(tmp_path / "b" / "state.safetensors", "counters")["sessions"] == 2
    assert context_network.read_network(copies).settings == TINY.as_dict()


def test_the_learner_of_the_study_and_the_shipped_one_agree_on_saved_weights(tmp_path):
    training = train.Training(TINY, PLAN, CPU)
    training.average = {name: value.detach() for name, value in random_network().named_parameters()}
    path = tmp_path / "network.safetensors"
    training.export(path, {})
    x = np.random.default_rng(0).normal(size=(60, 3))
    context = (x[:40], (x[:40, 0] > 0).astype(int))
    expected = cells.torch_learner(path, None, 2, 0)(*context, x[40:])
    assert expected.std() > 0.02

    def logits(members):
        p = context_network.ContextClassifier(path, members).fit(*context).predict_proba(x[40:])
        return np.log(p[:, 1] / p[:, 0])

    np.testing.assert_allclose(logits(2), expected, rtol=1e-4, atol=1e-4)
    for other in (logits(1), cells.torch_learner(path, "mcc", 2, 0)(*context, x[40:])):
        assert abs(other - expected).max() > 1e-3


@pytest.mark.pages
def test_the_page_has_the_stored_results(monkeypatch, tmp_path):
    page = tmp_path / "tables.md"
    page.write_text(evaluate.PAGE.read_text(encoding="utf-8"), encoding="utf-8")
    monkeypatch.setattr(evaluate, "PAGE", page)
    evaluate.main(["page"])
    assert page.read_text(encoding="utf-8") == (evaluate.DOCS / "evidence" / "tables.md").read_text(encoding="utf-8")


def test_the_rate_warms_up_and_falls_at_the_end():
    factors = [
        train.rate_factor(step, seconds, 100, 20) for step, seconds in ((0, 0), (500, 50), (900, 90), (999, 100))
    ]
    assert factors == pytest.approx([1 / train.WARM_UP, 1, 0.5, 0.05])


def test_columns_that_vary_or_differ_most_are_chosen(monkeypatch):
    rng = np.random.default_rng(0)
    y = (rng.random(80) < 0.3).astype(int)
    x = rng.normal(size=(80, 6))
    x[:, 2] = 1.0
    x[:, 4] += 3 * y
    assert context_network.choose_columns(x, y).tolist() == [0, 1, 3, 4, 5]
    monkeypatch.setattr(context_network, "MOST_COLUMNS", 2)
    assert 4 in context_network.choose_columns(x, y)
    assert not len(context_network.choose_columns(np.ones((80, 2)), y))


def test_a_learner_never_sees_the_row_it_predicts():
    rng = np.random.default_rng(0)
    cell = {"x": rng.normal(size=(40, 2)), "y": np.arange(40) % 2, "fold": np.arange(40) % 4}
    cell |= {"x_test": rng.normal(size=(6, 2))}
    seen = []

    def learner(x, y, new):
        assert not set(x[:, 0]) & set(new[:, 0])
        assert (y == cell["y"][[np.flatnonzero(cell["x"][:, 0] == value)[0] for value in x[:, 0]]]).all()
        seen.append((len(x), len(new)))
        return new[:, 0]

    logits = cells.fit_learner(cell, learner, "one")
    np.testing.assert_array_equal(logits["one|held_out"], cell["x"][:, 0])
    np.testing.assert_array_equal(logits["one|test"], cell["x_test"][:, 0])
    assert seen == [(30, 10)] * 4 + [(40, 6)]


def test_adding_a_better_learner_to_the_families_is_a_gain(tmp_path):
    rng = np.random.default_rng(0)
    x = rng.normal(size=(420, 4))
    y = (np.sin(3 * x[:, 0]) * x[:, 1] > 0.9).astype(int)
    cell = evaluate.make_cell(x, y, split=2)
    assert len(cell["y"]) + len(cell["y_test"]) <= 420
    assert abs(cell["y"].mean() - cell["y_test"].mean()) < 0.02
    cell |= evaluate.fit_default(cell, seed=0)
    perfect = cells.fit_learner(cell, lambda a, b, new: 50 * (np.sin(3 * new[:, 0]) * new[:, 1] - 0.9), "network")
    cells.write_arrays(tmp_path / "made-2.npz", cell)
    assert cells.read_cell(tmp_path, "made-2", ["network"]) is None
    cells.write_arrays(tmp_path / "made-2.network.npz", perfect)
    read = cells.read_cell(tmp_path, "made-2", ["network"])
    result = evaluate.judge_cell(read, ["network"])
    alone = result["alone"]
    assert alone["network"]["auroc"] == pytest.approx(roc_auc_score(cell["y_test"], perfect["network|test"]))
    assert alone["network"]["log_loss"] < min(alone[name]["log_loss"] for name in evaluate.DEFAULT)
    together = result["together"]
    assert together["f1"]["with network"] > together["f1"][evaluate.FAMILIES]
    assert together["cost(fp=1, fn=10)"]["with network"] < together["cost(fp=1, fn=10)"][evaluate.FAMILIES]


def test_gains_are_counted_over_tables_of_the_chosen_splits():
    def cell(gain):
        f1 = {evaluate.FAMILIES: 0.5, "with network": 0.5 + gain}
        cost = {evaluate.FAMILIES: 0.2, "with network": 0.2 - gain}
        return {
            "alone": {"network": {"log_loss": 0.3, "auroc": 0.9}},
            "together": {"f1": f1, "cost(fp=1, fn=10)": cost},
        }

    results = {"a-2": cell(0.1), "a-3": cell(0.3), "b-2": cell(-0.1), "c-2": cell(0.03), "a-0": cell(-9.0)}
    summary = evaluate.summarise(results, [2, 3])
    assert summary["tables"] == ["a", "b", "c"]
    for metric, sign in (("f1", 1), ("cost(fp=1, fn=10)", -1)):
        row = summary["together"][metric]
        gain = sign * (row["with network"]["mean"] - row[evaluate.FAMILIES]["mean"])
        assert gain == pytest.approx((0.2 - 0.1 + 0.03) / 3, abs=1e-4)
        assert (row["with network"]["won"], row["with network"]["lost"]) == (2, 1)
    assert summary["alone"]["network"] == {"log_loss": 0.3, "auroc": 0.9}
