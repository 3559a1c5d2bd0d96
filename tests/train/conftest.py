"""Fixtures of the tests of training."""

import pytest
from interrupted_runs import Forge

from metricfit.train.checkpoint.folder import RunFolder


@pytest.fixture(scope="session")
def forge():
    created = Forge()
    yield created
    created.close()


@pytest.fixture(scope="session")
def uninterrupted(forge, tmp_path_factory):
    folders = {}
    for run in ("one_model", "population"):
        folders[run] = RunFolder(tmp_path_factory.mktemp("uninterrupted") / run)
        forge.complete(run, folders[run].path)
    return folders
