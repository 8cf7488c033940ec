"""The public verbs."""

from __future__ import annotations

import os
from collections.abc import Callable, Collection, Iterable, Mapping
from typing import Any

import numpy as np

from tensorbytes import formats, frameworks, loading, metadata, opening, structs
from tensorbytes.deferred import Deferred
from tensorbytes.errors import LIMITS, READING, WRITING, CorruptError, Hint, Limits, UsageError, refuse_misnamed
from tensorbytes.formats import Format, Options
from tensorbytes.formats import _shortcut as shortcut
from tensorbytes.formats._frame_writer import Writer
from tensorbytes.formats._opened import Opened
from tensorbytes.formats._storing import Storing
from tensorbytes.frameworks import numpy as numpy_adapter
from tensorbytes.io import storage
from tensorbytes.loading import Wanted
from tensorbytes.reader import Reader, StreamReader
from tensorbytes.tensor import Value, amended, identical, with_meta, with_origin
from tensorbytes.tree import Document, Leaf, flatten
from tensorbytes.typing import Buffer, bytes_view, pinned

_SMALL = 1 << 16  # bytes of an array that are sooner copied than passed on in pieces


def dumps(
    obj: Any,
    format: str = "tb",
    *,
    name: str | None = None,
    meta: Mapping[str, Any] | None = None,
    origin: Mapping[str, str] | None = None,
    allow: Iterable[str] = (),
    **options: Any,
) -> bytes:
    """Turn a tensor, or a structure of tensors and plain values, into bytes.

    `obj` may come from NumPy, PyTorch, TensorFlow, JAX or SciPy, in any memory layout.
    What the format can't hold raises LossError, unless `allow` names it. `meta` is yours: text, numbers,
    bools and None, which are stored as text and come back as they were; `origin` is what another file noted
    itself of how it was held, as `open(path).origin` gives it.

    `options` are the format's own; save takes the same:

    compression      tb: "auto", "zstd", "zstd:9", "split+huffman" ...; npz: "deflate", with level=0 to 9;
                     arrow and parquet: their own codecs
    quantize         tb: fewer bits, such as "int8", with the error measured and stored
    extended         safetensors: True stores what only tensorbytes understands, too
    max_shard_bytes  safetensors, on saving: several files with an index

    An option that a format does not have raises UsageError, which lists those that it has.

    >>> import numpy as np, tensorbytes as tb
    >>> tb.loads(tb.dumps(np.arange(6).reshape(2, 3)))
    array([[0, 1, 2],
           [3, 4, 5]])
    """
    if format == "tb" and meta is None and origin is None and not options:
        if type(obj) is np.ndarray:
            data = shortcut.dump(obj) if name is None else shortcut.dump_named(obj, name)
        else:
            data = shortcut.dump_object(obj, frameworks.memories) if name is None else None
        if data is not None:
            return data
    chosen, document, allowed = _prepare(dumps, obj, format, name, meta, origin, allow, options)
    return chosen.dumps(document, allowed, options)


def buffers(
    obj: Any,
    format: str = "tb",
    *,
    name: str | None = None,
    meta: Mapping[str, Any] | None = None,
    origin: Mapping[str, str] | None = None,
    allow: Iterable[str] = (),
    **options: Any,
) -> list[Buffer]:
    """The bytes of `dumps` in pieces, for writev or a socket: tensors' own memory is not copied.

    The pieces are views: change the tensors only after they have been sent.
    """
    chosen, document, allowed = _prepare(buffers, obj, format, name, meta, origin, allow, options)
    return chosen.pieces(document, allowed, options)


def save(
    obj: Any,
    target: storage.Target,
    format: str | None = None,
    *,
    name: str | None = None,
    meta: Mapping[str, Any] | None = None,
    origin: Mapping[str, str] | None = None,
    allow: Iterable[str] = (),
    sync: bool = True,
    **options: Any,
) -> None:
    """Write `obj` to a path, a URL or a file object; the format follows the suffix.

    A file is replaced atomically: it is the old one or the new one, whatever happens.
    `sync=False` does not wait for the disk: faster, and safe against the death of the
    process, but not against a power cut.

    What the format can't hold raises LossError, unless `allow` names it. `options` are the format's own,
    as of dumps: compression= and quantize= (tb), compression="deflate" and level= (npz), compression=
    (arrow, parquet), extended=True and max_shard_bytes= (safetensors), and others (docs/formats.md).
    """
    storage.check_target(target, "write")
    format = format or _by_suffix(target)
    if format == "tb" and name is None and meta is None and origin is None and not options:
        if type(obj) is np.ndarray:
            data = shortcut.dump(obj) if obj.nbytes <= _SMALL else None
        else:
            data = shortcut.dump_object(obj, frameworks.memories, most=_SMALL)
        if data is not None:
            storage.write(target, [data], sync=sync)
            return
    chosen, document, allowed = _prepare(save, obj, format, name, meta, origin, allow, options)
    chosen.write(document, target, allowed, options, sync)


