"""Rows about files: one large tensor, slices, many tensors, streams.

Files are written afresh and removed between samples. Nothing drops the page cache:
reads come from memory, and writes without fsync end there.
"""

from __future__ import annotations

import filecmp
import os
import pickle
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

import tensorbytes as tb
from benchmarks import peers
from benchmarks.memory_rows import Scale, build, random_floats, role_of, same, size_name
from benchmarks.peers import Peer
from benchmarks.timing import FLOOR, OURS, PEER, Contender, Line, Target


def _sync(path: str) -> None:
    fd = os.open(path, os.O_RDONLY)
    os.fsync(fd)
    os.close(fd)


def _remover(path: str) -> Callable[[], None]:
    return lambda: Path(path).unlink(missing_ok=True)


def _saving(peer: Peer, x: Any, folder: Path, equal: Callable[[Any, Any], bool], sync: bool) -> Contender:
    """Saves to a new file; `sync` adds the fsync that peers leave out."""
    path = str(folder / peer.name)

    def plain(path: str) -> None:
        peer.save(x, path)

    def synced(path: str) -> None:
        peer.save(x, path)
        _sync(path)

    added = sync and peer.role == PEER
    return Contender(
        f"{peer.name} + fsync" if added else peer.name,
        synced if added else plain,
        path,
        lambda _: equal(peer.load(path), x),
        role_of(peer),
        _remover(path),
    )


def _bare_write(x: Any, folder: Path, sync: bool) -> Contender:
    path = str(folder / "bare")

    def write(path: str) -> None:
        fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL)
        rest = memoryview(x).cast("B")
        while rest:
            rest = rest[os.write(fd, rest) :]
        if sync:
            os.fsync(fd)
        os.close(fd)

    return Contender(
        "os.write + fsync" if sync else "os.write",
        write,
        path,
        lambda _: same(np.fromfile(path, x.dtype), x.reshape(-1)),
        FLOOR,
        _remover(path),
        "keeps neither dtype nor shape",
    )


def save(scale: Scale, folder: Path) -> Iterator[Line]:
    x = random_floats(scale.large).reshape(-1, 1024)
    for sync in (False, True):
        os.sync()
        everyone = build([lambda: peers.ours(sync=sync), peers.npy, peers.safetensors, peers.torch_of_arrays])  # noqa: B023
        bare = _bare_write(x, folder, sync)
        yield Line(
            "save.sync" if sync else "save.nosync",
            f"save, {size_name(x.nbytes)} float32, {'fsync' if sync else 'sync=False'}",
            [*(_saving(peer, x, folder, same, sync) for peer in everyone), bare],
            x.nbytes,
            Target(0.85, f"85 % of the speed of a bare {bare.name}", (bare.name,)),
            note="Ours also renames over the old file and syncs the folder." if sync else "Ends in the page cache.",
        )


# ---- slices -----------------------------------------------------------------


def _our_slice(path: str) -> Any:
    with tb.open(path) as file:
        return file["x"][:10].copy()


def _npy_slice(path: str) -> Any:
    return np.load(path, mmap_mode="r")[:10].copy()


def _safetensors_slice(path: str) -> Any:
    from safetensors import safe_open

    with safe_open(path, framework="numpy") as file:
        return file.get_slice("x")[:10]


