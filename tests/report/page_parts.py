"""A rendered page taken apart by Python's own HTML parser, and the numbers it carries."""

import base64
import json
from html.parser import HTMLParser
from types import SimpleNamespace

import numpy as np


class _Parts(HTMLParser):
    def __init__(self):
        super().__init__()
        self.tags, self.scripts, self.text = [], [], []
        self._script = False

    def handle_starttag(self, tag, attrs):
        self.tags.append((tag, dict(attrs)))
        self._script = tag == "script"
        if self._script:
            self.scripts.append("")

    def handle_endtag(self, tag):
        self._script = self._script and tag != "script"

    def handle_data(self, data):
        if self._script:
            self.scripts[-1] += data
        else:
            self.text.append(data)


def parts(html):
    """Tags with attributes, texts, and scripts."""
    parser = _Parts()
    parser.feed(html)
    parser.close()
    return parser


def doubles(text):
    return np.frombuffer(base64.b64decode(text), dtype="<f8")


def decoded(data):
    """What an explorer's script looks up, from the text it is carried in."""
    return SimpleNamespace(
        thresholds=doubles(data["thresholds"]),
        counts={name: doubles(text) for name, text in data["counts"].items()},
        metrics={name: doubles(text) for name, text in data["metrics"].items()},
        met=data["met"],
        labels=data["labels"],
        chosen=data["chosen"],
        complete=data["complete"],
    )


def carried(html):
    """The data of each explorer of a page."""
    found = parts(html)
    kinds = [given for tag, given in found.tags if tag == "script"]
    return [json.loads(text) for given, text in zip(kinds, found.scripts, strict=True) if given.get("class") == "stops"]


def stop_for(thresholds, t):
    """The stop the page's script goes to: the smallest threshold that is at least t, by a plain search."""
    return next(number for number, given in enumerate(thresholds) if given >= t)
