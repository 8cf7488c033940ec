"""What an Arrow type, with the note beside it, says of a column: refused by name before any content is touched."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from tensorbytes import dtypes
from tensorbytes.errors import CorruptError, Hint, UnsupportedError
from tensorbytes.formats._arrow.write import NAME, VARIABLE, arrow, carrier

_ARROW_WORDS = {"float16": "halffloat", "float32": "float", "float64": "double"}
_TIMES = {"timestamp": ("datetime64", "M"), "duration": ("timedelta64", "m")}
VIEWS = {"string_view": "large_string", "binary_view": "large_binary"}
_HINTS = {
    "decimal": "cast it to float64 or to int64 first",
    "time": "cast it to int64 first",
    "dictionary": "decode it first",
    "run_end": "decode it first, with pyarrow.compute.run_end_decode",
    "struct": "make a column of each of its fields first, with Table.flatten()",
    "list_view": "cast it to a list first",
    "large_list_view": "cast it to a large_list first",
    "null": "leave the column out",
}


class Form(NamedTuple):
    """What a column holds in each row, as far as its type tells; None stands for an axis that varies."""

    base: str  # tensor or strings
    dtype: str
    dims: tuple[int | None, ...]
    origin: Mapping[str, str] = {}
    meta: Mapping[str, str] = {}
    ragged: bool = False

    @property
    def kind(self) -> str:
        return "ragged" if self.ragged or None in self.dims else self.base


# By Arrow's words for their types.
_NUMBER_FORMS = {
    _ARROW_WORDS.get(name, name): Form("tensor", name, ()) for name, row in dtypes.DTYPES.items() if row.arrow
}


def form(kind: Any, own: Mapping[str, Any], dtype: str | None, where: str, named: bytes = b"") -> Form:
    """What a column of this type and with this note holds. `named`: an extension that pyarrow left in the metadata."""
    check_own(own, where)
    if named:
        found = (
            _variable_form(kind, where)
            if named == VARIABLE.encode()
            else _refuse_extension(named.decode(errors="replace"), where)
        )
    else:
        found = _variable_form(kind, where) if "shapes" in own and is_struct(kind) else type_form(kind, where)
    if "cell" in own:
        found = _with_cell(found, own["cell"], where)
    elif "shapes" in own and found.dims == (None,):
        found = found._replace(dims=(), ragged=True)
    return found if dtype is None else _retyped_form(found, dtype, where)


def check_own(own: Mapping[str, Any], where: str) -> None:
    """The part of a note that speaks of the column's type."""
    if not own:
        return
    kinds = {"cell": list, "splits": list, "shapes": str, "of": str, "ragged": bool}
    sound = all(type(value) is kinds.get(key) for key, value in own.items())
    sound = sound and all(type(n) is int and 0 <= n < 1 << 62 for n in own.get("cell", ()))
    integers = ("int8", "int16", "int32", "int64")
    sound = sound and all(name in integers for name in own.get("splits", ()))
    sound = sound and own.get("shapes", "int64").removeprefix("u") in integers
    if not sound or len(own.get("cell", ())) > 254:
        raise CorruptError(f"the note of column {where!r} has {json.dumps(own)[:200]}", at=0)


def is_struct(kind: Any) -> bool:
    return bool(arrow().types.is_struct(kind))


def type_form(kind: Any, where: str) -> Form:
    pa = arrow()
    text = str(kind)
    if text in _NUMBER_FORMS:
        return _NUMBER_FORMS[text]
    if isinstance(kind, pa.BaseExtensionType):
        if kind.extension_name == VARIABLE:
            return _variable_form(kind, where)
        if not isinstance(kind, pa.FixedShapeTensorType):
            return _refuse_extension(kind.extension_name, where)
        inside = type_form(kind.value_type, where)
        if inside.dims:
            raise UnsupportedError(f"column {where!r} holds tensors of {kind.value_type}")
        return inside._replace(dims=logical_shape(kind, where))
    if pa.types.is_dictionary(kind):
        inside = type_form(kind.value_type, where)
        if inside.dims:
            raise UnsupportedError(f"column {where!r} is a dictionary of {kind.value_type}: decode it first")
        return inside
    if pa.types.is_fixed_size_list(kind):
        inside = type_form(_item(kind, where), where)
        return inside._replace(dims=(kind.list_size, *inside.dims))
    if pa.types.is_list(kind) or pa.types.is_large_list(kind):
        inside = type_form(_item(kind, where), where)
        return inside._replace(dims=(None, *inside.dims))
    if pa.types.is_fixed_size_binary(kind) or text in ("string", "binary", "large_string", "large_binary", *VIEWS):
        return Form("strings", "string", ())
    return _scalar_form(kind, where)


