"""What notebooks show: sound, small, script-free HTML with the right figures, whatever the values are."""

import io
import re
import struct
import subprocess
import sys
import warnings
import zlib
from xml.etree import ElementTree

import numpy as np
import pytest

import tensorbytes as tb
from tensorbytes import dtypes, frameworks
from tensorbytes.reader import Entry
from tensorbytes.tensor import Ragged, Sparse, Strings, Tensor
from tensorbytes.tree import Leaf
from tensorbytes.view import html_of, png, svg, words

MOST_BYTES = 30_000
MOST_WITH_PHOTOS = 330_000  # rows of records may hold pictures, which are embedded


def parsed(made: str) -> ElementTree.Element:
    """The fragment as XML: every tag closed, every attribute quoted, nothing let through."""
    assert len(made.encode()) <= (MOST_WITH_PHOTOS if 'class="tbv-photo"' in made else MOST_BYTES)
    lowered = made.lower()
    assert "<script" not in lowered
    assert not re.search(r"\son\w+=", re.sub(r">[^<]*<", "><", lowered)), "an event handler"
    assert "http:" not in lowered
    assert "https:" not in lowered
    tree = ElementTree.fromstring(made)
    for node in tree.iter():
        assert node.tag in TAGS, node.tag
        for key, text in node.attrib.items():
            assert key != "href"
            assert key != "src" or text.startswith("data:image/"), text[:40]
    return tree


TAGS = {
    *("div", "style", "span", "p", "dl", "dt", "dd", "code", "br", "wbr", "i", "b"),
    *("figure", "figcaption", "svg", "path", "img", "table", "thead", "tbody", "tr", "th", "td"),
}


def text_of(value) -> str:
    """What is read, without the style sheet."""
    tree = parsed(value._repr_html_() if hasattr(value, "_repr_html_") else html_of(value))
    return " ".join("".join(node.itertext()) for node in tree if node.tag != "style")


def facts_of(value) -> dict[str, str]:
    tree = parsed(html_of(value))
    return {pair.find("dt").text: "".join(pair.find("dd").itertext()) for pair in tree.iterfind(".//dl/div")}


# ---- tensors --------------------------------------------------------------------


def test_a_tensor_has_its_figures_a_histogram_and_its_first_elements():
    value = tb.loads(tb.dumps(np.array([[0.5, -2], [4, np.nan]], np.float32)), to="tensor")
    assert facts_of(value) == {"min": "-2", "max": "4", "mean": "0.8333", "std": "2.461", "NaN": "1"}
    shown = text_of(value)
    assert "float32 · [2, 2] · 16 B" in shown
    assert "0.5, -2, 4, nan" in shown
    assert parsed(html_of(value)).find(".//svg") is not None


@pytest.mark.parametrize("name", sorted(dtypes.DTYPES))
@pytest.mark.parametrize("shape", [(), (0,), (7,), (3, 4), (2, 9, 12, 3)], ids=str)
def test_every_dtype(name, shape):
    row = dtypes.get(name)
    size = dtypes.nbytes(row, shape)
    bits = np.random.default_rng(1).integers(0, 2 if name == "bool" else 1 << min(row.bits, 8), size, np.uint8)
    origin = {"numpy.dtype": f"<{'M' if name[0] == 'd' else 'm'}8[s]"} if name.endswith(("time64", "delta64")) else {}
    value = Tensor(name, shape, bits, "a", origin=origin)
    shown = text_of(value)
    assert "can't be shown" not in shown
    assert name in shown


