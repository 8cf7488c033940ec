"""Saving a function or a module as a SavedModel."""

from __future__ import annotations

import contextlib
import inspect
import os
import re
import shutil
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from tensorbytes import frameworks
from tensorbytes.errors import Hint, TensorbytesError, UnsupportedError, UsageError
from tensorbytes.io import publish
from tensorbytes.io.holding import Hold
from tensorbytes.savedmodel._common import DEFAULT, FILE, tensorflow

_EXCHANGE, _HERE = 2, -100  # RENAME_EXCHANGE and AT_FDCWD of Linux


def save_model(
    model: Any,
    path: str | os.PathLike[str],
    *inputs: Any,
    name: str = DEFAULT,
    signatures: Mapping[str, Sequence[Any]] | None = None,
    batch: bool = False,
    sync: bool = True,
) -> None:
    """Save a function, a tf.function, a tf.Module or a Keras model as a SavedModel.

    `inputs` are an example (of any framework) or a tf.TensorSpec for each argument; a
    tf.function with an input_signature and a Keras model that is built need none. With
    batch=True the first axis of every example may have any length. `name` is that of the
    signature; `signatures` adds others, as {name: (function, *inputs)}.
    """
    tf = tensorflow()
    folder = os.path.abspath(os.fspath(path))
    _check_place(folder)
    root = tf.Module()
    found = {name: _export(tf, root, model, inputs, batch, "__call__")}
    for other, row in (signatures or {}).items():
        if other in found or not isinstance(row, Sequence) or not row or not callable(row[0]):
            raise UsageError(f"signature {other!r}: expected another name, and (function, *inputs)")
        found[other] = _export(tf, root, row[0], tuple(row[1:]), batch, None)

    def write(temporary: str) -> None:
        with _tracing("saving"):
            tf.saved_model.save(root, temporary, signatures=found)

    put_in_place(write, folder, sync)


def put_in_place(write: Callable[[str], None], folder: str, sync: bool) -> None:
    """Have a folder written under another name, and put it in the place of the one that is there."""
    names = publish.Names(folder)
    temporary = names.name(0)
    try:
        write(temporary)
        if sync:
            _sync_tree(temporary)
        with Hold(folder):
            old = _replace(temporary, folder)
        if sync:
            publish.sync_folder(folder)  # before the old one goes: a power cut may take back the exchange alone
        shutil.rmtree(old, ignore_errors=True)
    finally:
        names.close()


def _check_place(folder: str) -> None:
    """Replace nothing but a SavedModel."""
    if os.path.lexists(folder) and not os.path.isdir(folder):
        raise UsageError(f"{folder} is a file; a SavedModel is a folder")
    if os.path.isdir(folder) and os.listdir(folder) and not os.path.isfile(os.path.join(folder, FILE)):
        raise UsageError(
            "it holds something else than a SavedModel",
            path=str(folder),
            hints=[Hint(purpose="choose another folder, or remove it")],
        )


@contextlib.contextmanager
def _tracing(what: str) -> Iterator[None]:
    """TensorFlow's own errors, as one of ours."""
    try:
        yield
    except TensorbytesError:
        raise
    except Exception as error:  # tracing runs the caller's code: anything may come
        raise UnsupportedError(
            f"{what} failed: {type(error).__name__}: {error}",
            hints=[
                Hint(
                    purpose="a SavedModel holds what TensorFlow's operations do: use tf, not NumPy or PyTorch, "
                    "inside the function"
                )
            ],
        ) from error


