"""Torch files that were made to harm: nothing runs, nothing grows, and every refusal is one of ours."""

import io
import json
import os
import pickle
import struct
import subprocess
import sys
import warnings
import zipfile

import numpy as np
import pytest
import torch

import tensorbytes as tb
from tensorbytes import formats
from tensorbytes.formats import _zip
from tests.support.tiers import deep_but
from tests.support.torch_bytes import (
    HOOKS,
    archive,
    name,
    number,
    numbers,
    pickled,
    rezipped,
    saved,
    storage,
    tensor,
    text,
    whole,
)

OURS = (tb.errors.CorruptError, tb.errors.UnsupportedError, tb.errors.LimitError)


def load_all(data, ways=("whole", "lazy")):
    """What comes of reading it in full, and lazily with everything loaded afterwards."""
    results = []
    for way in ways:
        try:
            results.append(tb.loads(data, "torchfile", to="tensor") if way == "whole" else list(lazily(data)))
        except OURS as error:
            results.append(error)
    return results


def lazily(data):
    for document in formats.get("torchfile").decode(memoryview(data), tb.errors.Limits(), True, {}):
        for leaf in document.leaves:
            if leaf.check is not None:
                leaf.check()
            yield leaf.read()


class Reduce:
    """Pickles as a call of anything."""

    def __init__(self, *call):
        self.call = call

    def __reduce__(self):
        return self.call


MARKER = "executed"
GADGETS = {
    "os.system": lambda: Reduce(os.system, (f"touch {MARKER}",)),
    "eval": lambda: Reduce(eval, (f"open({MARKER!r}, 'w').close()",)),
    "exec": lambda: Reduce(exec, (f"open({MARKER!r}, 'w').close()",)),
    "open": lambda: Reduce(open, (MARKER, "w")),
    "getattr chain": lambda: Reduce(getattr, (Reduce(__import__, ("os",)), "system")),
    "subprocess": lambda: Reduce(subprocess.Popen, (["touch", MARKER],)),
    "torch.load": lambda: Reduce(torch.load, (MARKER,)),
    "torch.save": lambda: Reduce(torch.save, ({}, MARKER)),
    "torch.hub": lambda: Reduce(torch.hub.load, ("x", "y")),
    "pickle.loads": lambda: Reduce(pickle.loads, (b"cos\nsystem\n(X\x01\x00\x00\x00xtR.",)),
    "from numpy": lambda: Reduce(
        torch._utils._rebuild_device_tensor_from_numpy, (np.ones(1), torch.float32, "cpu", False)
    ),
    "operator": lambda: Reduce(__import__("operator").methodcaller, ("system", "x")),
    "functools": lambda: Reduce(__import__("functools").partial, (print, 1)),
    "a class": lambda: torch.nn.ReLU(),
}