@pytest.mark.parametrize(
    ("array", "expected"),
    [
        (np.array([3 + 4j, 0]), "min |x| 0, max |x| 5, mean 2.5, std 2.5, zeros 50.0%"),
        (np.array([True, False, True, True]), "min 0, max 1, mean 0.75, std 0.433, zeros 25.0%"),
        (np.array(["2024-01-01", "2024-03-01", "NaT"], "M8[D]"), "min 2024-01-01, max 2024-03-01, NaT 1"),
        (np.full(3, np.nan), "NaN 3"),
        (np.array([np.inf, -np.inf, 1, 1]), "min 1, max 1, mean 1, std 0, +Inf 1, -Inf 1"),
        (np.zeros((0, 3)), "elements none"),
        (np.array([2**63 - 1, -(2**63)]), "min -9.223e+18, max 9.223e+18, mean -0.5, std 9.223e+18"),
    ],
    ids=["complex", "bool", "dates", "nan", "infinities", "empty", "extremes"],
)
def test_figures(array, expected):
    assert ", ".join(map(" ".join, facts_of(frameworks.to_value(array)).items())) == expected


def test_a_single_number_is_itself():
    value = frameworks.to_value(np.float32(7.25))
    assert facts_of(value) == {}
    assert "7.25" in text_of(value)


def test_a_large_tensor_is_sampled_and_says_so():
    big = np.zeros(10_000_000, np.float32)
    big[::97] = 1
    shown = text_of(frameworks.to_value(big))
    assert "65,536 of 10,000,000 elements" in shown


def test_a_mapped_file_is_hardly_read(tmp_path):
    """A gigabyte that takes no room on the disk: only its sampled pages are ever there."""
    path = tmp_path / "huge.npy"
    header = "{'descr': '<f4', 'fortran_order': False, 'shape': (16384, 16384), }".ljust(117) + "\n"
    with open(path, "wb") as file:
        file.write(b"\x93NUMPY\x01\x00" + struct.pack("<H", 118) + header.encode())
        file.truncate(128 + (1 << 30))
    code = (
        "import resource, sys, tensorbytes as tb\n"
        "import tensorbytes.view.fragments\n"
        "before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss\n"
        "made = tb.open(sys.argv[1]).entries()[0]._repr_html_()\n"
        "assert '268,435,456 elements' in made, made\n"
        "print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before)\n"
    )
    grown = subprocess.run([sys.executable, "-c", code, path], capture_output=True, text=True, check=True).stdout
    unit = 1 if sys.platform == "darwin" else 1024
    assert int(grown) * unit < 200 << 20


def test_pictures_are_real_ones():
    image = pytest.importorskip("PIL.Image")
    rng = np.random.default_rng(0)
    for channels in (1, 2, 3, 4):
        pixels = rng.integers(0, 256, (9, 5, channels), np.uint8)
        got = np.asarray(image.open(io.BytesIO(png.encode(pixels))))
        assert np.array_equal(got.reshape(9, 5, channels), pixels)
    value = frameworks.to_value(np.stack([np.full((16, 16, 3), n, np.uint8) for n in (10, 200)]))
    found = [node.get("src") for node in parsed(html_of(value)).iterfind(".//img")]
    shown = [np.asarray(image.open(io.BytesIO(_payload(uri)))) for uri in found]
    assert [one.shape for one in shown] == [(16, 16, 3)] * 2
    assert [int(one[0, 0, 0]) for one in shown] == [10, 200]


def _payload(uri: str) -> bytes:
    import base64

    return base64.b64decode(uri.partition(",")[2])


def test_a_heatmap_shows_blocks_and_marks_what_is_no_number():
    image = pytest.importorskip("PIL.Image")
    array = np.zeros((256, 256), np.float32)
    array[:, 128:] = 1
    array[:16, :16] = -1
    array[200, 10], array[10, 200] = np.nan, np.inf
    tree = parsed(html_of(frameworks.to_value(array)))
    pixels = np.asarray(image.open(io.BytesIO(_payload(tree.find(".//img").get("src")))).convert("RGBA"))
    assert pixels.shape[:2] == (64, 64)
    assert pixels[30, 10, 3] == 0  # zero is the page itself
    assert pixels[30, 50, :3].tolist() == [217, 83, 25]
    assert pixels[1, 1, :3].tolist() == [37, 99, 235]
    assert pixels[50, 2, :3].tolist() == [219, 39, 169]
    assert pixels[2, 50, :3].tolist() == [202, 178, 0]
    caption = "".join(tree.findall(".//figcaption")[-1].itertext())
    assert "4 × 4" in caption  # noqa: RUF001
    assert "NaN" in caption


