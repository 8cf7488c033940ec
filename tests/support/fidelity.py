"""Measure what this library and its peers do to the same tensors, and write docs/fidelity.md.

    python -m tests.support.fidelity docs/fidelity.md

The tensors are the cases of tensorbytes.testing. Nothing in the table is written by
hand: each cell is a round trip whose result is compared bit for bit. Peers run in a
process of their own, since some of them read memory that is not theirs; if it dies, the
case at hand is marked and the rest goes on.
"""

import io
import json
import os
import subprocess
import sys
import warnings
from collections import Counter
from collections.abc import Callable, Iterable
from importlib.metadata import version
from pathlib import Path
from typing import Any, NamedTuple

from tests.support import ROOT, keeping, presence

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
os.environ.setdefault("TF_ENABLE_ONEDNN_OPTS", "0")

from tensorbytes import dtypes, formats, frameworks, testing
from tensorbytes.testing import Case, Outcome

# Formats that are only read have nothing to bring back.
WRITTEN = [name for name in formats.writable() if formats.get(name).documents]
VERDICTS = ("exact", "refused", "LOST", "unreadable", "crash")
_GOOD = ("exact", "told", "refused")  # nothing is lost, or not in silence
Results = dict[str, dict[str, Outcome]]  # column -> case id -> outcome


# ---- the peers --------------------------------------------------------------


class Peer(NamedTuple):
    package: str
    frameworks: tuple[str, ...]  # whose tensors it takes
    dumps: Callable[[Any], Any]
    loads: Callable[[Any, Any], Any]  # the bytes, and the tensor for what the caller must know


def _safetensors_numpy() -> Peer:
    from safetensors import numpy as st

    return Peer("safetensors", ("numpy",), lambda x: st.save({"x": x}), lambda data, _: st.load(data)["x"])


def _safetensors_torch() -> Peer:
    from safetensors import torch as st

    return Peer("safetensors", ("torch",), lambda x: st.save({"x": x}), lambda data, _: st.load(data)["x"])


def _npy() -> Peer:
    import numpy as np

    def dumps(x: Any) -> bytes:
        out = io.BytesIO()
        np.save(out, x, allow_pickle=False)
        return out.getvalue()

    return Peer("numpy", ("numpy",), dumps, lambda data, _: np.load(io.BytesIO(data), allow_pickle=False))


def _arrow() -> Peer:
    import pyarrow as pa

    def dumps(x: Any) -> Any:
        sink = pa.BufferOutputStream()
        pa.ipc.write_tensor(pa.Tensor.from_numpy(x), sink)
        return sink.getvalue()

    return Peer("pyarrow", ("numpy",), dumps, lambda data, _: pa.ipc.read_tensor(pa.BufferReader(data)).to_numpy())


def _tenso() -> Peer:
    import tenso

    return Peer("tenso", ("numpy", "scipy"), lambda x: bytes(tenso.dumps(x)), lambda data, _: tenso.loads(data))


def _torch_save() -> Peer:
    import torch

    def dumps(x: Any) -> bytes:
        out = io.BytesIO()
        torch.save(x, out)
        return out.getvalue()

    return Peer("torch", ("torch",), dumps, lambda data, _: torch.load(io.BytesIO(data), weights_only=True))


def _tf_io() -> Peer:
    import tensorflow as tf

    def loads(data: bytes, x: Any) -> Any:
        return tf.io.parse_tensor(data, x.dtype)

    return Peer("tensorflow-cpu", ("tensorflow",), lambda x: tf.io.serialize_tensor(x).numpy(), loads)


PEERS: dict[str, Callable[[], Peer]] = {
    "safetensors (numpy)": _safetensors_numpy,
    "safetensors (torch)": _safetensors_torch,
    "np.save": _npy,
    "Arrow tensor": _arrow,
    "tenso": _tenso,
    "torch.save": _torch_save,
    "tf.io.serialize_tensor": _tf_io,
}


# ---- measuring --------------------------------------------------------------


# Whether these come back as they were can't be seen from outside, so peers are not judged by them.
_UNSEEN = ("variant", "resource")


def cases_of(peer: Peer, cases: Iterable[Case]) -> list[Case]:
    return [case for case in cases if case.framework in peer.frameworks and case.dtype not in _UNSEEN]


def all_cases() -> list[Case]:
    return [case for name in frameworks.BUILTIN for case in testing.cases(name)]


def measure_format(format: str, cases: Iterable[Case]) -> dict[str, Outcome]:
    """One of our own formats: a refusal counts only if it comes before a byte is written."""
    found = {case.id: testing.outcome(case, format) for case in cases}
    return {
        key: Outcome("unreadable", made.detail) if made.detail.startswith("written, but") else made
        for key, made in found.items()
    }


