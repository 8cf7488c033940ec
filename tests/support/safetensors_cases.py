"""Files that put a reader of safetensors to the test, and what is known of the library's verdicts."""

import json
import struct

OK, NO = "accepted", "refused"


def file(header, body=b""):
    """A file with this header, given as an object or as the very text; a body may be so many zeros."""
    if isinstance(header, dict | list):
        header = json.dumps(header, separators=(",", ":"))
    raw = header.encode() if isinstance(header, str) else header
    body = bytes(body) if isinstance(body, int) else body
    return struct.pack("<Q", len(raw)) + raw + body


def entry(dtype="U8", shape=(4,), offsets=(0, 4), **more):
    return {"dtype": dtype, "shape": list(shape), "data_offsets": list(offsets), **more}


def one(dtype="U8", shape=(4,), offsets=(0, 4), body=None, **more):
    return file({"x": entry(dtype, shape, offsets, **more)}, bytes(offsets[1] if body is None else body))


def dims(text, size=0, dtype="U8"):
    """A shape spelled as given."""
    return file(f'{{"x":{{"dtype":"{dtype}","shape":{text},"data_offsets":[0,{size}]}}}}', bytes(size))


def length(n, rest=b"{}"):
    return struct.pack("<Q", n) + rest


PLAIN = one()

