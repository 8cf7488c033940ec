"""Run every command on a file of every format, in a terminal, and write docs/transcripts.md.

    python -m tests.support.transcripts docs/transcripts.md

Some commands don't apply to some files; what they say then is part of the transcript.
"""

import contextlib
import re
import sys
import tempfile
from pathlib import Path

import numpy as np

import tensorbytes as tb
from tensorbytes import formats
from tensorbytes.cli.verbs import VERBS
from tests.support.documentation import on_a_terminal

HEADER = """# Transcripts

<!-- Written by `make transcripts`; edit tests/support/transcripts.py instead. -->

Every command on a file of every format, as a terminal of 100 columns shows it, with the exit code where it is not 0.
Where a command does not apply, it says so. Long output is cut here, at `...`.
"""
_MOST_LINES = 14
_SINGLE = ("npy", "arrowtensor", "onnx", "protobuf", "tensorproto", "raw")
_READ = {"raw": "--read-option dtype=float32 --read-option 'shape=[6,4]'"}


def samples() -> dict[str, str]:
    """A file of each format in the current folder."""
    rng = np.random.default_rng(7)
    w = rng.normal(0, 1, (6, 4)).astype(np.float32)
    model = {"encoder.weight": w, "encoder.bias": np.zeros(4, np.float32), "step": np.arange(3)}
    files = {}
    for name in formats.BUILTIN:
        chosen = formats.get(name)
        path = f"{name}{chosen.suffixes[0]}"
        if name == "sparseproto":
            tb.save(tb.Sparse("coo", (6, 4), (np.array([[0, 1], [5, 3]]),), tb.Tensor("float32", (2,), w[0, :2])), path)
        elif name == "gguf":
            _gguf(path, w)
        elif not chosen.documents:
            _records(path)
        else:
            tb.save(w if name in _SINGLE else model, path, name)
        files[name] = path
    return files


def _records(path: str) -> None:
    with tb.RecordWriter(path) as writer:
        for number in range(20):
            row = {"tokens": np.arange(number % 5), "label": number % 3, "text": f"sentence {number}"}
            writer.write(row if number % 4 else row | {"score": np.float32(number)})


def _gguf(path: str, values: np.ndarray) -> None:
    from gguf import GGUFWriter

    writer = GGUFWriter(path, "llama")
    writer.add_tensor("blk.0.weight", values)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


def commands(name: str, path: str) -> list[str]:
    """A line for each command that takes a file."""
    suffix = Path(path).suffix
    other = "copy.npz" if name == "tb" else "copy.tb"
    read = _READ.get(name, "")
    part = {"tfrecord": "::tokens[1:4]", "gguf": "::blk.0.weight[0:2, :]", "sparseproto": ""}
    part |= dict.fromkeys(_SINGLE, "::[0:2, :]")
    given = (
        f"tb info {path} {read}",
        f"tb head {path} -n 2 {read}",
        f"tb cat '{path}{part.get(name, '::encoder.weight[0:2, :]')}' {read}",
        f"tb stats {path} {read}",
        f"tb schema {path}",
        f"tb convert {path} {other} --verify {read}",
        f"tb verify {path} {read}",
        f"tb repair {path} repaired{suffix}",
        f"tb diff {path} {other}",
        f"tb index {path}",
        f"tb split {path} part{suffix} --shards 2",
        f"tb merge 'part*-of-*' merged{suffix}",
        f"tb bench {path} --formats tb,npz --compressions none,zstd --rounds 1 -q",
    )
    return [" ".join(line.split()) for line in given]


def transcript(command: str) -> str:
    """A command and what it shows."""
    text = on_a_terminal(f"{command}; echo exit code $?").replace(sys.prefix, ".venv")
    shown = text.rstrip("\n").split("\n")
    code = shown.pop()
    if len(shown) > _MOST_LINES:
        shown = [*shown[: _MOST_LINES - 1], "..."]
    return "\n".join([f"$ {command}", *shown, *([] if code.endswith(" 0") else [code])])


def page() -> str:
    parts = [HEADER]
    with tempfile.TemporaryDirectory() as folder, contextlib.chdir(folder):
        for name, path in samples().items():
            print(name, file=sys.stderr)
            lines = [transcript(command) for command in commands(name, path)]
            parts.append(f"## {name}\n\n```text\n" + "\n\n".join(lines) + "\n```\n")
            for made in Path().glob("*"):
                if re.match(r"copy|part|merged|repaired", made.name):
                    made.unlink()
        rest = ["demo", "doctor", "completion bash"]
        assert {line.split()[0] for line in rest} | {line.split()[1] for line in commands("tb", "x.tb")} == set(VERBS)
        lines = [transcript(f"tb {line}") for line in rest]
        parts.append("## Without a file\n\n```text\n" + "\n\n".join(lines) + "\n```\n")
    return "\n".join(parts)


if __name__ == "__main__":
    Path(sys.argv[1]).write_text(page())