def _item(kind: Any, where: str) -> Any:
    """The type of a list's items; an extension there is as unknown as one of the column."""
    named = (kind.value_field.metadata or {}).get(NAME)
    if named is not None:
        _refuse_extension(named.decode(errors="replace"), where)
    return kind.value_type


def _scalar_form(kind: Any, where: str) -> Form:
    pa = arrow()
    text = str(kind)
    family = text.partition("[")[0]
    if family in _TIMES:
        dtype, letter = _TIMES[family]
        origin = {"numpy.dtype": f"<{letter}8[{kind.unit}]"}
        if family == "timestamp" and kind.tz is not None:
            return Form("tensor", dtype, (), {**origin, "timezone": kind.tz})
        return Form("tensor", dtype, (), origin)
    if pa.types.is_date(kind):
        return Form("tensor", "datetime64", (), {"numpy.dtype": f"<M8[{'D' if pa.types.is_date32(kind) else 'ms'}]"})
    hint = next((hint for start, hint in _HINTS.items() if text.startswith(start)), "leave the column out, or cast it")
    raise UnsupportedError(
        f"column {where!r} is of the Arrow type {text[:100]}, which holds no tensors",
        tensor=where,
        hints=[Hint(purpose=hint)],
    )


def _refuse_extension(name: str, where: str) -> Form:
    raise UnsupportedError(
        f"column {where!r} is of the extension type {name[:200]!r}, whose meaning is unknown here",
        tensor=where,
        hints=[Hint(purpose="cast the column to its storage type first")],
    )


def logical_shape(kind: Any, where: str) -> tuple[int, ...]:
    shape = tuple(kind.shape)
    if math.prod(shape) != kind.storage_type.list_size or any(n < 0 for n in shape):
        raise CorruptError(
            f"column {where!r}: tensors of {list(shape)} in lists of {kind.storage_type.list_size}", at=0
        )
    order = permutation(kind)
    if sorted(order) != list(range(len(shape))):
        raise CorruptError(f"column {where!r}: {list(order)} is not a permutation of {len(shape)} axes", at=0)
    return tuple(shape[axis] for axis in order)


def permutation(kind: Any) -> tuple[int, ...]:
    return tuple(range(len(kind.shape)) if kind.permutation is None else kind.permutation)


def _variable_form(kind: Any, where: str) -> Form:
    pa = arrow()
    inside = kind
    if isinstance(kind, pa.BaseExtensionType):
        inside = kind.storage_type
        if "permutation=[" in str(kind):
            raise UnsupportedError(f"column {where!r}: tensors of varying shape with permuted axes: permute them first")
    names = [inside.field(n).name for n in range(inside.num_fields)] if is_struct(inside) else []
    if sorted(names) != ["data", "shape"]:
        raise CorruptError(f"column {where!r}: {VARIABLE} over {inside}", at=0)
    data, shape = inside.field("data").type, inside.field("shape").type
    lists = pa.types.is_list(data) or pa.types.is_large_list(data)
    if not lists or not pa.types.is_fixed_size_list(shape) or shape.value_type not in (pa.int32(), pa.int64()):
        raise CorruptError(f"column {where!r}: {VARIABLE} over {inside}", at=0)
    found = type_form(_item(data, where), where)
    return found._replace(dims=(*[None] * shape.list_size, *found.dims), ragged=True)


def _with_cell(found: Form, cell: Sequence[int], where: str) -> Form:
    if not found.dims or found.dims[-1] not in (None, math.prod(cell)):
        raise CorruptError(f"column {where!r}: a note of cells of {list(cell)} over {list(found.dims)}", at=0)
    return found._replace(dims=(*found.dims[:-1], *cell))


def _retyped_form(found: Form, dtype: str, where: str) -> Form:
    held, pairs = carrier(dtype)
    if found.dtype != held or found.base != "tensor" or (pairs and (not found.dims or found.dims[-1] != 2)):
        raise CorruptError(f"column {where!r}: a note of {dtype} over {found.dtype}{list(found.dims)}", at=0)
    return found._replace(dtype=dtype, dims=found.dims[:-1] if pairs else found.dims)


def is_plain(kind: Any, own: Mapping[str, Any]) -> bool:
    """Whether a column's buffer is the bytes of a tensor, as they are, whatever they are."""
    pa = arrow()
    if "cell" in own and not pa.types.is_fixed_size_list(kind):
        return False
    if isinstance(kind, pa.FixedShapeTensorType):
        return permutation(kind) == tuple(range(len(kind.shape))) and is_plain(kind.value_type, {})
    if pa.types.is_fixed_size_list(kind):
        return is_plain(kind.value_type, {})
    return not (pa.types.is_boolean(kind) or pa.types.is_date(kind) or pa.types.is_dictionary(kind))
