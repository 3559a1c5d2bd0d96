"""Text tables as programs of many countries write them: read like the plain file, and what was guessed is said."""

import io
import random
import warnings

import numpy as np
import pandas as pd
import pytest

from metricfit.data import read_table
from metricfit.data.reading import read_batches
from metricfit.data.text_format import TableWarning, TextOptions, guess_format
from metricfit.errors import InvalidValueError, MetricfitError, TableError

FRAME = pd.DataFrame(
    {
        "Größe, in m": [1.5, -2.25, np.nan, 1000.0],
        "town": ["Ulm", "Köln; am Rhein", "Bonn, Bad Godesberg", "50 €"],
        "n": [1, 2, 3, 4],
        "y": ["ja", "nein", "ja", "nein"],
    }
)


def written(sep=",", decimal="."):
    return FRAME.to_csv(index=False, sep=sep, decimal=decimal)


def read(path, **options):
    """The table and what was said about it."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        frame = read_table(path, **options)
    return frame, " ".join(str(warning.message) for warning in caught)


EXPORTS = {
    "plain": (written().encode(), "t.csv", ""),
    "UTF-8 with BOM": (written().encode("utf-8-sig"), "t.csv", ""),
    "Excel, German": (
        written(";", ",").encode("cp1252"),
        "t.csv",
        "';' as separator, ',' as decimal mark and Windows-",
    ),
    "Excel, CSV UTF-8, German": (written(";", ",").encode("utf-8-sig"), "t.csv", "';' as separator and ',' as decimal"),
    "Excel, English": (written().replace("\n", "\r\n").encode("cp1252"), "t.csv", "with Windows-1252 as encoding"),
    "Excel, Unicode text": (written("\t", ",").encode("utf-16"), "t.txt", "',' as decimal mark and UTF-16 as encoding"),
    "UTF-16 without BOM": (written().encode("utf-16-le"), "t.csv", "UTF-16-LE as encoding"),
    "Excel, sep= line": (b"sep=;\r\n" + written(";").encode(), "t.csv", "';' as separator"),
    "BOM and sep= line": (("sep=;\n" + written(";", ",")).encode("utf-8-sig"), "t.csv", "';' as separator and ','"),
    "tabs in .csv": (written("\t").encode(), "t.csv", "a tab as separator"),
    "tabs in .tsv": (written("\t").encode(), "t.tsv", ""),
    "bars": (written("|").encode(), "t.csv", "'|' as separator"),
    "semicolons with points": (written(";").encode(), "t.csv", "';' as separator. If"),
}


@pytest.mark.parametrize("name", EXPORTS)
def test_every_export_gives_the_same_table_and_says_what_is_unusual(tmp_path, name):
    content, file, said = EXPORTS[name]
    (tmp_path / file).write_bytes(content)
    frame, message = read(tmp_path / file)
    pd.testing.assert_frame_equal(frame, FRAME)
    assert said in message
    assert bool(message) == bool(said)


@pytest.mark.parametrize("name", EXPORTS)
def test_what_is_given_is_not_guessed_or_said(tmp_path, name):
    content, file, _ = EXPORTS[name]
    (tmp_path / file).write_bytes(content)
    message = read(tmp_path / file)[1]
    encodings = {"Windows-1252": "cp1252", "UTF-16-LE": "utf-16-le", "UTF-16": "utf-16"}
    options = {
        "sep": next((sep for sep in ";|" if f"'{sep}'" in message), "tab" if "\t" in content.decode("latin1") else ","),
        "decimal": "," if "as decimal" in message else ".",
        "encoding": next((value for key, value in encodings.items() if key in message), "utf-8"),
    }
    if "UTF-16" in name or "Unicode" in name:
        options["sep"] = "tab" if file == "t.txt" else ","
    frame, message = read(tmp_path / file, **options)
    pd.testing.assert_frame_equal(frame, FRAME)
    assert message == ""


def test_quoted_commas_in_the_header_do_not_hide_semicolons(tmp_path):
    (tmp_path / "t.csv").write_text('"Income, yearly";"a, b, c";y\n1;2;0\n3;4;1\n')
    assert list(read(tmp_path / "t.csv")[0].columns) == ["Income, yearly", "a, b, c", "y"]
    (tmp_path / "t.csv").write_text("Income, yearly;age;y\n1,5;2;0\n3,5;4;1\n")  # and without quotation marks
    assert read(tmp_path / "t.csv")[0].to_dict("list") == {"Income, yearly": [1.5, 3.5], "age": [2, 4], "y": [0, 1]}


WIDTH = FRAME.shape[1]
TITLED = {
    "a title": ("Report of March\n" + written(), "without 1 line above its header ('Report of March')"),
    "a title and a line without entries": (
        f"Export of 2024{';' * (WIDTH - 1)}\r\n{';' * (WIDTH - 1)}\r\n" + written(";", ",").replace("\n", "\r\n"),
        "without 2 lines above its header ('Export of 2024'). It is read with ';' as separator and ','",
    ),
    "a title in quotes": (f'"Sales, 2024"{"," * (WIDTH - 1)}\n' + written(), "above its header ('Sales, 2024')"),
    "sep= line and a title": ("sep=;\nExport\n" + written(";"), "without 1 line above its header ('Export')"),
    "separators at the ends of lines": (written().replace("\n", ",,,\n"), "without 3 columns that have no name"),
}


@pytest.mark.parametrize("name", TITLED)
def test_titles_and_empty_columns_of_spreadsheets_are_left_out_and_said(tmp_path, name):
    text, said = TITLED[name]
    (tmp_path / "t.csv").write_text(text, encoding="utf-8", newline="")
    frame, message = read(tmp_path / "t.csv")
    pd.testing.assert_frame_equal(frame, FRAME)
    assert said in message
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        assert set(FRAME.columns) <= set(next(read_batches([tmp_path / "t.csv"])).frame.columns)


def test_the_title_of_a_wide_table_may_have_a_separator():
    text = f"Clinic, 2024{',' * 8}\nn1,n2,n3,n4,n5,n6,n7,n8,y,\n1,2,3,4,5,6,7,8,0,\n"
    found = guess_format(text.encode(), "utf-8", ",", TextOptions())
    assert (found.skipped, found.guessed) == (1, "is read without 1 line above its header ('Clinic, 2024')")


@pytest.mark.parametrize(
    "text",
    [
        "x\n1,2,3\n4,5,6\n",
        "a,,\n1,2,3\n4,5,6\n",
        "only\nb,c\n",
    ],
)
def test_a_first_line_above_numbers_is_no_title(text):
    assert guess_format(text.encode(), "utf-8", ",", TextOptions()).skipped == 0


@pytest.mark.parametrize(
    "text",
    [
        "text,y\na;b;c,0\nd;e;f,1\n",
        "a;b,y\n1;2,0\n3,1\n",
        '"1,5 or more",y\n"2,5",0\n"3,5",1\n',
        "y\n0\n1\n",
        "when,y\n2024-01-01,0\n2024-01-02,1\n",
        "a,b,y\n1,2,NA,\n3,4,no,\n",
    ],
)
def test_plain_tables_are_read_as_before(tmp_path, text):
    (tmp_path / "t.csv").write_text(text)
    expected = pd.read_csv(io.StringIO(text), index_col=False)
    frame, message = read(tmp_path / "t.csv")
    pd.testing.assert_frame_equal(frame, expected)
    assert message == ""


def test_warnings_point_at_the_line_that_reads(tmp_path):
    (tmp_path / "t.csv").write_text("a;y\n1,5;NA\n2,5;no\n")
    with pytest.warns(TableWarning) as warned:
        read_table(tmp_path / "t.csv", "y")
    assert [warning.filename for warning in warned] == [__file__, __file__]


def test_a_thousand_behind_tabs_is_no_decimal_comma(tmp_path):
    (tmp_path / "t.tsv").write_text("a\ty\n1,234\t0\n5,678\t1\n")
    assert read(tmp_path / "t.tsv")[0]["a"].tolist() == ["1,234", "5,678"]
    assert read(tmp_path / "t.tsv", decimal=",")[0]["a"].tolist() == [1.234, 5.678]


def test_a_late_byte_decides_about_the_encoding(tmp_path):
    (tmp_path / "t.csv").write_bytes(b"a,y\n" + b"x,0\n" * 2_000_000 + "ü,1\n".encode("cp1252"))
    with pytest.warns(TableWarning, match="Windows-1252"):
        assert read_table(tmp_path / "t.csv")["a"].iloc[-1] == "ü"


def test_a_file_as_large_as_several_chunks_may_cut_a_character(tmp_path):
    (tmp_path / "t.csv").write_bytes(b"ab,y\n" + "ü,0\n".encode() * 2_000_000)
    assert set(read_table(tmp_path / "t.csv")["ab"]) == {"ü"}


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"sep": ";;"}, "sep is one character"),
        ({"sep": "x"}, "sep is one character"),
        ({"sep": ""}, "sep is one character"),
        ({"decimal": ";"}, "decimal is '.' or ','"),
        ({"sep": ",", "decimal": ","}, "must differ"),
        ({"encoding": "klingon"}, "no encoding 'klingon'"),
        ({"encoding": "base64"}, "no encoding 'base64'"),
    ],
)
def test_options_that_cannot_be_used_are_refused(tmp_path, options, message):
    with pytest.raises(InvalidValueError, match=message):
        read_table(tmp_path / "t.csv", **options)


def test_a_wrong_encoding_is_named(tmp_path):
    (tmp_path / "t.csv").write_bytes("a,y\nü,0\n".encode("cp1252"))
    with pytest.raises(TableError, match=r"is not utf-8 text.*Leave the encoding out"):
        read_table(tmp_path / "t.csv", encoding="utf-8")
    for encoding in ("utf-16", "idna", "punycode"):
        with pytest.raises(TableError, match=rf"is not {encoding} text .*Leave the encoding out"):
            read_table(tmp_path / "t.csv", encoding=encoding)
    (tmp_path / "t.csv").write_bytes("a,y\nü,0\n".encode("utf-16"))
    with pytest.raises(TableError, match="NUL bytes"):
        read_table(tmp_path / "t.csv", encoding="utf-8")


def test_options_of_text_are_refused_for_other_files(tmp_path):
    FRAME.to_parquet(tmp_path / "t.parquet")
    with pytest.raises(TableError, match="is a parquet file; sep, decimal and encoding are for text"):
        read_table(tmp_path / "t.parquet", sep=";")


def test_random_text_in_any_encoding_is_a_table_or_an_error_of_this_library(tmp_path):
    rng = random.Random(0)
    parts = [
        "a",
        "b,",
        "y;",
        '"',
        "\n",
        "\r\n",
        "\r",
        "1,5",
        "2.5",
        *";\t|,ü€\\ \x1f\x85\u2028",
        "sep=;\n",
        "NA",
        "\ufeff",
    ]
    options = {
        "sep": (";", "tab", ",", " ", "\x00", "é", "'"),
        "decimal": (".", ","),
        "encoding": ("utf-8", "cp1252", "utf-16", "shift_jis", "utf-7", "idna", "unicode_escape"),
    }
    for _ in range(500):
        text = "".join(rng.choice(parts) for _ in range(rng.randint(0, 40)))
        content = text.encode(rng.choice(["utf-8", "utf-8-sig", "cp1252", "utf-16", "utf-16-le", "utf-32"]), "replace")
        path = tmp_path / f"t.{rng.choice(['csv', 'tsv', 'txt'])}"
        path.write_bytes(content if rng.random() < 0.8 else rng.randbytes(50))
        given = {name: rng.choice(values) for name, values in options.items() if rng.random() < 0.3}
        frame, message = FRAME, ""
        try:
            frame = read(path, target="y", **given)[0]
        except MetricfitError as error:
            message = str(error)
        assert len(message) < 900
        assert "\n" not in message
        assert len(frame) > 0
        assert frame.columns.is_unique
