"""Many kinds of bad files through the real commands: each ends in the right result, or in one paragraph and code 2.

A case is a file, a command, and what must come of it. Five run in `make test`, all of them in `make test-all`.
"""

import gzip
import json
import os
import re
import shutil
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from typer.testing import CliRunner

from metricfit.cli.app import app

SMALL = ("--models", "linear", "--folds", "2", "--quiet", "--json")
SMALL_COMPARISON = ("--method", "logistic regression", "--quiet", "--json")
FAST = {"empty", "ragged rows", "one class", "unknown label at evaluate", "infinite and huge numbers"}


def good(n=80):
    rng = np.random.default_rng(0)
    frame = pd.DataFrame(rng.normal(size=(n, 2)).round(3), columns=["a", "b"])
    frame["town"] = rng.choice(["Ulm", "Bonn"], n)
    frame["y"] = np.where(frame["b"] + 0.3 * rng.normal(size=n) > 0.5, "yes", "no")
    return frame


def call(*arguments):
    return CliRunner().invoke(app, [str(each) for each in arguments])


def text_of(frame, **how):
    return frame.to_csv(index=False, **how)


@dataclass(frozen=True)
class Case:
    """A file to make, by its name and its content or by a function of its path; a command; what it says or gives.

    ``DATA`` in the command is the file, ``OUT`` a new folder, ``MODEL`` a good model. ``says`` is a pattern that the
    paragraph must hold; without it the command must succeed, and ``holds`` be true of its JSON.
    """

    name: str
    file: str
    content: bytes | str | pd.DataFrame | Callable[[Path], object] | None
    says: str | None = None
    command: str = "fit DATA --target y --out OUT"
    holds: Callable[[dict], bool] = lambda found: 0 <= found.get("out_of_fold", 0) <= 1


def parquet(path):
    good().to_parquet(path)


def cut(make, share=0.5):
    def write(path):
        make(path)
        path.write_bytes(path.read_bytes()[: int(path.stat().st_size * share)])

    return write


def bomb(path):
    with gzip.open(path, "wb", compresslevel=1) as file:
        file.write(b"a,y\n")
        for _ in range(64):
            file.write(b"0" * 2**20)


def parquet_as_csv(path):
    good().to_parquet(path.with_suffix(".parquet"))
    path.with_suffix(".parquet").rename(path)


def in_the_way(path):
    path.write_text(text_of(good()))
    path.with_name("taken").write_text("a file")
    path.with_name("full").mkdir()
    path.with_name("full").joinpath("note").write_text("a file")


def unreadable(path):
    if os.geteuid() == 0:
        pytest.skip("root may read everything")
    path.write_text(text_of(good()))
    path.chmod(0)


