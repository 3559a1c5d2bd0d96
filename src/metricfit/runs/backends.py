"""Where cells are run: joblib's backends, and worker processes that never outlive the command that started them."""

from __future__ import annotations

import logging
import os
import signal
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from importlib import import_module
from types import ModuleType

import joblib
import torch

from metricfit.errors import InvalidValueError, quote

BACKENDS = ("loky", "threading", "sequential", "ray", "dask")


def check(jobs: int, backend: str) -> None:
    """Raise if cells cannot be run so."""
    if backend not in BACKENDS:
        raise InvalidValueError(f"backend must be one of {', '.join(BACKENDS)}, got {quote(backend)}")
    if jobs < 1 and jobs != -1:
        raise InvalidValueError(f"jobs is how many cells at a time, 1 or more, or -1 for one a core; got {jobs}")


def threads_each(jobs: int) -> int | None:
    """How many threads a cell may use beside the others, no more than OMP_NUM_THREADS; None for no bound, where it is
    alone.
    """
    several = joblib.effective_n_jobs(jobs)
    return None if several == 1 else max(1, min(joblib.cpu_count() // several, torch.get_num_threads()))


@contextmanager
def deaf_children() -> Iterator[None]:
    """Processes started here never hear Ctrl-C: what is ignored stays ignored in them. Nor does this one meanwhile.

    A terminal sends it to all processes at once, and workers would answer it with tracebacks.
    """
    if threading.current_thread() is not threading.main_thread():  # signals are the main thread's to set
        yield
        return
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)


def end_with_parent(parent: int) -> None:
    """Make this worker process end soon after its parent does, however the parent ends.

    loky calls this function when it starts a worker. A command that is killed cannot stop its workers, and they would
    wait for work, or work on, without it. A thread looks after the parent rather than Linux's PR_SET_PDEATHSIG, because
    that signal is sent when the thread that started the worker ends. Ctrl-C is handled by the parent alone.

    Args:
        parent: Process id of the command that started this worker.
    """
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    if sys.platform != "win32" and os.getppid() != parent:  # the parent ended before this worker had started
        os._exit(1)
    threading.Thread(target=_exit_after, args=(parent,), daemon=True).start()


def _exit_after(parent: int) -> None:
    """Wait for the parent process to end, then end this one without cleaning up."""
    if sys.platform == "win32":  # where a process keeps the id of a parent that has ended
        import _winapi

        _winapi.WaitForSingleObject(_winapi.OpenProcess(_winapi.SYNCHRONIZE, False, parent), _winapi.INFINITE)
    else:
        while os.getppid() == parent:
            time.sleep(0.5)
    os._exit(1)


@contextmanager
def joined(backend: str, jobs: int) -> Iterator[None]:
    """joblib set to a backend; Ray and Dask are joined if they run already, else started and ended here."""
    starts = {"ray": _ray, "dask": _dask}
    settings = {"initializer": end_with_parent, "initargs": (os.getpid(),)} if backend == "loky" else {}
    started = starts[backend](jobs) if backend in starts else _nothing()
    with started, joblib.parallel_config(backend=backend, **settings):
        yield


@contextmanager
def _nothing() -> Iterator[None]:
    yield


@contextmanager
def _ray(jobs: int) -> Iterator[None]:
    os.environ.setdefault("RAY_AUTH_MODE", "disabled")  # else it writes a token into the home folder
    ray = _module("ray")
    mine = not ray.is_initialized()
    if mine:
        ray.init(include_dashboard=False, log_to_driver=False, logging_level="error")
    try:
        cores = int(ray.cluster_resources().get("CPU", 0))
        if jobs > cores:
            raise InvalidValueError(
                f"jobs is {jobs}, but Ray has {cores} cores; ask for fewer jobs, or give Ray more machines"
            )
        import_module("ray.util.joblib").register_ray()
        yield
    finally:
        if mine:
            ray.shutdown()


@contextmanager
def _dask(jobs: int) -> Iterator[None]:
    distributed = _module("distributed", "dask")
    try:
        distributed.get_client()
    except ValueError:
        several = joblib.cpu_count() if jobs == -1 else jobs
        quiet = {"dashboard_address": None, "silence_logs": logging.ERROR}
        with distributed.Client(n_workers=several, threads_per_worker=1, **quiet):
            yield
    else:
        yield


def _module(name: str, backend: str | None = None) -> ModuleType:
    try:
        return import_module(name)
    except ModuleNotFoundError as error:
        raise ModuleNotFoundError(
            f"the backend {backend or name!r} needs {error.name}, which is not installed: "
            "pip install 'metricfit[cluster]'",
            name=error.name,
        ) from error
