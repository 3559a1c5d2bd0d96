"""Callbacks: called in order and with the right numbers; the progress bar; TensorBoard."""

import builtins
import copy
import io
import re
import sys

import pytest
import torch
from rich.console import Console
from torch import nn

from metricfit.losses import WeightedBCELoss
from metricfit.train import Callback, Plan, ProgressBar, Stage, TensorBoard, fit
from metricfit_papers.populations import fit_population

X = torch.randn(40, 3, generator=torch.Generator().manual_seed(0))
Y = (X[:, 0] > 0.3).long()


class Recorder(Callback):
    """Writes down what it is told."""

    def __init__(self):
        self.calls = []

    def started(self, plan, step):
        self.calls.append(("started", plan, step))

    def stepped(self, step, losses):
        self.calls.append(("stepped", step, losses.tolist()))

    def epoch_ended(self, rows):
        self.calls.append(("epoch_ended", [dict(row) for row in rows]))

    def finished(self):
        self.calls.append(("finished",))

    def named(self, name):
        return [call[1:] for call in self.calls if call[0] == name]


def network():
    torch.manual_seed(0)
    return nn.Linear(3, 1)


STAGES = [Stage(WeightedBCELoss(), epochs=2, name="one"), Stage(WeightedBCELoss(), epochs=3, name="two")]


def trained(*callbacks, **settings):
    settings = {"validation": (X, Y), "monitor": "f1", "batch_size": 10, "progress": False} | settings
    return fit(network(), (X, Y), STAGES, callbacks=callbacks, **settings)


class StopsInSecondEpoch(Callback):
    def epoch_ended(self, rows):
        if rows[0]["epoch"] == 1:
            self.stop()


def test_a_callback_can_stop_a_run(tmp_path):
    stop, shorter = StopsInSecondEpoch(), [Stage(WeightedBCELoss(), epochs=2, name="one")]
    settings = {"validation": (X, Y), "monitor": "f1", "batch_size": 10, "progress": False}
    expected = fit(network(), (X, Y), shorter, **settings)
    for folder in (None, tmp_path):  # the same callback again
        result = trained(stop, checkpoint_dir=folder)
        assert result.history == expected.history
        assert torch.equal(result.model.weight, expected.model.weight)
    assert trained(checkpoint_dir=tmp_path, resume=True).history == expected.history
    together = fit_population([network(), network()], (X, Y), STAGES, callbacks=[stop], progress=False)
    assert [len(member.history) for member in together] == [2, 2]


def test_members_have_their_best_weights_after_an_interrupt():
    class Interrupts(Callback):
        def epoch_ended(self, rows):
            if rows[0]["epoch"] == 1:
                raise KeyboardInterrupt

    models, settings = [network(), network()], {"splits": [(range(30), range(30, 40))] * 2, "lr": 0.1, "monitor": "f1"}
    with pytest.raises(KeyboardInterrupt):
        fit_population(models, (X, Y), STAGES, callbacks=[Interrupts()], progress=False, **settings)
    expected = fit_population([network(), network()], (X, Y), STAGES[:1], progress=False, **settings)
    for model, result in zip(models, expected, strict=True):
        assert torch.equal(model.weight, result.model.weight)
        assert not torch.equal(model.weight, network().weight)


def test_they_are_called_in_order_and_with_the_right_numbers():
    recorder = Recorder()
    result = trained(recorder)
    names = [call[0] for call in recorder.calls]
    assert names == ["started", *(["stepped"] * 4 + ["epoch_ended"]) * 5, "finished"]
    assert recorder.named("started") == [(Plan((("one", 2), ("two", 3)), 1, 4), 0)]
    assert [step for step, _ in recorder.named("stepped")] == list(range(1, 21))
    rows = [row for (rows,) in recorder.named("epoch_ended") for row in rows]
    assert rows == list(result.history)
    assert [row["step"] for row in rows] == [4, 8, 12, 16, 20]
    assert [row["stage"] for row in rows] == ["one", "one", "two", "two", "two"]
    assert [row["epoch"] for row in rows] == [0, 1, 0, 1, 2]
    seen = [losses[0] for _, losses in recorder.named("stepped")]
    means = [sum(seen[index : index + 4]) / 4 for index in range(0, 20, 4)]
    assert [row["train_loss"] for row in rows] == pytest.approx(means)


