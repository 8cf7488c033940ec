"""JSON as text that is edited: objects keep their order and their duplicates, numbers their spelling."""

from __future__ import annotations

import json
from random import Random
from typing import Any


class Raw(str):
    """Text that is written as it stands, JSON or not."""


class Pairs(list[Any]):
    """An object: lists of a key and a value."""


def parse(text: str | bytes) -> Any:
    return json.loads(text, object_pairs_hook=lambda pairs: Pairs([key, value] for key, value in pairs))


def write(value: Any, rng: Random | None = None) -> str:
    """Compact; with `rng`, spaces and escapes here and there."""
    gap = (lambda: rng.choice(["", "", " ", "\n", "\t "])) if rng else (lambda: "")
    if isinstance(value, Raw):
        return value
    if isinstance(value, Pairs):
        inner = ",".join(f"{gap()}{write(key, rng)}{gap()}:{gap()}{write(item, rng)}" for key, item in value)
        return "{" + inner + gap() + "}"
    if isinstance(value, list):
        return "[" + ",".join(gap() + write(item, rng) + gap() for item in value) + "]"
    if isinstance(value, str) and rng and value and rng.random() < 0.1:
        at = rng.randrange(len(value))
        escaped = json.dumps(value[at])[1:-1] if ord(value[at]) > 0xFFFF else f"\\u{ord(value[at]):04x}"
        return json.dumps(value[:at])[:-1] + escaped + json.dumps(value[at + 1 :])[1:]
    return json.dumps(value, ensure_ascii=not rng or rng.random() < 0.5)


SCALARS = [
    0, 1, 2, 3, 4, 8, -1, 1 << 31, 1 << 32, 1 << 62, 1 << 63, 1 << 64, Raw("1.0"), Raw("1e0"), Raw("-0"), Raw("01"),
    Raw("NaN"), Raw("Infinity"), Raw("1e999"), Raw("9" * 41), Raw("9" * 400), True, False, None, "", "4", "x", "é",
    "\ud83d\ude00", Raw('"\\ud800"'), Raw('"\\uD83D\\uDE00"'), Raw('"a\nb"'), Raw('"\\x"'), Raw('"\\u12"'), Raw("'x'"),
    Raw("[]"), Raw("{}"), Raw("[0]"), Raw('{"a":1}'), Raw("[" * 130 + "]" * 130), Raw("\x00"), Raw("\xa0"), Raw(""),
    Raw("nul"), Raw("+1"), Raw(".5"), Raw("1."), Raw("0x1"), Raw("1_0"), Raw("1e5"), Raw("1E+2"), Raw("-1e-400"),
]  # fmt: skip


def edit(rng: Random, value: Any) -> Any:
    """One change somewhere in the tree; gives the tree, which may be another object."""
    places: list[tuple[Any, int, int]] = []  # a list, an index, and which of a pair

    def collect(node: Any) -> None:
        for index, item in enumerate(node):
            if isinstance(node, Pairs):
                places.append((node, index, 0))
                places.append((node, index, 1))
                item = item[1]
            else:
                places.append((node, index, -1))
            if isinstance(item, list):
                collect(item)

    if isinstance(value, list):
        collect(value)
    if not places:
        return rng.choice(SCALARS)
    node, index, which = rng.choice(places)
    kind = rng.randrange(8)
    if kind == 0:
        del node[index]
    elif kind == 1:
        twin = list(node[index]) if isinstance(node, Pairs) else node[index]
        node.insert(rng.randrange(len(node) + 1), twin)
    elif kind == 2:
        other = rng.randrange(len(node))
        node[index], node[other] = node[other], node[index]
    elif which == -1 or which == 1:
        held = node[index][1] if which == 1 else node[index]
        new = rng.choice(SCALARS)
        if type(held) is int and rng.random() < 0.6:
            new = max(held + rng.choice([-8, -4, -1, 1, 4, 8]), 0) if rng.random() < 0.8 else held * 2
        elif isinstance(held, Pairs) and rng.random() < 0.6:
            new = Pairs([*held, [rng.choice(["x", "dtype", "shape", "é"]), rng.choice(SCALARS)]])
        elif type(held) is list and rng.random() < 0.6:
            new = [*held, rng.choice([0, 1, 1, 2])]
        if which == 1:
            node[index] = [node[index][0], new]
        else:
            node[index] = new
    else:
        node[index] = [rng.choice(["", "x", "dtype", "shape", "data_offsets", "__metadata__", "é", "a\0b", Raw("1"),
                                   Raw('"\\ud800"'), Raw("x"), "\ud83d\ude00"]), node[index][1]]  # fmt: skip
    return value
