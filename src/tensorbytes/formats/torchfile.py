r"""Files of torch.save: read without torch and without unpickling, written so that torch.load reads them.

    a zip archive, its members stored, those of the data on multiples of 64 bytes:
    archive/data.pkl          a pickle (protocol 2): the object; its tensors name storages
    archive/tensorbytes.json  notes of this library, if any; torch does not look at them
    archive/byteorder         "little" or "big"
    archive/data/0, 1, ...    the storages: raw elements
    archive/version           "3"

`archive` may be any name. Archives of torch have further members (.format_version,
.storage_alignment, .data/serialization_id), which reading ignores. The older format, a
row of pickles followed by the storages, is read too. TorchScript and torch.export are
refused: they hold programs.

The pickle is read by a machine of our own (_torch/pickle_read.py) with a fixed table of names
(_torch/names.py): torch's functions that rebuild tensors, storages, dtypes, OrderedDict.
Anything else becomes a mark with its name: listed when a file is opened, refused by name and
place when it is loaded, left out with objects="skip" (None stands for it in lists and tuples).
Nothing is imported, called or evaluated on the word of a file.

Read as something else: an OrderedDict, a defaultdict and a Counter as a dict, torch.Size as a
tuple, torch.dtype, torch.device and torch.layout as text. Tensors that are the same view of a
storage are one tensor; other views of the same memory come as tensors of their own. The
`_metadata` of a state_dict (the versions of its modules) is kept as metadata of the whole,
"torch._metadata": JSON, [[path, metadata], ...]; saving it again restores it. NumPy's arrays and
scalars of plain dtypes are read as such. Sets, other objects and tensors with attributes are not read.

Written as torch does: numbers, text, bytes, containers, tensors, Parameters, Buffers,
sparse, quantized and nested tensors, the device. A tensor that has several places is one object
of the pickle, with one storage. What torch has no form for:

    dtypes that torch lacks        an integer type of the same width, and a note
    NumPy arrays of strings        lists in lists, and a note
    other ragged, sparse values    a dict of their parts (_parts.py), and a note
    integers of over 255 bytes     text, and a note
    names, other metadata          a note

The notes are a JSON object:

    framework   where the tensors are from, if not "torch"; "" for NumPy
    document    metadata of the whole: {text: text}
    document_origin  how the whole was held: {text: text}
    leaves      a list of notes, each on the value at its `path` (as in _parts.py), with
                either `parts`, {part name: its note}, and for strings their `shape`;
                or any of kind, name, meta, origin, and `index`, "int32" for coordinates that torch
                widens to int64. `origin` replaces what follows from the pickle.
"""

from __future__ import annotations

import io
from collections.abc import Iterator

from tensorbytes.budget import Budget
from tensorbytes.errors import CorruptError, Hint, Limits, UnsupportedError
from tensorbytes.formats import Format, Options, _zip, check_plain, known_options
from tensorbytes.formats._torch import archive as torch_archive
from tensorbytes.formats._torch import unread
from tensorbytes.formats._torch import write as torch_write
from tensorbytes.formats._torch.archive import MAGIC_BYTES, NOTES, Archive
from tensorbytes.formats._zip import Content
from tensorbytes.io import storage
from tensorbytes.tree import Document
from tensorbytes.typing import Buffer, bytes_view

_ALIGNMENT = 64
_PADDING = 0x4246  # "FB", the extra field that torch pads with
_NAME_AT = 30
_ZIP = b"PK\x03\x04"


class TorchFile(Format):
    name = "torchfile"
    label = "PyTorch file"
    words = "torch.save files, without torch, without unpickling"
    aliases = ("torch", "pytorch")
    suffixes = (".pt", ".pth")
    read_by = "PyTorch"
    holds = "everything"
    complete = ties = True
    checksums = "CRC-32 of each storage"
    read_options = known_options(objects=unread.OPTION, checksums=_zip.CHECKSUMS)
    unmistakable = True
    may_start_like = frozenset({"zip", "tar", "pickle"})
    lists_quickly = True

    def sniff(self, head: bytes, size: int) -> bool:
        if head.startswith(b"\x80"):
            return MAGIC_BYTES in head[2:24]
        if not head.startswith(_ZIP):
            return False
        name = head[_NAME_AT : _NAME_AT + int.from_bytes(head[26:28], "little")]
        _, slash, inner = name.partition(b"/")
        # Programs of torch start with their data; they are ours to refuse.
        return bool(slash) and (inner == b"data.pkl" or (inner.startswith(b"data/") and not inner.endswith(b".npy")))

    def encode(self, document: Document, allow: frozenset[str], options: Options) -> Iterator[Buffer]:
        check_plain(document)
        pickled, storages, notes = torch_write.encode(document)
        contents = [Content("archive/data.pkl", [pickled])]
        if notes:
            contents.append(Content(f"archive/{NOTES}", [notes]))
        contents.append(Content("archive/byteorder", [b"little"]))
        for key, data in enumerate(storages):
            contents.append(Content(f"archive/data/{key}", [data], nbytes=bytes_view(data).nbytes))
        contents.append(Content("archive/version", [b"3\n"]))
        return _zip.archive(contents, _ALIGNMENT, _PADDING)

    def check(self, document: Document, allow: frozenset[str], options: Options) -> None:
        check_plain(document)
        torch_write.check(document)

    def checksums_of(self, data: memoryview | None) -> str:
        return self.checksums if data is not None and bytes(data[:4]) == _ZIP else ""  # older files have none

    def decode(self, data: memoryview, limits: Limits, lazy: bool, options: Options) -> Iterator[Document]:
        budget = Budget(limits, len(data))
        head, skip = bytes(data[:262]), unread.skips(options)
        if head.startswith(_ZIP):
            yield Archive(data, budget, lazy, options).document(skip)
        elif head.startswith(b"\x80"):
            yield torch_archive.legacy(data, budget, lazy, skip)
        elif head.endswith(b"ustar"):
            raise UnsupportedError(
                "a tar archive of torch before 0.1.12",
                hints=[Hint(purpose="load it with an old torch and save it again")],
            )
        else:
            raise CorruptError("not a file of torch.save: neither a zip archive nor a pickle", at=0)

    def decode_file(self, file: io.FileIO, limits: Limits, options: Options) -> Iterator[Document] | None:
        """Each storage in memory of its own: what is dropped gives its memory back."""
        data = storage.map_open(file)
        budget = Budget(limits, len(data))
        return self._decode_members(data, file, budget) if bytes(data[:4]) == _ZIP else None

    def _decode_members(self, data: memoryview, file: io.FileIO, budget: Budget) -> Iterator[Document]:
        yield Archive(data, budget, False, {}, file).document()


FORMAT = TorchFile()
