"""Whole torch modules: their state saved to any format, and loaded into modules that exist.

    save_module(model, "model.safetensors")          # or .tb, .pt, .npz ...: parameters and buffers, by their names
    load_module(model, "model.safetensors")          # into the model's own parameters, in place

A file holds what `module.state_dict()` gives; weights that are tied are stored once where the format can say so. Files
of torch.save, safetensors.torch.save_model and transformers' save_pretrained load alike. Loading copies into the memory
that the module has, so that tied weights stay tied, and optimizers keep their parameters.
"""

from __future__ import annotations

import json
from collections import OrderedDict
from collections.abc import Hashable, Iterable, Mapping
from typing import Any, NamedTuple

from tensorbytes import api, frameworks
from tensorbytes.errors import LIMITS, Hint, Limits, StateDictError, UsageError
from tensorbytes.io import storage
from tensorbytes.io.storage import Target
from tensorbytes.reader import StreamReader
from tensorbytes.tensor import identical

__all__ = ["IncompatibleKeys", "load_module", "save_module"]

# The versions of a state_dict's modules, as the origin of a document has them: [[path, versions], ...], as JSON.
_METADATA = "torch._metadata"
_SHOWN = 24  # of what is wrong, in words


class IncompatibleKeys(NamedTuple):
    """The names that only the module has, and those that only the file has; as `load_state_dict` of torch returns."""

    missing_keys: list[str]
    unexpected_keys: list[str]


def save_module(
    module: Any,
    target: Target,
    format: str | None = None,
    *,
    meta: Mapping[str, str] | None = None,
    allow: Iterable[str] = (),
    sync: bool = True,
    **options: Any,
) -> None:
    """Write the state of a module, parameters and buffers by their names, to a path, a URL or a file object.

    Args:
        module: a torch.nn.Module.
        target: where to write; the suffix tells the format.
        format: the format, where the suffix does not tell it.
        meta: metadata of the file, text to text. transformers wants {"format": "pt"} in safetensors files.
        allow: the losses that are acceptable, as for `save`.
        sync: False does not wait for the disk, as for `save`.
        options: of the format, as for `save`.
    """
    _check_module(module)
    state = module.state_dict()
    versions = getattr(state, "_metadata", None)
    origin = {_METADATA: json.dumps([[[], versions]], ensure_ascii=False, separators=(",", ":"))} if versions else None
    api.save(dict(state), target, format, meta=meta, origin=origin, allow=allow, sync=sync, **options)


def load_module(
    module: Any,
    source: Target,
    format: str | None = None,
    *,
    strict: bool = True,
    device: Any = None,
    allow: Iterable[str] = (),
    limits: Limits = LIMITS,
    **options: Any,
) -> IncompatibleKeys:
    """Read the state of a module from a file into the module's own parameters and buffers.

    A name that the file lacks is not missing if it is tied to one that the file has. Shapes, dtypes and ties are
    checked before anything is changed, names too, unless a module has loading rules of its own. A module on the
    "meta" device gets memory, on `device` or on the CPU.

    Args:
        module: a torch.nn.Module.
        source: a path, a URL or a file object; a folder with a checkpoint in several files.
        format: the format, where the file does not tell it.
        strict: whether names that only the module has, or only the file, raise StateDictError.
        device: where the module is moved to, before it gets the values; None leaves it where it is.
        allow: {"dtype"} lets values be cast to the dtype that the module has.
        limits: what reading may use, as for `load`.
        options: of the format, as for `load`.

    Returns:
        The names that only the module has, and those that only the file has.
    """
    torch = _check_module(module)
    allowed = frozenset([allow] if isinstance(allow, str) else allow)
    if device is not None and torch.device(device).type == "meta":
        raise UsageError("device='meta': there are no values on it")
    given, versions = _read(source, format, limits, options)
    check = _Comparison(module, given, storage.describe(source))
    check.compare(allowed)
    keys, later = check.keys(), _has_own_rules(module)
    check.refuse(keys, strict and not later)
    _materialise(module, torch.device("cpu" if device is None else device))
    if device is not None:
        module.to(device)
    state: Any = OrderedDict(given)
    if versions is not None:
        state._metadata = versions
    try:
        found = module.load_state_dict(state, strict=False)
    except RuntimeError as error:
        raise StateDictError(str(error), path=check.path) from error
    if later:  # modules that take other names than their own, or do without some
        keys = check.without_tied(IncompatibleKeys(list(found.missing_keys), list(found.unexpected_keys)))
        check.refuse(keys, strict)
    return keys


def _check_module(module: Any) -> Any:
    """torch, once it is there and what is given is one of its modules."""
    frameworks.get("torch")  # names what to install
    import torch

    if not isinstance(module, torch.nn.Module):
        raise UsageError(expected="a torch.nn.Module", got=type(module).__qualname__)
    return torch


def _read(source: Target, format: str | None, limits: Limits, options: Any) -> tuple[dict[str, Any], Any]:
    """What a file holds under names, as torch's tensors, and the versions of the modules, if it has them."""
    with api.open(source, "r", format, to="torch", limits=limits, **options) as file:
        if isinstance(file, StreamReader):
            found, origin = list(file), {}
        else:
            found, origin = [file[number] for number in range(len(file))], file.origin
    if len(found) != 1 or not isinstance(found[0], dict):
        what = f"{len(found)} objects" if len(found) != 1 else f"a {type(found[0]).__name__}"
        raise UsageError(f"it holds {what}, not the state of a module", path=storage.describe(source))
    given = found[0]
    odd = next((name for name in given if not isinstance(name, str)), None)
    if odd is not None:
        raise UsageError(f"it has the key {odd!r}: the state of a module has names", path=storage.describe(source))
    return given, _versions(origin.get(_METADATA, ""))