# name -> (bytes, verdict of both). The numbers are those of the catalogue of hostile input.
BOTH = {
    "01 empty": (b"", NO),
    "02 length alone": (length(0, b""), NO),
    "02 length of two, nothing after it": (length(2, b""), NO),
    "03 header longer than the file": (length(100), NO),
    "04 length 2**63": (length(1 << 63), NO),
    "04 length 2**64-1": (length((1 << 64) - 1), NO),
    "05 length wraps": (length((1 << 64) - 8), NO),
    "04 length just over the limit": (length(100_000_001), NO),
    "12 two files": (PLAIN + PLAIN, NO),
    "13 trailing byte": (PLAIN + b"\0", NO),
    "13 trailing zip": (PLAIN + b"PK\5\6" + bytes(18), NO),
    "19 negative dim": (dims("[-4]"), NO),
    "20 dim -1": (dims("[-1]", 1), NO),
    "21 product overflows": (dims("[4294967296,4294967296]"), NO),
    "21 product wraps to the size": (dims("[4,4611686018427387904]"), NO),
    "22 bytes overflow": (dims("[2305843009213693952]", 0, "F64"), NO),
    "23 overflow, zero last": (dims("[4611686018427387904,4611686018427387904,0]"), NO),
    "24 zero times 2**40": (dims("[0,1099511627776]"), OK),
    "25 rank 0": (one(shape=(), offsets=(0, 1)), OK),
    "25 rank 0, empty": (one(shape=(), offsets=(0, 0)), NO),
    "26 rank 60": (one(shape=(1,) * 60, offsets=(0, 1)), OK),
    "27 bool dim": (dims("[true]", 1), NO),
    "27 float dim": (dims("[4.0]", 4), NO),
    "27 exponent dim": (dims("[4e0]", 4), NO),
    "27 string dim": (dims('["4"]', 4), NO),
    "27 null dim": (dims("[null]", 1), NO),
    "27 nested dim": (dims("[[4]]", 4), NO),
    "27 minus zero": (dims("[-0]"), NO),
    "27 shape no list": (dims("4", 4), NO),
    "27 shape an object": (dims("{}", 1), NO),
    "27 shape null": (dims("null", 1), NO),
    "27 leading zero": (dims("[04]", 4), NO),
    "29 too few bytes": (one("F32", (4,), (0, 4)), NO),
    "29 too many bytes": (one("U8", (3,), (0, 4)), NO),
    "30 unknown dtype": (one("F128", (1,), (0, 16)), NO),
    "30 lower case dtype": (one("u8"), NO),
    "30 empty dtype": (one(""), NO),
    "30 dtype a number": (file({"x": {"dtype": 1, "shape": [4], "data_offsets": [0, 4]}}, bytes(4)), NO),
    "30 dtype a list": (file({"x": {"dtype": ["U8"], "shape": [4], "data_offsets": [0, 4]}}, bytes(4)), NO),
    "31 object dtype": (one("O", (1,), (0, 8)), NO),
    "34 odd count of F4": (one("F4", (3,), (0, 2)), NO),
    "34 F4 as bytes": (one("F4", (2,), (0, 2)), NO),
    "34 F6 of two elements": (one("F6_E2M3", (2,), (0, 2)), NO),
    "34 F6 of four elements": (one("F6_E3M2", (2, 2), (0, 3)), OK),
    "34 F4 of two elements": (one("F4", (2, 1), (0, 1)), OK),
    "35 NaN payloads": (one("BF16", (2,), (0, 4), body=b"\xff\x7f\x01\xff"), OK),
    "41 NaN": (dims("[NaN]"), NO),
    "41 Infinity": (dims("[Infinity]"), NO),
    "41 1e999": (dims("[1e999]"), NO),
    "42 deep lists": (file("[" * 50_000 + "]" * 50_000), NO),
    "42 deep objects": (file('{"a":' * 50_000 + "1" + "}" * 50_000), NO),
    "42 deep unknown key": (file('{"x":{"dtype":"U8","shape":[],"data_offsets":[0,1],"y":'
                                 + "[" * 50_000 + "]" * 50_000 + "}}", b"\0"), NO),
    "43 5000 digits": (dims(f"[{'9' * 5000}]"), NO),
    "43 dim 2**64": (dims("[18446744073709551616]"), NO),
    "43 offsets 2**64": (file('{"x":{"dtype":"U8","shape":[0],"data_offsets":[18446744073709551616,'
                              '18446744073709551616]}}'), NO),
    "44 lone surrogate": (file('{"\\ud800":{"dtype":"U8","shape":[],"data_offsets":[0,1]}}', b"\0"), NO),
    "45 invalid UTF-8": (file(b'{"\xff":{"dtype":"U8","shape":[],"data_offsets":[0,1]}}', b"\0"), NO),
    "45 CESU surrogate": (file(b'{"\xed\xa0\x80":{"dtype":"U8","shape":[],"data_offsets":[0,1]}}', b"\0"), NO),
    "46 byte order mark": (file("\ufeff{}"), NO),
    "46 leading space": (file("  {}"), OK),
    "46 trailing newline": (file("{}\n\t "), OK),
    "46 trailing NUL": (file("{}\0"), NO),
    "46 trailing comma": (file('{"x":{"dtype":"U8","shape":[],"data_offsets":[0,1]},}', b"\0"), NO),
    "46 comment": (file("{/**/}"), NO),
    "47 NUL in a name": (file({"a\0b": entry()}, bytes(4)), OK),
    "47 raw control character": (file('{"a\nb":{"dtype":"U8","shape":[],"data_offsets":[0,1]}}', b"\0"), NO),
    "48 path as a name": (file({"../../etc/passwd": entry()}, bytes(4)), OK),
    "49 NFC and NFD": (file({"\u00e9": entry(), "e\u0301": entry(offsets=(4, 8))}, bytes(8)), OK),
    "50 long name": (file({"n" * 1_000_000: entry()}, bytes(4)), OK),
    "51 metadata a number": (file({"__metadata__": {"a": 1}}), NO),
    "51 metadata null value": (file({"__metadata__": {"a": None}}), NO),
    "51 metadata nested": (file({"__metadata__": {"a": {"b": "c"}}}), NO),
    "51 metadata a list": (file({"__metadata__": []}), NO),
    "51 metadata text": (file({"__metadata__": "a"}), NO),
    "51 metadata a tensor": (file({"__metadata__": entry()}, bytes(4)), NO),
    "51 metadata empty": (file({"__metadata__": {}}), OK),
    "51 metadata alone": (file({"__metadata__": {"format": "pt"}}), OK),
    "52 dunder names": (file({"__class__": entry(), "__proto__": entry(offsets=(4, 8))}, bytes(8)), OK),
    "54 overlap": (file({"x": entry(), "y": entry(offsets=(2, 6))}, bytes(6)), NO),
    "54 the same bytes twice": (file({"x": entry(), "y": entry()}, bytes(4)), NO),
    "54 empty tensor inside another": (file({"x": entry(), "y": entry(shape=(0,), offsets=(2, 2))}, bytes(4)), NO),
    "55 hole": (file({"x": entry(), "y": entry(offsets=(5, 9))}, bytes(9)), NO),
    "55 hole at the start": (one(offsets=(1, 5)), NO),
    "55 hole at the end": (one(body=b"12345"), NO),
    "55 no tensors but bytes": (file("{}", b"\0"), NO),
    "56 begin after end": (file({"x": entry(offsets=(4, 0))}, bytes(4)), NO),
    "56 begin after end, empty": (file({"x": entry(shape=(0,), offsets=(4, 0))}, bytes(4)), NO),
    "57 shared empty ranges": (file({"x": entry(), "y": entry(shape=(0,), offsets=(4, 4)),
                                     "z": entry(shape=(2, 0), offsets=(4, 4))}, bytes(4)), OK),
    "57 empty ranges first": (file({"x": entry(), "y": entry(shape=(0,), offsets=(0, 0))}, bytes(4)), OK),
    "58 shorter than the header claims": (one(body=b"123"), NO),
    "58 offsets far outside": (one(offsets=(0, 1 << 62), shape=(1 << 62,), body=b""), NO),
    "59 misaligned": (file({"a": entry("U8", (1,), (0, 1)), "b": entry("F64", (2,), (1, 17))}, bytes(range(17))), OK),
    "59 odd header": (file('{"x":{"dtype":"F64","shape":[1],"data_offsets":[0,8]}} ', bytes(range(8))), OK),
    "offsets of one": (file({"x": {"dtype": "U8", "shape": [0], "data_offsets": [0]}}), NO),
    "offsets of three": (file({"x": {"dtype": "U8", "shape": [0], "data_offsets": [0, 0, 0]}}), NO),
    "offsets negative": (one(offsets=(-4, 0), body=b"1234"), NO),
    "offsets floats": (file('{"x":{"dtype":"U8","shape":[4],"data_offsets":[0.0,4.0]}}', bytes(4)), NO),
    "offsets text": (file({"x": {"dtype": "U8", "shape": [0], "data_offsets": "00"}}), NO),
    "offsets missing": (file({"x": {"dtype": "U8", "shape": [0]}}), NO),
    "shape missing": (file({"x": {"dtype": "U8", "data_offsets": [0, 0]}}), NO),
    "dtype missing": (file({"x": {"shape": [0], "data_offsets": [0, 0]}}), NO),
    "entry a number": (file({"x": 1}), NO),
    "entry null": (file({"x": None}), NO),
    "entry text": (file({"x": "dtype"}), NO),
    "header a list": (file("[]"), NO),
    "header a number": (file("1"), NO),
    "header null": (file("null"), NO),
    "header empty": (file(""), NO),
    "header spaces": (file("   "), NO),
    "header cut": (file('{"x":'), NO),
    "two objects": (file("{}{}"), NO),
    "single quotes": (file("{'x':1}"), NO),
    "unknown key": (one(extra=[1, {"a": None}]), OK),
    "unknown key, 100 levels": (file('{"x":{"dtype":"U8","shape":[],"data_offsets":[0,1],"y":'
                                     + "[" * 100 + "]" * 100 + "}}", b"\0"), OK),
    "unknown key, 126 levels": (file('{"x":{"dtype":"U8","shape":[],"data_offsets":[0,1],"y":'
                                     + "[" * 126 + "]" * 126 + "}}", b"\0"), NO),
    "unknown key, 500 levels": (file('{"x":{"dtype":"U8","shape":[],"data_offsets":[0,1],"y":'
                                     + '{"a":' * 500 + "1" + "}" * 500 + "}}", b"\0"), NO),
    "unknown key, 1e999": (file('{"x":{"dtype":"U8","shape":[],"data_offsets":[0,1],"y":1e999}}', b"\0"), NO),
    "duplicate dtype": (file('{"x":{"dtype":"U8","dtype":"U8","shape":[],"data_offsets":[0,1]}}', b"\0"), NO),
    "duplicate metadata": (file('{"__metadata__":{},"__metadata__":{}}'), NO),
    "dtype escaped": (file('{"x":{"dtype":"\\u00558","shape":[],"data_offsets":[0,1]}}', b"\0"), OK),
    "offsets an object": (file('{"x":{"dtype":"U8","shape":[],"data_offsets":{"0":0,"1":1}}}', b"\0"), NO),
    "offsets minus zero": (file('{"x":{"dtype":"U8","shape":[],"data_offsets":[-0,1]}}', b"\0"), NO),
    "form feed": (file("{}\f"), NO),
    "no-break space": (file("\xa0{}"), NO),
    "full-width digit": (dims("[\uff11]", 1), NO),
    "any order of keys": (file('{"x":{"data_offsets":[0,4],"shape":[4],"dtype":"U8"}}', bytes(4)), OK),
    "not in order of the file": (file({"y": entry(offsets=(4, 8)), "x": entry()}, bytes(range(8))), OK),
    "name escaped": (file('{"\\u0078\\ud83d\\ude00":{"dtype":"U8","shape":[],"data_offsets":[0,1]}}', b"\0"), OK),
    "empty name": (file({"": entry()}, bytes(4)), OK),
    "no tensors": (file("{}"), OK),
}  # fmt: skip