def peer_outcome(peer: Peer, case: Case) -> Outcome:
    with testing.setting(case.framework):
        x = case.build()
        before = testing.fingerprint(x, case.framework)
        try:
            data = peer.dumps(x)
        except Exception as error:
            return Outcome("refused", type(error).__name__)
        try:
            made = peer.loads(data, x)
        except Exception as error:
            return Outcome("unreadable", type(error).__name__)
        try:
            after = testing.fingerprint(made, case.framework)
        except (TypeError, AttributeError):
            return Outcome("LOST", f"becomes {type(made).__name__}")
        lost = changes(before, after)
        return Outcome("LOST", ", ".join(lost)) if lost else Outcome("exact")


# The second only repeats in numbers what the dtype and the bits say.
_LET_PASS = ("own.requires_grad", "own.values")


def changes(before: testing.Fingerprint, after: testing.Fingerprint) -> list[str]:
    """What differs, in a word each; how a tensor was held and whether it requires a gradient is let pass."""
    if not any(key in after for key in before if not key.startswith(("held.", "memory.", "own."))):
        return ["structure"]
    found = []
    for key in sorted(before.keys() | after.keys()):
        if key.startswith(("held.", "memory.")) or key in _LET_PASS or before.get(key) == after.get(key):
            continue
        if key in ("dense", "values") and key in before and key in after:
            pairs = zip(("dtype", "shape", "bits"), before[key], after[key], strict=False)
            found += [word for word, one, two in pairs if one != two]
        else:
            found.append({"own.type": "class"}.get(key, key.removeprefix("own.")))
    return found


def measure_peer(column: str, cases: list[Case]) -> dict[str, Outcome]:
    """In processes that may die; each starts where the one before ended."""
    found: dict[str, Outcome] = {}
    own = cases_of(PEERS[column](), cases)
    while len(found) < len(own):
        command = [sys.executable, "-m", "tests.support.fidelity", "--measure", column, str(len(found))]
        process = subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
        assert process.stdout is not None
        for line in process.stdout:
            if line.startswith("["):
                key, verdict, detail = json.loads(line)
                found[key] = Outcome(verdict, detail)
        if process.wait() and len(found) < len(own):
            found[own[len(found)].id] = Outcome("crash", f"the process ended with {process.returncode}")
    return found


def _measure_in_this_process(column: str, start: int) -> None:
    warnings.simplefilter("ignore")
    peer = PEERS[column]()
    for case in cases_of(peer, all_cases())[start:]:
        made = peer_outcome(peer, case)
        print(json.dumps([case.id, made.verdict, made.detail]), flush=True)


# ---- the tables -------------------------------------------------------------

_SPECIAL = {
    "object": "arrays of Python objects",
    "void": "structured and void arrays",
    "longdouble": "long double",
    "other": "dtypes of opaque bits or of 3, 5, 6 and 7 bits",
    "variant": "variants and resources",
    "resource": "variants and resources",
    "key": "opaque random keys",
}
_STRUCTURES = ("coo", "cs", "bs", "jagged", "nested", "SparseTensor", "Ragged", "Indexed", "per ")
_TEXT = ("str", "bytes", "string")
TITLES = {
    "dtype": "By dtype (dense tensors, all layouts)",
    "layout": "By memory layout (dense tensors, all dtypes)",
    "structure": "Sparse, ragged, nested and quantized tensors (all dtypes)",
    "text": "Strings",
    "special": "What this library refuses by design",
}


def places(case: Case) -> dict[str, str]:
    """The rows that a case belongs to: table -> label. Alike ones share a row."""
    layout = case.layout.replace("_array", "").replace("_matrix", "")
    if testing.refusal(case.id) or case.dtype in _SPECIAL:
        pairs = case.framework == "torch" and case.dtype == "float4_e2m1fn"
        label = "pairs of float4, 0-d, sparse or nested" if pairs else _SPECIAL.get(case.dtype, layout)
        return {"special": f"{case.framework}: {label}"}
    if case.framework == "scipy" or layout.startswith(_STRUCTURES):
        strings = f"{layout.partition(',')[0]} of strings"
        return {"structure": f"{case.framework}: {strings if case.dtype == 'string' else layout}"}
    if case.dtype in _TEXT:
        return {"text": f"{case.framework}: {case.dtype}, {layout}"}
    if layout.startswith("unit "):
        layout = "times, every unit" + (", big-endian" if "big-endian" in layout else "")
    return {"dtype": case.dtype, "layout": f"{case.framework}: {'empty' if layout.startswith('empty') else layout}"}


def cell(outcomes: list[Outcome]) -> str:
    """Many outcomes in a few words; the worst comes first."""
    if not outcomes:
        return "-"
    counts = Counter(found.verdict for found in outcomes)
    words = []
    for verdict in reversed((*_GOOD, *VERDICTS[2:])):
        if counts[verdict]:
            number = f" {counts[verdict]}" if len(counts) > 1 else ""
            text = f"{verdict}{number}" if verdict in _GOOD else f"**{verdict}{number}**"
            what = {word for found in outcomes if found.verdict == "LOST" for word in found.detail.split(", ")}
            words.append(f"{text} ({', '.join(sorted(what))})" if verdict == "LOST" else text)
    return ", ".join(words)