def _versions(text: str) -> Any:
    """The versions of the modules, of the state_dict at the top."""
    try:
        found = json.loads(text)
        versions = next(entry for path, entry in found if path == [])
    except (ValueError, TypeError, StopIteration, RecursionError):
        return None
    sound = isinstance(versions, dict) and all(isinstance(entry, dict) for entry in versions.values())
    return OrderedDict(versions) if sound else None


class _Comparison:
    """A module beside what a file holds for it."""

    def __init__(self, module: Any, given: Mapping[str, Any], path: str) -> None:
        self._module, self._given, self.path = module, given, path
        self._own: dict[str, Any] = module.state_dict(keep_vars=True)
        self._places: dict[str, Hashable] = {name: _place(own) for name, own in self._own.items()}
        self._faults: list[str] = []
        self._dtypes = False  # whether dtypes differ

    def compare(self, allowed: frozenset[str]) -> None:
        """Find what can't be loaded, whatever names are there."""
        import torch

        first: dict[Hashable, str] = {}
        for name, given in self._given.items():
            own = self._own.get(name)
            if own is None or not isinstance(own, torch.Tensor) or _is_unshaped(own):
                continue
            if not isinstance(given, torch.Tensor):
                self._faults.append(f"{name}: a tensor in the module, a {type(given).__name__} in the file")
                continue
            if given.shape != own.shape:
                self._faults.append(f"{name}: shape {list(own.shape)} in the module, {list(given.shape)} in the file")
            elif given.dtype != own.dtype and "dtype" not in allowed:
                self._dtypes = True
                self._faults.append(f"{name}: {own.dtype} in the module, {given.dtype} in the file")
            before = first.setdefault(self._places[name], name)
            if before != name and not _agree(self._given[before], given):
                self._faults.append(f"{name}: tied to {before!r} in the module, and of other values in the file")

    def keys(self) -> IncompatibleKeys:
        missing = [name for name in self._own if name not in self._given]
        unexpected = [name for name in self._given if name not in self._own]
        return self.without_tied(IncompatibleKeys(missing, unexpected))

    def without_tied(self, keys: IncompatibleKeys) -> IncompatibleKeys:
        """What is missing is there if it is tied to what is there."""
        there = {place for name, place in self._places.items() if name in self._given}
        missing = [name for name in keys.missing_keys if name not in self._places or self._places[name] not in there]
        return IncompatibleKeys(missing, keys.unexpected_keys)

    def refuse(self, keys: IncompatibleKeys, strict: bool) -> None:
        """Raise StateDictError if anything is wrong; it lists everything."""
        faults = list(self._faults)
        faults += [f"{name}: on the 'meta' device, and not in the file" for name in self._without_memory(keys)]
        if strict:
            faults += [f"{name}: missing in the file" for name in keys.missing_keys]
            faults += [f"{name}: unexpected, the module has no such name" for name in keys.unexpected_keys]
        if not faults:
            return
        hints = [Hint("allow", {"dtype"}, "to cast to the module's dtypes")] if self._dtypes else []
        if strict and any(keys) and not self._faults:
            hints = [Hint("strict", False, "to load what there is", of="torch.load_module")]
        more = [f"and {len(faults) - _SHOWN} more"] if len(faults) > _SHOWN else []
        listed = "\n".join(f"  {_printable(fault)}" for fault in [*faults[:_SHOWN], *more])
        raise StateDictError(
            f"it does not fit {type(self._module).__name__}:\n{listed}",
            path=self.path,
            missing_keys=keys.missing_keys,
            unexpected_keys=keys.unexpected_keys,
            hints=hints,
        )

    def _without_memory(self, keys: IncompatibleKeys) -> list[str]:
        """The tensors on the "meta" device that would get memory, and no values."""
        lacking = {name for name in keys.missing_keys if _is_meta(self._own.get(name))}
        unsaved = {name for name, buffer in self._module.named_buffers() if _is_meta(buffer)} - self._own.keys()
        return sorted(lacking | unsaved)


def _printable(text: str) -> str:
    """Names come from files, and go to terminals."""
    return text if text.isprintable() else repr(text)[1:-1]


def _place(own: Any) -> Hashable:
    """What is the same of tensors that are tied."""
    place = None if _is_meta(own) or _is_unshaped(own) else frameworks.place_of(own)
    return id(own) if place is None else place


def _is_meta(x: Any) -> bool:
    return bool(getattr(x, "is_meta", False))


def _is_unshaped(x: Any) -> bool:
    """Whether it is a parameter of a lazy module, which gets its shape from what it is given."""
    from torch.nn.parameter import is_lazy

    return bool(is_lazy(x))


def _agree(one: Any, two: Any) -> bool:
    return one is two or identical(frameworks.to_value(one), frameworks.to_value(two))


def _has_own_rules(module: Any) -> bool:
    """Whether a module decides by itself which names it takes: torch tells once it has loaded."""
    import torch

    usual = torch.nn.Module._load_from_state_dict
    return any(
        part._load_state_dict_pre_hooks or type(part)._load_from_state_dict is not usual for part in module.modules()
    )


def _materialise(module: Any, device: Any) -> None:
    """Memory for what is on the "meta" device; what is one parameter in several places stays one."""
    import torch

    made: dict[int, Any] = {}
    for part in module.modules():
        for held in (part._parameters, part._buffers):
            for name, old in held.items():
                if not _is_meta(old):
                    continue
                if id(old) not in made:
                    empty = torch.empty_like(old.detach(), device=device)
                    parameter = isinstance(old, torch.nn.Parameter)
                    made[id(old)] = torch.nn.Parameter(empty, old.requires_grad) if parameter else empty
                held[name] = made[id(old)]
