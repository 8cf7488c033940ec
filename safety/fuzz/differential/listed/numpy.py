"""Against NumPy's npy and npz readers."""

import io
import zipfile
from typing import Any

from safety.fuzz.differential.listing import BOTH, OURS, THEIRS, Divergence
from tests.support.npy_bytes import header, npy

_NPY, _NPZ, _EITHER = ("npy",), ("npz",), ("npy", "npz")


def zipped(raw: bytes, name: str = "a.npy", comment: bytes = b"") -> bytes:
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w") as archive:
        archive.writestr(zipfile.ZipInfo(name), raw)
        archive.comment = comment
    return file.getvalue()


def changed(raw: bytes, mark: bytes, at: int, new: bytes) -> bytes:
    """The archive with a field of its last header of this kind changed."""
    at += raw.rindex(b"PK" + mark)
    return raw[:at] + new + raw[at + len(new) :]


PLAIN = npy(header(shape="(1,)"), bytes(4))
ARCHIVE = zipped(PLAIN)
_LOCAL, _CENTRAL, _END = b"\3\4", b"\1\2", b"\5\6"


def _more_follows(_: bytes, __: Any, theirs: Any) -> bool:
    return theirs[-1] == "and what np.load passes over"


def _other_directory(raw: bytes, _: Any, __: Any) -> bool:
    return raw.count(b"PK\5\6") > 1


ROWS = [
    Divergence(
        _NPZ,
        THEIRS,
        "",
        "an archive's comment that looks like the end of an empty archive",
        "`zipfile` takes the last of two ends; what is damaged in the other it does not see",
        zipped(npy("x"), comment=b"PK\5\6" + bytes(16) + b"\1\0"),
        _other_directory,
        theirs="no arrays",
    ),
    Divergence(
        _NPY,
        THEIRS,
        "",
        "bytes after the array that are no further array",
        "a file that was cut, glued or overwritten: said, not passed over",
        PLAIN + b"\0",
        _more_follows,
        theirs="first array read, the rest passed over",
    ),
    Divergence(
        _NPZ,
        THEIRS,
        r"takes \d+ bytes, its member has",
        "a member longer than its array",
        "a file that was cut, glued or overwritten: said, not passed over",
        zipped(PLAIN + b"\0"),
    ),
    Divergence(
        _EITHER,
        THEIRS,
        "is not a valid bool",
        "a bool byte other than 0 and 1",
        "no value: compilers may take it for either",
        npy(header("'|b1'", shape="(1,)"), b"\2"),
    ),
    Divergence(
        _EITHER,
        THEIRS,
        "a character number",
        "text with a number that is not a character of Unicode",
        "no text; Python's `str` can't hold it either",
        npy(header("'<U2'", shape="(1,)"), b"A\0\0\0\xe9\0\0\xff"),
    ),
    Divergence(
        _EITHER,
        THEIRS,
        "void dtype",
        "void arrays (`V2`)",
        "they don't say what they hold; `dtype=` tells us",
        npy(header("'|V2'", shape="(1,)"), bytes(2)),
    ),
    Divergence(
        _EITHER,
        THEIRS,
        "is unknown here",
        "dtypes in other words than NumPy writes (`float32`, `i`, `<M8[s/2]`)",
        "np.save never writes them; the error names the dtype",
        npy(header("'float32'", shape="(1,)"), bytes(4)),
    ),
    Divergence(
        _EITHER,
        THEIRS,
        "long double",
        "long double (`<f16`)",
        "its bytes mean other numbers on other machines",
        npy(header("'<f16'", shape="(1,)"), bytes(16)),
    ),
    Divergence(
        _EITHER,
        THEIRS,
        "a structured dtype: ",
        "a structured dtype without fields, or whose fields have dtypes in other words than NumPy writes",
        "no values in it; np.save never writes the others",
        npy(header("[]", shape="(1,)"), b""),
    ),
    Divergence(
        _EITHER,
        THEIRS,
        "the npy header: ",
        "a header that is a Python literal in other words than NumPy's (`b'..'`, `0x2`, `1_0`, `(+2,)`, no newline)",
        "NumPy evaluates the text; our parser takes what NumPy's writers write",
        npy(header(shape="(0x1,)"), bytes(4)),
        lambda raw, ours, theirs: not isinstance(theirs, list) or not _more_follows(raw, ours, theirs),
    ),
    Divergence(
        _NPZ,
        THEIRS,
        "is not an npy array",
        "a member that is not an npy array",
        "NumPy returns its bytes in place of an array",
        zipped(b"text"),
        theirs="its bytes",
    ),
    Divergence(
        _NPZ,
        THEIRS,
        "several volumes",
        "an archive that says it is one of several volumes",
        "`zipfile` does not look",
        changed(ARCHIVE, _END, 4, b"\1"),
    ),
    Divergence(
        _NPZ,
        THEIRS,
        "directory ends at byte|without its directory",
        "bytes before the archive, or after its end",
        "two readers could see two archives in one file",
        ARCHIVE + b"\0",
    ),
    Divergence(
        _NPZ,
        THEIRS,
        "an entry runs past the end|directory ends inside|directory has .* bytes more than",
        "a directory whose lengths disagree with each other",
        "two readers could see two archives in one file",
        changed(ARCHIVE, _END, 8, b"\2\0\2\0"),
    ),
    Divergence(
        _NPZ,
        THEIRS,
        "differ between its header and the directory|in another way than listed|is listed as",
        "a member whose header and directory entry disagree",
        "two readers could see two archives in one file; `zipfile` believes the directory",
        changed(ARCHIVE, _LOCAL, 14, b"\1\1\1\1"),
    ),
    Divergence(
        _NPZ,
        THEIRS,
        "is stored, but",
        "a stored member of two sizes",
        "two readers could see two archives in one file",
        changed(ARCHIVE, _CENTRAL, 24, b"\1\1\1\1"),
    ),
    Divergence(
        _NPZ,
        THEIRS,
        "encrypted or patched",
        "flags of encryption or patches that the directory does not bear out",
        "`zipfile` believes the directory",
        changed(ARCHIVE, _CENTRAL, 8, b"\0\x20"),
    ),
    Divergence(
        _EITHER,
        OURS,
        "Cannot parse header",
        "a zero byte in a comment after the header's dict",
        "comments are passed over, as NumPy does with others",
        npy(header(shape="(1,)", after=" # \0"), bytes(4)),
        lambda raw, ours, theirs: b"#" in raw and b"\0" in raw[raw.index(b"#") :],
    ),
    Divergence(
        _NPZ,
        OURS,
        "zip file version",
        "a member that wants a later version of zip than there is",
        "we read its method, which is the same in all of them",
        changed(ARCHIVE, _CENTRAL, 6, b"\xff"),
    ),
    Divergence(
        _NPZ,
        BOTH,
        "",
        "an archive's comment that looks like the end of another archive",
        "`zipfile` takes the last; we take the one that ends where the file does",
        zipped(PLAIN, comment=b"PK\5\6" + bytes(16) + b"\1\0"),
        _other_directory,
        theirs="no arrays",
        ours="the arrays",
    ),
]
