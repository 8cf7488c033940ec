"""Processes that do what they are told over a socket, and the one that forks them.

A worker has two threads, each of which may hold a writer. A command may come with a fault: then the library of
safety/crashes ends the process, tears a write or reports an error at the N-th system call of that command.
"""

from __future__ import annotations

import contextlib
import ctypes
import gc
import os
import pickle
import queue
import signal
import socket
import struct
import sys
import threading
import warnings
from typing import Any

import numpy as np

import tensorbytes as tb
from safety.crashes import faults

THREADS = 2
_SIZE = struct.Struct("<Q")
_SUBREAPER = 36  # of prctl: children of children that die become ours, so that nobody else must wait for them


def send(connection: socket.socket, message: Any) -> None:
    data = pickle.dumps(message)
    connection.sendall(_SIZE.pack(len(data)) + data)


def receive(connection: socket.socket) -> Any:
    """The next message. EOFError: the other side is gone."""
    (size,) = _SIZE.unpack(_exactly(connection, _SIZE.size))
    return pickle.loads(_exactly(connection, size))


def _exactly(connection: socket.socket, size: int) -> bytes:
    data = b""
    while len(data) < size:
        try:
            piece = connection.recv(size - len(data))
        except ConnectionError:
            piece = b""
        if not piece:
            raise EOFError
        data += piece
    return data


def record(number: int) -> dict[str, Any]:
    """Record `number`: what it holds tells which it is."""
    return {"x": np.full(3, number, np.int64)}


def is_stream(path: str) -> bool:
    return path.endswith(".tb")


def number_of(found: Any) -> int:
    values = {int(value) for value in found["x"]}
    if len(values) != 1 or len(found["x"]) != 3:
        raise AssertionError(f"a record came back changed: {found}")
    return values.pop()


def read(path: str, how: str = "rows", stream: bool | None = None) -> tuple[list[int], str]:
    """(the numbers that were read, the error that ended it, if one of ours did)"""
    found: list[int] = []
    try:
        if is_stream(path) if stream is None else stream:
            with tb.open(path, format="tb") as objects:
                for one in objects:
                    table = np.ndim(one["x"]) == 2  # what was converted from records
                    found += [number_of({"x": row}) for row in one["x"]] if table else [number_of(one)]
            return found, ""
        records = tb.open_records(path, threads=1, on_corrupt="skip" if how == "skip" else "raise")
        if how == "len":
            count = len(records)
            return [number_of(records[at]) for at in range(count)], ""
        if how == "backwards":
            return [number_of(records[-at]) for at in range(len(records), 0, -1)], ""
        if how == "batches":
            for batch in records.batches(2):
                found += [number_of({"x": row}) for row in np.asarray(batch["x"])]
            return found, ""
        for row in records:
            found.append(number_of(row))
    except tb.errors.TensorbytesError as error:
        return found, f"{type(error).__name__}: {error}"
    return found, ""


class Worker:
    """What a worker does for each command; a method's name is the command."""

    def __init__(self) -> None:
        self.writers: dict[int, Any] = {}

    def open(self, slot: int, path: str, mode: str) -> None:
        self.writers[slot] = _opened(path, mode)

    def write(self, slot: int, numbers: list[int]) -> None:
        for number in numbers:
            self.writers[slot].write(record(number))

    def flush(self, slot: int) -> None:
        self.writers[slot].flush()

    def sync(self, slot: int) -> None:
        self.writers[slot].sync()

    def close(self, slot: int) -> None:
        self.writers.pop(slot).close()

    def abort(self, slot: int) -> None:
        self.writers.pop(slot).abort()

    def forget(self, slot: int) -> None:
        del self.writers[slot]
        gc.collect()

    def append(self, slot: int, path: str, numbers: list[int]) -> None:
        with _opened(path, "a") as writer:
            for number in numbers:
                writer.write(record(number))

    def save(self, slot: int, path: str, number: int) -> None:
        tb.save(record(number), path)

    def convert(self, slot: int, source: str, target: str) -> None:
        tb.convert(source, target)

    def merge(self, slot: int, sources: list[str], target: str) -> None:
        tb.merge(sources, target)

    def split(self, slot: int, source: str, target: str) -> None:
        tb.split(source, target, shards=2)

    def repair(self, slot: int, source: str, target: str) -> None:
        tb.repair(source, target, replace=True)

    def index(self, slot: int, path: str) -> None:
        tb.records.build_index(path)

    def read(self, slot: int, path: str, how: str) -> tuple[list[int], str]:
        return read(path, how)

    def fork(self, slot: int) -> int:
        """A child that inherits all that is open, and lives on."""
        heard, said = os.pipe()
        child = os.fork()
        if not child:
            os.write(said, b"!")
            for fd in map(int, os.listdir("/proc/self/fd")):
                with contextlib.suppress(OSError):  # the socket is the worker's alone: its end tells of a death
                    if os.readlink(f"/proc/self/fd/{fd}").startswith("socket:"):
                        os.close(fd)
            while True:
                signal.pause()
        os.read(heard, 1)  # until it has dropped what is the worker's alone, which takes a while on a busy machine
        os.close(heard)
        os.close(said)
        return child

    def reset(self, slot: int) -> None:
        for writer in self.writers.values():
            writer.abort()
        self.writers.clear()


