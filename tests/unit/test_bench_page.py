"""The page and the picture of `bench`: their numbers, that foreign text stays text, and that nothing is fetched."""

import re
import sys
from dataclasses import replace
from html.parser import HTMLParser

import pytest
from bench_pairs import pair

from dflash_gguf.bench.charts import Bar, Bars, Lines, Series, Stack, Stacks
from dflash_gguf.bench.cost import costs
from dflash_gguf.bench.page import page
from dflash_gguf.bench.plot import check_matplotlib, plot
from dflash_gguf.bench.report import Report, of_settings
from dflash_gguf.bench.summary import setting
from dflash_gguf.bench.svg import chart, number, ticks
from dflash_gguf.errors import DflashError

HOSTILE = '<script>alert("x")</script>&'
VOID = ("meta",)


class Page(HTMLParser):
    """Tables as rows of texts, shapes with their attributes, and whether every tag is closed."""

    def __init__(self, text):
        super().__init__()
        self.open, self.tags, self.tables, self.cells, self.texts = [], [], [], None, []
        self.feed(text)
        self.close()

    def handle_starttag(self, tag, attrs):
        self.tags.append((tag, dict(attrs)))
        if tag not in VOID:
            self.open.append(tag)
        if tag == "table":
            self.tables.append([])
        if tag == "tr":
            self.tables[-1].append([])

    def handle_startendtag(self, tag, attrs):
        self.tags.append((tag, dict(attrs)))

    def handle_endtag(self, tag):
        assert self.open.pop() == tag

    def handle_data(self, data):
        if self.open and self.open[-1] in ("td", "th"):
            self.tables[-1][-1].append(data)
        if self.open and self.open[-1] != "style":
            self.texts.append(data)

    def shapes(self, tag, name):
        return [attrs for found, attrs in self.tags if found == tag and attrs.get("class") == name]


def report(kind="prose", settings=1):
    pairs = [pair("code", i, drafted_ms=500.0) for i in range(3)] + [pair(kind, 3, drafted_ms=2000.0, same=False)]
    found = [setting(None, pairs), *(setting(n, pairs) for n in range(1, settings))]
    return of_settings(found, found[0], {"target": HOSTILE}, {"code": costs(pairs, 2.0), "none": None})


def test_the_numbers_on_the_page_are_those_of_the_summary():
    found = Page(page(report()))
    assert found.open == []
    speeds, rates, shares, cost = found.tables
    assert speeds[0][:4] == ["kind", "requests", "tokens", "plain t/s"]
    interval = "2.00 to 2.00"
    assert speeds[1] == ["code", "3", "303", "100.0", "200.0", "2.00", interval, interval, "2.00", "60, 70", "yes"]
    assert speeds[2][:6] == ["prose", "1", "101", "100.0", "50.0", "0.50"]
    assert speeds[2][-1] == "0 of 1"
    assert rates == [
        ["kind", "1", "2", "accepted"],
        ["code", "0.80", "0.20", "150 of 300"],
        ["prose", "0.80", "0.20", "50 of 100"],
        ["all", "0.80", "0.20", "200 of 400"],
    ]
    assert shares[1] == ["code", "25.0%", "50.0%", "5.0%", "10.0%", "10.0%"]
    assert [row[0] for row in cost] == ["kind", "code"]


def test_the_bars_are_as_long_as_their_values():
    found = Page(page(report()))
    (good,), bad = found.shapes("rect", "good"), found.shapes("rect", "bad")
    assert float(good["width"]) / float(bad[0]["width"]) == pytest.approx(2.0 / 0.5, rel=0.01)
    stacks = [float(found.shapes("rect", f"c{i}")[0]["width"]) for i in range(5)]
    assert [round(width / sum(stacks), 2) for width in stacks] == [0.25, 0.5, 0.05, 0.1, 0.1]


def test_foreign_text_stays_text_and_nothing_is_fetched():
    text = page(report(kind=HOSTILE, settings=3))
    found = Page(text)
    assert found.open == []
    assert "script" not in [tag for tag, _ in found.tags]
    assert HOSTILE in "".join(found.texts)
    assert not re.search(r"https?:|url\(|@import|\bsrc=|\bhref=", text)
    assert "prefers-color-scheme: dark" in text


def test_lines_have_gaps_where_there_is_no_value():
    drawn = chart(
        Lines("t", "n", ("1", "2", "3", "4"), (Series("a", (0.5, None, 1.0, 0.5)), Series("b", (None,) * 4)), top=1.0)
    )
    found = Page(drawn)
    assert len(found.shapes("circle", "c0")) == 3
    (line,) = found.shapes("polyline", "s0")
    assert len(line["points"].split()) == 2
    assert found.shapes("polyline", "s1") == []
    empty = Page(chart(Lines("t", "n", (), ())))
    assert empty.open == []


@pytest.mark.parametrize("top", [0.0, 0.003, 0.97, 1.0, 2.43, 7.0, 123.0, 99999.0])
def test_ticks_are_few_round_and_reach_the_top(top):
    found = ticks(top)
    assert found[0] == 0
    assert found[-1] >= top - 1e-6
    assert 2 <= len(found) <= 8
    assert found[-2] < top or top == 0


def test_numbers_are_short():
    assert [number(v) for v in (0.0, 0.001234, 0.5, 2.0, 12.345, 123.4)] == [
        "0.00",
        "0.0012",
        "0.50",
        "2.00",
        "12.3",
        "123",
    ]


CHARTS = (
    Bars("a $ sign", "note", (Bar("_x", 1.5, 1.0, 2.0), Bar("$y$", 0.5, 0.4, 0.6, "bad")), reference=1.0),
    Lines(
        "b",
        "note",
        ("auto", "1"),
        (Series("_hidden", (1.0, None)), Series("all", (0.5, 0.6), whole=True)),
        reference=1.0,
    ),
    Stacks("c", "note", ("p", "q"), (Stack("x", (0.3, 0.7)),)),
)


@pytest.mark.parametrize(("name", "begin"), [("a.png", b"\x89PNG"), ("a.svg", b"<?xml"), ("a.PDF", b"%PDF")])
def test_a_picture_is_what_its_name_says(tmp_path, name, begin):
    facts = {"target": "x_$y$.gguf", "machine": "a long name " * 20}
    report = Report("a $title", facts, (), (), CHARTS)
    plot(report, tmp_path / name, force=False)
    assert (tmp_path / name).read_bytes().startswith(begin)
    with pytest.raises(DflashError, match="exists already"):
        plot(report, tmp_path / name, force=False)
    plot(replace(report, charts=CHARTS[:1]), tmp_path / name, force=True)
    assert [path.name for path in tmp_path.iterdir()] == [name]


def test_without_matplotlib_the_extra_is_named(monkeypatch):
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    monkeypatch.delitem(sys.modules, "matplotlib.figure", raising=False)
    with pytest.raises(DflashError, match=r"a plot needs matplotlib; install it: pip install 'dflash-gguf\[plot\]'"):
        check_matplotlib()
    assert "matplotlib.pyplot" not in sys.modules
