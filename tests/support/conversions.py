"""Convert one file between all pairs of formats, and write docs/conversions.md.

    python -m tests.support.conversions docs/conversions.md

The file holds a tensor of every dtype, scalars, empty ones, text, bytes, ragged and sparse
values, a nested dict, Python values and metadata. Each cell is a conversion whose target is
read again: every tensor is there bit for bit, or the report names it.
"""

import sys
import tempfile
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

import tensorbytes as tb
from tensorbytes import dtypes, formats, opening
from tensorbytes.ops.targets import column_name
from tensorbytes.rows import Column
from tensorbytes.tensor import Ragged, Sparse, Strings, Tensor, amended, identical
from tensorbytes.testing import bits
from tensorbytes.tree import Leaf

# Formats for reading alone are sources only, through files of their own libraries: see their tests.
FORMATS = [name for name in formats.BUILTIN if formats.get(name).writes]
# Formats of one tensor for each file.
SINGLE = ("npy", "tensorproto", "sparseproto", "protobuf", "onnx", "arrowtensor", "raw")


def _dense(dtype, shape=(2, 3)):
    meta = (
        {"numpy.dtype": "<M8[ms]" if dtype[0] == "d" else "<m8[ms]"}
        if dtype.endswith("64") and dtype[0] in "dt"
        else {}
    )
    return Tensor(dtype, shape, bits.content(dtype, shape), meta=meta)


def everything():
    """The one file's object."""
    values = _dense("float32", (5,))
    text = Strings.from_items(["", "naïve", "日本", "x" * 99, "end\0"], (5,), "utf-8")
    splits = np.array([0, 2, 2, 5])
    coordinates = np.array([[0, 1], [1, 0], [2, 3], [0, 0], [2, 2]])
    return {
        **{f"dense.{name}": _dense(name) for name in dtypes.DTYPES},
        "scalar": _dense("float64", ()),
        "empty": _dense("int16", (0, 3)),
        "text": text,
        "bytes": Strings.from_items([b"", b"\0\xff", b"abc", b"\0"], (2, 2), "bytes"),
        "ragged": Ragged(values, (splits,)),
        "ragged.text": Ragged(text, (splits,)),
        "ragged.shapes": Ragged(_dense("uint8", (8,)), (np.array([0, 2, 2, 8]),), np.array([[1, 2], [0, 7], [3, 2]])),
        "ragged.deep": Ragged(values, (np.array([0, 1, 1, 3]), splits)),
        "sparse.coo": Sparse("coo", (3, 4), (coordinates,), values),
        "sparse.csr": Sparse("csr", (3, 4), (np.array([0, 2, 2, 5]), np.array([0, 1, 0, 2, 3])), values),
        "nested": {"list": [np.arange(3), 2.5, "text", None], "tuple": (True, b"bytes")},
        "described": amended(_dense("float32"), None, {"unit": "metres"}),
    }


META = {"epoch": "3"}


@dataclass
class Cell:
    """What became of one conversion."""

    tensors: int = 0
    exact: int = 0
    lost: dict[str, list[str]] = field(default_factory=dict)  # feature -> the tensors that lose it, by the report
    silent: list[str] = field(default_factory=list)  # tensors that changed without a word: there must be none
    refused: str = ""


def contents(path, format):
    """name -> leaf of what a file holds; of records, of the first."""
    source = opening.open_file(path, format)
    if source.chosen.documents:
        document = next(source.documents(lazy=False))
    else:
        document = next(next(source.tables(1)).documents())
    return {column_name(leaf): leaf for leaf in document.leaves}


def _suffix(format):
    return ".pb" if format == "onnx" else f".{format}"


def make_source(format, folder):
    """A file of a format that holds as much of everything as it can; the path."""
    whole = folder / "everything.tb"
    if not whole.exists():
        tb.save(everything(), whole, meta=META)
    names = None
    if format in SINGLE:
        names = "sparse.coo" if format == "sparseproto" else "dense.float32"
    path = folder / f"source{_suffix(format)}"
    tb.convert(whole, path, format, names=names, allow="all", sync=False)
    return path