def _opened(path: str, mode: str) -> Any:
    if is_stream(path):
        return tb.open(path, mode)
    return tb.RecordWriter(path, mode=mode, sidecar=False)


class Server:
    """A worker's threads, and the socket on which they are told what to do."""

    def __init__(self, connection: socket.socket, folder: str) -> None:
        self._connection, self._folder = connection, folder
        self._worker = Worker()
        self._shim = faults.Shim() if faults.loaded() else None
        self._warned: list[tuple[str, str]] = []
        self._sending = threading.Lock()
        warnings.simplefilter("always")
        warnings.showwarning = self._warn
        if self._shim is not None:
            self._shim.watch(folder)

    def _warn(self, message: Any, category: Any, *rest: Any, **options: Any) -> None:
        self._warned.append((category.__name__, str(message)))

    def serve(self) -> None:
        queues = [queue.SimpleQueue[Any]() for _ in range(THREADS)]
        for each in queues:
            threading.Thread(target=self._work, args=(each,), daemon=True).start()
        while True:
            message = receive(self._connection)
            queues[message[1] % THREADS].put(message)

    def _work(self, commands: queue.SimpleQueue[Any]) -> None:
        while True:
            number, slot, name, arguments, fault = commands.get()
            reply = self._run(slot, name, arguments, fault)
            with self._sending:
                warned, self._warned = self._warned, []
                send(self._connection, (number, *reply, warned))

    def _run(self, slot: int, name: str, arguments: Any, fault: Any) -> tuple[str, Any]:
        if fault is not None and self._shim is not None:
            at, what = fault
            self._shim.watch(self._folder)
            self._shim.arm(at, faults.Fault(*what))
        try:
            return "", getattr(self._worker, name)(slot, *arguments)
        except BaseException as error:
            ours = "ours " if isinstance(error, tb.errors.TensorbytesError) else ""
            system = "system " if isinstance(error, OSError) else ""
            self._worker.writers.pop(slot, None) if name in ("flush", "sync", "close") else None
            return f"{ours}{system}{type(error).__name__}", str(error)
        finally:
            if fault is not None and self._shim is not None:
                self._shim.watch(self._folder)


def main(fd: int, folder: str) -> None:
    """Fork a worker for each message, and send back its socket."""
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)
    ctypes.CDLL(None).prctl(_SUBREAPER, 1, 0, 0, 0)
    for path in ("warm.tb", "warm.tfrecord"):  # imports what commands need
        worker, path = Worker(), os.path.join(folder, path)
        worker.append(0, path, [1])
        worker.append(0, path, [2])
        read(path)
        worker.convert(0, path, f"{path}2.tb")
        worker.merge(0, [path, path], f"{path}4{os.path.splitext(path)[1]}")
        worker.split(0, path, f"{path}3")
    gc.collect()
    gc.freeze()
    with socket.socket(fileno=fd) as control:
        while control.recv(1):
            ours, theirs = socket.socketpair()
            child = os.fork()
            if not child:
                control.close()
                theirs.close()
                try:
                    Server(ours, folder).serve()
                except EOFError:
                    pass
                finally:
                    os._exit(0)
            ours.close()
            socket.send_fds(control, [struct.pack("<q", child)], [theirs.fileno()])
            theirs.close()


if __name__ == "__main__":
    main(int(sys.argv[1]), sys.argv[2])
