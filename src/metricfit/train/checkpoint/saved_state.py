"""Loading the state from which a run continues, on every process."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from metricfit.errors import CheckpointError
from metricfit.train.checkpoint.folder import RunFolder
from metricfit.train.checkpoint.packing import DamagedError

PARTS = {"loop", "history", "learner", "random"}
POSITION = {"stage", "epoch", "batch", "step", "loss_sum", "standings"}


def load_state(folder: RunFolder, reads: bool, share: Callable[[Any], Any]) -> dict[str, Any] | None:
    """Load the newest intact checkpoint of a folder on every process.

    Args:
        folder: The folder of the run.
        reads: Whether this process reads the folder; the others may not see it.
        share: Returns the reading process's value on all processes.

    Returns:
        The state, or None if the run has no checkpoint yet.

    Raises:
        CheckpointError: On every process, if there are checkpoints but none is intact.
    """
    loaded: dict[str, Any] | CheckpointError | None = None
    if reads:
        try:
            loaded = folder.load(check_state)
        except CheckpointError as error:
            loaded = error
    loaded = share(loaded)
    if isinstance(loaded, CheckpointError):
        raise loaded
    return loaded


def check_state(state: dict[str, Any], step: int) -> None:
    """Check that a checkpoint holds the state of a run at the step in its name.

    Raises:
        DamagedError: Parts are missing, or the state is of another step.
    """
    missing = PARTS - state.keys()
    if missing:
        raise DamagedError(f"it does not hold the state of a run: {', '.join(sorted(missing))} missing")
    position = state["loop"]
    if not isinstance(position, dict) or not position.keys() >= POSITION:
        raise DamagedError("it does not hold the position of the run")
    if position["step"] != step:
        raise DamagedError(f"it belongs to step {position['step']}, not to the step in its name")
