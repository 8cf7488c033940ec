"""Files and folders that are often taken for files of tensors: what they are, and what to do with them."""

from __future__ import annotations

import os
import re
from typing import NamedTuple, TypeAlias

from tensorbytes import formats
from tensorbytes.errors import Hint

_Advice: TypeAlias = str | Hint | tuple[str | Hint, ...]
ZIP, TAR, PICKLE, NEVER = "zip", "tar", "pickle", "never"


class About(NamedTuple):
    """What a file or a folder is, and what to do with it."""

    what: str
    hints: tuple[Hint, ...] = ()


class Wrong(NamedTuple):
    """A kind of file that is often taken for one of tensors."""

    start: re.Pattern[bytes]
    what: str
    advice: _Advice = ""
    kind: str = ""  # what formats call it in `may_start_like`; NEVER: such bytes are not even raw ones

    @property
    def about(self) -> About:
        return _about(self.what, self.advice)

    def may_be(self, format: str | None) -> bool:
        """Whether a file of this format may start like this all the same."""
        if format is None or self.kind == NEVER:
            return False
        chosen = formats.get(format)
        return not chosen.self_describing or self.kind in chosen.may_start_like


def _about(what: str, advice: _Advice) -> About:
    several = advice if isinstance(advice, tuple) else (advice,)
    return About(what, tuple(Hint(purpose=one) if isinstance(one, str) else one for one in several if one))


def _starts(pattern: bytes) -> re.Pattern[bytes]:
    return re.compile(pattern, re.DOTALL | re.IGNORECASE)