def _by_suffix(target: Any) -> str:
    found = formats.by_suffix(str(target)) if storage.is_path(target) else None
    file = str(target).replace("\\", "/").rpartition("/")[2] if storage.is_path(target) else ""
    if found is None and "." in file:
        raise UsageError(
            "no format has this suffix",
            path=str(target),
            hints=[Hint("format", choices=tuple(formats.writable()), of="save")],
        )
    return found or "tb"


def _prepare(
    function: Callable[..., Any],
    obj: Any,
    format: str,
    name: str | None,
    meta: Mapping[str, Any] | None,
    origin: Mapping[str, str] | None,
    allow: Iterable[str],
    options: Options,
) -> tuple[Format, Document, frozenset[str]]:
    chosen = formats.get(formats.resolve(format))
    if not chosen.writes:
        hint = Hint("format", "tb", "or another one", of="save")
        raise UsageError(f"format {chosen.name!r} is read-only", hints=[hint])
    refuse_misnamed(function, options, WRITING, chosen.write_options)
    formats.check_options(chosen, options, chosen.write_options)
    allowed = frozenset([allow] if isinstance(allow, str) else allow)
    return chosen, to_document(obj, name=name, meta=meta, origin=origin), allowed


def to_document(
    obj: Any,
    *,
    name: str | None = None,
    meta: Mapping[str, Any] | None = None,
    origin: Mapping[str, str] | None = None,
) -> Document:
    """The neutral form of any object."""
    texts, types = ({}, {}) if meta is None else metadata.to_text(meta)
    noted = {} if origin is None else metadata.checked_origin(origin)
    found: list[structs.Struct] = []
    leaves = flatten(
        obj,
        _value_of,
        frameworks,
        note=lambda path, array: found.append(structs.struct_of(path, array)),
        more=frameworks.children,
    )
    if found:
        noted = structs.noted(noted, found)
    if len(leaves) == 1 and not leaves[0].path:
        (leaf,) = leaves
        if texts and meta:
            own = metadata.typed(leaf.value.meta, leaf.value.origin)
            texts, types = metadata.to_text({**own, **meta})
            value = amended(leaf.value, leaf.value.name, texts, {**metadata.without_types(leaf.value.origin), **types})
            leaf = leaf._replace(value=value)
        return Document([Leaf(with_origin(with_meta(leaf.value, name), noted), kind=leaf.kind)])
    if name is not None:
        raise UsageError(f"name={name!r} goes with one tensor; a structure's names are its keys")
    return Document(_name_by_keys(leaves), texts, origin={**noted, **types})


def _value_of(x: Any) -> Value | Deferred | None:
    """The neutral value of a tensor. An array in Fortran order is turned by those who need that, not by npy."""
    return numpy_adapter.in_memory_order(x) or frameworks.value_of(x)


def _name_by_keys(leaves: list[Leaf]) -> list[Leaf]:
    """In a structure the key is the name; a name of the tensor's own is noted as its origin."""
    if all(leaf.value.name is None for leaf in leaves):
        return leaves
    keys: dict[int, set[str | None]] = {}  # of each value
    for leaf in leaves:
        keys.setdefault(id(leaf.value), set()).add(leaf.name)
    made: dict[int, Value] = {}
    for leaf in leaves:
        value, shared = leaf.read(), id(leaf.value)
        if value.name is not None and shared not in made:
            own = {} if keys[shared] == {value.name} else {"name": value.name}
            made[shared] = amended(value, None, value.meta, {**own, **value.origin})
    return [leaf._replace(value=made.get(id(leaf.value), leaf.value)) for leaf in leaves]