def _export(tf: Any, root: Any, model: Any, inputs: tuple[Any, ...], batch: bool, attribute: str | None) -> Any:
    """The signature of a function; the root of the SavedModel takes hold of all that it needs."""
    function = _as_function(tf, model)
    arguments = [tf.nest.map_structure(lambda x: _spec(tf, x, batch), x) for x in inputs] or _own_inputs(tf, model)
    with _tracing("tracing the function"):
        traced = function.get_concrete_function(*arguments)
    given, named = traced.structured_input_signature
    if named or any(not _is_spec(tf, x) for x in tf.nest.flatten(given)):
        raise UsageError("a function with arguments that are not tensors: wrap it, lambda x: function(x, ...)")
    if not _leaves(tf, traced.structured_outputs):
        raise UsageError("the function returns no tensor: there would be nothing to call it for")
    owner = getattr(model, "__self__", model)
    owned = getattr(owner, "variables", ()) if isinstance(owner, tf.Module) or _is_keras(owner) else None
    if owned is not None:
        _keep(root, "model", owner)
    # A variable of Keras has TensorFlow's inside.
    mine = {id(v if callable(v.value) else v.value) for v in owned or ()}
    # TensorFlow lists them in any order; the function uses them in its own.
    used = {id(handle): place for place, handle in enumerate(traced.captured_inputs)}
    for variable in sorted(traced.variables, key=lambda v: used.get(id(v.handle), len(used))):
        if id(variable) not in mine:
            _keep(root, _variable_name(variable), variable)
    if attribute:
        setattr(root, attribute, function)
    with _tracing("tracing the signature"):
        return _signature(tf, function, model, list(given))


def _keep(root: Any, name: str, value: Any) -> None:
    """Make something a part of the SavedModel, once, under a name of its own."""
    held = vars(root)
    if not any(other is value for other in held.values()):
        setattr(root, _unique(name, [*held, *dir(root)]), value)


def _is_spec(tf: Any, x: Any) -> bool:
    return isinstance(x, tf.TypeSpec)


def _is_keras(model: Any) -> bool:
    keras = sys.modules.get("keras")
    return keras is not None and isinstance(model, keras.layers.Layer)


def _variable_name(variable: Any) -> str:
    return re.sub(r"\W", "_", str(variable.name).removesuffix(":0")) or "variable"


def _as_function(tf: Any, model: Any) -> Any:
    """A tf.function that can be traced."""
    if hasattr(model, "structured_input_signature"):  # one that was traced already
        return tf.function(lambda *args: model(*args))
    if hasattr(model, "get_concrete_function"):
        return model
    if not callable(model):
        raise UsageError(
            expected="a function, a tf.function, a tf.Module with __call__ or a Keras model",
            got=type(model).__qualname__,
            hints=[Hint(operation="save", arguments=("x", "path"), purpose="takes tensors and structures of them")],
        )
    if _is_keras(model):
        return tf.function(lambda *args: model(*args, training=False))
    call = model if inspect.isroutine(model) or isinstance(model, type) else model.__call__
    return call if hasattr(call, "get_concrete_function") else tf.function(call)


def _own_inputs(tf: Any, model: Any) -> list[Any]:
    """The inputs that a model knows by itself."""
    if _is_keras(model) and getattr(model, "inputs", None):
        specs = [tf.TensorSpec(x.shape, x.dtype, name=x.name) for x in model.inputs]
        return specs if len(specs) == 1 else [specs]
    if hasattr(model, "structured_input_signature"):
        return list(model.structured_input_signature[0])
    call = model if hasattr(model, "get_concrete_function") else getattr(model, "__call__", None)  # noqa: B004
    if getattr(call, "input_signature", None) is not None:
        return []
    try:
        wanted = list(inspect.signature(model).parameters)
    except (TypeError, ValueError):
        wanted = []
    if wanted:
        raise UsageError(
            f"save_model needs an example, or a tf.TensorSpec, for each argument: {', '.join(wanted)}; "
            "save_model(function, path, x)"
        )
    return []


def _spec(tf: Any, x: Any, batch: bool) -> Any:
    if _is_spec(tf, x):
        return x
    if frameworks.of(x) is None:
        try:
            x = tf.constant(x)
        except (TypeError, ValueError):
            raise UsageError(f"an example must be a tensor or a tf.TensorSpec, got {type(x).__qualname__}") from None
    x = frameworks.from_value(frameworks.to_value(x), "tensorflow")
    if not isinstance(x, tf.Tensor):
        return tf.type_spec_from_value(x)
    shape = list(x.shape)
    if batch:
        if not shape:
            raise UsageError("batch=True, but an example is a scalar", hints=[Hint(purpose="pass a tf.TensorSpec")])
        shape[0] = None
    return tf.TensorSpec(shape, x.dtype)


