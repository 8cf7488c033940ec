"""Against pyarrow, PyTorch and TensorFlow's files. The examples are damaged files, in examples/."""

import re
from typing import Any

from safety.fuzz.differential.listing import BOTH, OURS, THEIRS, Divergence
from safety.fuzz.differential.pair import ROOT

EXAMPLES = ROOT / "safety" / "fuzz" / "differential" / "examples"
_IPC, _MESSAGE, _PARQUET, _TORCH = ("arrow",), ("arrowtensor",), ("parquet",), ("torch",)
_TABLES, _RECORDS, _CHECKPOINT = ("arrow", "parquet"), ("tf-records",), ("tf-checkpoint",)


def example(name: str) -> bytes:
    path = EXAMPLES / name
    return path.read_bytes() if path.exists() else b""


def _long(raw: bytes, _: Any, __: Any) -> bool:
    """Whether the index has a number of over five bytes."""
    size = int.from_bytes(raw[:4], "little")
    return re.search(rb"[\x80-\xff]{5}", raw[4 : 4 + size]) is not None


def _folder(raw: bytes, _: Any, __: Any) -> bool:
    """Whether the directory of an archive marks a member as a folder."""
    marks = [match.start() for match in re.finditer(rb"PK\x01\x02", raw)]
    return any(raw[at + 38] & 0x10 for at in marks if at + 38 < len(raw))


