"""Tied tensors and metadata, through each format and back: two parts of docs/fidelity.md.

Whatever a source says is converted to a format without any loss being allowed, and looked for in what is read again.
"""

import tempfile
from collections.abc import Callable, Mapping
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

import tensorbytes as tb
from tensorbytes import formats, opening
from tensorbytes.testing import Outcome

ALIASES = "Aliases: tied tensors"
ALIASES_INTRO = """A tensor in two places, or two views of the same memory, converted to each format and read again.
**exact**: it is one tensor again, for NumPy and torch. **told**: it comes back as two that are equal, and the report of
`convert` lists that as a loss.
"""
METADATA = "Metadata: what users say of tensors, and what foreign files say of theirs"
METADATA_INTRO = """What a file says beside its numbers is converted to each format, and from there to where it came
from: it says the same again, or the conversion is refused, and lists all that would be lost.
"""
INTROS = {ALIASES: ALIASES_INTRO, METADATA: METADATA_INTRO}

Source = Callable[[Path], Path]  # writes a file into a folder
X = np.arange(4, dtype=np.float32)
MINE = {"unit": "m", "ü": "ä\n"}
OURS = {"framework": "pt", "type": "Parameter", "memory_format": "x", "format": "pt", "numpy.dtype": "<M8[s]"}


# ---- aliases ----------------------------------------------------------------


def _saved(obj: Any) -> Source:
    def write(folder: Path) -> Path:
        tb.save(obj, folder / "start.tb")
        return folder / "start.tb"

    return write


def _torch_file(make: Callable[[Any], dict[str, Any]]) -> Source:
    def write(folder: Path) -> Path:
        import torch

        torch.save(make(torch), folder / "start.pt")
        return folder / "start.pt"

    return write


def _tied_module(torch: Any) -> dict[str, Any]:
    module = torch.nn.Sequential(torch.nn.Linear(2, 2, bias=False), torch.nn.Linear(2, 2, bias=False))
    module[1].weight = module[0].weight
    state: dict[str, Any] = module.state_dict()
    return state


def _parameter(torch: Any) -> dict[str, Any]:
    weight = torch.nn.Parameter(torch.ones(2))
    return {"a": weight, "b": weight}


def _overlapping(torch: Any) -> dict[str, Any]:
    x = torch.arange(4.0)
    return {"a": x, "b": x[:2]}


_TEXT = np.array(["a", "bc"])
_RAGGED = tb.Ragged(tb.Tensor("int32", (3,), np.arange(3, dtype=np.int32)), (np.array([0, 1, 3]),))
TIED: dict[str, Source] = {
    "torch: tied weights of a state_dict": _torch_file(_tied_module),
    "torch: a Parameter under two names": _torch_file(_parameter),
    "torch: views of one memory that overlap": _torch_file(_overlapping),
    "numpy: an array under two names": _saved({"a": X, "b": X}),
    "numpy: the same view, made twice": _saved({"a": X[1:], "b": X[1:]}),
    "numpy: in a nested structure": _saved({"a": {"x": X}, "b": [X, {"y": X}]}),
    "numpy: strings": _saved({"a": _TEXT, "b": _TEXT}),
    "ragged values": _saved({"a": _RAGGED, "b": _RAGGED}),
}


def _shared(path: Path, format: str | None = None) -> set[tuple[str, str]]:
    """The pairs of names in a file that are one tensor."""
    leaves = [leaf for document in opening.open_file(path, format).documents() for leaf in document.leaves]
    return {
        (str(one.name), str(two.name))
        for number, one in enumerate(leaves)
        for two in leaves[:number]
        if one.value is two.value and not one.kind
    }


def alias_outcome(source: Source, format: str) -> Outcome:
    """What becomes of tensors that share memory."""
    with tempfile.TemporaryDirectory() as folder:
        start = source(Path(folder))
        there = Path(folder) / f"there{formats.get(format).suffixes[0]}"
        try:
            report = tb.convert(start, there, format=format)
        except tb.errors.TensorbytesError as error:
            return Outcome("unreadable" if there.exists() else "refused", str(error))
        told = {loss.name for loss in report.losses if loss.feature == "aliases"}
        if not formats.get(format).self_describing:
            return Outcome("told" if told else "LOST", "aliases")
        was, now = _shared(start), _shared(there, format)
        lost = {one for one, two in was - now if one not in told and two not in told}
        if lost:
            return Outcome("LOST", "aliases")
        return Outcome("told" if told else "exact")


# ---- metadata ---------------------------------------------------------------


