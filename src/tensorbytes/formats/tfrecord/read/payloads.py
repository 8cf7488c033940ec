"""The bytes of records, whatever they hold; and the messages that they are, for whoever says which."""

from __future__ import annotations

from collections.abc import Callable, Generator
from graphlib import CycleError, TopologicalSorter
from pathlib import Path
from typing import Any, Protocol

import numpy as np

from tensorbytes.errors import CorruptError, Hint, MissingDependencyError, UsageError, nearest
from tensorbytes.formats.tfrecord.read.passes import Passes
from tensorbytes.io import storage
from tensorbytes.tensor import Array

# The column of records that are not parsed.
PAYLOAD = "payload"


class PayloadSource(Protocol):
    """The records whose bytes are given."""

    def __len__(self) -> int: ...
    def read_payloads(self) -> Generator[bytes, None, None]: ...
    def payloads_of(self, numbers: Array) -> list[bytes]: ...


class Payloads(Passes[bytes]):
    """What `Records.payloads` gives: the bytes of each record, in order, or by number."""

    def __init__(self, records: PayloadSource) -> None:
        self._records = records

    def _read(self) -> Generator[bytes, None, None]:
        return self._records.read_payloads()

    def __len__(self) -> int:
        return len(self._records)

    def __getitem__(self, which: Any) -> Any:
        """The bytes of record i; a list of them for a slice or a list of numbers."""
        return picked(which, len(self._records), self._records.payloads_of)

    def __repr__(self) -> str:
        return f"Payloads({self._records!r})"

    def __reduce__(self) -> tuple[Callable[..., Any], tuple[Any, ...]]:
        return Payloads, (self._records,)


def picked(which: Any, total: int, read: Callable[[Array], list[Any]]) -> Any:
    """What is read by numbers: one item for a number, a list for a slice or a list of numbers."""
    if isinstance(which, int | np.integer):
        if not -total <= which < total:
            raise IndexError(f"record {which}: there are {total}")
        return read(np.array([which % total]))[0]
    return read(numbers_of(which, total))


def numbers_of(which: Any, total: int) -> Array:
    """The numbers that a slice, a list of numbers or a mask means, of `total` records."""
    if isinstance(which, slice):
        return np.arange(*which.indices(total))
    given = np.asarray(which) if isinstance(which, list | np.ndarray) else None
    if given is not None and given.ndim == 1 and given.dtype.kind in "iu":
        if not len(given):
            return given.astype(np.int64)
        if int(given.max()) >= total or int(given.min()) < -total:
            wrong = (given < -total) | (given >= total)
            raise IndexError(f"record {given[np.argmax(wrong)]}: there are {total}")
        numbers: Array = given.astype(np.int64)
        return numbers if int(numbers.min()) >= 0 else np.where(numbers < 0, numbers + total, numbers)
    numbers = np.arange(total)[which]
    if numbers.ndim != 1:
        raise IndexError(f"expected a number, a slice or a list of numbers, got {which!r}")
    return numbers


class MessageType:
    """What the records are: a class of messages, or how to make one."""

    def __init__(self, made: Any, name: str, described: bytes | None = None) -> None:
        self._class, self.name, self._described = made, name, described

    @classmethod
    def of(cls, given: Any) -> MessageType:
        """A class with FromString, as protobuf's and others' are; or (descriptor set, full name)."""
        if isinstance(given, type) and callable(getattr(given, "FromString", None)):
            descriptor = getattr(given, "DESCRIPTOR", None)
            return cls(given, str(getattr(descriptor, "full_name", given.__qualname__)))
        if isinstance(given, tuple) and len(given) == 2 and isinstance(given[1], str):
            described, name = given
            if storage.is_local(described):
                described = Path(described).read_bytes()
            if isinstance(described, bytes | bytearray | memoryview):
                return cls(_class_of(bytes(described), name), name, bytes(described))
        raise UsageError(
            "message=",
            expected="a class of protobuf messages, or (descriptor set, full name): the bytes or the path of a "
            "FileDescriptorSet, as protoc --include_imports --descriptor_set_out writes it, and the name of a message",
            got=repr(given) if not isinstance(given, tuple) else f"({', '.join(type(g).__name__ for g in given)})",
        )

    def parse(self, payload: memoryview, path: str, at: int, number: int) -> Any:
        """The message in a record, which is told by its file, its place in it and its number there."""
        try:
            return self._class.FromString(bytes(payload))
        except Exception as error:  # of another library
            what = f"record {number} is not a sound {self.name}: {error}"
            raise CorruptError(what, path=path, at=at, record=number) from error

    def __reduce__(self) -> tuple[Callable[..., Any], tuple[Any, ...]]:
        given = self._class if self._described is None else (self._described, self.name)
        return MessageType.of, (given,)


def _class_of(described: bytes, name: str) -> Any:
    """The class of a message, out of a FileDescriptorSet. Nothing of it is run: it only says what fields there are."""
    try:
        from google.protobuf import descriptor_pb2, descriptor_pool, message, message_factory
    except ModuleNotFoundError:
        raise MissingDependencyError("a message by its descriptor", "protobuf") from None
    try:
        files = {file.name: file for file in descriptor_pb2.FileDescriptorSet.FromString(described).file}
    except message.DecodeError as error:
        raise UsageError("message=", expected="a FileDescriptorSet", got=f"{len(described)} bytes ({error})") from None
    imports = {name: [one for one in file.dependency if one in files] for name, file in files.items()}
    pool = descriptor_pool.DescriptorPool()
    try:
        for one in TopologicalSorter(imports).static_order():
            pool.AddSerializedFile(files[one].SerializeToString())
        return message_factory.GetMessageClass(pool.FindMessageTypeByName(name))
    except KeyError:
        known = [f"{file.package}.{each.name}".lstrip(".") for file in files.values() for each in file.message_type]
        raise UsageError(f"the descriptor set has no message {name!r}{nearest(name, known)}") from None
    except (TypeError, CycleError) as error:
        raise UsageError(
            f"the descriptor set can't be used: {error}",
            hints=[Hint(purpose="write it with protoc --include_imports")],
        ) from None