ROWS = [
    Divergence(
        _TORCH,
        BOTH,
        "",
        "a member that the archive's directory marks as a folder",
        "torch reads nothing, and gives whatever its memory held before",
        example("torch-folder"),
        _folder,
        theirs="uninitialised memory",
        ours="the values",
    ),
    Divergence(
        _TORCH,
        OURS,
        "",
        "the same, of the byte order",
        "torch reads nothing, and takes what its memory held before for the byte order",
        example("torch-folder-byteorder"),
        _folder,
    ),
    Divergence(
        _TORCH,
        OURS,
        "leaf Variable that requires grad",
        "gradients asked for where torch can't give them",
        "the values are there",
        example("torch-grad"),
    ),
    Divergence(
        _MESSAGE,
        THEIRS,
        r"bytes follow the tensor",
        "bytes after the message",
        "a file that was cut, glued or overwritten: said, not passed over",
        example("arrowtensor-trailing"),
    ),
    Divergence(
        _MESSAGE,
        THEIRS,
        r"data of -?\d+ bytes at|takes \d+ bytes, the message has|strides of .* leave the",
        "a buffer that is not where the message says, or not as long",
        "pyarrow takes the body whatever is said of it",
        example("arrowtensor-buffer"),
    ),
    Divergence(
        _MESSAGE,
        THEIRS,
        r"FlatBuffer|is not UTF-8|the type number",
        "FlatBuffer parts that are malformed, names that are not UTF-8",
        "pyarrow reads past them, or does not look",
        example("arrowtensor-flatbuffer"),
    ),
    Divergence(
        _MESSAGE,
        OURS,
        "Invalid flatbuffers message",
        "FlatBuffer parts that nobody reads, malformed",
        "what is not read is not checked",
        example("arrowtensor-unread"),
    ),
    Divergence(
        _IPC,
        THEIRS,
        "bytes follow the end of the stream",
        "bytes after the end of a stream",
        "a file that was cut, glued or overwritten: said, not passed over",
        example("arrow-trailing"),
    ),
    Divergence(
        _MESSAGE,
        OURS,
        "negative strides|buffer over run|offsets computed from shape and strides",
        "a stride that no element uses",
        "of an axis of one element, or of a tensor of none, it says nothing",
        example("arrowtensor-stride"),
    ),
    Divergence(
        _IPC,
        THEIRS,
        r"the footer lists a block|the footer and a message disagree|bytes of metadata, .* are left|batch of -\d+ rows",
        "a footer that disagrees with the messages",
        "pyarrow believes the footer, and may read other bytes as values",
        example("arrow-footer"),
    ),
    Divergence(
        _IPC,
        THEIRS,
        "^LimitError: compressed record batches",
        "compressed buffers that claim more than `max_bytes`, and are not used",
        "claims are checked before they are looked at",
        example("arrow-claim"),
    ),
    Divergence(
        _IPC,
        THEIRS,
        "must be a multiple of element size",
        "a buffer whose length is not a multiple of its elements",
        "a wrong length is damage, wherever the values end",
        example("arrow-odd-buffer"),
    ),
    Divergence(
        _IPC,
        THEIRS,
        r"a compressed buffer of",
        "a compressed buffer outside of its body",
        "pyarrow does not look at buffers that it does not use",
        example("arrow-buffer"),
    ),
    Divergence(
        _TABLES,
        THEIRS,
        r"has no neutral form|a table without columns",
        "unions, no columns",
        "refused by name, and left out on request",
        example("arrow-types"),
    ),
    Divergence(
        _PARQUET,
        THEIRS,
        "page integrity",
        "a page whose checksum is wrong",
        "pyarrow does not verify unless it is told to",
        example("parquet-checksum"),
    ),
    Divergence(
        _PARQUET,
        THEIRS,
        "starts and ends with PAR1",
        "a wrong magic at the start",
        "pyarrow looks at the end alone",
        example("parquet-magic"),
    ),
    Divergence(
        _PARQUET,
        THEIRS,
        r"row groups of|rows where the footer has|a row group of",
        "counts of rows that disagree",
        "pyarrow believes one of them, and may give no rows",
        example("parquet-rows"),
    ),
    Divergence(
        _PARQUET,
        THEIRS,
        r"a column of -?\d+ bytes at|pages of|when decompressed|share bytes",
        "a column chunk whose place or size can't be",
        "read as no rows, or from elsewhere",
        example("parquet-chunk"),
    ),
    Divergence(
        _PARQUET,
        THEIRS,
        r"the footer",
        "a footer that is malformed where pyarrow does not look",
        "our check of what a file claims reads all of it",
        example("parquet-footer"),
    ),
    Divergence(
        _TORCH,
        THEIRS,
        r"ends with other than one value|bytes follow the (pickle|storages)",
        "values or bytes left over",
        "passed over in silence",
        example("torch-left-over"),
    ),
    Divergence(
        _TORCH,
        THEIRS,
        r"the checksum of the member",
        "a wrong checksum in the archive",
        "torch does not verify them",
        example("torch-checksum"),
    ),
    Divergence(
        _TORCH,
        THEIRS,
        r"differ between its header|in another way than listed|in its own header|directory|several volumes|"
        r"is stored, but|encrypted|overlap",
        "an archive whose headers and directory disagree",
        "torch believes the directory; two readers could see two archives in one file",
        example("torch-archive"),
    ),
    Divergence(
        _TORCH,
        THEIRS,
        r"pickle protocol",
        "a pickle protocol that nobody knows",
        "torch does not look",
        example("torch-protocol"),
    ),
    Divergence(
        _TORCH,
        THEIRS,
        r"not a value|backward hooks|without a (tuple|device)|of other types|"
        "torch.Size|requires_grad is neither|OrderedDict of other",
        "calls and values that torch.save never writes",
        "torch calls what it is told with what is there; we read what torch.save writes",
        example("torch-calls"),
    ),
    Divergence(
        _TORCH,
        OURS,
        "^(UnpicklingError|IndexError)",
        "opcodes of pickle that torch's reader lacks",
        "their meaning is that of every pickle; nothing is called",
        example("torch-opcodes"),
    ),
    Divergence(
        _TORCH,
        OURS,
        "multidisk archive",
        "an archive's entry that has its volume elsewhere, as of large archives",
        "there is but one volume",
        example("torch-volume"),
    ),
    Divergence(
        _TORCH,
        OURS,
        "sparse_coo_tensor.. received an invalid combination",
        "whether a sparse tensor is coalesced, as neither true nor false",
        "it says nothing of the values",
        example("torch-coalesced"),
    ),
    Divergence(
        _TORCH,
        THEIRS,
        "a dict key of type|contains itself|nested deeper",
        "dict keys other than text and integers, values that contain themselves",
        "no place in a structure of tensors",
        example("torch-keys"),
    ),
    Divergence(
        _TORCH,
        THEIRS,
        "index lies outside",
        "a sparse index outside the shape",
        "torch does not look until it is used",
        example("torch-index"),
    ),
    Divergence(
        _TORCH,
        THEIRS,
        "is not a valid bool",
        "a bool byte other than 0 and 1",
        "no value: compilers may take it for either",
        example("torch-bool"),
    ),
    Divergence(
        _TORCH,
        THEIRS,
        "the storage .* (is not there|has|would end)|a member's name holds a zero",
        "storages whose sizes disagree, names of members with a zero byte",
        "torch takes what is there",
        example("torch-storage"),
    ),
    Divergence(
        _RECORDS,
        THEIRS,
        "the file ends inside the header",
        "a file cut inside the header of a record",
        "read as a clean end: silent loss",
        b"\5",
        theirs="a clean end",
    ),
    Divergence(
        _CHECKPOINT,
        THEIRS,
        "the checksum differs",
        "strings whose bytes were damaged",
        "TensorFlow verifies their lengths alone",
        example("checkpoint-string-checksum"),
        theirs="other strings",
    ),
    Divergence(
        _CHECKPOINT,
        THEIRS,
        "the shape is unknown|takes bytes",
        "`unknown_rank` set; no elements outside of the data",
        "TensorFlow does not look",
        example("checkpoint-rank"),
    ),
    Divergence(
        _CHECKPOINT,
        THEIRS,
        r"has the wire type \d",
        "a field of the wrong wire type",
        "to protobuf an unknown field: dropped in silence",
        example("checkpoint-wire-type"),
    ),
    Divergence(
        _CHECKPOINT,
        THEIRS,
        "padding is not zero",
        "bytes in the footer's padding",
        "damage, and passed over",
        example("checkpoint-padding"),
    ),
    Divergence(
        _CHECKPOINT,
        THEIRS,
        r"an entry (shares|runs)|a varint runs past|restart|a block of|entries|not in order|twice",
        "a block of the index that is malformed",
        "TensorFlow ends the list there: tensors are missing in silence",
        example("checkpoint-block"),
        theirs="fewer tensors",
    ),
    Divergence(
        _CHECKPOINT,
        THEIRS,
        "checksum of a block differs",
        "a wrong checksum of the metaindex",
        "TensorFlow never reads that block",
        example("checkpoint-metaindex"),
    ),
    Divergence(
        _CHECKPOINT,
        THEIRS,
        r"is in shard \d{8}|unknown dtype \d{8}|a checkpoint of \d{8}",
        "numbers of over 32 bits",
        "protobuf keeps their low bits",
        example("checkpoint-wide"),
    ),
    Divergence(
        _CHECKPOINT,
        OURS,
        "below min producer",
        "a producer's version below 0",
        "no reason not to read it",
        example("checkpoint-producer"),
    ),
    Divergence(
        _CHECKPOINT,
        OURS,
        "Unable to read file|arse",
        "a tag or a length in six to ten bytes",
        "TensorFlow stops at five; nothing is lost by reading on",
        example("checkpoint-long"),
        _long,
    ),
]
