"""The report: one page, complete in itself, of at most 2 MB whatever the file; looked at by a real browser."""

import io
import os
import re
import struct
import tracemalloc
from html.parser import HTMLParser
from pathlib import Path

import ml_dtypes
import numpy as np
import pytest

import tensorbytes as tb
from tensorbytes import frameworks, view
from tensorbytes.errors import CorruptError, UsageError
from tensorbytes.tensor import Ragged
from tensorbytes.view import png
from tests.support import browser
from tests.support.wire_bytes import FIXED32, FIXED64, field, framed, number
from tests.support.wire_bytes import tag as key

MOST_BYTES = 2_000_000
VOID = {"meta", "img", "br", "wbr"}
HOSTILE = [
    "<script>alert(1)</script>",
    '"><img src=x onerror=alert(1)>',
    "a\x1b[2J\x07\u202e",
    "x" * 10_000,
    "deep/" * 300,
]


class Page(HTMLParser):
    """The page as a parser of HTML sees it."""

    def __init__(self, data: bytes) -> None:
        super().__init__()
        self.open: list[str] = []
        self.tags: list[tuple[str, dict]] = []
        self.words: list[str] = []
        self.ids: list[str] = []
        self.sources: list[str] = []
        self.feed(data.decode())
        assert not self.open, self.open

    def handle_starttag(self, tag, attrs):
        self.handle_startendtag(tag, attrs)
        if tag not in VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag, attrs):
        found = dict(attrs)
        self.tags.append((tag, found))
        assert not any(name.startswith("on") for name in found)
        self.sources += [found[name] for name in ("src", "href", "action", "srcset", "data") if name in found]
        if "id" in found:
            self.ids.append(found["id"])

    def handle_endtag(self, tag):
        assert self.open.pop() == tag

    def handle_data(self, data):
        if self.open and self.open[-1] != "style":
            self.words.append(data)

    @property
    def text(self) -> str:
        return "".join(self.words)

    def count(self, tag: str) -> int:
        return sum(one == tag for one, _ in self.tags)


def looked_at(path: Path) -> Page:
    data = path.read_bytes()
    assert len(data) <= MOST_BYTES
    page = Page(data)
    assert not page.count("script")
    assert not page.count("link")
    assert all(source.startswith(("data:image/", "#")) for source in page.sources)
    assert {source[1:] for source in page.sources if source.startswith("#")} <= set(page.ids)
    assert len(page.ids) == len(set(page.ids))
    assert not re.search(r"https?://|url\(|@import", data.decode())
    return page


def reported(source, tmp_path, **options) -> tuple[Page, view.ReportSummary]:
    target = tmp_path / "report.html"
    summary = view.report(source, target, **options)
    assert summary.size == target.stat().st_size
    return looked_at(target), summary


# ---- files that reports are of --------------------------------------------------


def write_checkpoint(path, layers=6, width=48):
    rng = np.random.default_rng(0)
    model = {"embed.weight": rng.normal(0, 0.02, (500, width)).astype(ml_dtypes.bfloat16), "step": np.int64(7)}
    for n in range(layers):
        model[f"layers.{n}.attn.q"] = rng.normal(0, 0.02, (width, width)).astype(ml_dtypes.bfloat16)
        model[f"layers.{n}.mlp.up"] = rng.normal(0, 0.02, (4 * width, width)).astype(np.float16)
        model[f"layers.{n}.norm"] = rng.normal(1, 0.1, width).astype(np.float32)
    model["layers.2.mlp.up"][3, 5], model["layers.2.mlp.up"][100, 5] = np.nan, np.inf
    tb.save(model, path, format="safetensors", meta={"licence": "<Apache>"})
    return path


def picture(number: int, kind: str) -> bytes:
    y, x = np.mgrid[0:24, 0:32]
    pixels = np.stack([x * 8, y * 10, (x * y * (number + 1)) % 256], -1).astype(np.uint8)
    if kind == "PNG":
        return png.encode(pixels)
    out = io.BytesIO()
    pytest.importorskip("PIL.Image").fromarray(pixels).save(out, kind)
    return out.getvalue()