def test_other_frameworks_values_are_shown_when_asked():
    torch = pytest.importorskip("torch")
    assert facts_of(torch.arange(4.0))["max"] == "3"
    assert not hasattr(torch.Tensor, "_repr_html_")


# ---- strings, ragged, sparse ----------------------------------------------------


def test_strings_are_quoted_escaped_and_cut():
    items = [
        "<script>alert(1)</script>",
        "a\x00b\x1b[31m",
        "\u202eright",
        "x" * 100_000,
        'q"&',
        "",
        "seventh",
        "eighth",
    ]
    shown = text_of(Strings.from_items(items, (8,), "utf-8"))
    assert '"<script>alert(1)</script>"' in shown
    assert '"a\\x00b\\x1b[31m"' in shown
    assert "\\u202eright" in shown
    assert "(100 kB)" in shown
    assert "and 2 more" in shown
    assert facts_of(Strings.from_items(items, (8,), "utf-8"))["distinct"] == "8"


def test_one_string_or_row_may_be_huge():
    huge = Strings((1,), np.array([0, 50_000_000]), bytes(50_000_000))
    assert "50 MB" in text_of(huge)
    value = Ragged(frameworks.to_value(np.zeros(20_000_000, np.uint8)), (np.array([0, 20_000_000]),))
    assert "20000000" in text_of(value)


def test_filters_are_laid_out_as_a_matrix():
    tree = parsed(html_of(frameworks.to_value(np.random.default_rng(0).normal(size=(32, 3, 3, 3)))))
    assert "as [32, 27]" in "".join(tree.findall(".//figcaption")[-1].itertext())
    column = parsed(html_of(frameworks.to_value(np.arange(100.0).reshape(100, 1))))
    assert column.find(".//img") is None


def test_bytes_that_are_no_text():
    shown = text_of(Strings.from_items([b"\xff\x00\xfe", b"fine"], (2,), "bytes"))
    assert "\\xff\\x00\\xfe" in shown
    assert "bytes · [2]" in shown


def test_ragged_has_its_row_lengths():
    values = frameworks.to_value(np.arange(6))
    value = Ragged(values, (np.array([0, 3, 3, 6]),))
    assert facts_of(value)["row length"] == "0 to 3"
    shown = text_of(value)
    assert "ragged int64 · [3, ?]" in shown
    assert "[0, 1, 2]" in shown
    deep = Ragged(values, (np.array([0, 2]), np.array([0, 2, 6])))
    assert "[[0, 1], [2, 3, 4, 5]]" in text_of(deep)
    shaped = Ragged(values, (np.array([0, 2, 6]),), np.array([[1, 2], [2, 2]]))
    assert "[2, ?, ?]" in text_of(shaped)
    assert "can't" not in text_of(Ragged(Strings.from_items(["a", "b"], (2,), "utf-8"), (np.array([0, 2, 2]),)))
    assert "can't" not in text_of(Ragged(frameworks.to_value(np.arange(0)), (np.array([0]),)))


@pytest.mark.parametrize("layout", ["coo", "csr", "csc", "bsr", "dia"])
def test_sparse_shows_its_density_and_places(layout):
    scipy = pytest.importorskip("scipy.sparse")
    matrix = scipy.eye(100).asformat(layout)
    value = frameworks.to_value(matrix)
    facts = facts_of(value)
    assert facts["max"] == "1"
    assert facts["density"].endswith("%")
    tree = parsed(html_of(value))
    picture = tree.find(".//img")
    assert picture is not None
    image = pytest.importorskip("PIL.Image")
    pixels = np.asarray(image.open(io.BytesIO(_payload(picture.get("src")))).convert("RGBA"))
    assert (pixels[..., 3].diagonal() > 0).all()
    assert not pixels[0, -1, 3]