def loads(
    buffer: Buffer,
    format: str | None = None,
    *,
    names: Collection[str] | str | None = None,
    to: str = "numpy",
    device: str | None = None,
    dtype: Any = None,
    like: Any = None,
    strict: bool = True,
    limits: Limits = LIMITS,
    **options: Any,
) -> Any:
    """Turn bytes back into what was dumped; the format is recognised when not given.

    `to` is "numpy", "torch", "tensorflow", "jax", "scipy", "original" (where it came
    from), or "tensor" for the neutral value with its metadata; "np", "pt" and "tf" will do. JAX has 64-bit
    types only if jax_enable_x64 is set: "jax32" narrows integers, if all of them fit, and rounds floats.
    Arrays are views of the buffer, so read-only where it is; copy them to change them. What was one tensor in several
    places is one again: NumPy's very same array, torch's tensors of the same memory. `names`,
    `dtype`, `like` and `strict` are those of load.
    """
    plain = device is None and names is None and dtype is None and like is None and strict and limits is LIMITS
    if plain and (format is None or format == "tb") and (to == "numpy" or to == "torch") and not options:
        found = shortcut.load(buffer) if to == "numpy" else None
        if found is None:
            found = shortcut.load_object(buffer, None if to == "numpy" else frameworks.making(to))
        if found is not None:
            return found
    if options:
        refuse_misnamed(loads, options, READING, _read_options(format))
    wanted = Wanted(frameworks.resolve(to), device, names, dtype, like, strict)
    wanted.check()
    data = _check_buffer(buffer)
    _check_limits(limits)
    opened = opening.open_bytes(data, format, limits, options, wanted.told)
    _check_not_empty(opened, format)
    return loading.result(opened, wanted)


def _read_options(format: str | None) -> Collection[str]:
    """The options of a format, or of any, that a call may have been given."""
    chosen = formats.BUILTIN if format is None else [formats.resolve(format)]
    return frozenset(key for name in chosen for key in formats.get(name).read_options)


def _check_not_empty(opened: Opened, format: str | None) -> None:
    """An empty file may be an empty stream, which has nothing to load: more likely something went wrong."""
    if format is None and opened.chosen.streams and opened.is_empty:
        hint = Hint(operation="open", arguments=("path",), purpose="reads it as an empty stream")
        raise CorruptError("no bytes at all", at=0, path=opened.path, hints=[hint])


def _check_buffer(buffer: Any) -> memoryview:
    try:
        return pinned(bytes_view(_unwrap(buffer)))
    except UsageError:
        raise
    except TypeError:
        hints = [Hint(operation="load", arguments=("path",), purpose="reads a file")] if isinstance(buffer, str) else []
        raise UsageError(expected="bytes or another buffer", got=type(buffer).__qualname__, hints=hints) from None
    except (BufferError, ValueError) as error:  # closed, released, or not willing
        raise UsageError(f"a {type(buffer).__qualname__} that can't be read: {error}") from None


def _unwrap(buffer: Any) -> Any:
    """The bytes in a string tensor of TensorFlow, or an array of objects, that holds them alone: its memory has an
    address, not bytes. Anything else as it is."""
    if type(buffer) is bytes or "O" not in memoryview(buffer).format:
        return buffer
    held = np.asarray(buffer)
    if held.ndim or not isinstance(held.item(), bytes):
        got = f"{type(buffer).__qualname__} of Python objects, of shape {list(held.shape)}"
        raise UsageError(expected="bytes or another buffer", got=got, hints=[Hint(purpose="pass one of its items")])
    return held.item()


def _refuse_bytes(target: Any) -> None:
    if isinstance(target, bytes | bytearray | memoryview):
        raise UsageError(
            expected="a path or a file object",
            got=type(target).__qualname__,
            hints=[Hint(operation="loads", arguments=("data",), purpose="reads bytes")],
        )


def _check_limits(limits: Any) -> None:
    if not isinstance(limits, Limits):
        raise UsageError(f"limits={limits!r}", expected="Limits, such as Limits(max_bytes=1 << 30)")