def write_records(path, kinds=("PNG", "JPEG", "GIF", "WEBP", "BMP"), rows=40):
    rng = np.random.default_rng(0)
    with tb.RecordWriter(path) as w:
        for n in range(rows):
            row = {"image": picture(n, kinds[n % len(kinds)]), "label": n % 10, "text": f"row {n} <b>&\n" + "word " * n}
            row |= {
                "tokens": np.arange(n),
                "map": rng.random((12, 12), np.float32),
                "vector": rng.random(64, np.float32),
            }
            w.write(row)
    return path


def write_kinds(path):
    rng = np.random.default_rng(0)
    splits = np.r_[0, np.cumsum(rng.integers(0, 9, 50))]
    values = frameworks.to_value(rng.integers(0, 1000, int(splits[-1])))
    photo = rng.integers(0, 256, (32, 40, 3), np.uint8)
    every = {
        "ragged": Ragged(values, (splits,)),
        "words": np.array(["alpha", "<beta>", "ö"]),
        "photo": photo,
        "batch": np.moveaxis(np.stack([photo] * 3), -1, 1) / np.float32(255),
        "when": np.arange("2024-01-01", "2024-03-01", dtype="M8[D]"),
        "complex": rng.normal(size=(9, 9)) + 1j,
        "flags": rng.random(90) > 0.5,
        "nothing": np.zeros((0, 4)),
        "nan": np.full((4, 4), np.nan),
        "rate": 3e-4,
        "none": None,
    }
    tb.save(every, path, compression="auto")
    return path


def write_events(path):
    def event(step, tag, value):
        summary = field(1, field(1, tag) + key(2, FIXED32) + struct.pack("<f", value))
        return key(1, FIXED64) + struct.pack("<d", 1e9) + number(2, step) + field(5, summary)

    version = key(1, FIXED64) + struct.pack("<d", 1e9) + field(3, "brain.Event:2")
    rows = [event(n, tag, value) for n in range(300) for tag, value in (("loss", 2 / (n + 1)), ("<lr>", float("nan")))]
    path.write_bytes(framed(version, *rows))
    return path


def write_hostile(path):
    obj = {name: np.arange(4.0) for name in HOSTILE}
    obj["text"] = np.array(["</style><script>alert(2)</script>", "\x00" * 50, "A" * 100_000])
    tb.save(obj, path, meta={"<b>": "<script>", "long": "y" * 100_000})
    return path


# ---- tensors --------------------------------------------------------------------


def test_a_checkpoint(tmp_path):
    page, summary = reported(write_checkpoint(tmp_path / "model.safetensors"), tmp_path)
    assert (summary.format, summary.shown, summary.listed) == ("safetensors", 20, 0)
    assert page.count("article") == 20
    assert "layers.2.mlp.up" in page.text
    assert "<Apache>" in page.text
    assert "bfloat16 7 tensors" in page.text
    order = [int(n) for n in re.findall(r"layers\.(\d+)\.norm", page.text)]
    assert order == sorted(order)
    assert all(found["alt"] == "heatmap" for tag, found in page.tags if tag == "img")
    assert "can not be shown" not in page.text
    assert str(summary).startswith(str(tmp_path / "report.html"))
    assert summary.to_dict()["size"] == summary.size


def written(path, model):
    tb.save(model, path, format="safetensors")
    return path


def links(page: Page) -> list[str]:
    return [found["href"] for tag, found in page.tags if tag == "a" and found.get("href", "").startswith("#t")]


def test_a_nan_in_a_small_tensor_is_told_at_the_top(tmp_path):
    model = {f"w{n}": np.full((10, n + 10), n, np.float32) for n in range(193)}
    page, summary = reported(written(tmp_path / "x.safetensors", model), tmp_path)
    assert (summary.shown, summary.listed) == (160, 33)
    assert "There is no NaN and no Inf in it." in page.text
    assert "All of it was looked at." in page.text
    model["bad"] = np.array([np.nan, 1, 2])
    page, summary = reported(written(tmp_path / "x.safetensors", model), tmp_path)
    assert "1 tensor has NaN: bad" in page.text
    assert summary.notes[0] == "1 tensor has NaN: bad"
    assert "Inf:" not in page.text
    assert page.text.index("has NaN") < page.text.index("Overview")
    assert (summary.shown, summary.listed) == (161, 33)
    assert "bad float64 [3] NaN" in page.text


