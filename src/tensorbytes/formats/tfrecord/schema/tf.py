"""Schemas as TensorFlow's feature specs, for tf.io.parse_example and parse_sequence_example.

TensorFlow's parser knows three dtypes, those of the lists: what is stored flat comes out as
int64, float32 or string, whatever its dtype (tf.cast gives it back), and the other encodings
as strings (for tf.io.parse_tensor, decode_raw and the like).

| feature                           | spec                                                           |
| --------------------------------- | -------------------------------------------------------------- |
| fixed shape                       | FixedLenFeature, with the default if there is one              |
| [None], [None, 3]                 | RaggedFeature, the inner sizes as uniform row lengths          |
| [3, None]                         | RaggedFeature of the flat values: TensorFlow has no words for it |
| optional, no default              | RaggedFeature: no row where it is missing                      |
| a 0 in the shape                  | RaggedFeature: the sequence parser divides by the size         |
| list, steps of fixed shape        | FixedLenSequenceFeature; allow_missing if optional             |
| list, steps that vary             | RaggedFeature, as above                                        |
"""

from __future__ import annotations

import base64
from collections.abc import Mapping
from typing import Any

import numpy as np

from tensorbytes import formats
from tensorbytes.errors import MissingDependencyError
from tensorbytes.formats.tfrecord.schema import quantized
from tensorbytes.formats.tfrecord.schema.feature import Feature
from tensorbytes.frameworks import numpy as numpy_adapter
from tensorbytes.tensor import Array, Tensor
from tensorbytes.tree import Document, Leaf


def feature_specs(features: Mapping[str, Feature], tf: Any = None) -> dict[str, Any]:
    """For the features of Examples, or the context of SequenceExamples. `tf` may stand in for TensorFlow."""
    tf = _tensorflow() if tf is None else tf
    return {name: _feature_spec(tf, feature) for name, feature in features.items()}


def list_specs(features: Mapping[str, Feature], tf: Any = None) -> dict[str, Any]:
    """For the feature lists of SequenceExamples."""
    tf = _tensorflow() if tf is None else tf
    return {name: _list_spec(tf, feature) for name, feature in features.items()}


def _tensorflow() -> Any:
    try:
        import tensorflow
    except ModuleNotFoundError as error:
        if error.name != "tensorflow":  # it is there, but something of its own is not
            raise
        raise MissingDependencyError("a feature spec of TensorFlow", "tensorflow") from None
    return tensorflow


def _feature_spec(tf: Any, feature: Feature) -> Any:
    if not feature.width or (feature.optional and feature.default is None):
        return _ragged_spec(tf, feature)
    default = None if feature.default is None else _stored_default(feature)
    return tf.io.FixedLenFeature(_stored_shape(feature), _list_dtype(tf, feature), default)


def _list_spec(tf: Any, feature: Feature) -> Any:
    if not feature.width:
        return _ragged_spec(tf, feature)
    return tf.io.FixedLenSequenceFeature(
        _stored_shape(feature), _list_dtype(tf, feature), allow_missing=feature.optional
    )


def _ragged_spec(tf: Any, feature: Feature) -> Any:
    inner = _stored_shape(feature)[1:]
    spec = tf.io.RaggedFeature
    partitions = () if None in inner or 0 in inner else tuple(spec.UniformRowLength(size) for size in inner)
    return spec(_list_dtype(tf, feature), partitions=partitions)


def _list_dtype(tf: Any, feature: Feature) -> Any:
    return {"bytes": tf.string, "float": tf.float32, "int64": tf.int64}[feature.kind]


def _stored_shape(feature: Feature) -> list[int | None]:
    """How the items of the list are laid out: a whole array is one item."""
    return [] if feature.encoding in ("tensorproto", "raw") else list(feature.shape)


def _stored_default(feature: Feature) -> Any:
    """The default as the list would hold it."""
    array = feature.default_array()
    if feature.encoding == "flat":
        return array if feature.kind == "bytes" else array.astype("f4" if feature.kind == "float" else "i8")
    if feature.encoding == "base64":
        return _each(array, base64.b64encode)
    value = numpy_adapter.to_value(np.array(array))  # an array of its own: to_value knows plain ones only
    if feature.quantize is not None and isinstance(value, Tensor):
        return b"".join(quantized.cell(value, feature.quantize, feature.encoding))
    if feature.encoding == "raw":
        return bytes(value.data)  # type: ignore[union-attr]
    # Whether strings are text, a TensorProto can't say; the schema does.
    return formats.get("tensorproto").dumps(Document([Leaf(value)]), frozenset({"encoding"}), {})


def _each(array: Array, encode: Any) -> Array:
    out = np.empty(array.shape, object)
    for place in np.ndindex(array.shape):
        item = array[place]
        out[place] = encode(item.encode() if isinstance(item, str) else item)
    return out