def _table(table: pa.Table) -> Source:
    def write(folder: Path) -> Path:
        with pa.OSFile(str(folder / "start.arrow"), "wb") as file, pa.ipc.new_file(file, table.schema) as writer:
            writer.write_table(table)
        return folder / "start.arrow"

    return write


def _document(meta: Mapping[str, str], own: Mapping[str, str]) -> Source:
    def write(folder: Path) -> Path:
        tb.save({"a": tb.Tensor("float32", (4,), X, None, own), "b": X + 1}, folder / "start.tb", meta=meta)
        return folder / "start.tb"

    return write


def _alone(meta: Mapping[str, str]) -> Source:
    def write(folder: Path) -> Path:
        tb.save(X, folder / "start.tb", meta=meta)
        return folder / "start.tb"

    return write


def _columns(array: pa.Array, **field: Any) -> pa.Table:
    fields = [pa.field("x", array.type, **field), pa.field("n", pa.int64())]
    return pa.table([array, pa.array([1, 2])], pa.schema(fields))


_TENSORS = pa.ExtensionArray.from_storage(
    pa.fixed_shape_tensor(pa.float32(), [2, 2], dim_names=["h", "w"]),
    pa.array([[1, 2, 3, 4], [5, 6, 7, 8]], pa.list_(pa.float32(), 4)),
)
_STRUCT = pa.struct([pa.field("a", pa.int64(), metadata={"unit": "m"})])
SAID: dict[str, Source] = {
    "a single tensor's": _alone(MINE),
    "a single tensor's, under keys that we use ourselves": _alone(OURS),
    "a tensor's in a structure": _document({}, MINE),
    "a tensor's, under keys that we use ourselves": _document({}, OURS),
    "of the whole": _document(MINE, {}),
    "of the whole, under keys that we use ourselves": _document(OURS, {}),
    "of the whole, under names of tensors, or with them as texts": _document({"a": "b", "best": "a"}, {}),
    "of an Arrow schema": _table(_columns(pa.array([1.0, 2.0])).replace_schema_metadata({"k": "v", "framework": "pt"})),
    "of an Arrow schema, not text": _table(_columns(pa.array([1.0, 2.0])).replace_schema_metadata({b"\xfe": b"\xff"})),
    "of an Arrow field": _table(_columns(pa.array([1.0, 2.0]), metadata={"unit": "m", "type": "z"})),
    "of a field of an Arrow struct": _table(_columns(pa.array([{"a": 1}, {"a": 2}], _STRUCT))),
    "names of the axes of Arrow tensors": _table(_columns(_TENSORS)),
    "the time zone of Arrow timestamps": _table(_columns(pa.array([1, 2], pa.timestamp("us", "Europe/Paris")))),
}


def _said(path: Path, format: str | None = None) -> Any:
    """The metadata of a file: of each tensor, and of the whole."""
    (document,) = opening.open_file(path, format).documents()
    leaves = {leaf.name: dict(leaf.value.meta) for leaf in document.leaves}
    alone = [*leaves.values()] if len(leaves) == 1 else []  # of one tensor, the whole is the tensor
    return alone[0] | dict(document.meta) if alone else (leaves, dict(document.meta))


def metadata_outcome(source: Source, format: str) -> Outcome:
    """What becomes of what a file says beside its numbers."""
    with tempfile.TemporaryDirectory() as folder:
        start = source(Path(folder))
        there = Path(folder) / f"there{formats.get(format).suffixes[0]}"
        try:
            tb.convert(start, there, format=format)
        except tb.errors.TensorbytesError as error:
            return Outcome("unreadable" if there.exists() else "refused", str(error))
        if start.suffix == ".tb":
            return Outcome("exact") if _said(there, format) == _said(start) else Outcome("LOST", "metadata")
        back = Path(folder) / "back.arrow"
        try:
            tb.convert(there, back)
        except tb.errors.TensorbytesError as error:
            return Outcome("unreadable", str(error))
        one, two = (pa.ipc.open_file(str(path)).read_all() for path in (start, back))
        same = two.schema.equals(one.schema, check_metadata=True) and two.equals(one)
        return Outcome("exact") if same else Outcome("LOST", "metadata")


@cache
def measure(names: tuple[str, ...]) -> dict[str, dict[str, dict[str, Outcome]]]:
    """title -> row -> format -> outcome."""
    return {
        ALIASES: {label: {name: alias_outcome(source, name) for name in names} for label, source in TIED.items()},
        METADATA: {label: {name: metadata_outcome(source, name) for name in names} for label, source in SAID.items()},
    }