def test_sparse_of_other_ranks():
    one = Sparse("coo", (10,), (np.array([[3]]),), frameworks.to_value(np.ones(1)))
    none = Sparse("coo", (4, 4), (np.zeros((0, 2), np.int64),), frameworks.to_value(np.ones(0)))
    text = Sparse("coo", (4, 4), (np.array([[1, 2]]),), Strings.from_items(["a"], (1,), "utf-8"))
    three = Sparse("coo", (2, 4, 4), (np.array([[1, 1, 2]]),), frameworks.to_value(np.ones(1)))
    for value in (one, none, text, three):
        assert "can't" not in text_of(value)


def test_large_pictures_and_texts_stay_small():
    noise = np.random.default_rng(0).integers(0, 256, (8, 300, 300, 3), np.uint8)
    tree = parsed(html_of(frameworks.to_value(noise)))
    assert tree.find(".//img[@class='tbv-image']") is not None
    parsed(html_of(frameworks.to_value(np.random.default_rng(0).normal(size=(300, 300)))))
    parsed(html_of(Strings.from_items(['&"\x00<' * 10_000] * 50, (50,), "utf-8")))
    parsed(html_of(Ragged(Strings.from_items(['"' * 10_000] * 50, (50,), "utf-8"), (np.arange(0, 51, 5),))))


# ---- names ----------------------------------------------------------------------

HOSTILE = [
    "<script>alert(1)</script>",
    '"><img src=x onerror=alert(1)>',
    "a\x1b[2J\x07",
    "x" * 10_000,
    "\ud800",
    "]]>&amp;",
]


@pytest.mark.parametrize("name", HOSTILE, ids=range(len(HOSTILE)))
def test_names_and_metadata_are_text(name):
    value = tb.Tensor("float32", (2,), np.ones(2, "<f4"), name, {name: name})
    tree = parsed(html_of(value))
    shown = "".join(tree.find(".//span[@class='tbv-name']").itertext())
    assert shown.startswith(words.visible(name)[:20])
    assert len(shown) < 200


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("plain ö 漢", "plain ö 漢"),
        ("\n\t", "\\n\\t"),
        ("\x00", "\\x00"),
        ("\u2028", "\\u2028"),
        ("\U000e0001", "\\U000e0001"),
    ],
)
def test_what_does_not_show_is_spelled(text, shown):
    assert words.visible(text) == shown


def test_numbers_in_words():
    assert [words.figure(x) for x in (0, 1234567, 0.0, -2.0, 0.123456, 15070.6, 1e-9, 1e30, float("nan"))] == [
        "0", "1,234,567", "0", "-2", "0.1235", "15,071", "1e-09", "1e+30", "nan",
    ]  # fmt: skip
    assert words.shape(()) == "scalar"
    assert words.shape((3, None)) == "[3, ?]"
    assert words.amount(1_500_000) == "1.5 MB"
    assert words.share(999_999, 1_000_000) == "99.9%"
    assert words.share(1, 1_000_000) == "&lt; 0.1%"


# ---- drawings -------------------------------------------------------------------


def test_a_curve_leaves_gaps_and_stays_small():
    xs = np.arange(100_000, dtype=np.float64)
    ys = np.sin(xs / 1000)
    ys[50_000:50_010] = np.nan
    made = svg.curve(xs, ys, "a <label>")
    tree = ElementTree.fromstring(made)
    assert tree.get("aria-label") == "a <label>"
    line = tree.find("path[@class='tbv-line']").get("d")
    assert line.count("M") == 2
    assert len(made) < 8_000
    for odd in ([], [1.0], [np.nan], [np.inf, 1.0], [-1.7e308, 1.7e308]):
        ElementTree.fromstring(svg.curve(np.arange(len(odd), dtype=np.float64), np.array(odd), ""))


def test_the_rarest_bin_is_seen():
    tree = ElementTree.fromstring(svg.histogram([-1, 0, 1], [1, 10**9], "x"))
    assert "M3 100v-2h3v2z" in tree.find("path[@class='tbv-bars']").get("d")
    assert tree.find("path[@class='tbv-zero']").get("d").startswith("M10.0 ")


