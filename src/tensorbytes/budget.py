"""What is left of the limits while one file is read: every parser charges it before it allocates.

`Limits` are what the caller allows, and never change. A `Budget` is made of them for each
reading, and handed from parser to parser, so that many small claims count like one large one.

Two things are counted:

    charge    memory that the input does not hold: repeated values, inflated members, copies
              of tensors that share bytes. It has `max_bytes`.
    objects   Python objects, which take many times the bytes that they are made of. They have
              `max_objects`; and of memory 1 MiB, 15 times the input, then what is left of `max_bytes`.

So reading takes at most `max_bytes`, 16 times the input (the input itself is the sixteenth),
and what Python and its libraries need by themselves: docs/safety.md has the measurements.
"""

from __future__ import annotations

from tensorbytes.errors import MORE_BYTES, MORE_OBJECTS, LimitError, Limits

# Memory that objects may take for each byte of the input, beside that byte.
FREE_GROWTH = 15
# Memory that objects may take in any case, so that small limits don't refuse a few tensors.
FREE_OBJECT_BYTES = 1 << 20
# About what a small object takes, with its place in a list or a dict; and a tensor with all that describes it.
OBJECT_BYTES, TENSOR_BYTES = 64, 2400
# A string as an item of an array; a value of JSON; what an object of JSON takes more.
STRING_BYTES, JSON_BYTES, JSON_OBJECT_BYTES = 64, 200, 320


class Budget:
    """`size` is that of the input: its bytes are there, and cost nothing."""

    __slots__ = ("_bytes", "_free", "_objects", "_spare", "limits", "max_depth", "max_rank", "max_tensors")

    def __init__(self, limits: Limits, size: int = 0) -> None:
        self.limits = limits
        self.max_tensors, self.max_rank, self.max_depth = limits.max_tensors, limits.max_rank, limits.max_depth
        self._bytes, self._objects = limits.max_bytes, limits.max_objects
        self._free, self._spare = FREE_GROWTH * size, FREE_OBJECT_BYTES

    @property
    def left(self) -> int:
        """What may still be taken of `max_bytes`."""
        return self._bytes

    def charge(self, size: int, what: str, at: int) -> None:
        """Take `size` bytes that the input only claims to need. `what` would take them, `at` is where it stands."""
        if size > self._bytes:
            raise LimitError(
                f"{what} would take {size} bytes that the input does not hold, over the limit of "
                f"{self.limits.max_bytes}{self._spent()}",
                at=at,
                hints=[MORE_BYTES],
            )
        if size > 0:
            self._bytes -= size

    def copy(self, size: int, what: str, at: int) -> None:
        """Take memory for what is made of bytes that are there: some of it is free."""
        self._free -= size
        if self._free < 0:
            missing, self._free = -self._free, 0
            self.charge(missing, what, at)

    def check(self, size: int, what: str, at: int) -> None:
        """Refuse what there is no room for; it is taken when it is read."""
        if size > self._bytes + self._free:
            self.charge(size, what, at)

    def add_input(self, size: int) -> None:
        """More bytes of the input were found."""
        self._free += FREE_GROWTH * size

    def objects(self, count: int, what: str, at: int, each: int = OBJECT_BYTES) -> None:
        """Take `count` objects of about `each` bytes."""
        self._objects -= count
        if self._objects < 0:
            raise LimitError(f"{what}: over {self.limits.max_objects} Python objects", at=at, hints=[MORE_OBJECTS])
        self._spare -= count * each
        if self._spare >= 0:
            return
        self._free += self._spare
        self._spare = 0
        if self._free >= 0:
            return
        if -self._free > self._bytes:
            raise LimitError(
                f"{what}: {count} Python objects would take about {count * each} bytes, over the limit of "
                f"{self.limits.max_bytes}{self._spent()}",
                at=at,
                hints=[MORE_BYTES],
            )
        self._bytes += self._free
        self._free = 0

    def tensors(self, count: int, at: int = 0) -> None:
        """Take `count` tensors: what describes them, not their bytes."""
        self.objects(count, "tensors", at, TENSOR_BYTES)

    def strings(self, count: int, at: int) -> None:
        """Take memory for `count` strings as Python objects in an array."""
        self.copy(count * STRING_BYTES, f"{count} strings", at)

    def json(self, text: bytes | memoryview, what: str, at: int) -> None:
        """Take what this JSON makes, by the marks in it: a value follows each, and a list or an object some."""
        raw = bytes(text)
        lists, objects = raw.count(b"["), raw.count(b"{")
        values = raw.count(b",") + raw.count(b":") + lists + objects
        self.objects(values, what, at, JSON_BYTES)
        self.copy(objects * JSON_OBJECT_BYTES, what, at)

    def renewed(self, size: int) -> Budget:
        """The limits anew, for a value of `size` bytes that is read later and by itself."""
        return Budget(self.limits, size)

    def _spent(self) -> str:
        spent = self.limits.max_bytes - self._bytes
        return f", of which {spent} are taken" if spent > 0 else ""