def test_callbacks_of_a_population_get_the_active_members():
    recorder = Recorder()
    x = torch.cat([X, X])
    y = torch.cat([Y, Y])
    models = [network() for _ in range(3)]
    results = fit_population(
        models,
        (x, y),
        WeightedBCELoss(),
        validation=(X, Y),
        lr=[1e-12, 0.1, 0.1],  # the first stays where it is, and stops
        patience=2,
        epochs=5,
        batch_size=40,
        callbacks=[recorder],
        progress=False,
    )
    assert recorder.named("started")[0][0] == Plan((("stage 0", 5),), 3, 2)
    members = [[row["member"] for row in rows] for (rows,) in recorder.named("epoch_ended")]
    assert members[0] == [0, 1, 2]
    assert members[-1] == [1, 2]
    assert len(recorder.named("stepped")[0][1]) == 3
    assert len(recorder.named("stepped")[-1][1]) == 2
    assert len(results[0].history) == sum(0 in item for item in members)
    assert "member" not in results[0].history.columns


def test_several_are_called_one_after_the_other():
    order = []

    class Named(Callback):
        def __init__(self, name):
            self.name = name

        def epoch_ended(self, rows):
            order.append(self.name)

    trained(Named("a"), Named("b"))
    assert order == ["a", "b"] * 5


def test_callbacks_are_told_about_the_end_after_an_error():
    class Stops(Recorder):
        def epoch_ended(self, rows):
            raise KeyboardInterrupt

    first, second = Recorder(), Stops()
    with pytest.raises(KeyboardInterrupt):
        trained(first, second)
    assert first.calls[-1] == second.calls[-1] == ("finished",)


def test_a_callback_needs_to_say_nothing():
    assert len(trained(Callback()).history) == 5


def test_lines_where_there_is_no_terminal():
    file = io.StringIO()
    result = trained(ProgressBar(Console(file=file, force_terminal=False)))
    lines = file.getvalue().splitlines()
    assert len(lines) == 5
    number = r"[\d.e+-]+"
    last = result.history[-1]
    assert re.fullmatch(rf"one: epoch 1 of 5, loss {number}, f1 {number}, best {number}", lines[0])
    assert lines[-1] == (
        f"two: epoch 5 of 5, loss {last['train_loss']:.4g}, f1 {last['value']:.4g}, best {last['best']:.4g}"
    )


def test_about_ten_lines_however_many_epochs():
    file = io.StringIO()
    fit(
        network(),
        (X, Y),
        WeightedBCELoss(),
        epochs=57,
        callbacks=[ProgressBar(Console(file=file, force_terminal=False))],
        progress=False,
    )
    lines = file.getvalue().splitlines()
    assert 10 <= len(lines) <= 12
    assert lines[0].startswith("stage 0: epoch 1 of 57, loss ")
    assert lines[-1].startswith("stage 0: epoch 57 of 57, loss ")


def test_long_names_and_brackets_stay_as_they_are_on_one_line():
    file = io.StringIO()
    stage = Stage(WeightedBCELoss(), epochs=1, name="[bold]" + "a long name " * 12)
    bar = ProgressBar(Console(file=file, force_terminal=False))
    fit(network(), (X, Y), stage, callbacks=[bar], progress=False)
    (line,) = file.getvalue().splitlines()
    assert line.startswith("[bold]a long name")


def test_of_several_members_the_first_is_shown():
    file = io.StringIO()
    bar = ProgressBar(Console(file=file, force_terminal=False))
    results = fit_population(
        [network() for _ in range(4)], (X, Y), WeightedBCELoss(), epochs=1, callbacks=[bar], progress=False
    )
    loss = results[0].history["train_loss"][0]
    assert file.getvalue().strip() == f"stage 0: epoch 1 of 1, loss {loss:.4g}, the first of 4 members"


def test_a_bar_on_a_terminal_with_the_metric_the_best_and_the_time_left():
    file = io.StringIO()
    console = Console(file=file, force_terminal=True, width=140, color_system=None)

    class Shown(ProgressBar):
        def epoch_ended(self, rows):
            super().epoch_ended(rows)
            self.bar.refresh()

    result = trained(Shown(console))
    text = re.sub(r"\x1b\[[0-9;?]*[a-zA-Z]", "", file.getvalue())
    last = result.history[-1]
    shown = f"loss {last['train_loss']:.4g}, f1 {last['value']:.4g}, best {last['best']:.4g}"
    assert re.search(rf"two .*5/5 {re.escape(shown)} 0:00:0\d 0:00:00", text)
    assert re.search(r"one .*1/5 loss .* 0:00:0\d (-:--:--|0:00:0\d)", text)