# ---- files and results ----------------------------------------------------------


@pytest.fixture
def model(tmp_path):
    path = tmp_path / "model.tb"
    obj = {"w": np.arange(100_000, dtype=np.float32).reshape(250, 400), "b": np.zeros(3), "t": ["a", "<b>"]}
    tb.save(obj, path, meta={"epoch": "3"}, compression="zstd")
    return path


def test_inspection_is_a_table_with_bars(model):
    tree = parsed(html_of(tb.inspect(model)))
    rows = [["".join(cell.itertext()) for cell in row] for row in tree.iterfind(".//tbody/tr")]
    assert [row[0] for row in rows] == ["w", "b", "t"]
    assert rows[0][1:4] == ["float32", "[250, 400]", "400 kB"]
    assert tree.find(".//tbody/tr/td/span/b").get("style") == "width:100.0%"
    assert "epoch: 3" in text_of(tb.inspect(model))


def table_of(value) -> list[list[str]]:
    tree = parsed(value._repr_html_())
    return [["".join(cell.itertext()) for cell in row] for row in tree.iterfind(".//tbody/tr")]


def test_many_tensors_stay_small(tmp_path):
    tb.save({f"layer{n}.{'x' * 200}": np.zeros(n % 2) for n in range(500)}, tmp_path / "many.tb")
    assert "and 440 tensors more" in text_of(tb.inspect(tmp_path / "many.tb"))


def test_layers_that_are_alike_are_one_line(tmp_path):
    model = {"embed": np.zeros(9)}
    model |= {f"layers.{n}.{part}": np.zeros((2, 3), np.float32) for n in range(12) for part in ("a", "b")}
    tb.save(model, tmp_path / "x.safetensors")
    rows = table_of(tb.inspect(tmp_path / "x.safetensors"))
    found = {row[0]: row[1:5] for row in rows}
    assert found == {
        "embed": ["", "float64", "[9]", "72 B"],
        "layers.0..11.a": ["12", "float32", "[2, 3]", "288 B"],
        "layers.0..11.b": ["12", "float32", "[2, 3]", "288 B"],
    }
    tb.save({f"h{n}": np.zeros(n + 1) for n in range(12)} | {"last": np.zeros(1)}, tmp_path / "x.safetensors")
    rows = table_of(tb.inspect(tmp_path / "x.safetensors"))
    assert [row[0] for row in rows] == [*(f"h{n}" for n in range(12)), "last"], "2 comes before 10"


def test_hostile_names_stay_small(tmp_path):
    a, b = {f"{'<' * 99}{n}": np.zeros(2) for n in range(300)}, {f"{'>' * 99}{n}": np.ones(2) for n in range(300)}
    tb.save(a, tmp_path / "a.tb", meta={f"{'&' * 80}{n}": "&" * 900 for n in range(30)})
    tb.save({name: value + 1 for name, value in a.items()} | b, tmp_path / "b.tb")
    parsed(html_of(tb.inspect(tmp_path / "a.tb")))
    parsed(html_of(tb.diff(tmp_path / "a.tb", tmp_path / "b.tb")))
    with tb.RecordWriter(tmp_path / "x.tfrecord") as w:
        w.write_batch({f"{'<' * 99}{n}": ['"' * 5000] * 8 for n in range(70)})
    parsed(html_of(tb.open_records(tmp_path / "x.tfrecord")))
    parsed(html_of(tb.inspect(tmp_path / "x.tfrecord")))


def test_an_entry_reads_what_it_shows(model):
    with tb.open(model) as f:
        assert facts_of(f["w"])["max"] == "99,999"
        assert "zstd" in text_of(f["w"])


