"""One schema out of several: what the shards of a dataset have in common.

| they disagree in                       | together                                              |
| -------------------------------------- | ----------------------------------------------------- |
| a size of the shape                    | that size varies: None                                |
| a scalar and a list (not tensorproto)  | a list of any length: [None]                          |
| being there at all, being optional     | optional                                              |
| having a default                       | the default                                           |
| dtype, encoding, quantize, rank, default values | refused, naming the feature and who says what |
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from tensorbytes.errors import SchemaError, UsageError
from tensorbytes.formats.tfrecord.schema.defaults import Shape, brief, plain
from tensorbytes.formats.tfrecord.schema.feature import Feature

Said = tuple[str, Feature]


def merge_groups(groups: Sequence[tuple[str, Mapping[str, Feature]]], noun: str) -> dict[str, Feature]:
    """One group of features out of several, each with the words for where it comes from."""
    found: dict[str, list[Said]] = {}
    for where, features in groups:
        for name, feature in features.items():
            found.setdefault(name, []).append((where, feature))
    merged = {}
    for name, said in found.items():
        feature = _merge_all(f"{noun} {brief(name)}", said)
        everywhere = len(said) == len(groups) or feature.optional
        merged[name] = feature if everywhere else replace(feature, optional=True)
    return merged


def _merge_all(what: str, said: list[Said]) -> Feature:
    merged = said[0][1]
    for number, (where, feature) in enumerate(said):
        try:
            merged = _merge_two(merged, feature)
        except SchemaError as error:
            # Of all that were taken in so far, name one that this one really disagrees with.
            there, other = next((pair for pair in said[:number] if _clash(pair[1], feature)), said[0])
            raise SchemaError(
                f"{what} is {other.describe()} in {there}, but {feature.describe()} in {where}: {error.fault}"
            ) from None
    return merged


def _clash(a: Feature, b: Feature) -> bool:
    try:
        _merge_two(a, b)
    except SchemaError:
        return True
    return False


def _merge_two(a: Feature, b: Feature) -> Feature:
    if a == b:
        return a
    for field in ("dtype", "encoding", "quantize"):
        if getattr(a, field) != getattr(b, field):
            raise SchemaError(f"they differ in {field}")
    if a.default is not None and b.default is not None:
        one, other = plain(a.dtype, a.default), plain(b.dtype, b.default)
        if repr(one) != repr(other):
            raise SchemaError(f"their defaults are {brief(one)} and {brief(other)}")
    try:
        return Feature(
            a.dtype,
            _merge_shapes(a, b),
            a.encoding,
            a.optional or b.optional,
            b.default if a.default is None else a.default,
            a.quantize,
        )
    except UsageError as error:
        raise SchemaError(f"together, {error.fault}", hints=error.hints) from None


def _merge_shapes(a: Feature, b: Feature) -> Shape:
    if len(a.shape) == len(b.shape):
        return tuple(m if m == n else None for m, n in zip(a.shape, b.shape, strict=True))
    if len(a.shape) + len(b.shape) == 1 and a.encoding != "tensorproto":
        return (None,)
    raise SchemaError("they differ in the number of dimensions")