_DECODE = "decode it with a library for that, and save the array"
_DECOMPRESS = "decompress it first"
_TEXT = rb"(?:\xef\xbb\xbf)?\s*"
_NUMBER = rb"(?:[\x80-\xff]{0,9}[\x00-\x7f])"  # a number of protobuf's
_HASH = rb"[\x80-\xff]{6,9}[\x00-\x7f]"  # the same of many bits
# Asked when no format recognises the first bytes.
WRONG_FILES = (
    Wrong(_starts(_TEXT + rb"<(?:!doctype|html)\b"), "an HTML page, not tensors: a failed download?", kind=NEVER),
    Wrong(_starts(_TEXT + rb"<[?]xml\b"), "XML, not tensors: a failed download?", kind=NEVER),
    Wrong(
        re.compile(rb"version https://git-lfs"),
        "a git-LFS pointer, not the file itself",
        "run `git lfs pull`",
        NEVER,
    ),
    Wrong(_starts(_TEXT + rb'[{]\s*"'), "JSON, not tensors: an error message, or the index of other files?"),
    Wrong(
        re.compile(rb"\x1f\x8b\x08"),
        "gzip-compressed",
        (
            _DECOMPRESS,
            Hint(operation="open_records", arguments=("path",), purpose="reads compressed records as they are"),
        ),
    ),
    Wrong(re.compile(rb"\x28\xb5\x2f\xfd"), "zstd-compressed", _DECOMPRESS),
    Wrong(re.compile(rb"BZh[1-9]1AY&SY"), "bzip2-compressed", _DECOMPRESS),
    Wrong(re.compile(rb"\xfd7zXZ\0"), "xz-compressed", _DECOMPRESS),
    Wrong(re.compile(rb"\x04\x22\x4d\x18"), "lz4-compressed", _DECOMPRESS),
    Wrong(re.compile(rb"7z\xbc\xaf\x27\x1c"), "a 7z archive", "unpack it first"),
    Wrong(_starts(rb".{257}ustar"), "a tar archive", "unpack it first, and pass the files in it", TAR),
    Wrong(re.compile(rb"\x89HDF\r\n\x1a\n"), "HDF5, which is not read here", "read it with h5py"),
    Wrong(
        _starts(_TEXT + rb"(?:<\s*ir_version\s*:|ir_version\s*:)"),
        "an ONNX model as text, which is not read here",
        "onnx.parser.parse_model, or google.protobuf.text_format.Parse, reads it; onnx.save writes it as bytes",
        NEVER,
    ),
    Wrong(
        _starts(_TEXT + rb"(?:node|meta_info_def|saved_model_schema_version)\s*[{:]"),
        "a TensorFlow graph as text, not tensors",
        "google.protobuf.text_format.Parse reads it",
        NEVER,
    ),
    Wrong(
        _starts(rb"....ORTM"),
        "a model of ONNX Runtime (.ort), which is not read here",
        "pass the .onnx model that it was made of",
    ),
    Wrong(
        re.compile(rb"\x83\xaf\x70\xd1\x0d\x88\x4a\x3f"),
        "records of Riegeli, or an ArrayRecord, which is not read here",
        "read it with array_record or riegeli, and write what it gives with RecordWriter",
    ),
    Wrong(
        _starts(
            rb"(?:[\x81-\x8f]|\xde..|\xdf....)(?:[\xa0-\xbf]|\xd9.)[\x20-\x7e].{0,2000}?(?:\xc7.|\xc8..|\xc9....)\x01\x93[\x90-\x9f]"
        ),
        "msgpack, as Flax saves its states, which is not read here",
        "flax.serialization.msgpack_restore(data) gives the tree to save",
    ),
    Wrong(
        _starts(rb"\x08\x01\x12" + _NUMBER + rb"\x0a"),
        "the graph of a SavedModel (saved_model.pb), which is not read here",
        "pass its folder, with the variables beside it; one without variables has its values in the graph",
    ),
    Wrong(
        _starts(rb"(?:2\x02\x08.)?(?:[\x08\x10\x18\x20\x28]" + _HASH + rb"){3}"),  # in any order
        "the fingerprint of a SavedModel (fingerprint.pb), not tensors",
        "pass the SavedModel's folder",
    ),
    Wrong(
        _starts(rb"\x0a.{1,200}?_tf_keras_"),
        "what Keras keeps of a SavedModel (keras_metadata.pb), not tensors",
        "pass the SavedModel's folder",
    ),
    Wrong(
        _starts(
            rb"\x0a"
            + _NUMBER
            + rb"\x0a"
            + _NUMBER
            + rb"[A-Za-z0-9_.\\/>-]+\x12"
            + _NUMBER
            + rb"_?[A-Z][A-Za-z0-9]+[\x1a\x22\x2a]"
        ),
        "a TensorFlow graph (GraphDef), which is not read here",
        (
            "its constants are tf.make_ndarray(node.attr['value'].tensor) of its nodes",
            "its variables are in the checkpoint that belongs to it",
        ),
    ),
    Wrong(
        _starts(
            rb"\x0a"
            + _NUMBER
            + rb"(?:\x0a"
            + _NUMBER
            + rb"[\x20-\x7e]*)?\x12"
            + _NUMBER
            + rb"\x0a"
            + _NUMBER
            + rb"\x0a"
            + _NUMBER
            + rb"[A-Z]"
        ),
        "the graph that belongs to a TensorFlow checkpoint (.meta), not tensors",
        "pass the checkpoint's prefix or its .index",
    ),
    # All opcodes are from "(" on; other files may start with a length of these bytes, and zeros.
    Wrong(
        re.compile(rb"\x80[\x02-\x05][\x28-\xff]|[(][dl]p[0-9]*\n|c(?:copy_reg|numpy)[a-z._]*\n"),
        "a pickle, which is never read here: loading one can run any code in it",
        "load it where you trust it, and save its tensors",
        PICKLE,
    ),
    Wrong(re.compile(rb"\x89PNG\r\n\x1a\n"), "a PNG image, which is not read here", _DECODE),
    Wrong(re.compile(rb"\xff\xd8\xff"), "a JPEG image, which is not read here", _DECODE),
    Wrong(_starts(rb"GIF8[79]a|RIFF....WEBP|II[*]\0|MM\0[*]"), "an image, which is not read here", _DECODE),
    Wrong(_starts(rb"RIFF....WAVE|fLaC|OggS\0|ID3[\x02-\x04]"), "sound, which is not read here", _DECODE),
    Wrong(re.compile(rb"%PDF-"), "a PDF document, not tensors"),
    Wrong(re.compile(rb"\x7fELF"), "a program or a library (ELF), not tensors"),
    Wrong(
        re.compile(rb"SQLite format 3\0"),
        "an SQLite database, not tensors",
        "read it with sqlite3, and save what it gives",
    ),
    Wrong(
        _starts(rb"....TFL3"),
        "a TensorFlow Lite model, which is not read here",
        "tf.lite.Interpreter(path).get_tensor(i) gives its tensors",
    ),
    Wrong(
        re.compile(rb"MATLAB 5[.]0 MAT-file"),
        "a MATLAB file, which is not read here",
        "scipy.io.loadmat(path) gives a dict of arrays to save",
    ),
    Wrong(
        re.compile(rb"MATLAB 7[.]3 MAT-file"),
        "a MATLAB 7.3 file, which is HDF5 and not read here",
        "read it with h5py",
    ),
    Wrong(
        re.compile(rb"lmgg|fmgg|tjgg|algg"),
        "a model of llama.cpp from before GGUF, which is not read here",
        "convert it with llama.cpp's own script",
    ),
    Wrong(re.compile(rb"FEA1"), "Feather V1, which is not read here", "pyarrow.feather reads and rewrites it"),
    Wrong(re.compile(rb"ORC"), "an ORC table, which is not read here", "pyarrow.orc reads it"),
    Wrong(re.compile(rb"Obj\x01"), "an Avro file, which is not read here"),
    Wrong(_starts(rb".{16}\xde\xc0\xef\xbe"), "an LMDB database, not tensors", "read it with lmdb"),
    # The members of a Keras file, in the order in which it writes them.
    Wrong(
        _starts(rb"PK\x03\x04.{26}(?:metadata|config)[.]json"),
        "a Keras model (a zip of its configuration and HDF5 weights), which is not read here",
        "load it with keras.saving.load_model, and save model.get_weights()",
        ZIP,
    ),
    Wrong(
        re.compile(rb"PK\x03\x04"),
        "a zip archive, and neither npz nor one of torch.save",
        "unpack it first",
        ZIP,
    ),
)