def _signature(tf: Any, function: Any, model: Any, arguments: list[Any]) -> Any:
    """The function over tensors by name alone, as serving wants it."""
    flat = tf.nest.flatten(arguments, expand_composites=True)
    names: list[str] = []
    for number, argument in enumerate(arguments):
        base = _parameter(function, model, number)
        for path, spec in _leaves(tf, argument):
            names.append(_unique(_identifier(spec.name or "_".join([base, *path])), names))
    specs = {n: tf.TensorSpec(spec.shape, spec.dtype, name=n) for n, spec in zip(names, flat, strict=True)}

    def by_name(**tensors: Any) -> Any:
        given = tf.nest.pack_sequence_as(arguments, [tensors[n] for n in names], expand_composites=True)
        out: dict[str, Any] = {}
        leaves = _leaves(tf, function(*given))
        for place, (path, tensor) in enumerate(leaves):
            listed = all(part.isdigit() for part in path)
            out[f"output_{place}" if listed else "_".join(path)] = tf.convert_to_tensor(tensor)
        if len(out) < len(leaves):
            raise UsageError(f"two results would have the same name: {', '.join(out)}")
        return out

    return tf.function(by_name).get_concrete_function(**specs)


def _leaves(tf: Any, value: Any, path: tuple[str, ...] = ()) -> list[tuple[tuple[str, ...], Any]]:
    """The tensors of a structure with the keys that lead to them, in tf.nest's order."""
    if isinstance(value, Mapping):
        return [leaf for key in sorted(value) for leaf in _leaves(tf, value[key], (*path, str(key)))]
    if isinstance(value, list | tuple):
        return [leaf for i, item in enumerate(value) for leaf in _leaves(tf, item, (*path, str(i)))]
    parts = [part for part in tf.nest.flatten(value, expand_composites=True) if part is not None]
    if len(parts) == 1:
        return [(path, parts[0])]
    return [((*path, str(i)), part) for i, part in enumerate(parts)]


def _parameter(function: Any, model: Any, number: int) -> str:
    names: list[str] = []
    with contextlib.suppress(TypeError, ValueError):
        parameters = inspect.signature(getattr(model, "python_function", model)).parameters.values()
        names = [p.name for p in parameters if p.kind in (p.POSITIONAL_ONLY, p.POSITIONAL_OR_KEYWORD)]
        names = names[1:] if names[:1] == ["self"] else names
    return names[number] if number < len(names) else f"input_{number}"


def _identifier(text: str) -> str:
    return re.sub(r"\W", "_", text) if re.match(r"[A-Za-z]", text) else "input_" + re.sub(r"\W", "_", text)


def _unique(name: str, taken: list[str]) -> str:
    number = 1
    while (found := name if number == 1 else f"{name}_{number}") in taken:
        number += 1
    return found


def _sync_tree(folder: str) -> None:
    for top, _, files in os.walk(folder):
        for file in files:
            with open(os.path.join(top, file), "rb") as opened:
                os.fsync(opened.fileno())
        publish.sync_folder(os.path.join(top, ""))


def _replace(temporary: str, folder: str) -> str:
    """Put a folder in the place of another one; what the old one is called now."""
    if not os.path.isdir(folder) or not os.listdir(folder):
        os.replace(temporary, folder)
    elif not _exchanged(temporary, folder):
        # No system call for it: for a moment there is none. The old one comes back if the new one can't.
        old = f"{temporary}.old"
        os.replace(folder, old)
        try:
            os.replace(temporary, folder)
        except BaseException:
            os.replace(old, folder)
            raise
        return old
    return temporary


def _exchanged(a: str, b: str) -> bool:
    """Swap two folders in one step, where the system can."""
    if not sys.platform.startswith("linux"):
        return False
    import ctypes

    try:
        rename = ctypes.CDLL(None, use_errno=True).renameat2
    except (OSError, AttributeError):
        return False
    return bool(rename(_HERE, os.fsencode(a), _HERE, os.fsencode(b), _EXCHANGE) == 0)