def slices(scale: Scale, folder: Path) -> Iterator[Line]:
    first: Contender | None = None
    for size in scale.slices:
        x = np.arange(size // 4, dtype=np.float32).reshape(-1, 256)
        head = x[:10].copy()
        line = _slice_contenders(x, head, folder / size_name(size))
        del x
        target = None
        if first is None:
            first = line[0]
        elif size == scale.slices[-1]:
            name = f"tensorbytes, {size_name(scale.slices[0])} file"
            line.append(Contender(name, first.function, first.argument, first.check, FLOOR))
            target = Target(
                1 / 1.5, f"no slower than for {size_name(scale.slices[0])}, within a factor of 1.5", (name,)
            )
        yield Line(
            f"slice.{size_name(size).replace(' ', '')}", f"open and 10 rows of {size_name(size)}", line, target=target
        )


def _slice_contenders(x: Any, head: Any, folder: Path) -> list[Contender]:
    folder.mkdir()
    tb.save(x, folder / "x.tb", name="x", sync=False)
    np.save(folder / "x.npy", x)
    peers.safetensors().save(x, str(folder / "x.safetensors"))

    def right(out: Any) -> bool:
        return same(out, head)

    return [
        Contender("tensorbytes", _our_slice, str(folder / "x.tb"), right, OURS),
        Contender("npy, mapped", _npy_slice, str(folder / "x.npy"), right),
        Contender("safetensors", _safetensors_slice, str(folder / "x.safetensors"), right),
    ]


# ---- many tensors -----------------------------------------------------------


def _same_dicts(a: dict[str, Any], b: dict[str, Any]) -> bool:
    return a.keys() == b.keys() and all(same(a[name], b[name]) for name in b)


def tensors(scale: Scale, folder: Path) -> Iterator[Line]:
    flat = random_floats(scale.dict_tensors * scale.dict_each)
    x = {f"layer.{i}.weight": part for i, part in enumerate(flat.reshape(scale.dict_tensors, -1, 256))}
    what = f"{len(x)} tensors of {size_name(scale.dict_each)}"
    ahead = ("ahead of safetensors", ("safetensors",))
    for sync in (False, True):
        os.sync()
        everyone = build([lambda: peers.ours(sync=sync), *peers.DICTS])  # noqa: B023
        rival = "safetensors + fsync" if sync else "safetensors"
        yield Line(
            "dict.save.sync" if sync else "dict.save.nosync",
            f"save, {what}, {'fsync' if sync else 'sync=False'}",
            [_saving(peer, x, folder, _same_dicts, sync) for peer in everyone],
            flat.nbytes,
            Target(1.0, f"ahead of {rival}", (rival,)),
        )
    for peer in everyone:
        peer.save(x, str(folder / peer.name))
    yield Line(
        "dict.load",
        f"load, {what}",
        [_reading(peer, x, folder, touch=False) for peer in everyone],
        flat.nbytes,
        Target(1.0, *ahead),
        note="Ours reads and verifies every byte.",
    )
    yield Line(
        "dict.load.sum",
        f"load and sum, {what}",
        [_reading(peer, x, folder, touch=True) for peer in everyone],
        flat.nbytes,
        Target(1.0, *ahead),
        note="Every value is used once, so that memory mapped and not yet read is paid for.",
    )


def _reading(peer: Peer, x: dict[str, Any], folder: Path, touch: bool) -> Contender:

    def load_and_sum(path: str) -> dict[str, Any]:
        got: dict[str, Any] = peer.load(path)
        for part in got.values():
            part.sum()
        return got

    function = load_and_sum if touch else peer.load
    return Contender(peer.name, function, str(folder / peer.name), lambda got: _same_dicts(got, x), peer.role)


# ---- streams ----------------------------------------------------------------


def stream(scale: Scale, folder: Path) -> Iterator[Line]:
    """Small arrays of different lengths, one after another."""
    rng = np.random.default_rng(0)
    sizes = rng.integers(10, 201, scale.stream_items)
    arrays = np.split(rng.standard_normal(int(sizes.sum()), dtype=np.float32), np.cumsum(sizes)[:-1])
    nbytes = 4 * int(sizes.sum())
    contestants = [_stream_ours(arrays), _stream_npy(arrays), _stream_pickle(arrays), _stream_tfrecord(arrays)]

    def right(got: list[Any]) -> bool:
        return len(got) == len(arrays) and all(same(a, b) for a, b in zip(got, arrays, strict=True))

    writing, reading = [], []
    for name, write, read, role in contestants:
        path, kept = str(folder / f"written {name}"), str(folder / name)
        write(kept)
        reading.append(Contender(name, read, kept, right, role))
        writing.append(Contender(name, write, path, _equal_to(path, kept), role, _remover(path)))
    what = f"{len(arrays):,} arrays of 10 to 200 float32".replace(",", " ")
    # Reading comes first: it proves the files right that the written ones are compared with.
    yield Line("stream.read", f"read {what}", reading, nbytes)
    yield Line("stream.write", f"write {what}", writing, nbytes, note="One fsync at the end, for all.")


def _equal_to(path: str, other: str) -> Callable[[Any], bool]:
    return lambda _: filecmp.cmp(path, other, shallow=False)


Streams = tuple[str, Callable[[str], None], Callable[[str], list[Any]], str]


def _stream_ours(arrays: list[Any]) -> Streams:
    def write(path: str) -> None:
        with tb.open(path, "w") as file:
            for x in arrays:
                file.write(x)

    def read(path: str) -> list[Any]:
        got = []
        with tb.open(path) as file:
            for x in file:
                got.append(x)  # list(file) would ask for len(file) first, which reads the file once more
        return got

    return "tensorbytes", write, read, OURS


def _stream_npy(arrays: list[Any]) -> Streams:
    return _in_a_loop("npy", arrays, np.save, np.load)


def _stream_pickle(arrays: list[Any]) -> Streams:
    return _in_a_loop("pickle 5", arrays, lambda file, x: pickle.dump(x, file, protocol=5), pickle.load)


def _in_a_loop(name: str, arrays: list[Any], dump: Callable[[Any, Any], None], load: Callable[[Any], Any]) -> Streams:
    """One array after another into one file, by a library that knows single ones."""

    def write(path: str) -> None:
        with open(path, "wb") as file:
            for x in arrays:
                dump(file, x)
        _sync(path)

    def read(path: str) -> list[Any]:
        with open(path, "rb") as file:
            return [load(file) for _ in arrays]

    return f"{name} in a loop", write, read, PEER


def _stream_tfrecord(arrays: list[Any]) -> Streams:
    tf = peers.import_tensorflow()

    def write(path: str) -> None:
        with tf.io.TFRecordWriter(path) as file:
            for x in arrays:
                file.write(tf.io.serialize_tensor(x).numpy())
        _sync(path)

    def read(path: str) -> list[Any]:
        dataset = tf.data.TFRecordDataset(path).map(partial(tf.io.parse_tensor, out_type=tf.float32))
        return list(dataset.as_numpy_iterator())

    return "TFRecord of tf.io", write, read, PEER