# What a folder holds that is often taken for a file of tensors: a name in it, and what to do.
WRONG_FOLDERS = (
    (
        r"_CHECKPOINT_METADATA|manifest[.]ocdbt|_sharding",
        "a checkpoint of Orbax, which is not read here",
        "restore it with orbax.checkpoint, and save the tree",
    ),
    (
        r"[.]zarray|[.]zgroup|[.]zmetadata|zarr[.]json",
        "a Zarr store, which is not read here",
        "zarr.open(path)[...] gives arrays to save",
    ),
    (
        r"[.]metadata|.*[.]distcp",
        "a distributed checkpoint of torch, which is not read here",
        "torch.distributed.checkpoint.format_utils.dcp_to_torch_save makes one file of it",
    ),
    (r"data[.]mdb", "an LMDB database, not tensors", "read it with lmdb"),
    (r"dataset_info[.]json|state[.]json", "a dataset of Hugging Face", "pass one of its Arrow files"),
    (
        r".*tfevents.*",
        "a folder of TensorBoard's event files",
        Hint(operation="records.read_events", arguments=("paths",), purpose="reads them"),
    ),
)
# Text, up to where it was cut, perhaps inside a character.
_PLAIN_TEXT = re.compile(
    rb"(?:[\t\n\r\x20-\x7e]|[\xc2-\xdf][\x80-\xbf]|[\xe0-\xef][\x80-\xbf]{2}|[\xf0-\xf4][\x80-\xbf]{3})+"
    rb"[\xc2-\xf4]?[\x80-\xbf]{0,2}\Z"
)
_MOST_NAMED = 3


def about_file(head: bytes, format: str | None, surely: bool = False) -> About | None:
    """What a file that starts like this is, if it is known and holds no tensors; `surely`, whatever its format."""
    for wrong in WRONG_FILES:
        if (wrong.kind == NEVER or not surely) and wrong.start.match(head) and not wrong.may_be(format):
            return wrong.about
    if format is None and _PLAIN_TEXT.match(head):
        if head.lstrip().startswith(b"["):
            return _about("text that looks like JSON, not tensors", "np.asarray(json.load(file)) may be what is wanted")
        if _is_table(head):
            return _about(
                "text that looks like a table (CSV), not tensors", "numpy.loadtxt or pandas.read_csv reads it"
            )
        return About("text, not tensors")
    return None


def _is_table(text: bytes) -> bool:
    """Whether the first lines have as many fields each."""
    lines = text.splitlines()[: -1 if len(text) == formats.SNIFF_BYTES else None][:8]  # the last one may be cut
    counts = [{line.count(mark) for line in lines} for mark in (b",", b";", b"\t")]
    return len(lines) > 1 and any(len(count) == 1 and count != {0} for count in counts)


def about_folder(path: str) -> About:
    """What a folder that no format claims may be."""
    names = sorted(os.listdir(path))
    if not names:
        return About("an empty folder")
    for pattern, what, advice in WRONG_FOLDERS:
        if any(re.fullmatch(pattern, name, re.DOTALL) for name in names):
            return _about(what, advice)
    files = [name for name in names if os.path.isfile(os.path.join(path, name))]
    known = [
        name for name in files if formats.by_suffix(name) is not None or re.search(r"[.]tfrec(ord)?s?(?!.*json)", name)
    ]
    if known:
        shown = ", ".join(known[:_MOST_NAMED]) + (", ..." if len(known) > _MOST_NAMED else "")
        return _about("a folder, and not a recognised checkpoint", f"pass a file in it ({shown})")
    return _about("not a recognised checkpoint folder", "pass a file in it")