def test_many_with_nan_are_marked_in_the_list(tmp_path):
    model = {f"w{n}": np.full((10, n + 10), n, np.float32) for n in range(160)}
    model |= {f"bad{n:02}": np.array([np.nan, -np.inf], ml_dtypes.bfloat16) for n in range(60)}
    page, summary = reported(written(tmp_path / "x.safetensors", model), tmp_path)
    assert (summary.shown, summary.listed) == (200, 20)
    assert "60 tensors have NaN: bad00, bad01" in page.text
    assert "60 tensors have Inf: bad00" in page.text
    assert "and 48 more" in page.text
    assert "bad59 NaN, Inf" in page.text


def test_what_a_sample_misses_is_found(tmp_path):
    big = np.zeros((1000, 1000), np.float32)
    page, _ = reported(written(tmp_path / "x.safetensors", {"big": big, "c": np.zeros(2, np.complex64)}), tmp_path)
    assert "Figures, histograms and pictures of 1 tensor are of a sample, and say which." in page.text
    assert "NaN:" not in page.text
    big[500, 501] = np.nan
    c = np.array([complex(1, np.inf)], np.complex64)
    page, _ = reported(written(tmp_path / "x.safetensors", {"big": big, "c": c}), tmp_path)
    assert "1 tensor has NaN: big" in page.text
    assert "1 tensor has Inf: c" in page.text
    assert "1 NaN among all elements" in page.text


def test_a_stream_says_where_nan_is_once(tmp_path):
    with tb.open(tmp_path / "x.tb", "w") as w:
        for n in range(300):
            w.write({"loss": np.float32("nan") if n % 100 == 7 else np.float32(n), "x": np.arange(9)})
    _, summary = reported(tmp_path / "x.tb", tmp_path)
    assert summary.notes[0] == "3 tensors have NaN: loss"
    assert summary.shown == 16


def test_what_is_not_searched_is_said(tmp_path, monkeypatch):
    monkeypatch.setattr("tensorbytes.view.scan._ALL_BYTES", 10_000)
    model = {f"w{n}": np.full((50, n + 10), n, np.float32) for n in range(170)} | {"ids": np.arange(90_000)}
    page, _ = reported(written(tmp_path / "x.safetensors", model), tmp_path)
    assert re.search("not searched for NaN and Inf as a whole; of [0-9]+ of them a sample was", page.text)
    assert "no NaN" not in page.text
    assert "All of it" not in page.text


def test_layers_that_are_alike_are_folded(tmp_path):
    page, _ = reported(write_checkpoint(tmp_path / "model.safetensors", layers=12), tmp_path)
    assert "layers.0..11 12 alike, 36 tensors" in page.text
    assert page.text.count("attn.q bfloat16 [48, 48]") == 1
    ups = re.search(r"mlp\.up float16 \[192, 48\] NaN, Inf([0-9 ]+)", page.text)
    assert ups, "the mark is seen on the line that stands for all"
    assert ups[1].startswith(" ".join(str(n) for n in range(12)))
    assert len(links(page)) >= 2 * 38, "every tensor from the tree, and from its own heading"
    one = next(found for tag, found in page.tags if tag == "a" and found.get("class") == "tbv-warn")
    assert f'id="{one["href"][1:]}"><div class="tbv-head"><h3>' in (tmp_path / "report.html").read_text()


def test_damage_in_a_listed_tensor_is_said(tmp_path):
    tb.save({f"w{n}": np.full(2000 + n, n, np.float32) for n in range(170)}, tmp_path / "x.tb")
    data = bytearray((tmp_path / "x.tb").read_bytes())
    data[4000] ^= 1
    (tmp_path / "x.tb").write_bytes(data)
    page, summary = reported(tmp_path / "x.tb", tmp_path)
    assert summary.shown == 161
    assert "can not be shown" in page.text


def test_values_of_every_kind(tmp_path):
    page, summary = reported(write_kinds(tmp_path / "x.tb"), tmp_path)
    assert summary.shown == 11
    assert "can not be shown" not in page.text
    assert '"<beta>"' in page.text
    assert "2024-02-29" in page.text
    assert "the first 3 of" not in page.text
    assert sum(found.get("class") == "tbv-image" for _, found in page.tags) == 4