def load(
    target: storage.Target,
    format: str | None = None,
    *,
    names: Collection[str] | str | None = None,
    to: str = "numpy",
    device: str | None = None,
    dtype: Any = None,
    like: Any = None,
    strict: bool = True,
    mmap: bool = False,
    limits: Limits = LIMITS,
    **options: Any,
) -> Any:
    """Read a file, verified.

    `names` picks tensors: names give a dict of them; patterns such as "model/*" give the structure as it was, with
    what they pick. Nothing else is read. A list of which items are left out comes as a dict of positions.

    `dtype` casts floats, of all tensors or by name or pattern: {"model/*": "bfloat16"}. Integers, bools and complex
    numbers stay as they are, as with torch's module.to(dtype). A number that would become infinite raises LossError.

    `like` is a template: values go into its own containers, NamedTuples, dataclasses, Flax and optax states included,
    as tensors of its frameworks, on its devices. A module of torch stands for its state_dict. Shapes and dtypes must
    be the template's; dtype="like" casts floats to them. What is missing or left over raises TemplateError; with
    strict=False, it is a warning, and the template's values stand for what is missing.

    `mmap=True` maps a local file instead: tensors are read-only views of it, nothing is read
    until it is used, and what is never used is never checked. With to="torch", tensors can
    be changed, and the file does not notice.
    """
    if options:
        refuse_misnamed(load, options, READING, _read_options(format))
    to = frameworks.resolve(to)
    wanted = Wanted(to, device, names, dtype, like, strict)
    wanted.check()
    _refuse_bytes(target)
    _check_limits(limits)
    if mmap and not storage.is_local(target):
        raise UsageError("only local files can be mapped (mmap=True)", path=storage.describe(target))
    # torch knows no read-only memory: a private map spares it a copy. Of a part of a file, that part is copied.
    opened = opening.open_file(
        target,
        format,
        limits=limits,
        options=options,
        own=not mmap and names is None,
        private=mmap and to == "torch",
        dtype=wanted.told,
    )
    with opened.source:
        _check_not_empty(opened, format)
        return loading.result(opened, wanted, lazy=mmap, own=not mmap)


def open(
    target: storage.Target,
    mode: str = "r",
    format: str | None = None,
    *,
    to: str = "numpy",
    device: str | None = None,
    dtype: Any = None,
    limits: Limits = LIMITS,
    **options: Any,
) -> Any:
    """Open a file: "r" to read lazily, "w" to write a stream of objects, "a" to add to one.

    Reading a path gives a Reader (names, slices, iteration); a file object that can't
    seek, such as a pipe or a socket's, gives a stream to iterate over. `dtype` is that of load.
    """
    format = formats.resolve(format)
    if mode in ("w", "a"):
        _check_stream(target, format, options)
        if frameworks.resolve(to) != "numpy" or device is not None or dtype is not None:
            raise UsageError(f"mode {mode!r}: to=, device= and dtype= are for reading")
        return Writer(to_document, target, mode == "a", Storing.of(options), frameworks.memories)
    if mode != "r":
        raise UsageError(f"mode {mode!r}", expected="'r', 'w' or 'a'")
    if options:
        refuse_misnamed(open, options, READING, _read_options(format))
    to = frameworks.resolve(to)
    _refuse_bytes(target)
    _check_limits(limits)
    if not storage.is_path(target) and not _is_seekable(target):
        if format not in (None, "tb"):
            raise UsageError(f"a stream is read as 'tb', not {format!r}")
        storage.check_target(target, "read")
        return StreamReader(target, to, device, limits, dtype)
    return Reader(opening.open_file(target, format, limits=limits, options=options, dtype=dtype), to, device, dtype)


def _check_stream(target: Any, format: str | None, options: Options) -> None:
    """Whether a stream can be written as it was asked for."""
    if format not in (None, "tb"):
        raise UsageError(f"streams are written as 'tb', not {format!r}")
    asked = formats.by_suffix(os.fspath(target)) if format is None and storage.is_path(target) else None
    if asked not in (None, "tb"):
        raise UsageError(f"streams are written as 'tb', and the suffix asks for {asked!r}", path=str(target))
    chosen = formats.get("tb")
    formats.check_options(chosen, options, chosen.write_options)


def _is_seekable(file: Any) -> bool:
    return bool(getattr(file, "seekable", lambda: False)())


def equal(a: Any, b: Any) -> bool:
    """Whether two objects hold the same values bit for bit, whatever frameworks they are from.

    NaN payloads and the sign of zero count; names, devices, memory layouts and the order of
    a dict's keys do not.
    """
    one, two = ({leaf.path: leaf for leaf in to_document(x).leaves} for x in (a, b))
    return one.keys() == two.keys() and all(
        leaf.kind == two[path].kind and identical(leaf.read(), two[path].read()) for path, leaf in one.items()
    )