def spoilt_model(path):
    path.write_text(text_of(good()))
    weights = path.with_name("model") / "arrays.safetensors"
    content = bytearray(weights.read_bytes())
    content[len(content) // 2] ^= 255
    weights.write_bytes(content)


def cut_model(path):
    path.write_text(text_of(good()))
    weights = path.with_name("model") / "arrays.safetensors"
    weights.write_bytes(weights.read_bytes()[:-100])


def classes(*labels):
    return good().assign(y=np.resize(np.array(labels, dtype=object), 80))


def rows(**columns):
    return good().assign(**columns)


def unnamed():
    """As R's write.table writes it: row names, and no name for them."""
    return "a,b,y\n" + "".join(f"row{k},{k / 7:.3f},{k % 3},{int(k % 4 == 0)}\n" for k in range(80))


def categories(path):
    good().assign(y=pd.Categorical(good()["y"], ["no", "yes", "never"])).to_parquet(path)


def nullable(path):
    good().assign(y=(good()["y"] == "yes").astype("boolean")).to_parquet(path)


def dated(path):
    good().assign(y=np.where(good()["y"] == "yes", days[1], days[0])).to_parquet(path)


def in_parquet(found):
    return list(pd.read_parquet(found["file"]).columns) == ["predicted", "probability of no", "probability of yes"]


def positive(label):
    return lambda found: found["positive"] == label


def counted(**expected):
    return lambda found: found["classes"] == {name.strip("_"): rows for name, rows in expected.items()}


FIT = "fit DATA --target y --out OUT"
BOTH = " --subject-to precision>=1 --subject-to recall>=1"
EVALUATE = "evaluate MODEL DATA --target y"
PREDICT = "predict MODEL DATA --out OUT.csv"
CHANGED = "not as it was saved|changed|does not match|cut short"
COMPARE = "compare DATA --target y --out OUT --folds 2"
odd = good().assign(y=good()["y"].replace({"yes": 'say "yes"\nor ümlaut', "no": "<b>no</b>"}))
renamed = good().rename(columns={"a": "a\nb", "b": "<script>alert(1)</script>"})
days = pd.date_range("2024-01-01", periods=80)
numbers = np.random.default_rng(1).normal(size=80)

CASES = [
    # Files that are not tables.
    Case("no file", "t.csv", None, "There is no file"),
    Case("empty", "t.csv", b"", "is empty"),
    Case("only blank lines", "t.csv", b"\n\n\n", "has no columns"),
    Case("header only", "t.csv", "a,b,y\n", "a header and no rows"),
    Case("a directory", "t.csv", lambda path: path.mkdir(), "holds no file with a table"),
    Case("no permission", "t.csv", unreadable, "permission denied"),
    Case("a symlink to itself", "t.csv", lambda path: path.symlink_to(path), "is a symbolic link to nothing"),
    Case("a pipe", "t.csv", os.mkfifo, "is not a regular file"),
    Case("unknown ending", "t.dat", text_of(good()), "Known endings: .*csv"),
    Case("a spreadsheet", "t.xlsx", b"PK\x03\x04", "cannot be read as spreadsheet"),
    Case("noise", "t.csv", np.random.default_rng(0).bytes(2000), "NUL bytes|UTF-8|not a table"),
    Case("NUL bytes", "t.csv", "a,y\n1,\x00\n", "NUL bytes"),
    Case("NUL bytes late", "t.csv", text_of(good(80_000)) + "1,2,\x00,no\n", "NUL bytes"),
    Case("latin-1", "t.csv", text_of(good()).replace("Ulm", "Grün").encode("latin-1"), None, FIT),
    Case("another encoding", "t.csv", text_of(good()).replace("Ulm", "Grün").encode("latin-1"),
         "not utf-8 text.*Leave the encoding out", FIT + " --encoding utf-8"),
    Case("UTF-16", "t.csv", text_of(good()).encode("utf-16"), None, FIT),
    Case("ragged rows", "t.csv", "a,b,y\n1,2,no\n1,2,no,4,5\n", "line 3 has 5 fields, the lines before it have 3"),
    Case("a field more than names", "t.csv", unnamed(), "3 names in its header and more fields in its rows.*write.csv"),
    Case("decimal commas", "t.csv", text_of(good(), sep=";", decimal=","), None, FIT),
    Case("an open quote", "t.csv", 'a,b,y\n1,2,no\n1,"2,no\n3,4,yes\n', "not a table"),
    Case("semicolons", "t.csv", text_of(good(), sep=";"), None, FIT),
    Case("tabs", "t.csv", text_of(good(), sep="\t"), None, FIT),
    Case("a wrong separator", "t.csv", text_of(good(), sep=";"), "no column 'y'.*semicolons: give --sep ';'",
         FIT + " --sep ,"),
    Case("no such encoding", "t.csv", good(), "there is no encoding 'klingon'", FIT + " --encoding klingon"),
    Case("a Parquet file named .csv", "t.csv", parquet_as_csv, "Parquet.*\\.parquet"),
    Case("a gzip file named .csv", "t.csv", gzip.compress(text_of(good()).encode()), "gzip.*\\.csv\\.gz"),
    Case("cut gzip", "t.csv.gz", gzip.compress(text_of(good()).encode())[:-20], "not a whole gzip file"),
    Case("no gzip", "t.csv.gz", text_of(good()), "not a whole gzip file"),
    Case("a gzip bomb", "t.csv.gz", bomb, "more than the limit of.*METRICFIT_MAX_TABLE_GB"),
    Case("cut Parquet", "t.parquet", cut(parquet), "not a whole Parquet file"),
    Case("cut Arrow", "t.arrow", cut(lambda path: good().to_feather(path)), "not a whole Arrow file"),
    Case("a broken JSON line", "t.jsonl", '{"a": 1, "y": 0}\n{"a": \n', "not JSON lines"),
    Case("a JSON array", "t.jsonl", good().to_json(orient="records"), "not JSON lines|lists or objects"),
    Case("nested JSON", "t.jsonl", '{"a": {"b": 1}, "y": 0}\n{"a": {"b": 2}, "y": 1}\n', "lists or objects"),
    # Columns.
    Case("100,000 columns", "t.csv", ",".join(f"c{k}" for k in range(99_999)) + ",y\n", "100000 columns; the maximum"),
    Case("twice one column", "t.csv", "a,a,y\n" + "1,2,no\n3,4,yes\n" * 9, "more than one column named 'a'"),
    Case("no name for two columns", "t.csv", ",,y\n" + "1,2,no\n3,4,yes\n" * 9, None),
    Case("no such target", "t.csv", good(), "no column 'fraud'. It has 4", "fit DATA --target fraud --out OUT"),
    Case("a target in capitals", "t.csv", good(), "Did you mean 'y'", "fit DATA --target Y --out OUT"),
    Case("an empty target", "t.csv", good(), "no column ''", "fit DATA --target= --out OUT"),
    Case("spaces for a target", "t.csv", good(), "no column ' '", "fit DATA --target=__ --out OUT"),
    Case("nothing but the target", "t.csv", good()[["y"]], "nothing to learn from"),
    Case("all columns constant", "t.csv", rows(a=1, b=2, town="Ulm"), "constant|one value"),
    # Targets.
    Case("one class", "t.csv", classes("no"), "same target, 'no'.*nothing to learn"),
    Case("one positive", "t.csv", classes(*["no"] * 79, "yes"), "'yes' has a single row.*Merge it"),
    Case("no labels at all", "t.csv", classes(None), "missing in 80 of 80.*leave them out"),
    Case("some labels missing", "t.csv", classes(None, "a", "b"), "missing in 27 of 80.*leave them out"),
    Case("numbers to predict", "t.csv", rows(y=numbers), "look like numbers to predict.*Choose another column"),
    Case("names to predict", "t.csv", rows(y=[f"n{k}" for k in range(80)]), "look like names.*Choose another column"),
    Case("three rows", "t.csv", good().iloc[[0, 1, 2]].assign(y=["no", "yes", "no"]), "'yes' has a single row"),
    Case("an unknown method", "t.csv", good(), "no method 'trees'; the methods are", COMPARE + " --method trees"),
    Case("a positive of three", "t.csv", classes("a", "b", "c"), "is for two classes", COMPARE + " --positive a"),
    Case("NA among numbers", "t.csv", rows(y=["0", "1", "1", "NA"] * 20), "missing in 20 of 80.*words such as NA"),
    Case("--positive of three", "t.csv", classes("a", "b", "c"), "--positive is for two", FIT + " --positive a"),
    Case("labels of lists", "t.jsonl", '{"a": 1, "y": [0]}\n{"a": 2, "y": [1]}\n', "lists or objects"),
    # Groups and requirements.
    Case("no such group", "t.csv", good(), "no column 'site' for --group", COMPARE + " --group site"),
    Case("one group", "t.csv", rows(site=1), "group", COMPARE + " --group site"),
    Case("groups missing", "t.csv", rows(site=[None, *range(79)]), "'site'.*missing in 1", COMPARE + " --group site"),
    Case("the target as group", "t.csv", good(), "both name 'y'", COMPARE + " --group y"),
    Case("more folds than positives", "t.csv", classes(*["no"] * 77, *["yes"] * 3), "fewer", COMPARE + " --folds 5"),
    Case("an unknown metric", "t.csv", good(), "no metric 'f3'.*Known", FIT + " --metric f3"),
    Case("half a requirement", "t.csv", good(), "cannot read the requirement", FIT + " --subject-to recall"),
    Case("an unknown label", "t.csv", good(), "No row has the label 'maybe'.*labels are", FIT + " --positive maybe"),
    Case("an unknown family", "t.csv", good(), "no family of models 'cnn'", FIT + " --models cnn"),
    Case("no jobs", "t.csv", good(), "jobs is the number of cells", COMPARE + " --jobs 0"),
    Case("jobs below -1", "t.csv", good(), "jobs is the number of cells", COMPARE + " --jobs -5"),
    Case("an unknown backend", "t.csv", good(), "backend must be one of", COMPARE + " --backend mpi"),
    # Where to write.
    Case("out not empty", "t.csv", in_the_way, "is not empty; give a new folder", FIT + " --out HERE/full"),
    Case("out is a file", "t.csv", in_the_way, "is a file; give a new folder", FIT + " --out HERE/taken"),
    Case("out inside a file", "t.csv", in_the_way, "[Nn]ot a directory|is a file", FIT + " --out HERE/taken/x"),
    Case("compare into a file", "t.csv", in_the_way, "is a file", "compare DATA --target y --folds 2 --out HERE/taken"),
    Case("predict into no folder", "t.csv", good(), "There is no folder", "predict MODEL DATA --out HERE/none/p.csv"),
    Case("predict onto its table", "t.csv", good(), "exists already", "predict MODEL DATA --out DATA"),
    Case("predict to a spreadsheet", "t.csv", good(), ".csv or .parquet", "predict MODEL DATA --out HERE/p.xlsx"),
    Case("a report into no folder", "t.csv", good(), "There is no folder", EVALUATE + " --report HERE/none/r.html"),
    Case("a report onto a table", "t.csv", good(), "exists already", EVALUATE + " --report DATA"),
    Case("predict into a folder", "t.csv", in_the_way, "is a folder", "predict MODEL DATA --out HERE/full"),
    # Models, and rows unlike those they learnt from.
    Case("no model", "t.csv", good(), "There is no model", "predict HERE/none DATA --out OUT.csv"),
    Case("no folder of a model", "t.csv", in_the_way, "no saved model", "predict HERE/full DATA --out OUT.csv"),
    Case("a file for a model", "t.csv", in_the_way, "model", "predict HERE/taken DATA --out OUT.csv"),
    Case("a changed model", "t.csv", spoilt_model, CHANGED, "predict HERE/model DATA --out OUT.csv"),
    Case("a cut model", "t.csv", cut_model, CHANGED, "predict HERE/model DATA --out OUT.csv"),
    Case("unknown label at evaluate", "t.csv", classes("no", "maybe"), "does not know: maybe", EVALUATE),
    Case("no labels at evaluate", "t.csv", good()[["a", "b", "town"]], "no column 'y'", EVALUATE),
    Case("a column missing at predict", "t.csv", good()[["a", "town"]], "lacks 1 of the columns.*'b'", PREDICT),
    Case("text where numbers were", "t.csv", rows(b="high"), r"held numbers.* b \('high'\)", PREDICT),
    # What is odd, and right.
    Case("predict to Parquet", "t.csv", good(), None, "predict MODEL DATA --out HERE/p.parquet", in_parquet),
    Case("new category at predict", "t.csv", rows(town="Rome"), None, PREDICT, lambda found: found["rows"] == 80),
    Case("extra column at predict", "t.csv", rows(more=1), None, PREDICT, lambda found: found["rows"] == 80),
    Case("one class at evaluate", "t.csv", classes("no"), None, EVALUATE, lambda found: found["tp"] + found["fn"] == 0),
    Case("infinite and huge numbers", "t.csv", rows(a=[np.inf, -np.inf] * 40, b=["1" + "0" * 30, "2"] * 40)),
    Case("mixed types", "t.csv", rows(a=[1.5, "high", None, "2"] * 20)),
    Case("a byte order mark", "t.csv", b"\xef\xbb\xbf" + text_of(good()[["y", "a", "b"]]).encode()),
    Case("Windows lines", "t.csv", text_of(good()).replace("\n", "\r\n")),
    Case("gzip", "t.csv.gz", gzip.compress(text_of(good()).encode())),
    Case("one constant column", "t.csv", rows(a=3)),
    Case("an empty column", "t.csv", rows(a=np.nan)),
    Case("dates", "t.csv", rows(a=days.astype(str))),
    Case("dates in Parquet", "t.parquet", lambda path: rows(a=days).to_parquet(path)),
    Case("60 rows", "t.csv", good(60)),
    Case("copies of two rows", "t.csv", good().iloc[np.resize([0, int(good()["y"].eq("yes").argmax())], 80)]),
    Case("labels with quotes and line breaks", "t.csv", odd),
    Case("names with line breaks and markup", "t.csv", renamed),
    Case("a column without a name", "t.csv", good().rename(columns={"a": ""})),
    Case("line breaks in cells", "t.csv", rows(town="Ulm\nBonn")),
    Case("true and false", "t.csv", rows(y=good()["y"] == "yes")),
    Case("true for True", "t.csv", rows(y=good()["y"] == "yes"), None, FIT + " --positive true", positive(True)),
    Case("1 for 1.0", "t.csv", rows(y=1.0 * (good()["y"] == "yes")), None, FIT + " --positive 1", positive(1.0)),
    Case("NA and None for labels", "t.csv", classes("NA", "None", "x"), holds=counted(NA=27, None_=27, x=26)),
    Case("a comma at the end of rows", "t.csv", text_of(good()).replace("no\n", "no,\n").replace("yes\n", "yes,\n")),
    Case("labels that may be missing", "t.parquet", nullable, holds=positive(True)),
    Case("categories without rows", "t.parquet", categories, holds=counted(no=51, yes=29)),
    Case("dates for labels", "t.parquet", dated, holds=lambda found: found["positive"] == "2024-01-02"),
    Case("labels 1 and 2", "t.csv", rows(y=1 + (good()["y"] == "yes"))),
    Case("labels 0.0 and 1.0", "t.csv", rows(y=1.0 * (good()["y"] == "yes"))),
    Case("three classes", "t.csv", classes("a", "b", "c"), holds=lambda found: found["threshold"] is None),
    Case("a file name with spaces and quotes", "a 'b' \"c\".csv", good()),
]  # fmt: skip


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    folder = tmp_path_factory.mktemp("model")
    good().to_csv(folder / "good.csv", index=False)
    found = call("fit", folder / "good.csv", "--target", "y", "--out", folder / "fitted", *SMALL)
    assert found.exit_code == 0, found.output
    return folder / "fitted" / "model"


def write(content, path, model):
    if callable(content) and content in (spoilt_model, cut_model):
        shutil.copytree(model, path.with_name("model"))
    if callable(content):
        content(path)
    elif isinstance(content, pd.DataFrame):
        content.to_csv(path, index=False)
    elif content is not None:
        path.write_bytes(content.encode() if isinstance(content, str) else content)


@pytest.mark.parametrize(
    "case",
    [pytest.param(each, id=each.name, marks=() if each.name in FAST else pytest.mark.slow) for each in CASES],
)
def test_a_bad_file_ends_in_the_right_result_or_one_paragraph(case, tmp_path, model, monkeypatch):
    monkeypatch.setenv("METRICFIT_MAX_TABLE_GB", str(2**-4))  # less than a bomb that unpacks to 64 MiB needs
    data = tmp_path / case.file
    write(case.content, data, model)
    words = {"DATA": data, "OUT": tmp_path / "out", "OUT.csv": tmp_path / "out.csv", "MODEL": model}
    arguments = [
        words.get(each, each.replace("HERE", str(tmp_path)).replace("__", "  ")) for each in case.command.split()
    ]
    settings = {"fit": SMALL, "compare": SMALL_COMPARISON}.get(arguments[0], ("--quiet", "--json"))
    found = call(arguments[0], *settings, *arguments[1:])
    assert "Traceback" not in found.output
    if case.says is None:
        assert found.exit_code == 0, found.stderr
        assert case.holds(json.loads(found.stdout))
        return
    told = found.stderr.strip()
    assert found.exit_code == 2, f"{found.exit_code}: {told}"
    assert re.search(case.says, " ".join(told.split())), told
    *warnings, error = told.splitlines()
    assert error.startswith("Error: ")
    assert all(line.startswith("Warning: ") for line in warnings)
    assert found.stdout == ""
    assert not (tmp_path / "out").exists() or case.command.startswith("compare")


def test_there_are_fifty_kinds_and_five_of_them_are_quick():
    assert len({each.name for each in CASES}) == len(CASES) >= 50
    assert {each.name for each in CASES} >= FAST
    assert len(FAST) == 5
