"""The page: nothing from the data is markup, nothing is loaded, the file is whole or absent."""

import base64
import hashlib
import json
import os
import re
import subprocess
import sys
from functools import cache
from importlib import resources
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from page_parts import parts
from rich.table import Table

from metricfit import MetricClassifier, report
from metricfit.cli.terminal import print_message, print_result
from metricfit.report.model_page import write_model_page

EVIL = "<script>alert(1)</script>"
QUOTES = """say "yes" & 'no' </script><!-- <script> ]]> {{ 7 * 7 }} ${x} $\\frac{1}{"""


@cache
def full(text=EVIL):
    """Every kind of section, with the text wherever a text can be given."""
    histories = [[{"stage": text, "train_loss": 1.0, "value": 0.5, "monitor": text}, {"train_loss": 0.5, "value": 0.6}]]
    sections = [
        report.comparison(
            [
                report.ComparisonRow(text, 0.7, (0.6, 0.8)),
                report.ComparisonRow("b", 0.6, (0.5, 0.7), -0.1, (-0.2, 0.0), 0.03, 12.0),
            ],
            "f1",
            reference=text,
            title=text,
            lead=text,
        ),
        report.learning_curves(histories, title=text, lead=text),
        report.scores(
            [0.1, 0.4, 0.6, 0.9], [0, 0, 1, 1], threshold=0.5, classes=(text, text + "1"), title=text, lead=text
        ),
        report.multiclass([0, 1, 1], [0, 1, 0], classes=[text, "b"], title=text, lead=text),
    ]
    return report.Report(text, text, text, sections, {text: text})


@cache
def rendered(text=EVIL):
    return report.render(full(text))


@pytest.mark.parametrize("text", [EVIL, QUOTES, '"><img src=x onerror=alert(1)>'])
def test_what_comes_from_the_data_is_text(text):
    plain, given = parts(rendered("plain")), parts(rendered(text))
    assert [tag for tag, _ in given.tags] == [tag for tag, _ in plain.tags]
    names = [sorted(attributes) for _, attributes in given.tags]
    assert names == [sorted(attributes) for _, attributes in plain.tags]
    shown = " ".join(given.text)
    assert shown.count(text) >= 15
    assert given.scripts[-1] == plain.scripts[-1]


def test_data_in_a_script_cannot_end_it():
    html = rendered(QUOTES)
    data = [json.loads(script) for script in parts(html).scripts[:-1]]
    assert len(data) == 1
    for block in re.findall(r'<script type="application/json"[^>]*>(.*?)</script>', html, re.DOTALL):
        assert not set("<>&") & set(block)


def test_overrides_of_the_direction_of_text_do_not_reach_the_page_the_card_or_the_terminal(tmp_path, capsys):
    overrides = [chr(code) for code in (*range(0x202A, 0x202F), *range(0x2066, 0x206A))]
    evil = f"fee{''.join(overrides)}gpj.exe"
    r = np.random.default_rng(0)
    frame = pd.DataFrame({evil: r.normal(size=90), "other": r.normal(size=90)})
    y = np.select([frame[evil] > 0.4, frame[evil] > -0.4], [f"yes{evil}", "no"], "other")
    model = MetricClassifier("f1", models=["linear"], members=2, random_state=0).fit(frame, y)
    model.save(tmp_path / "model", data=f"{evil}.csv", target=evil)
    page = write_model_page(
        model, tmp_path / "r.html", data=f"{evil}.csv", target=evil, command=evil, rows=(frame, y), group=None
    )
    table = Table(evil, "other")
    table.add_row(evil, "1")
    print_result({}, False, [evil, table])
    print_message(evil)
    card = (tmp_path / "model" / "model_card.md").read_text()
    shown = [Path(page).read_text(), card, *capsys.readouterr()]
    for text in shown:
        assert "gpj.exe" in text
        assert not set(text) & set(overrides)


def test_names_of_metrics_are_escaped_in_the_data():
    def formula(c):
        """Evil </script> doc."""
        return c.tp

    formula.__name__ = EVIL
    section = report.scores([0.1, 0.9], [0, 1], threshold=0.5, metric=formula)
    found = parts(report.render(report.Report("t", "h", "v", [section])))
    assert EVIL in json.loads(found.scripts[0])["metrics"]
    assert len(found.scripts) == 2
    assert sum(EVIL in text for text in found.text) >= 2


def test_control_characters_and_halves_of_characters_become_a_mark():
    html = rendered("a\x00b\x1bc\ud800d\x85")
    assert "a\ufffdb\ufffdc\ufffdd\ufffd" in html
    html.encode()


def test_other_scripts_and_long_names_are_drawn_without_a_warning():
    html = rendered("漢字 العربية " + "x" * 500)
    assert "x" * 500 in html


