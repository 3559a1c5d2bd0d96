"""Completion in a real bash, as ``metricfit --install-completion`` sets it up in a folder of its own."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

import metricfit
import metricfit_papers

pytestmark = pytest.mark.skipif(shutil.which("bash") is None, reason="no bash")

COMPLETE = """
source ~/.bashrc
COMP_WORDS=("$@"); COMP_CWORD=$(($# - 1)); COMPREPLY=()
$(complete -p metricfit | sed 's/.*-F \\([^ ]*\\).*/\\1/') metricfit
printf '%s\\n' "${COMPREPLY[@]}"
"""


@pytest.fixture(scope="module")
def shell(tmp_path_factory):
    """A home folder in which completion is installed, with the command on the path."""
    home = tmp_path_factory.mktemp("home")
    command = home / "bin" / "metricfit"
    command.parent.mkdir()
    paths = [str(Path(package.__file__).parents[1]) for package in (metricfit, metricfit_papers)]
    command.write_text(
        f"#!{sys.executable}\nimport sys\nsys.path[:0] = {paths}\nfrom metricfit.cli import main\nmain()\n"
    )
    command.chmod(0o755)
    (home / "complete.sh").write_text(COMPLETE)
    settings = {**os.environ, "HOME": str(home), "PATH": f"{command.parent}{os.pathsep}{os.environ['PATH']}"}

    def run(*words):
        ended = subprocess.run(["bash", *words], env=settings, cwd=home, capture_output=True, text=True)
        assert ended.returncode == 0, ended.stderr
        return ended.stdout.strip().splitlines()

    run("-c", "metricfit --install-completion && true")  # two commands, so that bash stays the parent that is found
    return lambda *words: run("complete.sh", "metricfit", *words)


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        (("f",), ["fit"]),
        (("fit", "--wei"), ["--weight"]),
        (("fit", "t.csv", "--quality", ""), ["fast", "default", "best"]),
        (("compare", "--average", "m"), ["macro", "micro"]),
        (("fit", "--metric", "fb"), ["fbeta"]),
        (("fit", "--models", "linear,ker"), ["linear,kernel"]),
        (("compare", "--method", "log"), ["logistic\\ regression"]),
        (("fit", "no such fi"), []),  # files are completed by bash itself
    ],
)
def test_words_are_completed(shell, words, expected):
    assert shell(*words) == expected
