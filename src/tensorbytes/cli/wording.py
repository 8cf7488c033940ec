"""Messages of the library speak Python; those of a command name its own options."""

from __future__ import annotations

import re

_CALLS = (
    ("pass limits=Limits(max_bytes=...) to allow it", "TENSORBYTES_MAX_BYTES=N tb ... allows N bytes"),
    ("pass limits=Limits(max_objects=...) to allow them", "TENSORBYTES_MAX_OBJECTS=N tb ... allows N objects"),
    ("with tb.open(path) as f: f.verify()", "tb verify FILE"),
    ("; open_records(path) reads them", ""),
    ("read_events(path) reads them, inspect(path) lists them", "tb info lists them, tb head shows them"),
    (
        "pass dtype= (and shape=), as raw.describe(x) gives them",
        "tb convert takes --read-option dtype=float32 --read-option shape=[2,3]",
    ),
    (" (open_records(path) reads compressed records as they are)", ""),
    ("repair(src, dst) keeps the records that are whole", "tb repair SRC DST keeps the records that are whole"),
    (", on_corrupt='skip' reads around the damage", ""),
    ("pass replace=True, or keep it", "pass --in-place, or another target"),
    ("pick one with names=", "pick one with --names"),
    ("pick some with names=", "pick some with --names"),
    ("pick tensors with names=", "pick tensors with --names"),
    ("stack=True and a TFRecord file", "--stack and a TFRecord file"),
    ("unstack= is for arrays", "--unstack is for arrays"),
    ("verify=True reads the target again", "--verify reads the target again"),
    ("pass shards= or nbytes=", "pass --shards or --size"),
    ("pass prefix='stem'", "pass --prefix stem"),
    ("prefix= is for", "--prefix is for"),
    ("names= picks tensors", "--names picks tensors"),
    ("pass allow='meta'", "pass --allow meta"),
    ("expected compression='deflate' beside it", "expected --compression deflate beside it"),
    ("objects='skip' leaves out", "--read-option objects=skip leaves out"),
    ("pass compression=", "pass --compression SPEC"),
    ("compression='auto' is for reading", "--compression auto is for reading"),
    ("convert()", "tb convert"),
    ("pass folder= on another disk, or a smaller max_bytes=", "pass --folder on another disk, or a smaller --most"),
)
_ALLOW = re.compile(r"pass allow=\{([^}]*)\}")
_NUMBERS = re.compile(r"\A(shards|rows|nbytes)=(-?\d+)(?=:| goes with )")  # elsewhere it is the name of a file
_INSPECT = re.compile(r"inspect\(('.*?'|\".*?\")\) lists them")


def in_commands(text: str, format_option: str = "--from") -> str:
    """A message of the library, with what to do said in options of the command line."""
    for call, words in _CALLS:
        text = text.replace(call, words)
    text = text.replace("pass format=, one of", f"pass {format_option} FORMAT, one of")
    text = text.replace("pass format=", "pass --to FORMAT")
    text = _ALLOW.sub(lambda found: "pass " + allowing(re.findall(r"'([^']*)'", found[1])), text)
    text = _NUMBERS.sub(lambda found: f"--{found[1].replace('nbytes', 'size')} {found[2]}", text)
    return _INSPECT.sub(lambda found: f"`tb info {found[1][1:-1]}` lists them", text)


def allowing(features: list[str]) -> str:
    """The options that accept some losses."""
    return " ".join(f"--allow {feature}" for feature in features)