def test_names_are_text(tmp_path):
    page, summary = reported(write_hostile(tmp_path / "x.tb"), tmp_path)
    assert summary.size < 100_000
    assert HOSTILE[0] in page.text
    assert HOSTILE[1] in page.text
    assert "a\\x1b[2J\\x07\\u202e" in page.text
    assert "(10,000 characters)" in page.text


def test_a_huge_tensor_is_sampled(tmp_path):
    path = tmp_path / "huge.npy"
    header = "{'descr': '<f4', 'fortran_order': False, 'shape': (16384, 16384), }".ljust(117) + "\n"
    with open(path, "wb") as file:
        file.write(b"\x93NUMPY\x01\x00" + struct.pack("<H", 118) + header.encode())
        file.truncate(128 + (1 << 30))
    tracemalloc.start()
    page, summary = reported(path, tmp_path)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert "Sampled: 262,144 of 268,435,456 elements" in page.text
    assert "1.05 MB of 1.07 GB were looked at" in page.text
    assert any("sample" in note for note in summary.notes)
    assert summary.looked == 1 << 20
    assert peak < 100 << 20


def test_many_tensors_fit(tmp_path):
    path = tmp_path / "many.safetensors"
    tb.save({f"b{n // 50}.l{n % 50}": np.full((4, 4), n, np.float32) for n in range(5000)}, path, format="safetensors")
    page, summary = reported(path, tmp_path)
    assert (summary.shown, summary.listed) == (160, 4840)
    assert "4,840 others are listed" in page.text
    assert "b99.l49" in page.text


@pytest.mark.deep
def test_too_many_tensors_are_left_out(tmp_path):
    path = tmp_path / "many.tb"
    tb.save({f"{'long name ' * 8}{n}": np.zeros(2) for n in range(19_000)}, path)
    page, summary = reported(path, tmp_path)
    assert summary.shown + summary.listed < 19_000
    assert "left out for want of room" in page.text


def test_large_pictures_become_smaller(tmp_path):
    rng = np.random.default_rng(0)
    tb.save({f"image{n}": rng.integers(0, 256, (2, 160, 160, 3), np.uint8) for n in range(40)}, tmp_path / "x.tb")
    page, summary = reported(tmp_path / "x.tb", tmp_path)
    assert summary.shown == 40
    assert "smaller than they could be" in page.text
    assert sum(found.get("class") == "tbv-image" for _, found in page.tags) >= 40


def test_damage_is_said_and_the_rest_shown(tmp_path):
    path = tmp_path / "x.tb"
    tb.save({"good": np.arange(1000.0), "bad": np.arange(1000.0) + 1}, path)
    data = bytearray(path.read_bytes())
    data[-500] ^= 1
    path.write_bytes(data)
    page, summary = reported(path, tmp_path)
    assert summary.shown == 2
    assert "can not be shown" in page.text
    assert "checksum" in page.text
    assert "999" in page.text


def test_a_cut_stream_shows_what_is_whole(tmp_path):
    path = tmp_path / "x.tb"
    with tb.open(path, "w") as f:
        for n in range(30):
            f.write({"ids": np.arange(n), "text": f"object {n}"})
    path.write_bytes(path.read_bytes()[:-10])
    page, summary = reported(path, tmp_path)
    assert "Reading stopped after 29 objects" in page.text
    assert summary.troubles
    assert summary.rows == 24
    assert "object 23" in page.text


def test_what_is_no_file_of_tensors_is_refused(tmp_path):
    (tmp_path / "x.html").write_text("<!DOCTYPE html><p>Not found")
    with pytest.raises(UsageError, match="HTML"):
        view.report(tmp_path / "x.html", tmp_path / "report.html")
    assert not (tmp_path / "report.html").exists()
    (tmp_path / "x.npy").write_bytes(b"\x93NUMPY\x01\x00")
    with pytest.raises(CorruptError):
        view.report(tmp_path / "x.npy", tmp_path / "report.html")


def test_a_report_never_replaces_its_file(tmp_path):
    path = write_kinds(tmp_path / "x.tb")
    before = path.read_bytes()
    with pytest.raises(UsageError, match="take the place"):
        view.report(path, path)
    assert path.read_bytes() == before