def test_quiet_by_default_where_standard_error_is_no_terminal(capfd):
    trained(progress=None)
    out, err = capfd.readouterr()
    assert (out, err) == ("", "")
    trained(progress=True)
    out, err = capfd.readouterr()
    assert out == ""
    assert len(err.splitlines()) == 5


def test_a_bar_by_default_where_standard_error_is_a_terminal(monkeypatch):
    class Terminal(io.StringIO):
        def isatty(self):
            return True

    shown, quiet = Terminal(), Terminal()
    monkeypatch.setattr(sys, "stderr", shown)
    monkeypatch.setenv("TERM", "xterm")
    trained(progress=None)
    assert "/5" in shown.getvalue()
    monkeypatch.setattr(sys, "stderr", quiet)
    trained(progress=False)
    assert quiet.getvalue() == ""


def events(folder):
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    accumulator = EventAccumulator(str(folder))
    accumulator.Reload()
    return {
        tag: [(event.step, event.value) for event in accumulator.Scalars(tag)] for tag in accumulator.Tags()["scalars"]
    }


@pytest.mark.filterwarnings("ignore::DeprecationWarning")  # tensorboard's own
def test_tensorboard_reads_what_is_written(tmp_path):
    result = trained(TensorBoard(tmp_path))
    actual = events(tmp_path)
    assert actual.keys() == {"train_loss", "validation_loss", "value", "threshold", "best"}
    assert [step for step, _ in actual["value"]] == result.history["step"]
    assert [value for _, value in actual["train_loss"]] == pytest.approx(result.history["train_loss"])


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_tensorboard_distinguishes_members(tmp_path):
    results = fit_population(
        [network(), network()],
        (X, Y),
        WeightedBCELoss(),
        lr=[0.1, 0.01],
        epochs=3,
        callbacks=[TensorBoard(tmp_path)],
        progress=False,
    )
    written = events(tmp_path)
    losses = {tag: [value for _, value in points] for tag, points in written.items()}
    assert len(losses) == 2
    for member, one in enumerate(results):
        (tag,) = [tag for tag in losses if f"{member}/train_loss" in tag]
        assert losses[tag] == pytest.approx(one.history["train_loss"])


def test_without_tensorboard_the_remedy_is_named(monkeypatch, tmp_path):
    plain = builtins.__import__

    def without(name, *args, **kwargs):
        if name.startswith(("torch.utils.tensorboard", "tensorboard")):
            raise ModuleNotFoundError("No module named 'tensorboard'", name="tensorboard")  # as torch's module does
        return plain(name, *args, **kwargs)

    monkeypatch.setattr(builtins, "__import__", without)
    with pytest.raises(ModuleNotFoundError, match="pip install tensorboard"):
        TensorBoard(tmp_path)


class FailsAtTheEnd(Callback):
    """Its last call is an error."""

    def finished(self):
        raise OSError("the disk is full")


def test_every_callback_is_told_about_the_end_even_if_one_fails():
    before, after = Recorder(), Recorder()
    with pytest.raises(OSError, match="the disk is full"):
        trained(before, FailsAtTheEnd(), after)
    assert before.calls[-1][0] == after.calls[-1][0] == "finished"


class Stops(Callback):
    """Ctrl-C after an epoch."""

    def __init__(self, after):
        self.after = after

    def epoch_ended(self, rows):
        if rows[0]["epoch"] == self.after:
            raise KeyboardInterrupt


def test_ctrl_c_leaves_the_best_weights_so_far():
    x = torch.randn(60, 3, generator=torch.Generator().manual_seed(0))
    y = (x[:, 0] > 0).long()
    torch.manual_seed(0)
    start = nn.Linear(3, 1)
    kept = []
    for after in (0, 3):  # the validation labels are the other way round, so that each step does harm
        model = copy.deepcopy(start)
        with pytest.raises(KeyboardInterrupt):
            fit(
                model,
                (x, y),
                nn.BCEWithLogitsLoss(),
                validation=(x, 1 - y),
                optimizer=torch.optim.SGD,
                lr=1.0,
                callbacks=[Stops(after)],
                progress=False,
            )
        kept.append(model.weight.detach().clone())
    assert torch.equal(*kept)


def test_a_callback_that_is_in_no_list_is_refused():
    with pytest.raises(TypeError, match=r"callbacks is a list, such as \[TensorBoard\('logs'\)\], got"):
        fit(nn.Linear(3, 1), (X, Y), WeightedBCELoss(), epochs=1, callbacks=Recorder())
