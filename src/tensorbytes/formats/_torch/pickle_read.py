"""A machine for pickles that can build plain values, and nothing that its caller does not list.

It runs the opcodes of protocols 0 to 5 that plain containers need. Numbers, text, bytes,
None, tuples, lists and dicts with keys of text or integers are made here. Names (GLOBAL),
calls (REDUCE, NEWOBJ), attributes (BUILD) and persistent ids go to a `World`, which knows
a fixed table. No name is ever looked up in Python: there is no import, no getattr, no
call of anything that a file chooses. What the World does not know becomes an Opaque, its
name as text; whatever is called with it, set in it or appended to it is dropped.

Refused by name: INST, OBJ, extensions, text-mode persistent ids, buffers out of band and
the other opcodes that plain values do without.
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from typing import Any, NoReturn, Protocol, TypeAlias

from tensorbytes.budget import OBJECT_BYTES, Budget
from tensorbytes.errors import CorruptError, UnsupportedError
from tensorbytes.formats._torch.pickle_values import ByteArray, FaultError, RefusedError, put
from tensorbytes.formats._torch.unread import SET_ADVICE, Opaque

_MAX_NAME = 256
_MAX_LONG = 1785  # as many digits as Python itself converts to text
# What is counted before more is made.
_PORTION = 1 << 16
_STOP = ord(".")
_word = struct.Struct("<I").unpack_from
_REFUSED = {
    "0": "POP", "1": "POP_MARK", "2": "DUP", "F": "FLOAT", "I": "INT", "L": "LONG", "P": "PERSID", "S": "STRING",
    "V": "UNICODE", "d": "DICT", "g": "GET", "i": "INST", "l": "LIST", "o": "OBJ", "p": "PUT", "\x82": "EXT1",
    "\x83": "EXT2", "\x84": "EXT4", "\x97": "NEXT_BUFFER", "\x98": "READONLY_BUFFER",
}  # fmt: skip


class World(Protocol):
    """What names mean. Each method raises FaultError or RefusedError for what it does not know.

    `unread` makes what stands for a value that is not read.
    """

    def unread(self, what: str, why: str = ...) -> Opaque: ...
    def find(self, name: str) -> Any: ...
    def call(self, function: Any, args: tuple[Any, ...]) -> Any: ...
    def build(self, made: Any, state: Any) -> None: ...
    def persistent(self, key: Any) -> Any: ...


class Machine:
    """One run over the pickle that starts somewhere in `data`; `base` is where data stands in its file."""

    __slots__ = ("base", "below", "data", "memo", "stack", "world")

    def __init__(self, data: bytes, base: int, world: World) -> None:
        self.data, self.base, self.world = data, base, world
        self.memo: dict[int, Any] = {}
        self.stack: list[Any] = []
        self.below: list[list[Any]] = []  # the stacks under each mark

    def pop_mark(self) -> list[Any]:
        items, self.stack = self.stack, self.below.pop()
        return items

    def place(self, made: Any, at: int) -> Any:
        """The value; if it is not read, it learns where the file first speaks of it."""
        if type(made) is Opaque and made.at < 0:
            made.at = self.base + at - 1
        return made


def run(data: bytes, start: int, base: int, world: World, budget: Budget) -> tuple[Any, int]:
    """(the value, where its pickle ends). `base` is where data stands in its file, for messages."""
    machine, table, costs, at, taken = Machine(data, base, world), _TABLE, _COSTS, start, 0
    try:
        while (code := data[at]) != _STOP:
            taken += costs[code]
            if taken > _PORTION:
                budget.objects(taken // OBJECT_BYTES, "the pickle", base + at)
                taken = 0
            at = table[code](machine, at + 1)
        if len(machine.stack) != 1 or machine.below:
            raise FaultError("the pickle ends with other than one value")
    except IndexError:
        what = "the pickle ends too early" if at >= len(data) - 9 else "the pickle takes a value that is not there"
        raise CorruptError(what, at=base + at) from None
    except struct.error:
        raise CorruptError("the pickle ends inside a number", at=base + at) from None
    except FaultError as error:
        raise CorruptError(str(error), at=base + at) from None
    except RefusedError as error:
        raise UnsupportedError(str(error), at=base + at) from None
    return machine.stack[0], at + 1


# ---- opcodes: each takes the machine and the offset after its own byte, and gives that of the next ----

_Opcode: TypeAlias = Callable[[Machine, int], int]


def _refuse(machine: Machine, at: int) -> NoReturn:
    code = chr(machine.data[at - 1])
    if code in _REFUSED:
        raise RefusedError(f"the pickle opcode {_REFUSED[code]}: only tensors and plain values are read")
    raise FaultError(f"the byte {ord(code)} is not a pickle opcode")


_TABLE: list[_Opcode] = [_refuse] * 256
# About what each opcode takes in memory, with the place on the stack or in the memo.
_COSTS = [80] * 256
for _bytes, _codes in {
    0: "\x80\x95ae\x90b", 8: "K\x88\x89N)hj", 40: "JMG", 104: "qr\x94}su", 160: "c\x93\x8f\x91", 1024: "R\x81Q",
}.items():  # fmt: skip
    for _code in _codes:
        _COSTS[ord(_code)] = _bytes


def _opcode(code: str) -> Callable[[_Opcode], _Opcode]:
    def add(function: _Opcode) -> _Opcode:
        _TABLE[ord(code)] = function
        return function

    return add


def _constant(code: str, value: Any) -> None:
    def push(machine: Machine, at: int) -> int:
        machine.stack.append(value)
        return at

    _TABLE[ord(code)] = push


def _fresh(code: str, make: Callable[[], Any]) -> None:
    def push(machine: Machine, at: int) -> int:
        machine.stack.append(make())
        return at

    _TABLE[ord(code)] = push


def _fixed(code: str, form: str) -> None:
    """A number of a fixed width."""
    unpack, width = struct.Struct(form).unpack_from, struct.calcsize(form)

    def push(machine: Machine, at: int) -> int:
        machine.stack.append(unpack(machine.data, at)[0])
        return at + width

    _TABLE[ord(code)] = push


def _sized(code: str, form: str, make: Callable[[bytes], Any]) -> None:
    """Bytes after their length; `make` gives the value."""
    unpack, width = struct.Struct(form).unpack_from, struct.calcsize(form)

    def push(machine: Machine, at: int) -> int:
        start = at + width
        end = start + unpack(machine.data, at)[0]
        if not start <= end <= len(machine.data):
            raise FaultError(f"{end - start} bytes were due, {max(len(machine.data) - start, 0)} follow")
        machine.stack.append(make(machine.data[start:end]))
        return int(end)

    _TABLE[ord(code)] = push


def _text(raw: bytes) -> str:
    try:
        return raw.decode()
    except UnicodeDecodeError as error:
        raise FaultError(f"text is not UTF-8: {error.reason}") from None


def _old_text(raw: bytes) -> str:
    """The strings of Python 2, which were bytes; torch takes them for text as well."""
    try:
        return raw.decode()
    except UnicodeDecodeError:
        raise RefusedError("a string of Python 2 that is not text") from None


def _long(raw: bytes) -> int:
    if len(raw) > _MAX_LONG:
        raise RefusedError(f"an integer of {len(raw)} bytes")
    return int.from_bytes(raw, "little", signed=True)


_constant("N", None)
_constant("\x88", True)
_constant("\x89", False)
_constant(")", ())
_fresh("]", list)
_fresh("}", dict)
_fresh("\x8f", lambda: Opaque("set", SET_ADVICE))
_fixed("J", "<i")
_fixed("K", "<B")
_fixed("M", "<H")
_fixed("G", ">d")
_sized("\x8a", "<B", _long)
_sized("\x8b", "<i", _long)
_sized("X", "<I", _text)
_sized("\x8c", "<B", _text)
_sized("\x8d", "<Q", _text)
_sized("U", "<B", _old_text)
_sized("T", "<i", _old_text)
_sized("B", "<I", bytes)
_sized("C", "<B", bytes)
_sized("\x8e", "<Q", bytes)
_sized("\x96", "<Q", ByteArray)


@_opcode("\x80")
def _proto(machine: Machine, at: int) -> int:
    if machine.data[at] > 5:
        raise RefusedError(f"pickle protocol {machine.data[at]}; known: up to 5")
    return at + 1


@_opcode("\x95")
def _frame(machine: Machine, at: int) -> int:
    (size,) = struct.unpack_from("<Q", machine.data, at)
    if size > len(machine.data) - at - 8:
        raise FaultError(f"a frame of {size} bytes, of which {len(machine.data) - at - 8} follow")
    return at + 8


@_opcode("q")
def _binput(machine: Machine, at: int) -> int:
    machine.memo[machine.data[at]] = machine.stack[-1]
    return at + 1


@_opcode("r")
def _long_binput(machine: Machine, at: int) -> int:
    machine.memo[_word(machine.data, at)[0]] = machine.stack[-1]
    return at + 4


@_opcode("\x94")
def _memoize(machine: Machine, at: int) -> int:
    machine.memo[len(machine.memo)] = machine.stack[-1]
    return at


@_opcode("h")
def _binget(machine: Machine, at: int) -> int:
    return _get(machine, machine.data[at], at + 1)


@_opcode("j")
def _long_binget(machine: Machine, at: int) -> int:
    return _get(machine, _word(machine.data, at)[0], at + 4)


def _get(machine: Machine, number: int, at: int) -> int:
    try:
        machine.stack.append(machine.memo[number])
    except KeyError:
        raise FaultError(f"the pickle recalls value {number}, which it never stored") from None
    return at


@_opcode("(")
def _mark(machine: Machine, at: int) -> int:
    machine.below.append(machine.stack)
    machine.stack = []
    return at


@_opcode("t")
def _tuple(machine: Machine, at: int) -> int:
    items = machine.pop_mark()
    machine.stack.append(tuple(items))
    return at


def _small_tuple(code: str, count: int) -> None:
    def push(machine: Machine, at: int) -> int:
        stack = machine.stack
        if len(stack) < count:
            raise FaultError(f"a tuple of {count} values, of which {len(stack)} are there")
        stack[-count:] = [tuple(stack[-count:])]
        return at

    _TABLE[ord(code)] = push


for _code, _count in (("\x85", 1), ("\x86", 2), ("\x87", 3)):
    _small_tuple(_code, _count)


@_opcode("a")
def _append(machine: Machine, at: int) -> int:
    item = machine.stack.pop()
    return _extend(machine, [item], at)


@_opcode("e")
def _appends(machine: Machine, at: int) -> int:
    return _extend(machine, machine.pop_mark(), at)


def _extend(machine: Machine, items: list[Any], at: int) -> int:
    target = machine.stack[-1]
    if type(target) is list:
        target.extend(items)
    elif type(target) is not Opaque:
        raise FaultError("the pickle appends to something that is not a list")
    return at


@_opcode("s")
def _setitem(machine: Machine, at: int) -> int:
    value = machine.stack.pop()
    return _set(machine, [machine.stack.pop(), value], at)


@_opcode("u")
def _setitems(machine: Machine, at: int) -> int:
    return _set(machine, machine.pop_mark(), at)


def _set(machine: Machine, items: list[Any], at: int) -> int:
    target = machine.stack[-1]
    if not isinstance(target, dict | Opaque) or len(items) % 2:
        raise FaultError("the pickle sets items of something that is not a dict, or half an item")
    if isinstance(target, dict):
        put(target, items[::2], items[1::2])
    return at


@_opcode("\x90")
def _additems(machine: Machine, at: int) -> int:
    machine.pop_mark()
    if not isinstance(machine.stack[-1], Opaque):
        raise FaultError("the pickle adds to something that is not a set")
    return at


@_opcode("\x91")
def _frozenset(machine: Machine, at: int) -> int:
    machine.pop_mark()
    machine.stack.append(Opaque("frozenset", SET_ADVICE))
    return at


@_opcode("c")
def _global(machine: Machine, at: int) -> int:
    lines: list[str] = []
    start = at
    for _ in range(2):
        end = machine.data.find(b"\n", at, at + _MAX_NAME)
        if end < 0:
            raise FaultError("a name that does not end")
        lines.append(_text(machine.data[at:end]))
        at = end + 1
    machine.stack.append(machine.place(machine.world.find(".".join(lines)), start))
    return at


@_opcode("\x93")
def _stack_global(machine: Machine, at: int) -> int:
    name, module = machine.stack.pop(), machine.stack.pop()
    if type(name) is not str or type(module) is not str or len(name) + len(module) > _MAX_NAME:
        raise FaultError("a name that is not text")
    machine.stack.append(machine.place(machine.world.find(f"{module}.{name}"), at))
    return at


@_opcode("R")
@_opcode("\x81")
def _reduce(machine: Machine, at: int) -> int:
    args = machine.stack.pop()
    if type(args) is not tuple:
        raise FaultError("a call without a tuple of arguments")
    function = machine.stack[-1]
    try:
        made = machine.world.call(function, args)
    except RefusedError as error:
        name = str(getattr(function, "name", "object"))
        what = "torch.Tensor" if name.startswith("torch.") and "_rebuild" in name else name
        made = machine.world.unread(what, str(error))
    machine.stack[-1] = machine.place(made, at)
    return at


@_opcode("\x92")
def _newobj_ex(machine: Machine, at: int) -> int:
    """A call with arguments by name: of nothing that is known here."""
    machine.stack.pop()
    machine.stack.pop()
    if type(machine.stack[-1]) is not Opaque:
        raise RefusedError("the pickle opcode NEWOBJ_EX: only tensors and plain values are read")
    return at


@_opcode("b")
def _build(machine: Machine, at: int) -> int:
    state = machine.stack.pop()
    machine.world.build(machine.stack[-1], state)
    return at


@_opcode("Q")
def _binpersid(machine: Machine, at: int) -> int:
    try:
        made = machine.world.persistent(machine.stack[-1])
    except RefusedError as error:
        made = machine.world.unread("torch.storage", str(error))
    machine.stack[-1] = machine.place(made, at)
    return at