def test_it_goes_where_it_is_told(tmp_path):
    path = write_kinds(tmp_path / "x.tb")
    out = io.BytesIO()
    assert view.report(path, out).size == len(out.getvalue())
    (tmp_path / "report.html").write_text("old")
    seen = []
    view.report(str(path), tmp_path / "report.html", progress=lambda done, total: seen.append((done, total)))
    looked_at(tmp_path / "report.html")
    assert seen == sorted(seen)
    assert seen[-1][0] == seen[-1][1]
    assert sorted(os.listdir(tmp_path)) == ["report.html", "x.tb"]


# ---- records --------------------------------------------------------------------


def test_records_with_pictures(tmp_path):
    page, summary = reported(write_records(tmp_path / "x.tfrecord"), tmp_path)
    assert (summary.format, summary.shown, summary.rows) == ("tfrecord", 6, 24)
    kinds = [found["alt"] for tag, found in page.tags if tag == "img" and found.get("class") == "tbv-photo"]
    assert sorted(set(kinds)) == ["image/bmp", "image/gif", "image/jpeg", "image/png", "image/webp"]
    assert len(kinds) == 24
    assert "row 23 <b>&\n" in page.text
    assert "The first 24 of 40 rows are shown" in page.text
    assert "0 to 39" in page.text  # lengths of tokens


def test_pictures_that_are_too_large_are_left_out(tmp_path):
    noise = np.random.default_rng(0).integers(0, 256, (200, 200, 3), np.uint8)
    with tb.RecordWriter(tmp_path / "x.tfrecord") as w:
        for _ in range(30):
            w.write({"image": png.encode(noise)})
    page, summary = reported(tmp_path / "x.tfrecord", tmp_path)
    assert "too large to be shown here" in page.text
    assert any("pictures left out" in note for note in summary.notes)


def test_many_features_and_large_texts(tmp_path):
    with tb.RecordWriter(tmp_path / "x.tfrecord") as w:
        for n in range(30):
            w.write({f"feature {k}": ["y" * 5000] * 3 if k % 2 else n for k in range(120)})
    page, summary = reported(tmp_path / "x.tfrecord", tmp_path)
    assert summary.shown == 120
    assert "80 features left out" in page.text


def test_optional_features_say_how_often(tmp_path):
    with tb.RecordWriter(
        tmp_path / "x.tfrecord", schema={"a": "int64", "b": tb.records.Feature("int64", optional=True)}
    ) as w:
        for n in range(10):
            w.write({"a": n} | ({"b": n} if n < 4 else {}))
    page, _ = reported(tmp_path / "x.tfrecord", tmp_path)
    assert "40.0%" in page.text
    assert "absent" in page.text


@pytest.mark.parametrize("suffix", ["parquet", "arrow"])
def test_tables(tmp_path, suffix):
    pyarrow = pytest.importorskip("pyarrow")
    table = pyarrow.table({"id": list(range(3000)), "text": ["<p>"] * 3000, "list": [[1, 2], [3]] * 1500})
    path = tmp_path / f"x.{suffix}"
    if suffix == "parquet":
        pytest.importorskip("pyarrow.parquet").write_table(table, path)
    else:
        with pyarrow.ipc.new_file(path, table.schema) as out:
            out.write_table(table)
    page, summary = reported(path, tmp_path)
    assert (summary.format, summary.shown, summary.rows) == (suffix, 3, 24)
    assert "first 1,000 of 3,000 rows" in page.text
    assert "<p>" in page.text


def test_damaged_records(tmp_path):
    path = write_records(tmp_path / "x.tfrecord", kinds=("PNG",))
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 1
    path.write_bytes(data)
    page, summary = reported(path, tmp_path)
    assert summary.troubles
    assert "checksum" in page.text
    assert summary.rows > 0


def test_several_files_and_other_records(tmp_path):
    paths = [write_records(tmp_path / f"{n}.tfrecord", kinds=("PNG",), rows=5) for n in range(2)]
    page, summary = reported([str(path) for path in paths], tmp_path)
    assert summary.rows == 10
    (tmp_path / "other.tfrecord").write_bytes(
        framed(b"\xff\xfe rather binary \x00\x01\x02", b"plain text", picture(1, "PNG"))
    )
    page, summary = reported(tmp_path / "other.tfrecord", tmp_path)
    assert summary.rows == 3
    assert "plain text" in page.text
    assert page.count("img") == 1