def convert(source, source_format, format, folder):
    """Convert, and look at each tensor of the target."""
    target = folder / (("{name}" if format in SINGLE else "target") + _suffix(format))
    read = {}
    if source_format == "raw":
        read = {"dtype": "float32", "shape": (2, 3)}
    cell = Cell()
    try:
        report = tb.convert(
            source, target, format, src_format=source_format, allow="all", sync=False, read_options=read
        )
    except tb.errors.LossError as error:
        cell.refused = str(error)
        return cell
    for loss in report.losses:
        cell.lost.setdefault(loss.feature, []).append(loss.name or "the whole")
    before = _before(source, source_format)
    cell.tensors = len(before)
    # A tensor without a name is the whole of its file.
    alone = next(iter(before)) if len(before) == 1 else None
    dropped = {loss.name or alone for loss in report.losses if loss.dropped}
    granted = {(loss.name or alone, loss.feature) for loss in report.losses}
    tables = formats.get(format).rows and formats.get(format).documents and not formats.get(source_format).documents
    rows_as_columns = format in ("arrow", "parquet") or tables  # as which a table of one row comes back
    if (report.rows == 1 and rows_as_columns) or "1 row stacked" in report.changes:
        before = {name: leaf._replace(value=_stacked(leaf.read())) for name, leaf in before.items()}
    for name, leaf in before.items():
        if name in dropped:
            continue
        found = _after(folder, target, format, name, leaf)
        if found is None or not _same(_as_granted(leaf.read(), name, granted), found.read()):
            cell.silent.append(name)
        elif _complete(source_format) and _complete(format) and not _same_description(leaf, found, format):
            cell.silent.append(f"{name}: its description")
        else:
            cell.exact += 1
    return cell


def _complete(format):
    return formats.get(format).complete


def _as_granted(value, name, granted):
    """What the report says became of a value: text turned into bytes, a sparse layout into coordinates."""
    if (name, "encoding") in granted:
        return Strings(value.shape, value.offsets, value.data)
    return value.to_coo() if (name, "layout") in granted else value


def _same(a, b):
    return identical(amended(a, None, {}), amended(b, None, {}))


def _same_description(a, b, format):
    """The same metadata, Python kind and place; a file of one tensor has no places."""
    place = format in SINGLE or a.path == b.path
    return place and a.kind == b.kind and dict(a.value.meta) == dict(b.value.meta)


def _stacked(row):
    """A column of one row."""
    column = Column()
    column.add_row(row)
    return column.finish()


def _before(source, format):
    if format == "raw":
        return {"tensor": Leaf(Tensor("float32", (2, 3), source.read_bytes()))}
    return contents(source, format)


def _after(folder, target, format, name, leaf):
    """The tensor in the target; None if it is not there."""
    if format not in SINGLE:
        return contents(target, format).get(name)
    path = folder / f"{name.replace('/', '_')}{_suffix(format)}"
    if not path.exists():
        return None
    if format == "raw":
        return Leaf(Tensor(leaf.read().dtype, leaf.read().shape, path.read_bytes()))
    return next(iter(contents(path, format).values()))


def matrix(sources):
    """(source, target) -> Cell, for every target"""
    found = {}
    for source_format in sources:
        with tempfile.TemporaryDirectory() as name:
            folder = Path(name)
            source = make_source(source_format, folder)
            for format in FORMATS:
                inner = folder / format
                inner.mkdir()
                found[source_format, format] = convert(source, source_format, format, inner)
    return found


# ---- the page ------------------------------------------------------------------


def page(cells):
    lines = [
        "# Conversions between all pairs of formats",
        "",
        "Made by `make fidelity`; nothing here is written by hand. One file holds a tensor of each dtype, scalars,",
        "empty tensors, text, bytes, ragged and sparse values, nested containers, Python values and metadata. It is",
        "written in each format as far as that goes (row), and converted from there to each other one (column) with",
        '`convert(..., allow="all")`. A cell counts the tensors that arrive bit for bit, of those in the source; the',
        "report names all others, and nothing changes without being named. Formats of one tensor a file are written",
        "with `{name}` in the target, and as sources hold one tensor.",
        "",
        "| from \\ to | " + " | ".join(FORMATS) + " |",
        "| --- |" + " --- |" * len(FORMATS),
        *(row(source, cells) for source in FORMATS),
        "",
        "What each target loses of the whole file, by the names that `allow` takes:",
        "",
        *(losses(target, cells) for target in FORMATS),
    ]
    return "\n".join(lines) + "\n"


def row(source, cells):
    """The line of the page about a source."""
    return f"| {source} | " + " | ".join(_shown(cells[source, target]) for target in FORMATS) + " |"


def losses(target, cells):
    """The line of the page about a target."""
    lost = cells["tb", target].lost
    shown = "; ".join(f"*{feature}*: {', '.join(sorted(lost[feature]))}" for feature in sorted(lost))
    return f"- `{target}`: {shown or 'nothing'}"


def _shown(cell):
    if cell.refused:
        return "refused"
    return f"{cell.exact}" if cell.exact == cell.tensors else f"{cell.exact} of {cell.tensors}"


if __name__ == "__main__":
    Path(sys.argv[1]).write_text(page(matrix(FORMATS)))
