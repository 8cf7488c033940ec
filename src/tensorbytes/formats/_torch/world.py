"""What the names of a torch file mean: the calls that its pickle may make, each with its arguments checked.

Beside tensors these are torch.Size (a tuple here), torch.dtype, torch.device and
torch.layout (text), OrderedDict, defaultdict and Counter (dicts), bytes, complex numbers,
and NumPy's arrays and scalars. All other names stand for what is not read.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from typing import Any, ClassVar

from tensorbytes.budget import Budget
from tensorbytes.formats._torch import arrays, values
from tensorbytes.formats._torch.names import LAYOUTS, NAMES, Name
from tensorbytes.formats._torch.pickle_values import ByteArray, FaultError, Ordered, RefusedError, put
from tensorbytes.formats._torch.unread import ADVICE, SET_ADVICE, Opaque, Unread
from tensorbytes.formats._torch.values import Held, Storage
from tensorbytes.tensor import Tensor

_LOCATION = re.compile(r"[a-z_]{1,32}(:[0-9]{1,6})?")
_COMPILER_NOTES = ("_dynamo_", "_specialize_on", "_has_dynamo")
_QUANTIZED = ("qint8", "quint8", "qint32")
# What a tensor may be made of before it gets a type: no further types, so no depth.
_PLAIN_CALLS = ("tensor", "tensor_v2", "tensor_v3", "sparse", "quantized", "nested", "jagged")
_MAX_SCALES = 1 << 20
# Calls that take what is not read, and make something else of it.
_TAKES_ANYTHING = ("set", "frozenset", "opaque", "defaultdict", "counter", "np_scalar")
# Calls whose first argument tells more than their own name.
_INDIRECT = ("copyreg._reconstructor", "copy_reg._reconstructor", "builtins.getattr", "__builtin__.getattr")
_MOST_ARGUMENTS = 8
# About what an item of a dict takes in memory; and a scale, as a number and then as text.
_ITEM_BYTES, _SCALE_BYTES = 256, 96


class World:
    """`storage` gives the storage of a persistent id."""

    def __init__(self, storage: Callable[..., Storage], framework: str, budget: Budget) -> None:
        self._storage, self._budget = storage, budget
        self._origin = {"framework": framework} if framework else {}
        self._encoded: dict[int, tuple[str, bytes]] = {}
        self.unread = Unread()

    def find(self, name: str) -> Any:
        found = NAMES.get(name)
        return self.unread(name) if found is None else found

    def call(self, function: Any, args: tuple[Any, ...]) -> Any:
        if type(function) is Opaque:
            # It stands for its class and for what that makes; the arguments are dropped.
            named = function.what in _INDIRECT and args and type(args[0]) is Opaque
            return args[0] if named else function
        if type(function) is not Name or function.kind != "call":
            what = function.name if isinstance(function, Name) else f"a {type(function).__name__}"
            raise RefusedError(f"a call of {what!r}: {ADVICE}")
        low, high, method = self._CALLS[function.of]
        if not low <= len(args) <= high:
            raise FaultError(f"{function.name} with {len(args)} arguments")
        if function.of not in _TAKES_ANYTHING:
            unread = _first_unread(args)
            if unread is not None:  # what is made of it is not read either
                return unread
        return method(self, *args)

    def build(self, made: Any, state: Any) -> None:
        if isinstance(made, Opaque):
            return
        if type(made) is arrays.DType:
            made.set_state(state)
            return
        if type(made) is arrays.Held:
            try:
                made.set_state(state, self._budget)
            except RefusedError as error:
                made.made = self.unread("numpy.ndarray", str(error))
            return
        if type(made) is not Ordered or type(state) is not dict:
            raise RefusedError(f"attributes of a {type(made).__name__}: {ADVICE}")
        wrong = next((name for name in state if name != "_metadata"), None)
        if wrong is not None:
            raise RefusedError(f"the attribute {wrong!r} of an OrderedDict: {ADVICE}")
        made.attributes = state

    def persistent(self, key: Any) -> Storage | Opaque:
        if type(key) is tuple and len(key) == 4 and key[0] == "module" and type(key[1]) is Opaque:
            return key[1]  # a class with its source, as torch wrote them before 1.6
        if type(key) is not tuple or len(key) not in (5, 6) or key[0] != "storage":
            raise RefusedError("a persistent id that is not a storage")
        _, kind, name, location, count, *view = key
        if type(kind) is not Name or kind.kind != "storage" or type(name) is not str:
            raise FaultError("a storage without a type or a key")
        if type(count) is not int or not 0 <= count < 1 << 62:
            raise FaultError("a storage without a number of elements")
        if type(location) is not str or not _LOCATION.fullmatch(location):
            raise FaultError("a storage without a device")
        if location == "meta":
            raise RefusedError("a tensor on the 'meta' device: it has no data")
        return self._storage(kind.of, name, location, count, view[0] if view else None)

    # ---- tensors ----

    def _dense(self, storage: Any, dtype: str, place: tuple[Any, Any, Any], grad: Any) -> Held:
        if type(storage) is not Storage:
            raise FaultError("a tensor without a storage")
        if type(grad) is not bool:
            raise FaultError("requires_grad is neither true nor false")
        origin = self._origin
        if grad or storage.location != "cpu":
            origin = {**origin, **({"device": storage.location} if storage.location != "cpu" else {})}
            if grad:
                origin["requires_grad"] = "true"
        return values.dense(storage, dtype, place, origin, self._budget)

    def _tensor(self, storage: Any, offset: Any, size: Any, stride: Any) -> Held:
        return self._tensor_v2(storage, offset, size, stride, False, None)

    def _tensor_v2(
        self, storage: Any, offset: Any, size: Any, stride: Any, grad: Any, hooks: Any, bits: Any = None
    ) -> Held:
        if hooks:
            raise RefusedError("a tensor with backward hooks")
        if type(storage) is not Storage or not storage.dtype or storage.dtype in _QUANTIZED:
            raise FaultError("a tensor without a storage of its type")
        made = self._dense(storage, storage.dtype, (offset, size, stride), grad)
        return self._pending(made, bits) if bits else made

    def _tensor_v3(
        self, storage: Any, offset: Any, size: Any, stride: Any, grad: Any, hooks: Any, dtype: Any, bits: Any = None
    ) -> Held:
        if hooks:
            raise RefusedError("a tensor with backward hooks")
        if type(dtype) is not Name or dtype.kind != "dtype" or type(storage) is not Storage:
            raise FaultError("a tensor without a dtype or a storage")
        if dtype.of in _QUANTIZED:
            raise RefusedError(f"a tensor of {dtype.of} without a scale")
        made = self._dense(storage, dtype.of, (offset, size, stride), grad)
        return self._pending(made, bits) if bits else made

    def _pending(self, made: Held, bits: Any) -> Held:
        if type(bits) is not dict or not all(type(flag) is bool for flag in bits.values()):
            raise FaultError("the metadata of a tensor are not flags")
        wrong = next((name for name in bits if name not in ("conj", "neg")), None)
        if wrong is not None:
            raise RefusedError(f"a tensor with the flag {wrong!r}; known: conj, neg")
        if not any(bits.values()):
            return made
        return values.flipped(made, bits.get("conj", False), bits.get("neg", False))

    def _parameter(self, data: Any, grad: Any, hooks: Any, state: Any = None) -> Held:
        if type(data) is not Held or type(grad) is not bool:
            raise FaultError("a Parameter without a tensor")
        if hooks:
            raise RefusedError("a Parameter with backward hooks")
        _check_attributes(state, ())
        return data.with_origin({"type": "Parameter", **({"requires_grad": "true"} if grad else {})})

    def _from_type(self, function: Any, kind: Any, args: Any, state: Any) -> Held | Opaque:
        if type(kind) is not Name or kind.kind != "type" or type(args) is not tuple:
            raise RefusedError(f"a tensor of another type: {ADVICE}")
        if kind.name.endswith("Parameter") or type(function) is not Name or function.of not in _PLAIN_CALLS:
            raise RefusedError("a tensor in a form that torch does not write")
        made = self.call(function, args)
        if type(made) is Opaque:
            return made
        if type(made) is not Held:
            raise FaultError("a tensor that is not a tensor")
        if kind.name.endswith("NestedTensor"):
            _check_attributes(state, ("_values", "_offsets", "_lengths", "_ragged_idx", "_metadata_cache"))
            return made
        _check_attributes(state, ("_is_buffer", "persistent"))
        if state and state.get("_is_buffer"):
            kept = state.get("persistent", True)
            made = made.with_origin({"type": "Buffer", **({} if kept else {"torch.persistent": "false"})})
        return made

    def _sparse(self, layout: Any, parts: Any) -> Held:
        name = LAYOUTS.get(layout) if type(layout) is str else None
        if name is None:
            raise RefusedError(f"a sparse tensor of another layout than {', '.join(LAYOUTS.values())}")
        coordinates = name == "coo"
        if type(parts) is not tuple or len(parts) not in ((3, 4) if coordinates else (4,)):
            raise FaultError(f"a {name} tensor of other parts")
        count = 1 if coordinates else 2
        index, inner, shape = list(parts[:count]), parts[count], parts[count + 1]
        if not all(_is_dense(part) for part in (*index, inner)):
            raise FaultError(f"a {name} tensor whose parts are not tensors")
        if not _is_size(shape) or len(shape) > self._budget.max_rank:
            raise FaultError(f"a {name} tensor without a shape")
        made = values.sparse(name, index, inner, shape)
        return made.with_origin({"torch.coalesced": "true"}) if coordinates and parts[-1] is True else made

    def _quantized(self, storage: Any, offset: Any, size: Any, stride: Any, scheme: Any, grad: Any, hooks: Any) -> Held:
        if type(storage) is not Storage or storage.dtype not in _QUANTIZED or hooks:
            raise FaultError("a quantized tensor without a storage of its type")
        made = self._dense(storage, storage.dtype, (offset, size, stride), grad)
        return made.with_origin(_quantization(scheme, self._budget))

    def _nested(self, buffer: Any, *index: Any) -> Held:
        if not all(_is_dense(part) for part in (buffer, *index)):
            raise FaultError("a nested tensor whose parts are not tensors")
        made = values.nested(buffer, list(index), self._budget)
        return made.with_origin({"torch.layout": "strided"})

    def _jagged(self, parts: Any) -> Held:
        if type(parts) is not dict or not all(_is_dense(parts.get(name)) for name in ("values", "offsets")):
            raise FaultError("a jagged tensor without values or offsets")
        if parts.get("lengths") is not None or parts.get("_ragged_idx", 1) != 1:
            raise RefusedError("a jagged tensor with holes, or transposed: save x.contiguous()")
        made = values.jagged(parts["values"], parts["offsets"])
        grad = {"requires_grad": "true"} if parts.get("requires_grad") is True else {}
        return made.with_origin({"torch.layout": "jagged", **grad})

    # ---- plain values ----

    def _layout(self, name: Any) -> str:
        if type(name) is not str or not name.startswith("torch."):
            raise FaultError("a layout without a name")
        return name

    def _size(self, size: Any) -> tuple[int, ...]:
        if not _is_size(size):
            raise FaultError("a torch.Size of other things than sizes")
        checked: tuple[int, ...] = size
        return checked

    def _device(self, kind: Any, index: Any = None) -> str:
        text = kind if index is None else f"{kind}:{index}"
        if type(kind) is not str or type(index) not in (int, type(None)) or not _LOCATION.fullmatch(text):
            raise FaultError("a torch.device of other things than a name and a number")
        return text

    def _ordered(self, pairs: Any = None) -> Ordered:
        """Empty; or of a list of pairs, as Python 2 spells it."""
        made = Ordered()
        if pairs is None:
            return made
        if type(pairs) is not list or not all(type(pair) in (list, tuple) and len(pair) == 2 for pair in pairs):
            raise FaultError("an OrderedDict of other things than pairs")
        self._budget.objects(len(pairs), "the items of an OrderedDict", 0, _ITEM_BYTES)
        put(made, [key for key, _ in pairs], [value for _, value in pairs])
        return made

    def _encode(self, text: Any, encoding: Any) -> bytes:
        """How protocol 2 spells bytes: text of which each character is a byte."""
        if type(text) is not str or type(encoding) is not str or encoding != "latin1":
            raise FaultError("bytes are spelled as text in latin1")
        # Once, however often a pickle recalls the text.
        known = self._encoded.get(id(text))
        if known is None:
            try:
                known = self._encoded[id(text)] = (text, text.encode("latin-1"))
            except UnicodeEncodeError:
                raise FaultError("bytes are spelled as text in latin1") from None
        return known[1]

    def _bytes(self) -> bytes:
        return b""

    def _complex(self, real: Any, imaginary: Any) -> complex:
        if type(real) is not float or type(imaginary) is not float:
            raise FaultError("a complex number of other things than two floats")
        return complex(real, imaginary)

    def _opaque(self, *_: Any) -> Opaque:
        return self.unread("torch._dynamo")

    def _set(self, *_: Any) -> Opaque:
        return self.unread("set", SET_ADVICE)

    def _frozenset(self, *_: Any) -> Opaque:
        return self.unread("frozenset", SET_ADVICE)

    def _defaultdict(self, *_: Any) -> Ordered:
        """Its items follow; what it makes of missing keys is code, not data."""
        return Ordered()

    def _counter(self, items: Any = None) -> dict[Any, Any]:
        """The dict itself: a copy of one that is recalled over and over would be much of little."""
        if items is not None and type(items) is not dict:
            raise FaultError("a Counter of other things than a dict")
        return Ordered() if items is None else items

    # ---- NumPy ----

    def _np_dtype(self, code: Any, *_: Any) -> arrays.DType:
        return arrays.dtype(code)

    def _np_reconstruct(self, kind: Any, shape: Any, code: Any) -> arrays.Held:
        if type(kind) is not Name or kind.name != "numpy.ndarray":
            raise FaultError("a NumPy array of another type")
        return arrays.Held()

    def _np_scalar(self, kind: Any, raw: Any = None) -> arrays.Held | Opaque:
        try:
            return arrays.Held(arrays.value(raw, kind, (), "C", self._budget), "numpy")
        except RefusedError as error:
            return self.unread("numpy.generic", str(error).replace("array", "scalar"))

    def _np_frombuffer(self, raw: Any, kind: Any, shape: Any, order: Any, axes: Any = None) -> arrays.Held | Opaque:
        if order not in ("C", "F", "K") or (axes is None) != (order != "K"):
            raise FaultError("a NumPy array in another order than C, F or K")
        data = raw.data if type(raw) is ByteArray else raw
        try:
            return arrays.Held(arrays.value(data, kind, shape, order, self._budget, axes))
        except RefusedError as error:
            return self.unread("numpy.ndarray", str(error))

    _CALLS: ClassVar[dict[str, tuple[int, int, Callable[..., Any]]]] = {
        "tensor": (4, 4, _tensor), "tensor_v2": (6, 7, _tensor_v2), "tensor_v3": (7, 8, _tensor_v3),
        "parameter": (3, 4, _parameter), "from_type": (4, 4, _from_type), "sparse": (2, 2, _sparse),
        "quantized": (7, 7, _quantized), "nested": (4, 4, _nested), "jagged": (1, 1, _jagged),
        "layout": (1, 1, _layout), "size": (1, 1, _size), "device": (1, 2, _device), "ordered": (0, 1, _ordered),
        "encode": (2, 2, _encode), "bytes": (0, 0, _bytes), "complex": (2, 2, _complex), "opaque": (0, 1, _opaque),
        "set": (0, 1, _set), "frozenset": (0, 1, _frozenset), "defaultdict": (0, 1, _defaultdict),
        "counter": (0, 1, _counter), "np_dtype": (1, 3, _np_dtype), "np_reconstruct": (3, 3, _np_reconstruct),
        "np_scalar": (1, 2, _np_scalar), "np_frombuffer": (4, 5, _np_frombuffer),
    }  # fmt: skip


def _first_unread(args: tuple[Any, ...]) -> Opaque | None:
    """Among some arguments, and one level below."""
    for arg in args:
        if type(arg) is Opaque:
            return arg
        if type(arg) is tuple and len(arg) <= _MOST_ARGUMENTS:
            for inner in arg:
                if type(inner) is Opaque:
                    return inner
    return None


def _is_dense(part: Any) -> bool:
    return type(part) is Held and (type(part.value) is Tensor or getattr(part.value, "kind", "") == "tensor")


def _is_size(size: Any) -> bool:
    return type(size) is tuple and all(type(n) is int and 0 <= n < 1 << 63 for n in size)


def _check_attributes(state: Any, known: tuple[str, ...]) -> None:
    """Attributes of a tensor would be lost; those that torch's compiler leaves are not data."""
    if state is not None and type(state) is not dict:
        raise RefusedError("a tensor with state of its own")
    for name in state or ():
        if name not in known and not str(name).startswith(_COMPILER_NOTES):
            raise RefusedError(f"a tensor with the attribute {name!r}, which would be lost: save it beside the tensor")


