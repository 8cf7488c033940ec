"""Loading a SavedModel and calling it."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from tensorbytes import api, frameworks
from tensorbytes.errors import CorruptError, Hint, UsageError
from tensorbytes.savedmodel._common import DEFAULT, FILE, tensorflow


def load_model(
    path: str | os.PathLike[str],
    *,
    to: str = "numpy",
    device: str | None = None,
    tags: Sequence[str] | None = None,
) -> Model:
    """Load a SavedModel to call it. Inputs may be of any framework; the results are of `to`.

    A SavedModel is a program, which may read and write files: load only those you trust.
    """
    folder = os.fspath(path)
    if not os.path.isfile(os.path.join(folder, FILE)):
        raise FileNotFoundError(f"{folder}: no SavedModel: there is no {FILE} in it")
    tf = tensorflow()
    try:
        loaded = tf.saved_model.load(folder, tags=None if tags is None else list(tags))
    except Exception as error:  # of many kinds, all of which mean that it can't be loaded
        raise CorruptError(f"TensorFlow can't load it: {type(error).__name__}: {error}", at=0, path=folder) from error
    return Model(tf, loaded, folder, to, device)


class _Callable:
    """Something of TensorFlow's to call with tensors of any framework."""

    def __init__(self, tf: Any, to: str, device: str | None) -> None:
        self._tf, self._to, self._device = tf, to, device

    def _give(self, results: Any) -> Any:
        def convert(x: Any) -> Any:
            if self._to == "tensorflow" and self._device is None:
                return x
            return frameworks.from_value(frameworks.to_value(x), self._to, self._device)

        return self._tf.nest.map_structure(convert, results)

    def _take(self, x: Any, spec: Any, name: str) -> Any:
        """An input as the spec wants it."""
        tf = self._tf
        if not isinstance(spec, tf.TensorSpec):
            return self._tensor(x)
        if frameworks.of(x) is None:
            try:
                x = tf.constant(x, spec.dtype)
            except (TypeError, ValueError) as error:
                raise UsageError(f"input {name!r} must be {_text(spec)}: {error}") from None
        x = self._tensor(x)
        if getattr(x, "dtype", None) != spec.dtype or not spec.shape.is_compatible_with(x.shape):
            raise UsageError(f"input {name!r} must be {_text(spec)}, got {_text(x)}")
        return x

    def _tensor(self, x: Any) -> Any:
        return frameworks.from_value(frameworks.to_value(x), "tensorflow") if frameworks.of(x) is not None else x


def _text(spec: Any) -> str:
    shape = getattr(spec, "shape", None)
    if shape is None or not hasattr(spec, "dtype"):
        return str(spec)
    return f"{spec.dtype.name}[{'...' if shape.rank is None else ', '.join(str(n) for n in shape)}]"


class Signature(_Callable):
    """One signature of a model: tensors by name in, tensors by name out."""

    def __init__(self, tf: Any, name: str, function: Any, to: str, device: str | None) -> None:
        super().__init__(tf, to, device)
        self.name, self._function = name, function
        self._inputs = function.structured_input_signature[1]

    @property
    def inputs(self) -> dict[str, str]:
        """Their names, each with its dtype and shape."""
        return {name: _text(spec) for name, spec in sorted(self._inputs.items())}

    @property
    def outputs(self) -> dict[str, str]:
        return {name: _text(spec) for name, spec in sorted(self._function.structured_outputs.items())}

    def __call__(self, *args: Any, **inputs: Any) -> dict[str, Any]:
        if args:
            if len(args) != 1 or inputs or len(self._inputs) != 1:
                raise UsageError(f"signature {self.name!r} takes its inputs by name: {self._known()}")
            inputs = {next(iter(self._inputs)): args[0]}
        wrong = sorted(set(inputs) ^ set(self._inputs))
        if wrong:
            what = "has no input" if wrong[0] in inputs else "lacks the input"
            raise UsageError(f"signature {self.name!r} {what} {wrong[0]!r}; it takes {self._known()}")
        taken = {name: self._take(x, self._inputs[name], name) for name, x in inputs.items()}
        made: dict[str, Any] = self._give(self._function(**taken))
        return dict(sorted(made.items()))

    def _known(self) -> str:
        return ", ".join(f"{name}: {text}" for name, text in self.inputs.items()) or "none"

    def __repr__(self) -> str:
        return f"<signature {self.name!r}: {self._known()} -> {', '.join(self.outputs)}>"


