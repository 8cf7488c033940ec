"""What can go wrong at each kind of system call, and the library that makes it go wrong."""

from __future__ import annotations

import ctypes
import errno
import os
import shutil
import subprocess
from typing import NamedTuple

SOURCE = os.path.join(os.path.dirname(__file__), "shim.c")
# As in shim.c.
_ACTIONS = ("none", "kill before", "kill after", "torn", "error", "error for good", "short", "short, then error")


class Fault(NamedTuple):
    """One way in which one call goes wrong."""

    kind: str  # one of _ACTIONS
    error: str = ""  # the name of the errno
    bytes: int = 0  # how many bytes of a write get through; negative: all but so many

    @property
    def kills(self) -> bool:
        return self.kind in ("kill before", "kill after", "torn")

    def __str__(self) -> str:
        parts = [self.kind, self.error, str(self.bytes) if self.kind in ("torn", "short", "short, then error") else ""]
        return " ".join(part for part in parts if part)


class Call(NamedTuple):
    """One of the calls of a job, as the library logged it; `size` is the bytes of a write."""

    name: str
    size: int = 0


_KILLS = [Fault("kill before"), Fault("kill after")]
_TORN = (1, 512, 4096, -1)
_SHORT = (1, 512, -1)
_ERRORS = {
    "write": ("ENOSPC", "EIO", "EDQUOT", "EFBIG", "EINTR"),
    "open": ("ENOSPC", "EIO", "EMFILE", "EACCES", "EINTR"),
    "opendir": ("EIO", "EMFILE", "EINTR"),
    "fsync": ("EIO", "ENOSPC", "EDQUOT", "EINTR"),
    "close": ("EIO", "ENOSPC", "EDQUOT", "EINTR"),
    "rename": ("EIO", "ENOSPC", "EACCES"),
    "link": ("EIO", "EPERM"),
    "unlink": ("EIO", "EACCES"),
    "mkdir": ("EIO", "ENOSPC", "EACCES"),
    "truncate": ("EIO", "EINTR"),
    "chmod": ("EIO", "EPERM"),
    "chown": ("EIO", "EPERM"),
    "setxattr": ("ENOSPC", "EOPNOTSUPP", "EPERM"),
    "flock": ("ENOLCK", "EINTR"),
}
# A full disk stays full, a broken one broken.
_LASTING = {"write": ("ENOSPC", "EIO", "EROFS"), "fsync": ("EIO",), "rename": ("EIO", "EROFS"), "open": ("EROFS",)}


def possible(call: Call, few: bool = False) -> list[Fault]:
    """The faults that a call can meet. `few`: one of each sort."""
    found = list(_KILLS)
    if call.name == "write":
        sizes = [size for size in _TORN if -call.size < size < call.size]
        found += [Fault("torn", "", size) for size in (sizes[-1:] if few else sizes)]
        sizes = [size for size in _SHORT if -call.size < size < call.size]
        found += [Fault("short", "", size) for size in (sizes[:1] if few else sizes)]
        found += [Fault("short, then error", "ENOSPC", size) for size in sizes[:1]]
    errors = _ERRORS[call.name]
    found += [Fault("error", name) for name in (errors[:1] if few else errors)]
    lasting = _LASTING.get(call.name, ())
    found += [Fault("error for good", name) for name in (lasting[:1] if few else lasting)]
    return found


# ---- the library ----------------------------------------------------------------


def compiler() -> str | None:
    return shutil.which("cc") or shutil.which("gcc") or shutil.which("clang")


def build(folder: str) -> str:
    """Compile the library; its path."""
    made = os.path.join(folder, "shim.so")
    cc = compiler()
    if cc is None:
        raise RuntimeError("no C compiler: the faults are made by a small library in C")
    subprocess.run([cc, "-O1", "-fPIC", "-shared", "-o", made, SOURCE, "-ldl"], check=True)
    return made


class Shim:
    """The library, in a process that was started with it."""

    def __init__(self) -> None:
        self._library = ctypes.CDLL(None)
        self._library.shim_arm.argtypes = (ctypes.c_long, ctypes.c_int, ctypes.c_int, ctypes.c_long)
        self._library.shim_mark.argtypes = (ctypes.c_long,)
        self._library.shim_calls.restype = ctypes.c_long

    def watch(self, folder: str, log: int = -1, names: int = -1) -> None:
        """Count the calls below a folder; descriptors get what they did, and what was counted."""
        self._library.shim_watch(os.fsencode(folder), log, names)

    def arm(self, at: int, fault: Fault) -> None:
        """Call number `at` goes wrong."""
        number = getattr(errno, fault.error) if fault.error else 0
        self._library.shim_arm(at, _ACTIONS.index(fault.kind), number, fault.bytes)

    def pause(self, tell: int, go: int) -> None:
        """Each call sends its number to `tell` and waits for a byte from `go`."""
        self._library.shim_pause(tell, go)

    def mark(self, number: int) -> None:
        """Put a number into the log."""
        self._library.shim_mark(number)

    def stop(self) -> None:
        self._library.shim_stop()

    @property
    def calls(self) -> int:
        return int(self._library.shim_calls())


def loaded() -> bool:
    """Whether this process was started with the library."""
    return hasattr(ctypes.CDLL(None), "shim_calls")