def test_an_open_file_lists_its_entries(tmp_path):
    tb.save({f"w{n}": np.zeros((n + 1, 2), np.float32) for n in range(70)}, tmp_path / "x.safetensors")
    with tb.open(tmp_path / "x.safetensors") as f:
        assert repr(f).endswith("format safetensors, 'w0', 'w1', 'w10', 'w11', 'w12' and 65 more>")
        rows = table_of(f)
        assert len(rows) == 50
        assert rows[0] == ["w0", "float32", "[1, 2]", "8 B"]
        assert "70 entries" in text_of(f)
        assert "and 20 more" in text_of(f)
    assert repr(f).endswith("closed>")
    text_of(f)


def test_an_open_stream_is_not_read_through(tmp_path):
    path = tmp_path / "x.tb"
    with tb.open(path, "w") as w:
        for n in range(5000):
            w.write({"id": n, "x": np.zeros(3)})
    path.write_bytes(path.read_bytes()[:-10])  # whoever reads all of it gets an error
    f = tb.open(path)
    assert "a stream, first, 'id', 'x'>" in repr(f)
    assert [row[0] for row in table_of(f)] == ["id", "x"]
    with pytest.raises(tb.errors.CorruptError):
        len(f)
    assert "a stream" in repr(f)


def test_what_takes_a_look_is_not_listed_before(tmp_path):
    pytest.importorskip("pyarrow.parquet")
    tb.save({"a": np.zeros(3)}, tmp_path / "x.parquet")
    f = tb.open(tmp_path / "x.parquet")
    assert repr(f).endswith("format parquet>")
    assert ".keys()" in text_of(f)
    f.keys()
    assert repr(f).endswith("format parquet, 'a'>")
    assert table_of(f)[0][0] == "a"


def test_results_that_say_what_they_are(tmp_path):
    assert "float32[64] as int8" in text_of(tb.quantize(np.linspace(-1, 1, 64, dtype=np.float32), "int8"))
    path = tmp_path / "<x>.tfrecord"
    with tb.RecordWriter(path) as w:
        for n in range(9):
            w.write({"a": n})
    assert "9 records" in text_of(tb.verify(path))
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 1
    path.write_bytes(data)
    assert "disagree" in text_of(tb.verify(path))