def test_file_objects(tmp_path):
    for path in (write_kinds(tmp_path / "x.tb"), write_records(tmp_path / "x.tfrecord", kinds=("PNG",))):
        out = io.BytesIO()
        summary = view.report(io.BytesIO(path.read_bytes()), out)
        assert summary.shown == view.report(path, io.BytesIO()).shown > 0
        assert Page(out.getvalue()).count("img")


def test_options_of_the_format(tmp_path):
    (tmp_path / "x.bin").write_bytes(np.arange(12, dtype="<f4").tobytes())
    page, _ = reported(tmp_path / "x.bin", tmp_path, format="raw", read_options={"dtype": "float32", "shape": (3, 4)})
    assert "[3, 4]" in page.text


# ---- event files ----------------------------------------------------------------


def test_event_files(tmp_path):
    folder = tmp_path / "run"
    folder.mkdir()
    path = write_events(folder / "events.out.tfevents.1")
    for source in (path, folder):
        page, summary = reported(source, tmp_path)
        assert (summary.format, summary.shown) == ("events", 2)
        assert page.count("svg") == 2
        assert "<lr>" in page.text
        assert "300 not finite" in page.text
        assert "0.006667 to 2" in page.text
    path.write_bytes(path.read_bytes()[:-5])
    assert reported(folder, tmp_path)[1].shown == 2


# ---- a real browser -------------------------------------------------------------


@pytest.fixture(scope="module")
def pages(tmp_path_factory):
    """Reports of every sort, in one folder."""
    folder = tmp_path_factory.mktemp("pages")
    made = {
        "checkpoint": write_checkpoint(folder / "model.safetensors"),
        "records": write_records(folder / "x.tfrecord"),
        "kinds": write_kinds(folder / "kinds.tb"),
        "events": write_events(folder / "events.out.tfevents.1"),
        "hostile": write_hostile(folder / "hostile.tb"),
    }
    with tb.RecordWriter(folder / "wide.tfrecord") as w:
        w.write_batch({f"feature_with_a_long_name_{n}": np.arange(30) for n in range(30)} | {"t": ["word " * 60] * 30})
    made["wide"] = folder / "wide.tfrecord"
    with tb.open(folder / "stream.tb", "w") as f:
        for n in range(40):
            f.write({"ids": np.arange(n), "text": "nobreak" * n, "map": np.ones((n % 5 + 2, 3)) * n})
    made["stream"] = folder / "stream.tb"
    for name, path in made.items():
        view.report(path, folder / f"{name}.html")
    return folder, [f"{name}.html" for name in made]


@pytest.mark.skipif(browser.FOUND is None, reason="no Chromium or Chrome on this machine")
def test_a_browser_shows_it_well(pages):
    folder, names = pages
    found, asked, console = browser.measured(folder, names, [1280, 420])
    assert len(found) == 2 * len(names)
    for one in found:
        where = f"{one['name']} at {one['width']}"
        assert one["scrollWidth"] <= one["clientWidth"], f"{where} scrolls sideways: {one['sticking']}"
        assert one["sticking"] == [], where
        assert one["broken"] == [], where
        assert (one["scripts"], one["links"], one["loaded"], one["pieces"]) == (0, 0, [], 0), where
        assert one["letters"] > 300, where
        assert one["background"] == "rgb(251, 251, 250)"
    images = {one["name"]: one["images"] for one in found}
    assert images["records.html"] >= 48
    assert images["checkpoint.html"] >= 13
    assert console == []
    assert {path.lstrip("/") for path in asked} == {"wrapper.html", *names}


@pytest.mark.skipif(browser.FOUND is None, reason="no Chromium or Chrome on this machine")
def test_it_is_dark_where_that_is_wanted(pages):
    folder, names = pages
    found, _, console = browser.measured(folder, names[:1], [1280], dark=True)
    assert found[0]["background"] == "rgb(21, 23, 26)"
    assert console == []
