"""Work on a CUDA device that must not wait for it."""

import contextlib
import warnings

import torch


@contextlib.contextmanager
def forbid_waiting():
    """Raise an error inside the block where Python waits for the device."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # torch's, that it does not find every wait
        torch.cuda.set_sync_debug_mode("error")
        try:
            yield
        finally:
            torch.cuda.set_sync_debug_mode("default")