@pytest.mark.parametrize("protocol", [0, 1, 2, 3, 4, 5])
@pytest.mark.parametrize("gadget", GADGETS)
def test_nothing_is_executed(gadget, protocol, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    evil = pickle.dumps({"a": [GADGETS[gadget]()]}, protocol)
    for data in (archive(evil), saved([1], _use_new_zipfile_serialization=False)[:-10] + evil):
        for result in load_all(data):
            assert isinstance(result, OURS)
    with pytest.raises(tb.errors.UnsupportedError, match=r"byte \d+"):
        tb.loads(archive(evil), "torchfile")
    assert os.listdir(tmp_path) == []


@pytest.mark.parametrize(
    ("module", "word"),
    [
        ("os", "system"), ("posix", "system"), ("nt", "system"), ("builtins", "eval"), ("__builtin__", "eval"),
        ("builtins", "getattr"), ("torch", "os.system"), ("torch._utils", "_rebuild_wrapper_subclass"),
        ("torch._utils", "_rebuild_meta_tensor_no_storage"), ("torch._utils", "_rebuild_device_tensor_from_numpy"),
        ("torch._utils", "_import_dotted_name"), ("torch.serialization", "load"), ("torch.storage", "TypedStorage"),
        ("collections", "Counter"), ("collections", "defaultdict"), ("collections.OrderedDict", "fromkeys"),
        ("numpy.core.multiarray", "_reconstruct"), ("numpy._core.multiarray", "scalar"), ("copyreg", "_reconstructor"),
        ("torch", "__dict__"), ("torch._utils._rebuild_tensor_v2", "__globals__"), ("", ""), ("torch\0", "Size"),
    ],
)  # fmt: skip
def test_names_outside_the_table(module, word):
    for spelled in (name(module, word), text(module) + text(word) + b"\x93"):
        with pytest.raises(tb.errors.UnsupportedError) as caught:
            tb.loads(archive(whole(spelled)), "torchfile")
        assert repr(f"{module}.{word}") in str(caught.value)


ORDERED = name("collections", "OrderedDict")
DEEP_ARGS = b"(" + name("torch._utils", "_rebuild_tensor_v2") + name("torch", "Tensor")
CORRUPT = {
    "nothing": b"",
    "stop alone": b".",
    "two values": b"NN.",
    "an open mark": b"(N.",
    "no stop": b"N",
    "a recalled value that is not there": b"h\x05.",
    "a long recall": b"j\xff\xff\xff\xff.",
    "append to a tuple": b")Na.",
    "append to a tensor": tensor() + b"Na.",
    "items of a list": b"](NNu.",
    "half an item": b"}(" + text("a") + b"u.",
    "a key twice": b"}(" + text("a") + b"N" + text("a") + b"Nu.",
    "tuple under a mark": b"N(\x85.",
    "a call without arguments": ORDERED + b"R.",
    "a call of a list": ORDERED + b"]R.",
    "a byte that is not an opcode": b"\xff.",
    "text that is not UTF-8": b"X\x01\x00\x00\x00\xff.",
    "text with half a character": b"X\x03\x00\x00\x00\xed\xa0\x80.",
    "text of 4 GiB": b"X\xff\xff\xff\xff.",
    "text of 2^63 bytes": b"\x8d" + struct.pack("<Q", 1 << 63) + b".",
    "bytes of 2^64 - 1": b"\x8e" + b"\xff" * 8 + b".",
    "LONG4 of 2 GiB": b"\x8b\xff\xff\xff\x7f.",
    "LONG4 of a negative size": b"\x8b\xff\xff\xff\xff.",
    "BINSTRING of a negative size": b"T\xff\xff\xff\xff.",
    "a frame of 2^63 bytes": b"\x95" + struct.pack("<Q", 1 << 63) + b".",
    "a name without an end": b"c" + b"a" * 1000,
    "a name of a number": b"K\x01K\x02\x93.",
    "OrderedDict of a number": ORDERED + b"K\x01\x85R.",
    "OrderedDict of two arguments": ORDERED + b"]]\x86R.",
    "OrderedDict of triples": ORDERED + b"](NNNtatR."[:-1] + b".",
    "Size of text": name("torch", "Size") + text("abc") + b"\x85R.",
    "Size of negative numbers": name("torch", "Size") + numbers(-1) + b"\x85R.",
    "device of a number": name("torch", "device") + b"K\x01\x85R.",
    "bytes in another encoding": name("_codecs", "encode") + text("a") + text("rot13") + b"\x86R.",
    "bytes that are none": name("_codecs", "encode") + text("Ā") + text("latin1") + b"\x86R.",
    "bytes of bytes": name("_codecs", "encode") + b"C\x01a" + text("latin1") + b"\x86R.",
    "complex of text": name("builtins", "complex") + text("1") + text("2") + b"\x86R.",
    "a storage that is not there": tensor(held=storage(key="1")) + b".",
    "a storage outside": tensor(held=storage(key="../version")) + b".",
    "a storage of fewer bytes": tensor(held=storage(count=7)) + b".",
    "a storage of more bytes": tensor(held=storage(count=5)) + b".",
    "a storage of another width": tensor(held=storage("DoubleStorage")) + b".",
    "a storage of 2^61 elements": tensor(held=storage(count=1 << 61)) + b".",
    "a storage of -1 elements": tensor(held=storage(count=-1)) + b".",
    "a storage of 2^64 elements": tensor(held=storage(count=1 << 64)) + b".",
    "a storage of true elements": tensor(held=storage()[:-4] + b"\x88tQ") + b".",
    "a storage without a device": tensor(held=storage(location="../x")) + b".",
    "a storage that is none": tensor(held=b"N") + b".",
    "a negative offset": tensor(offset=-1) + b".",
    "an offset outside": tensor(offset=1) + b".",
    "an offset of 2^63": tensor(offset=1 << 63) + b".",
    "an endless offset": tensor(offset=1 << 2000) + b".",
    "a negative stride": tensor(stride=(-3, 1)) + b".",
    "a stride outside": tensor(stride=(4, 1)) + b".",
    "a stride of 2^62": tensor(stride=(1 << 62, 1)) + b".",
    "a negative size": tensor(size=(-2, 3)) + b".",
    "a size of 2^62": tensor(size=(1 << 62, 3)) + b".",
    "sizes that overflow to zero": tensor(size=(1 << 32, 1 << 32), stride=(1 << 32, 1)) + b".",
    "sizes of 2^62 beside zero": tensor(size=(0, 1 << 62, 1 << 62), stride=(1, 1, 1)) + b".",
    "fewer strides": tensor(stride=(1,)) + b".",
    "no tuple of sizes": name("torch._utils", "_rebuild_tensor_v2") + b"(" + storage() + b"K\x00NN\x89NtR.",
    "requires_grad of a number": tensor(rest=b"K\x01" + HOOKS) + b".",
    "other arguments": tensor(rest=b"") + b".",
    "too many arguments": tensor(rest=b"\x89NNNN") + b".",
    "a Parameter of a number": name("torch._utils", "_rebuild_parameter") + b"K\x01\x88N\x87R.",
    "v2 of an untyped storage": tensor(held=storage("UntypedStorage", count=24, module="torch.storage")) + b".",
    "v3 of a number": tensor(function="_rebuild_tensor_v3", rest=b"\x89NK\x01") + b".",
    "a coo tensor of numbers": name("torch._utils", "_rebuild_sparse_tensor")
    + text("torch.sparse_coo") + b"(K\x01K\x01)t\x86R.",
    "a coo tensor with float indices": name("torch._utils", "_rebuild_sparse_tensor")
    + text("torch.sparse_coo") + b"(" + tensor() + tensor(size=(3,), stride=(1,)) + numbers(3, 3) + b"t\x86R.",
    "a nested tensor of floats": name("torch._utils", "_rebuild_nested_tensor") + b"(" + tensor() * 4 + b"tR.",
    "a quantized tensor without a scheme": name("torch._utils", "_rebuild_qtensor") + b"("
    + storage("QInt8Storage", count=24) + number(0) + numbers(24) + numbers(1) + b")\x89NtR.",
    "bytes after the pickle": b"N.N",
}  # fmt: skip


@pytest.mark.parametrize("case", CORRUPT)
def test_corrupt_pickles(case):
    for result in load_all(archive(b"\x80\x02" + CORRUPT[case])):
        assert isinstance(result, tb.errors.CorruptError), result
        assert str(result)


def bomb(levels, leaf):
    """(x, x) of (x, x) of ...: a tuple of two, again and again."""
    body = leaf
    for level in range(levels):
        body += b"q" + bytes([level]) + b"h" + bytes([level]) + b"\x86"
    return body


LONG_TEXT = text("x" * 100_000)
METADATA = ORDERED + b")R}" + text("_metadata") + ORDERED + b")R"
UNSUPPORTED = {
    "protocol 6": b"\x80\x06N.",
    "INST": b"(ios\nsystem\n.",
    "OBJ": b"(" + ORDERED + b"o.",
    "EXT1": b"\x82\x01.",
    "EXT2": b"\x83\x01\x00.",
    "EXT4": b"\x84\x01\x00\x00\x00.",
    "a buffer out of band": b"\x97.",
    "a read-only buffer": b"\x97\x98.",
    "PERSID": b"P0\n.",
    "NEWOBJ_EX": ORDERED + b")}\x92.",
    "DUP": b"N2.",
    "POP": b"NN0.",
    "a call of a dtype": name("torch", "float32") + b")R.",
    "a call of text": text("os.system") + b")R.",
    "a call of a call": ORDERED + b")R)R.",
    "NEWOBJ of a storage": name("torch", "FloatStorage") + b")\x81.",
    "attributes of a dict": b"}}b.",
    "attributes of a tensor": tensor() + b"}b.",
    "attributes of an OrderedDict": ORDERED + b")R}" + text("__class__") + b"Nsb.",
    "attributes that are not a dict": ORDERED + b")R(NNtb.",
    "_metadata that is not a dict": ORDERED + b")R}" + text("_metadata") + b"K\x01sb.",
    "_metadata of tensors": METADATA + text("a") + tensor() + b"ssb.",
    "a persistent id that is not a storage": b"(" + text("module") + b"NNNNtQ.",
    "a persistent id of text": text("storage") + b"Q.",
    "a dtype that has no meaning elsewhere": name("torch", "bits8") + b".",
    "a function as a value": ORDERED + b".",
    "a bare storage": storage() + b".",
    "the meta device": tensor(held=storage(location="meta")) + b".",
    "backward hooks": tensor(rest=b"\x89}" + text("a") + b"Ns") + b".",
    "an unknown flag": tensor(rest=b"\x89N}" + text("zero") + b"\x88s") + b".",
    "the conjugate of a float": tensor(rest=b"\x89N}" + text("conj") + b"\x88s") + b".",
    "types of types": b"".join([name("torch._tensor", "_rebuild_from_type_v2") + DEEP_ARGS] * 1)
    + name("torch._tensor", "_rebuild_from_type_v2") + b"NtR.",
    "a list in itself": b"]q\x00h\x00a.",
    "a dict in itself": b"}q\x00" + text("a") + b"h\x00s.",
    "two lists in each other": b"]q\x00]q\x01h\x00aah\x01h\x00a0."[:-2] + b".",
    "a tuple in itself": b"]q\x00h\x00\x85a.",
    "lists 65 deep": b"]" * 66 + b"a" * 65 + b".",
    "lists 200 000 deep": b"]" * 200_000 + b"a" * 199_999 + b".",
    "tuples 200 000 deep": b"N" + b"\x85" * 200_000 + b".",
    "an integer of 2000 bytes": b"\x8b" + struct.pack("<i", 2000) + b"\x01" * 2000 + b".",
    "a string of Python 2 that is not text": b"U\x01\xff.",
}  # fmt: skip


@pytest.mark.parametrize("case", UNSUPPORTED)
def test_refused_pickles(case):
    for result in load_all(archive(b"\x80\x02" + UNSUPPORTED[case])):
        assert isinstance(result, tb.errors.UnsupportedError | tb.errors.CorruptError), result
        assert isinstance(result, tb.errors.UnsupportedError) or case in ("two lists in each other",)


UNFOLDING = {
    "shared tuples of None": bomb(60, b"N"),
    "shared tuples of tensors": bomb(40, tensor()),
    "shared text": bomb(30, LONG_TEXT),
    "shared keys": b"}" + text("k" * 100_000) + bomb(20, b"N") + b"s",
    "a list of shared lists": b"](" + b"]q\x00(" + b"N" * 50_000 + b"e" + b"h\x00" * 50_000 + b"e",
    "an expanded tensor": tensor(size=(1 << 40,), stride=(0,)),
    "an expanded tensor of 2^62": tensor(size=(1 << 31, 1 << 31), stride=(0, 0)),
    "many expanded tensors": b"](" + tensor(size=(1 << 27,), stride=(0,)) * 9 + b"e",
    "an expanded tensor, shared": b"](" + tensor(size=(1 << 27,), stride=(0,)) + b"q\x00" + b"h\x00" * 9 + b"e",
    "rank 65": tensor(size=(1,) * 65, stride=(1,) * 65),
    "shared metadata": b"](" + METADATA + b"(" + text("m" * 100_000) + b"}usq\x00b"
    + b"".join(ORDERED + b")Rh\x00b" for _ in range(20_000)) + b"e",
    "an endless pickle": b"]" * (20 << 20),
}  # fmt: skip


@pytest.mark.parametrize("case", deep_but([case for case in UNFOLDING if case != "an endless pickle"], UNFOLDING))
def test_little_does_not_become_much(case):
    for result in load_all(archive(whole(UNFOLDING[case]))):
        assert isinstance(result, tb.errors.LimitError), result


def test_an_endless_pickle_at_a_small_limit():
    for limits in (tb.errors.Limits(max_objects=1000), tb.errors.Limits(max_bytes=100_000)):
        with pytest.raises(tb.errors.LimitError):
            tb.loads(archive(whole(b"]" * 20_000)), "torchfile", to="tensor", limits=limits)


def test_the_limit_can_be_raised():
    data = archive(whole(tensor(size=(1 << 20,), stride=(0,))))
    with pytest.raises(tb.errors.LimitError, match="max_bytes"):
        tb.loads(data, limits=tb.errors.Limits(max_bytes=1000))
    assert tb.loads(data).shape == (1 << 20,)
    with pytest.raises(tb.errors.LimitError, match="max_tensors"):
        tb.loads(archive(whole(b"](" + tensor() * 10 + b"e")), limits=tb.errors.Limits(max_tensors=8))


def test_expanded_tensors_allocate_nothing_before_the_refusal():
    """In a process that may not have the memory."""
    pytest.importorskip("resource")
    code = """
import resource, sys, tensorbytes as tb
data = sys.stdin.buffer.read()
with open("/proc/self/statm") as file:
    used = int(file.read().split()[0]) * resource.getpagesize()
resource.setrlimit(resource.RLIMIT_AS, (used + (600 << 20),) * 2)
try:
    tb.loads(data, "torchfile")
except tb.errors.LimitError as error:
    print("refused")
"""
    for case in ("many expanded tensors", "shared tuples of None", "shared text", "an expanded tensor of 2^62"):
        data = archive(whole(UNFOLDING[case]))
        done = subprocess.run([sys.executable, "-c", code], input=data, capture_output=True, check=True)
        assert done.stdout == b"refused\n", case


NOTES = {
    "no JSON": b"{",
    "a list": b"[]",
    "an unknown key": b'{"more": 1}',
    "leaves that are not a list": b'{"leaves": {}}',
    "a leaf without a path": b'{"leaves": [{}]}',
    "an unknown key of a leaf": b'{"leaves": [{"path": [], "exec": 1}]}',
    "a path that leads nowhere": b'{"leaves": [{"path": [["key", "zzz"]], "kind": "int"}]}',
    "a step of three": b'{"leaves": [{"path": [["key", "a", 1]]}]}',
    "a path twice": b'{"leaves": [{"path": [["key", "a"]]}, {"path": [["key", "a"]]}]}',
    "metadata of numbers": b'{"leaves": [{"path": [["key", "a"]], "meta": {"x": 1}}]}',
    "a dtype of another width": b'{"leaves": [{"path": [["key", "a"]],'
    b' "parts": {"t": {"path": [], "dtype": "int8"}}}]}',
    "an unknown dtype": b'{"leaves": [{"path": [["key", "a"]], "parts": {"t": {"path": [], "dtype": "x"}}}]}',
    "parts that are not there": b'{"leaves": [{"path": [["key", "a"]], "parts": {"t": {}, "u": {}}}]}',
    "no parts": b'{"leaves": [{"path": [["key", "a"]], "parts": {}}]}',
    "a part without a note": b'{"leaves": [{"path": [["key", "a"]], "parts": {"t": []}}]}',
    "strings of a tensor": b'{"leaves": [{"path": [["key", "a"]], "shape": [2], "parts": {"t": {"path": []}}}]}',
    "a shape of 10^30": b'{"leaves": [{"path": [["key", "b"]], "shape": [0, 1000000000000000000000000000000],'
    b' "parts": {"t": {"path": []}}}]}',
    "a kind that it is not": b'{"leaves": [{"path": [["key", "a"]], "kind": "int"}]}',
    "indices of a dense tensor": b'{"leaves": [{"path": [["key", "a"]], "index": "int32"}]}',
    "a framework of numbers": b'{"framework": 5}',
    "notes on a dict": b'{"leaves": [{"path": [["key", "c"]], "kind": "int"}]}',
}  # fmt: skip


@pytest.mark.parametrize("case", NOTES)
def test_notes_are_not_trusted(case):
    body = b"}(" + text("a") + tensor() + text("b") + b"]" + text("c") + b"}" + text("d") + b"NsuN"[:1] + b"u"
    data = archive(whole(body), tensorbytes__json=NOTES[case])
    with pytest.raises((tb.errors.CorruptError, tb.errors.UnsupportedError)):
        tb.loads(data, "torchfile")


def small_files():
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        parts = {
            "w": torch.nn.Parameter(torch.arange(4.0).reshape(2, 2).t()),
            "s": torch.eye(2).to_sparse(),
            "l": [1, 2.5, "x", (None, True)],
        }
        nested = torch.nested.nested_tensor([torch.ones(2), torch.ones(1)])
        conj = {"c": torch.ones(2, dtype=torch.complex64).conj(), "h": torch.ones(2, dtype=torch.float8_e5m2)}
        yield "state", saved(torch.nn.Linear(2, 1).state_dict())
        yield "parts", saved(parts)
        scales, zeros = torch.tensor([0.5, 1]), torch.tensor([0, 1])
        yield "quantized", saved(torch.quantize_per_channel(torch.ones(2), scales, zeros, 0, torch.qint8))
        yield "nested", saved([nested, conj])
        yield "protocol 5", saved({"a": torch.ones(2), "b": b"bytes", "c": [2**70]}, pickle_protocol=5)
        yield "ours", tb.dumps({"a": np.array(["x", "y"]), "b": torch.ones(2), "c": np.float64(1)}, "torchfile")


SMALL = dict(small_files())


def members(data):
    file = zipfile.ZipFile(io.BytesIO(data))
    return {info.filename.partition("/")[2]: file.read(info) for info in file.infolist()}


@pytest.mark.parametrize("every", deep_but([4], [1, 4]))
@pytest.mark.parametrize("case", SMALL)
def test_every_flip_of_a_bit_of_the_pickle(case, every):
    """Ours, or a sound reading: what is tested is that nothing else is raised."""
    others = {key: value for key, value in members(SMALL[case]).items() if key != "data.pkl" and key[0] != "."}
    contents = [_zip.Content(f"x/{key}", [value]) for key, value in others.items()]
    good = bytearray(pickled(SMALL[case]))
    outcomes = set()
    for at in range(0, len(good), every):
        for bit in range(8) if len(good) < 500 else (at % 8, 7 - at % 8):
            good[at] ^= 1 << bit
            data = b"".join(_zip.archive([_zip.Content("x/data.pkl", [bytes(good)]), *contents], 1, 0x4246))
            (result,) = load_all(data, ["lazy" if bit % 2 else "whole"])
            outcomes.add(type(result))
            good[at] ^= 1 << bit
    assert {tb.errors.CorruptError, tb.errors.UnsupportedError} < outcomes


@pytest.mark.parametrize("case", SMALL)
def test_every_truncation(case):
    good = pickled(SMALL[case])
    for size in range(len(good)):
        for result in load_all(rezipped(SMALL[case], **{"data.pkl": good[:size]})) if size % 16 == 0 else ():
            assert isinstance(result, OURS)
        for result in load_all(archive(good[:size])):
            assert isinstance(result, OURS)
    data = SMALL[case]
    for size in range(0, len(data), 7):
        for result in load_all(data[:size]):
            assert isinstance(result, OURS)


def test_a_changed_byte_anywhere_in_an_archive():
    """The whole is checked against sums: no change goes unnoticed, but for those that mean nothing."""
    good = bytearray(SMALL["state"])
    expected = tb.loads(bytes(good))
    for at in range(len(good)):
        good[at] ^= 1 << at % 8
        (result,) = load_all(bytes(good), ["whole"])
        if not isinstance(result, OURS):
            assert tb.equal({key: value.numpy() for key, value in result.items()}, expected)
        good[at] ^= 1 << at % 8


@pytest.mark.parametrize("size", [(0, 1 << 40), (1 << 40, 0), (3, 0, 1 << 20)])
def test_nothing_of_a_large_shape_is_nothing(size):
    got = tb.loads(archive(whole(tensor(size=size, stride=(1,) * len(size)))))
    assert got.shape == size


OLD = saved({"a": torch.arange(3)}, _use_new_zipfile_serialization=False)
OLD_FAULTS = {
    "another magic number": OLD.replace(b"l\xfc\x9cF", b"l\xfc\x9cG"),
    "another version": OLD.replace(b"M\xe9\x03.", b"M\xea\x03."),
    "a storage that is too long": OLD[:-32] + struct.pack("<Q", 4) + OLD[-24:],
    "a storage of 2^63 elements": OLD[:-32] + struct.pack("<Q", 1 << 63) + OLD[-24:],
    "bytes after the storages": OLD + b"x",
    "no storages": OLD[: OLD.rindex(b"\x80\x02]")] + b"\x80\x02].",
    "keys that are not a list": OLD[: OLD.rindex(b"\x80\x02]")] + b"\x80\x02K\x01.",
}


@pytest.mark.parametrize("case", OLD_FAULTS)
def test_old_files_with_faults(case):
    for result in load_all(OLD_FAULTS[case]):
        assert isinstance(result, tb.errors.CorruptError | tb.errors.UnsupportedError)


def test_a_view_of_a_storage_stays_inside_it():
    at = OLD.index(b"K\x03Nt")
    for first, count in ((0, 4), (4, 0), (2, 2), (-1, 1), (1 << 62, 1)):
        view = b"K\x03(" + text("v") + number(first) + number(count) + b"tt"
        for result in load_all(OLD[:at] + view + OLD[at + 4 :]):
            assert isinstance(result, tb.errors.CorruptError)


@pytest.mark.parametrize("order", [b"", b"middle", b"LITTLE", b"little\n"])
def test_an_unknown_byte_order(order):
    with pytest.raises(tb.errors.CorruptError, match="byte order"):
        tb.loads(archive(whole(tensor()), byteorder=order))


def test_bytes_that_are_no_bool(tmp_path):
    data = archive(whole(tensor(size=(3,), stride=(1,), held=storage("BoolStorage", count=3))), [b"\0\1\2"])
    with pytest.raises(tb.errors.CorruptError, match="not a valid bool"):
        tb.loads(data)
    (tmp_path / "x.pt").write_bytes(data)
    with tb.open(tmp_path / "x.pt") as file, pytest.raises(tb.errors.CorruptError, match="not a valid bool"):
        file.entries()[0].load()


def test_inflating_storages_is_bounded():
    data = rezipped(archive(whole(tensor(held=storage(count=1 << 20))), [bytes(4 << 20)]), 8)
    with pytest.raises(tb.errors.LimitError):
        tb.loads(data, limits=tb.errors.Limits(max_bytes=1 << 20))
    assert not tb.loads(data).any()


def test_messages_stay_short():
    evil = tensor(size=(1 << 62,) * 60, stride=(1 << 62,) * 60)
    for result in load_all(archive(whole(evil))):
        assert len(str(result)) < 1000
    assert json.dumps(str(result))