def _quantization(scheme: Any, budget: Budget) -> dict[str, str]:
    """As the torch adapter describes it."""
    if type(scheme) is not tuple or not scheme or type(scheme[0]) is not Name or scheme[0].kind != "qscheme":
        raise FaultError("a quantized tensor without a scheme")
    kind, *rest = scheme
    if kind.of == "per_tensor_affine" and [type(item) for item in rest] == [float, int]:
        return {"torch.scale": repr(rest[0]), "torch.zero_point": repr(rest[1])}
    if kind.of == "per_channel_affine" and len(rest) == 3 and type(rest[2]) is int:
        dtypes = [part.value.dtype if _is_dense(part) else "" for part in rest[:2]]
        if dtypes == ["float64", "int64"] and all(part.value.nbytes <= 8 * _MAX_SCALES for part in rest[:2]):
            budget.copy(sum(part.value.nbytes for part in rest[:2]) // 8 * _SCALE_BYTES, "the scales of a tensor", 0)
            scales, zeros = (part.read().numpy().reshape(-1).tolist() for part in rest[:2])
            return {
                "torch.scale": json.dumps(scales),
                "torch.zero_point": json.dumps(zeros),
                "torch.axis": repr(rest[2]),
            }
    raise RefusedError(f"a quantized tensor of the scheme {kind.of}; known: per_tensor_affine, per_channel_affine")