def test_the_policy_allows_the_pages_own_script_and_nothing_else():
    found = parts(rendered())
    policy = next(given["content"] for tag, given in found.tags if given.get("http-equiv") == "Content-Security-Policy")
    digest = base64.b64encode(hashlib.sha256(found.scripts[-1].encode()).digest()).decode()
    assert policy == (f"default-src 'none'; style-src 'unsafe-inline'; img-src data:; script-src 'sha256-{digest}'")


def test_nothing_points_outside_the_page():
    for tag, given in parts(rendered()).tags:
        assert tag not in {"iframe", "object", "embed", "img", "base", "form"}
        assert "src" not in given
        for name in ("href", "xlink:href"):
            assert given.get(name, "#").startswith(("#", "data:,")), (tag, given)
        assert "url(" not in given.get("style", "").replace("url(#", "")
        assert not [name for name in given if name.startswith("on")]


def test_ids_are_unique_and_references_resolve():
    section = report.scores([0.1, 0.9], [0, 1], threshold=0.5)
    html = report.render(report.Report("t", "h", "v", [section, section, *full().sections]))
    tags = parts(html).tags
    ids = [given["id"] for _, given in tags if "id" in given]
    assert len(ids) == len(set(ids))
    referred = [given["href"][1:] for _, given in tags if given.get("href", "").startswith("#")]
    referred += re.findall(r"url\(#([^)]+)\)", html)
    referred += [given[name] for _, given in tags for name in ("for", "aria-labelledby") if name in given]
    assert referred
    assert set(referred) <= set(ids)


def test_charts_have_names_and_take_the_pages_colours():
    html = rendered("plain")
    charts = [given for tag, given in parts(html).tags if tag == "svg" and given.get("aria-hidden") != "true"]
    assert len(charts) == 2 + 2 + 2 + 4
    assert all(given["role"] == "img" and given["aria-label"] for given in charts)
    drawn = "".join(re.findall(r"<svg.*?</svg>", html, re.DOTALL))
    assert "var(--first)" in drawn
    assert not re.findall(r"#[0-9a-f]{6}\b", drawn)


def _luminance(colour):
    parts = [int(colour[at : at + 2], 16) / 255 for at in (1, 3, 5)]
    linear = [part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4 for part in parts]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]


def test_colours_have_enough_contrast():
    """WCAG 2.2, 1.4.3: 4.5 for text."""
    css = (resources.files("metricfit.report") / "assets" / "page.css").read_text(encoding="utf-8")
    palettes = [
        dict(re.findall(r"(--\w+): (#[0-9a-f]{6})", block)) for block in re.findall(r"\{[^{}]*--paper: #[^{}]*\}", css)
    ]
    assert len(palettes) == 4
    assert palettes[1] == palettes[2]
    for palette in palettes:
        for text in ("--ink", "--muted", "--accent", "--good", "--bad", "--first", "--second"):
            for ground in ("--paper", "--panel"):
                light, dark = sorted((_luminance(palette[text]), _luminance(palette[ground])), reverse=True)
                assert (light + 0.05) / (dark + 0.05) >= 4.5, (text, ground, palette)


def test_rendering_twice_gives_the_same_page():
    assert report.render(full()) == report.render(full.__wrapped__())


def test_write_makes_folders_and_returns_the_path(tmp_path):
    path = report.write(full(), tmp_path / "a" / "b" / "report.html")
    assert path == tmp_path / "a" / "b" / "report.html"
    assert path.read_text(encoding="utf-8") == rendered()
    assert os.listdir(path.parent) == ["report.html"]


def test_a_failed_write_leaves_the_old_page_and_no_other_file(tmp_path, monkeypatch):
    path = report.write(report.Report("old", "h", "v"), tmp_path / "report.html")
    before = path.read_bytes()

    def full_disk(_):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full_disk)
    with pytest.raises(OSError, match="No space left"):
        report.write(report.Report("new", "h", "v"), path)
    assert path.read_bytes() == before
    assert os.listdir(tmp_path) == ["report.html"]


def test_a_folder_is_refused_with_the_remedy(tmp_path):
    with pytest.raises(IsADirectoryError, match="give the page a file name, such as"):
        report.write(full(), tmp_path)


def test_an_empty_report_is_a_page():
    found = parts(report.render(report.Report("title", "headline", "")))
    assert "Verdict." not in " ".join(found.text)
    assert "headline" in found.text


@pytest.mark.parametrize("missing", ["jinja2", "matplotlib"])
def test_without_the_extra_the_remedy_is_named(missing):
    code = f"import sys; sys.modules[{missing!r}] = None\nfrom metricfit.report import multiclass"
    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=300)
    assert (
        f"metricfit.report.multiclass needs {missing}, which is not installed: pip install metricfit[tabular]"
        in ran.stderr
    )