# What the library accepts and we refuse: name -> (bytes, why).
STRICTER = {
    "23 overflow, zero first": (
        dims("[0,4611686018427387904,4611686018427387904]"),
        "the same dimensions in another order are refused by the library too",
    ),
    "23 overflow, zero in the middle": (
        dims("[4611686018427387904,0,4611686018427387904]"),
        "as above",
    ),
    "26 rank 65": (one(shape=(1,) * 65, offsets=(0, 1)), "NumPy has at most 64 dimensions; limits= decides"),
    "26 rank 100000": (one(shape=(1,) * 100_000, offsets=(0, 1)), "as above"),
    "33 bool of 2": (one("BOOL", (1,), (0, 1), body=b"\2"), "not a valid bool, and compilers may assume that it is"),
    "40 duplicate metadata keys": (
        file('{"__metadata__":{"a":"1","a":"2"}}'),
        "parsers disagree about which one counts",
    ),
    "40 duplicate tensor, identical": (
        file('{"x":{"dtype":"U8","shape":[],"data_offsets":[0,1]},"x":{"dtype":"U8","shape":[],"data_offsets":[0,1]}}',
             b"\0"),
        "as above",
    ),
    "40 duplicate unknown key": (
        file('{"x":{"dtype":"U8","shape":[],"data_offsets":[0,1],"y":1,"y":2}}', b"\0"),
        "as above",
    ),
    "43 41 digits under an unknown key": (
        file('{"x":{"dtype":"U8","shape":[],"data_offsets":[0,1],"y":' + "9" * 41 + "}}", b"\0"),
        "numbers that no format needs",
    ),
    "entry a list": (file('{"x":["U8",[],[0,1]]}', b"\0"), "the specification wants an object"),
    "dtype an object": (
        file('{"x":{"dtype":{"U8":null},"shape":[],"data_offsets":[0,1]}}', b"\0"),
        "the specification wants a string",
    ),
    "51 metadata null": (file('{"__metadata__":null}'), "no object of texts"),
    "our key, but no JSON": (file({"__metadata__": {"tensorbytes": "made by hand"}}), "the key is reserved for notes"),
    "our key, but a list": (file({"__metadata__": {"tensorbytes": "[]"}}), "as above"),
    "a note for nothing": (file({"__metadata__": {"tensorbytes": '{"y":{}}'}, "x": entry()}, bytes(4)), "damaged"),
    "a note of a list": (file({"__metadata__": {"tensorbytes": '{"x":[]}'}, "x": entry()}, bytes(4)), "damaged"),
    "a note with an unknown key": (
        file({"__metadata__": {"tensorbytes": '{"x":{"z":1}}'}, "x": entry()}, bytes(4)),
        "from a later version: guessing would change values",
    ),
    "a note with another width": (
        file({"__metadata__": {"tensorbytes": '{"x":{"dtype":"int16"}}'}, "x": entry()}, bytes(4)),
        "damaged",
    ),
    "complex128 over bytes": (
        file({"__metadata__": {"tensorbytes": '{"x":{"dtype":"complex128"}}'}, "x": entry()}, bytes(4)),
        "damaged",
    ),
    "complex128 without pairs": (
        file({"__metadata__": {"tensorbytes": '{"x":{"dtype":"complex128"}}'}, "x": entry("I64", (2,), (0, 16))}, 16),
        "damaged",
    ),
}  # fmt: skip
