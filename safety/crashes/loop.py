"""Power cuts on real filesystems: the image below a mounted one is copied while a job waits at a call.

What the copy holds is what the disk would hold had the power gone at that moment; it is mounted, which replays
the journal, and judged. At each call there are two: as it is, and after another file was synced, which makes
the filesystem write its journal, with names that may refer to data that are not there yet.
Needs root, loop devices and the mkfs of the filesystem.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import shutil
import signal
import struct
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass

from safety.crashes.judging import Outcome, Violation, fresh
from safety.crashes.running import Runner, hear

_NEW_NAMESPACE = 0x00020000
_CHUNK = 1 << 16
_NUMBER = struct.Struct("<q")


@dataclass(frozen=True)
class Filesystem:
    name: str
    make: tuple[str, ...]
    megabytes: int
    options: str = "loop"

    @property
    def missing(self) -> str:
        """Why it can't be tried here; empty if it can."""
        if os.geteuid():
            return "needs root"
        if shutil.which(self.make[0]) is None:
            return f"{self.make[0]} is not installed"
        with open("/proc/filesystems") as file:
            known = {line.split()[-1] for line in file}
        return "" if self.name.split()[0] in known else "the kernel does not know it"


FILESYSTEMS = [
    Filesystem("ext4", ("mkfs.ext4", "-q", "-F"), 24),
    Filesystem("ext4 writeback", ("mkfs.ext4", "-q", "-F"), 24, "loop,data=writeback,noauto_da_alloc"),
    Filesystem("xfs", ("mkfs.xfs", "-q", "-f"), 320, "loop,nouuid"),
    Filesystem("btrfs", ("mkfs.btrfs", "-q", "-f", "--mixed"), 128),
]


def enter_namespace() -> None:
    """Mounts of this process are seen by nobody else, and end with it."""
    if ctypes.CDLL(None, use_errno=True).unshare(_NEW_NAMESPACE):
        raise OSError(ctypes.get_errno(), "unshare")
    subprocess.run(["mount", "--make-rprivate", "/"], check=True)


@contextlib.contextmanager
def _mounted(system: Filesystem, image: str, place: str) -> Iterator[None]:
    os.makedirs(place, exist_ok=True)
    ran = subprocess.run(["mount", "-o", system.options, image, place], capture_output=True, text=True)
    if ran.returncode:
        raise Violation(f"{system.name}: can't be mounted after the cut: {ran.stderr.strip()}")
    try:
        yield
    finally:
        subprocess.run(["umount", place], check=True)


def _copy(image: str, target: str) -> None:
    """Copy an image, holes as holes; twice the same, or the filesystem was just writing."""
    before: dict[int, bytes] = {}
    while (found := _extents(image)) != before:
        before = found
    with open(target, "wb", buffering=0) as file:
        file.truncate(os.path.getsize(image))
        for at, data in found.items():
            os.pwrite(file.fileno(), data, at)


def _extents(path: str) -> dict[int, bytes]:
    """What a file holds, but for its holes."""
    found = {}
    with open(path, "rb", buffering=0) as file:
        end, at = os.path.getsize(path), 0
        while at < end:
            try:
                start = os.lseek(file.fileno(), at, os.SEEK_DATA)
            except OSError:  # nothing but a hole
                break
            at = os.lseek(file.fileno(), start, os.SEEK_HOLE)
            for place in range(start, at, _CHUNK):
                data = os.pread(file.fileno(), min(_CHUNK, at - place), place)
                if data.strip(b"\0"):
                    found[place] = data
    return found


@dataclass(frozen=True)
class Moment:
    """A copy of the disk."""

    image: str
    call: int
    committed: bool
    told: bytes


class Disk:
    """A filesystem in a file, on which a scenario's job runs, again and again stopped for a copy."""

    def __init__(self, system: Filesystem, runner: Runner, folder: str) -> None:
        self._system, self._runner, self._folder = system, runner, folder
        self._image, self._place = os.path.join(folder, "image"), os.path.join(folder, "mounted")
        os.makedirs(folder, exist_ok=True)
        with open(self._image, "wb") as file:
            file.truncate(system.megabytes << 20)
        subprocess.run([*system.make, self._image], check=True, stdout=subprocess.DEVNULL)
        subprocess.run(["fallocate", "--dig-holes", self._image], check=True)  # zeros need not be copied

    def moments(self, every: int = 1) -> list[Moment]:
        """Run the job, copying the disk before each call, or each so many of them, and at the end."""
        found: list[Moment] = []
        with _mounted(self._system, self._image, self._place):
            at = os.path.join(self._place, "at")
            fresh(at, self._runner.old)
            with open(os.path.join(self._place, "other"), "wb", buffering=0) as other:
                subprocess.run(["sync", "-f", self._place], check=True)
                for call, told in self._stops(at):
                    if call % every and call < len(self._runner.calls):
                        continue
                    found.append(self._moment(call, False, told))
                    other.write(b"x")
                    os.fsync(other.fileno())
                    found.append(self._moment(call, True, told))
        return found

    def _moment(self, call: int, committed: bool, told: bytes) -> Moment:
        image = os.path.join(self._folder, f"cut-{call}-{committed}")
        _copy(self._image, image)
        return Moment(image, call, committed, told)

    def _stops(self, at: str) -> Iterator[tuple[int, bytes]]:
        """The number of each call at which the job waits, and what it has told by then."""
        tell, told = os.pipe()
        go, went = os.pipe()
        reports, reported = os.pipe()
        child = os.fork()
        if not child:
            for fd in (tell, went, reports):
                os.close(fd)

            def armed() -> None:
                signal.alarm(0)  # it waits as long as the copies take
                self._runner.shim.watch(at)
                self._runner.shim.pause(told, go)

            self._runner.run_job(at, armed, reported)
        for fd in (told, go, reported):
            os.close(fd)
        os.set_blocking(reports, False)
        heard, call = b"", -1
        while number := os.read(tell, _NUMBER.size):
            heard += _available(reports)
            call = _NUMBER.unpack(number)[0]
            yield call, heard
            os.write(went, b"g")
        status = os.waitpid(child, 0)[1]
        if status:
            raise Violation(f"{self._runner.scenario.name}: failed on {self._system.name}")
        yield call + 1, heard + _available(reports)
        for fd in (tell, went, reports):
            os.close(fd)

    def judge(self, moment: Moment) -> str:
        """Mount a copy and judge what is there."""
        with _mounted(self._system, moment.image, self._place):
            outcome = Outcome(os.path.join(self._place, "at"), "cut")
            hear(outcome, moment.told)
            outcome.flushed = 0
            found = self._runner.judged(outcome)
        os.unlink(moment.image)
        return found


def _available(fd: int) -> bytes:
    found = b""
    with contextlib.suppress(BlockingIOError):
        while more := os.read(fd, 65536):
            found += more
    return found