def tables(results: Results, cases: list[Case]) -> dict[str, dict[str, dict[str, str]]]:
    """table -> row -> column -> cell."""
    rows: dict[str, dict[str, list[Case]]] = {name: {} for name in TITLES}
    for case in cases:
        for table, label in places(case).items():
            rows[table].setdefault(label, []).append(case)
    rows["dtype"] = {name: rows["dtype"][name] for name in dtypes.DTYPES if name in rows["dtype"]}
    return {
        table: {
            label: {
                column: cell([found[case.id] for case in some if case.id in found]) for column, found in results.items()
            }
            for label, some in labels.items()
        }
        for table, labels in rows.items()
    }


def markdown(head: list[str], lines: Iterable[list[str]]) -> str:
    rows = [head, ["---"] * len(head), *lines]
    return "\n".join("| " + " | ".join(row) + " |" for row in rows)


def summary(results: Results) -> str:
    lines = []
    for column, found in results.items():
        counts = Counter(made.verdict for made in found.values())
        lines.append([column, str(len(found)), *(str(counts[verdict]) for verdict in VERDICTS)])
    return markdown(["", "tensors", *VERDICTS], lines)


INTRO = """# Fidelity

What becomes of a tensor on its way to bytes and back: measured, for every format of this library and for
seven other ways, with the same tensors. Each is saved and loaded again by the framework it came from, and
compared bit for bit, from its memory, by code made for this alone (`tensorbytes.testing`). The values include
NaNs with payloads, both zeros, infinities, subnormals, and all bit patterns of dtypes up to 8 bits wide.

- **exact**: the same dtype, shape and bits (and structure, where there is one).
- **refused**: an exception before anything was written. Nothing is lost, and the user knows.
- **LOST**: no exception, and something else comes back; in brackets what changed.
- **unreadable**: written without complaint, but reading raises.
- **crash**: the process died.
- `-`: not for tensors of this framework. Of other libraries only the frameworks that they are made for
  are counted; for this library all five.

Where a row stands for many tensors that fare differently, each verdict has its number. Of other libraries it is
let pass if a Parameter, a Variable or a SciPy matrix comes back as the plain class, or without `requires_grad`; a
masked array without its mask is LOST. This library's native format keeps all of these, or refuses.
Anyone is welcome to point out a fairer way to call a peer: `tests/support/fidelity.py` has one function for each.
"""


def render(results: Results, cases: list[Case]) -> str:
    packages = {PEERS[column]().package for column in results if column in PEERS}
    packages |= {"numpy", "ml_dtypes", "torch", "tensorflow-cpu", "jax", "scipy"}
    versions = ", ".join(f"{name} {version(name)}" for name in sorted(packages))
    parts = [
        INTRO,
        f"Measured with tensorbytes {version('tensorbytes')} and {versions}.",
        "To regenerate: `make fidelity`, or `python -m tests.support.fidelity docs/fidelity.md`.\n",
        "## Summary\n",
        summary(results),
    ]
    for table, rows in tables(results, cases).items():
        lines = ([label, *(cells[column] for column in results)] for label, cells in rows.items())
        parts += [f"\n## {TITLES[table]}\n", markdown(["", *results], lines)]
    names = formats.writable()
    found = presence.measure(names)
    lines = ([label, *(cell([outcomes[name]]) for name in names)] for label, outcomes in found.items())
    parts += [f"\n## {presence.TITLE}\n", presence.INTRO, markdown(["", *names], lines)]
    for title, measured in keeping.measure(tuple(names)).items():
        lines = ([label, *(cell([outcomes[name]]) for name in names)] for label, outcomes in measured.items())
        parts += [f"\n## {title}\n", keeping.INTROS[title], markdown(["", *names], lines)]
    return "\n".join(parts) + "\n"


def parse(text: str) -> dict[str, dict[str, dict[str, str]]]:
    """The tables of a rendered page, by title: row -> column -> cell."""
    found: dict[str, dict[str, dict[str, str]]] = {}
    for section in text.split("\n## ")[1:]:
        title, _, body = section.partition("\n")
        lines = [line[2:-2].split(" | ") for line in body.splitlines() if line.startswith("| ")]
        head = lines[0]
        found[title] = {row[0]: dict(zip(head[1:], row[1:], strict=True)) for row in lines[2:]}
    return found


def measure_ours(cases: list[Case]) -> Results:
    return {format: measure_format(format, cases) for format in WRITTEN}


def main(arguments: list[str]) -> None:
    if arguments[:1] == ["--measure"]:
        _measure_in_this_process(arguments[1], int(arguments[2]))
        return
    if len(arguments) != 1:
        sys.exit("usage: python -m tests.support.fidelity docs/fidelity.md")
    cases = all_cases()
    results = measure_ours(cases)
    for column in PEERS:
        results[column] = measure_peer(column, cases)
    Path(arguments[0]).write_text(render(results, cases))
    print(summary(results))


if __name__ == "__main__":
    main(sys.argv[1:])