class Model(_Callable):
    """A SavedModel that was loaded: call it, or one of its signatures; or look at its variables."""

    def __init__(self, tf: Any, loaded: Any, path: str, to: str, device: str | None) -> None:
        super().__init__(tf, to, device)
        self.loaded, self.path = loaded, path  # `loaded` is TensorFlow's own object
        self.signatures: dict[str, Signature] = {
            name: Signature(tf, name, function, to, device) for name, function in loaded.signatures.items()
        }

    @property
    def variables(self) -> dict[str, Any]:
        """The variables by name, read from the file."""
        index = os.path.join(self.path, "variables", "variables.index")
        if not os.path.isfile(index):
            return {}
        found: dict[str, Any] = api.load(index, "checkpoint", keys="clean", to=self._to, device=self._device)
        return found

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """What the function that was saved gives, in the structure that it gave it in."""
        call = self.loaded if callable(self.loaded) else None
        known = getattr(getattr(call, "__call__", None), "concrete_functions", [])  # noqa: B004
        if call is None or not known:
            return self._by_signature(args, kwargs)
        specs = [function.structured_input_signature for function in known]
        if len(specs) == 1 and not kwargs and not specs[0][1]:
            args = self._positional(args, specs[0][0])
        else:
            args, kwargs = self._tf.nest.map_structure(self._tensor, (args, kwargs))
        return self._give(self._checked(call, args, kwargs, specs))

    def _positional(self, args: tuple[Any, ...], specs: Sequence[Any]) -> tuple[Any, ...]:
        if len(args) != len(specs):
            known = ", ".join(map(_described, specs))
            raise UsageError(f"the model takes {len(specs)} inputs, got {len(args)}; it takes {known}")
        return tuple(self._nested(x, spec, f"{i}") for i, (x, spec) in enumerate(zip(args, specs, strict=True)))

    def _nested(self, x: Any, spec: Any, place: str) -> Any:
        """An input with the structure of its spec."""
        if isinstance(spec, Mapping):
            if not isinstance(x, Mapping) or set(x) != set(spec):
                raise UsageError(f"input {place} must be a dict of {', '.join(map(str, sorted(spec)))}")
            return {key: self._nested(x[key], spec[key], f"{place}/{key}") for key in spec}
        if isinstance(spec, list | tuple):
            if not isinstance(x, list | tuple) or len(x) != len(spec):
                raise UsageError(f"input {place} must be a {type(spec).__name__} of {len(spec)}")
            made = [self._nested(a, b, f"{place}/{i}") for i, (a, b) in enumerate(zip(x, spec, strict=True))]
            return tuple(made) if isinstance(spec, tuple) else made
        return self._take(x, spec, getattr(spec, "name", None) or place)

    def _checked(self, call: Callable[..., Any], args: Any, kwargs: Any, specs: Sequence[Any]) -> Any:
        try:
            return call(*args, **kwargs)
        except (TypeError, ValueError) as error:
            choices = "; ".join(", ".join(map(_described, positional)) for positional, _ in specs)
            raise UsageError(f"no function of the model takes these inputs; it has: {choices}") from error

    def _by_signature(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """Models that other software saved may have signatures alone."""
        chosen = self.signatures.get(DEFAULT) or (
            next(iter(self.signatures.values())) if len(self.signatures) == 1 else None
        )
        if chosen is None:
            known = ", ".join(self.signatures) or "none"
            raise UsageError(
                "it can't be called itself",
                path=str(self.path),
                hints=[Hint(purpose=f"call one of its signatures: {known}")],
            )
        return chosen(*args, **kwargs)

    def __repr__(self) -> str:
        return f"<SavedModel {self.path!r}: {', '.join(map(repr, self.signatures.values()))}>"


def _described(spec: Any) -> str:
    name = getattr(spec, "name", None)
    return f"{name}: {_text(spec)}" if name else _text(spec)
