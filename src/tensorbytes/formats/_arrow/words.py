"""The words of Arrow's dictionaries: their order, which may mean something, and files whose words become more.

The words of a dictionary that is `ordered` are kept beside the schema that a document's origin tells (schemas.py), in
the metadata of its field: JSON of [keys, level, words], the words as a stream of Arrow in base64. Those of others are
made again of what the column holds.
"""

from __future__ import annotations

import base64
import binascii
from collections.abc import Mapping
from types import MappingProxyType
from typing import Any, TypeAlias

import numpy as np

from tensorbytes.errors import CorruptError, LossError
from tensorbytes.formats import _json
from tensorbytes.formats._arrow import flat as arrow_flat
from tensorbytes.formats._arrow.write import arrow
from tensorbytes.tensor import Array

KEY = b"tensorbytes"
# Words of one table that are kept; more are no names of anything.
MOST_BYTES = 1 << 20

# By the keys below the name of a field, and the level of lists.
Words: TypeAlias = Mapping[tuple[tuple[str, ...], int], Any]
NO_WORDS: Words = MappingProxyType({})


class WordsError(LossError):
    """A dictionary whose words can't be written as they were: no other type shall take its place in silence."""


def has_dictionary(kind: Any, ordered: bool = False) -> bool:
    """Whether there is a dictionary in a type, or one that is ordered."""
    pa = arrow()
    if isinstance(kind, pa.BaseExtensionType):
        return has_dictionary(kind.storage_type, ordered)
    if pa.types.is_dictionary(kind):
        return not ordered or bool(kind.ordered) or has_dictionary(kind.value_type, ordered)
    if pa.types.is_run_end_encoded(kind):
        return has_dictionary(kind.value_type, ordered)
    return any(has_dictionary(kind.field(number).type, ordered) for number in range(kind.num_fields))


# ---- the order of words -----------------------------------------------------------


def with_words(field: Any, words: Words) -> Any:
    """A field with a note of words."""
    pa = arrow()
    if not words:
        return field
    found = []
    for (keys, level), array in words.items():
        sink = pa.BufferOutputStream()
        batch = pa.record_batch([array], names=["words"])
        with pa.ipc.new_stream(sink, batch.schema) as writer:
            writer.write_batch(batch)
        found.append([list(keys), level, base64.b64encode(sink.getvalue()).decode()])
    return field.with_metadata({**(field.metadata or {}), KEY: _json.dump(found).encode()})


def words_of(field: Any) -> Words:
    """The words that are noted beside a field; none where a file says something else there."""
    pa = arrow()
    note = (field.metadata or {}).get(KEY)
    if note is None:
        return {}
    try:
        return {
            (tuple(map(str, keys)), int(level)): _array(base64.b64decode(text, validate=True))
            for keys, level, text in _json.parse(note, 0, "the words of a dictionary")
        }
    except (CorruptError, pa.ArrowException, OSError, binascii.Error, ValueError, TypeError):
        return {}


def _array(data: bytes) -> Any:
    if any(batch.compressed for batch in arrow_flat.batches(memoryview(data))):
        raise CorruptError("words that are compressed", at=0)
    with arrow().ipc.open_stream(data) as reader:
        array = reader.read_next_batch().column(0)
    array.validate(full=True)
    return array


# ---- more and more words ------------------------------------------------------------


class GrowingWords:
    """Words that become more from batch to batch: a file can add some to a dictionary, but can't have another one."""

    def __init__(self, schema: Any) -> None:
        self._numbers = [number for number, field in enumerate(schema) if has_dictionary(field.type)]
        self._words: dict[tuple[int, ...], Any] = {}

    def batch(self, batch: Any) -> Any:
        """The same rows, with indices of words that start with those of the batches before."""
        for number in self._numbers:
            field = batch.schema.field(number)
            batch = batch.set_column(number, field, self._fitted(batch.column(number), (number,)))
        return batch

    def _fitted(self, array: Any, place: tuple[int, ...]) -> Any:
        """An array, which starts at the start of its buffers, as `compose` makes them."""
        pa = arrow()
        kind = array.type
        if not has_dictionary(kind):
            return array
        if isinstance(kind, pa.BaseExtensionType):
            return pa.ExtensionArray.from_storage(kind, self._fitted(array.storage, place))
        if pa.types.is_dictionary(kind):
            return self._indexed(array, place)
        if pa.types.is_run_end_encoded(kind):
            return pa.RunEndEncodedArray.from_arrays(array.run_ends, self._fitted(array.values, place), kind)
        if pa.types.is_map(kind):
            children = [self._fitted(part, (*place, n)) for n, part in enumerate((array.keys, array.items))]
            entries = pa.struct([kind.key_field, kind.item_field])
            inside = [pa.Array.from_buffers(entries, len(children[0]), [None], children=children)]
        elif pa.types.is_struct(kind):
            inside = [self._fitted(array.field(n), (*place, n)) for n in range(kind.num_fields)]
        else:
            inside = [self._fitted(array.values, (*place, 0))]
        return pa.Array.from_buffers(kind, len(array), array.buffers()[: kind.num_buffers], children=inside)

    def _indexed(self, array: Any, place: tuple[int, ...]) -> Any:
        pa = arrow()
        kind, own = array.type, array.dictionary
        known = self._words.setdefault(place, own)
        if own.equals(known):
            return pa.DictionaryArray.from_arrays(array.indices, known, ordered=kind.ordered)
        if kind.ordered:
            raise WordsError("an ordered dictionary whose words change from batch to batch", feature="type")
        try:
            new = pa.compute.invert(pa.compute.is_in(findable(own), value_set=findable(known)))
            words = pa.concat_arrays([known, own.filter(new)])
            places = np.asarray(pa.compute.index_in(findable(own), value_set=findable(words)))
        except pa.ArrowNotImplementedError:  # words that can't be looked up, such as lists
            words = pa.concat_arrays([known, own])
            places = np.arange(len(known), len(words))
        if len(words) == len(known):
            words = known
        self._words[place] = words
        return indexed(array.indices, places, words, kind)


def indexed(indices: Any, places: Array, words: Any, kind: Any) -> Any:
    """A dictionary of a type; its indices are those of `places`."""
    pa = arrow()
    if len(words) - 1 > np.iinfo(str(kind.index_type)).max:
        raise WordsError(f"a dictionary of {len(words)} words, and indices of {kind.index_type}", feature="type")
    chosen = pa.array(places.astype(str(kind.index_type))).take(indices)
    return pa.DictionaryArray.from_arrays(chosen, words, ordered=kind.ordered)


def findable(words: Any) -> Any:
    """The same words, of a type that pyarrow looks up."""
    text = str(words.type)
    return words.cast(f"large_{text.removesuffix('_view')}") if text.endswith("_view") else words