def test_damage_is_said_not_raised(model):
    data = bytearray(model.read_bytes())
    data[len(data) // 2] ^= 1
    model.write_bytes(data)
    with tb.open(model) as f:
        shown = text_of(f["w"])
    assert "can't be shown" in shown
    assert "checksum" in shown


def test_whatever_fails_is_said(tmp_path):
    def broken():
        raise OSError("the disk is <gone>")

    leaf = Leaf(tb.Tensor("float32", (1,), np.ones(1, "<f4")), check=broken)
    assert "OSError: the disk is <gone>" in text_of(Entry(leaf, lambda value: value, "x"))
    assert "can't be shown" in text_of(object())


def test_difference(tmp_path):
    a, b = tmp_path / "a.tb", tmp_path / "b.tb"
    tb.save({"same": np.ones(2), "near": np.ones(4), "shape": np.ones(3), "<gone>": np.ones(1)}, a, meta={"k": "1"})
    tb.save({"same": np.ones(2), "near": np.array([1, 1, 1, 1.5]), "shape": np.ones(4)}, b, meta={"k": "2"})
    found = tb.diff(a, b)
    shown = text_of(found)
    assert "2 of 3 common tensors differ" in shown
    assert "only in" in shown
    assert "<gone>" in shown
    rows = [["".join(cell.itertext()) for cell in row] for row in parsed(html_of(found)).iterfind(".//tbody/tr")]
    assert ["near", "float64", "[4]", "1 of 4", "0.5", "0.3333", ""] in rows
    assert "identical" in text_of(tb.diff(a, a))


def test_statistics_and_conversion(model, tmp_path):
    figures = tb.stats(model)
    assert facts_of(figures["w"])["max"] == "99,999"
    assert '"<b>"' in text_of(figures["t"])
    report = tb.convert(model, tmp_path / "x.npz")
    assert "nothing lost" in text_of(report)
    lossy = tb.convert(model, tmp_path / "x.safetensors", allow="all")
    assert ("what is lost" in text_of(lossy)) != lossy.lossless


def test_bench():
    from tensorbytes.ops.benching.result import Bench, BenchRow

    row = BenchRow("tb", None, "us", 100, 0.5, 1.0, 1.0, 1.0, 2.0, lossless=True, rounds=1)
    made = text_of(Bench("balanced", "<x>", "1 tensor", 200, 200, [row]))
    assert "<x>" in made
    assert "50.0%" in made


# ---- records --------------------------------------------------------------------


@pytest.fixture
def records(tmp_path):
    path = tmp_path / "x.tfrecord"
    picture = png.encode(np.arange(48, dtype=np.uint8).reshape(4, 4, 3))
    with tb.RecordWriter(path) as w:
        for n in range(20):
            row = {
                "id": n,
                "text": f"<row {n}>",
                "image": picture,
                "ids": np.arange(n),
                "m": np.eye(9, dtype=np.float32),
            }
            w.write(row)
    return path


def test_records_show_schema_and_first_rows(records):
    tree = parsed(html_of(tb.open_records(records)))
    shown = text_of(tb.open_records(records))
    assert "5 features" in shown
    assert "<row 4>" in shown
    assert "<row 5>" not in shown
    pictures = [node.get("src") for node in tree.iterfind(".//img[@class='tbv-photo']")]
    assert len(pictures) == 5
    assert all(zlib.crc32(_payload(uri)) == zlib.crc32(_payload(pictures[0])) for uri in pictures)
    batch = next(tb.open_records(records).batches(3))
    assert "<row 2>" in text_of(batch)
    assert "in records" in text_of(tb.inspect(records))


def photos_of(path) -> list[int]:
    found = parsed(html_of(tb.open_records(path))).iterfind(".//img[@class='tbv-photo']")
    return [len(_payload(node.get("src"))) for node in found]


def test_photographs_of_records_are_shown_the_smaller_first(tmp_path):
    rng = np.random.default_rng(0)
    sizes = (64, 210, 150, 60, 200)
    made = [png.encode(rng.integers(0, 256, (side, side, 3), np.uint8)) for side in sizes]
    assert [len(data) > 10_000 for data in made] == [True] * 5
    with tb.RecordWriter(tmp_path / "x.tfrecord") as w:
        for data in made:
            w.write({"image": data, "map": np.eye(9, dtype=np.float32)})
    assert photos_of(tmp_path / "x.tfrecord") == [len(data) for data in (made[0], *made[2:])]
    shown = text_of(tb.open_records(tmp_path / "x.tfrecord"))
    assert f"PNG, {words.amount(len(made[1]))}: too large" in shown
    with tb.RecordWriter(tmp_path / "same.tfrecord") as w:
        for _ in range(5):
            w.write({"image": made[2]})
    assert photos_of(tmp_path / "same.tfrecord") == [len(made[2])] * 3


def test_showing_records_changes_nothing(records):
    data = bytearray(records.read_bytes())
    data[-20] ^= 1
    records.write_bytes(data)
    opened = tb.open_records(records, on_corrupt="skip")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        kept = len(list(opened))
    damages = list(opened.damages)
    assert damages
    text_of(opened)
    assert opened.damages == damages
    stream = io.BytesIO(records.read_bytes())
    from_stream = tb.open_records(stream, schema=opened.schema, on_corrupt="skip")
    assert "Nothing was read" in text_of(from_stream)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        assert len(list(from_stream)) == kept


def test_records_that_are_damaged_are_shown_all_the_same(records):
    records.write_bytes(b"\xff" * 100)
    assert "can't be shown" in text_of(tb.open_records(records, schema={"id": "int64"}))


# ---- the import -----------------------------------------------------------------


def test_importing_loads_no_viewer():
    code = "import sys, tensorbytes; print([name for name in sys.modules if name.startswith('tensorbytes.view')])"
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout == "[]\n"


def test_values_have_no_room_for_more():
    assert not hasattr(tb.Tensor("bool", (1,), b"\1"), "__dict__")
