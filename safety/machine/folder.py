"""The machine: rules that writers, readers, damage and death follow on one folder, and what must hold after each."""

from __future__ import annotations

import functools
import itertools
import os
import shutil
import warnings
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, ClassVar

from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from safety.machine import helper
from safety.machine.actors import WORKERS, Crew, Reply
from safety.machine.model import LYING_SCHEMAS, File, demand

NAMES = ("a.tb", "b.tfrecord", "c.tfrecord.gz", "d.tb")
LINKS = {"a.tb": "link.tb", "b.tfrecord": "link.tfrecord"}
CUT, UNCLOSED = ".tensorbytes-cut-", ".tensorbytes-unclosed-"
_BESIDE = (".schema.json", ".index.tb")
_READS = ("rows", "len", "backwards", "batches", "skip")
_FAULTS = [
    ("kill before", "", 0),
    ("kill after", "", 0),
    ("torn", "", 1),
    ("torn", "", 20),
    ("torn", "", -1),
    ("error", "ENOSPC", 0),
    ("error", "EIO", 0),
    ("error for good", "ENOSPC", 0),
    ("short", "", 5),
]
_LEAST_RUNS = 5  # the first that hypothesis makes have hardly any steps
_CANARY = {"secret": b"precious" * 50, "x.index.tb": b"not an index", "schema.json": b"{}"}

files = st.integers(0, len(NAMES) - 1)
some = st.integers(0, 1 << 16)
few = st.integers(1, 4)
fault = st.none() | st.tuples(st.integers(0, 24), st.sampled_from(_FAULTS))
aliases = st.integers(0, 3).map(lambda number: number == 0)


@dataclass
class Live:
    """A writer that was opened and not closed."""

    actor: int
    file: File
    mode: str
    seen: bool  # whether readers see what it acknowledged
    pending: list[int] = field(default_factory=list)

    def possible(self) -> list[list[int] | None]:
        """What the file may hold if its process dies now, or in the middle of making all of it visible."""
        if self.seen:
            base = self.file.records or []
            return [base + self.pending[:count] for count in range(len(self.pending) + 1)]
        return [self.file.records, list(self.pending)]


def when(possible: Callable[[Folder], Any]) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """A step that does nothing where it makes no sense.

    Not a precondition, which decides what Hypothesis draws next: how races and kills end is not the same twice, and
    Hypothesis gives up where the same choices lead to others.
    """

    def wrap(step: Callable[..., None]) -> Callable[..., None]:
        @functools.wraps(step)
        def guarded(self: Folder, **drawn: Any) -> None:
            if possible(self):
                step(self, **drawn)

        return guarded

    return wrap


class Folder(RuleBasedStateMachine):
    """One folder. The model knows what was acknowledged; each step is compared with it."""

    crew: ClassVar[Crew]  # the processes: the same for all runs
    steps: ClassVar[Counter[str]] = Counter()

    def __init__(self) -> None:
        super().__init__()
        self.crew.reset()
        self.top = os.path.join(self.crew.folder, "run")
        shutil.rmtree(self.top, ignore_errors=True)
        self.home, self.canary = os.path.join(self.top, "home"), os.path.join(self.top, "canary")
        os.makedirs(self.home)
        os.mkdir(self.canary)
        for name, data in _CANARY.items():
            with open(os.path.join(self.canary, name), "wb") as file:
                file.write(data)
        self._canary = self._canary_state()
        for name, link in LINKS.items():
            os.symlink(name, os.path.join(self.home, link))
        self.files = [File(os.path.join(self.home, name)) for name in NAMES]
        self.live: dict[int, Live] = {}
        self.planted: set[str] = set()
        self.number = 0
        self.touched: set[int] = set()

    # ---- small things ------------------------------------------------------------

    def _numbers(self, count: int) -> list[int]:
        self.number += count
        return list(range(self.number - count, self.number))

    def _path(self, file: File, alias: bool = False) -> str:
        name = LINKS.get(file.name, file.name) if alias else file.name
        return os.path.join(self.home, name)

    def _holder(self, file: File) -> Live | None:
        return next((live for live in self.live.values() if live.file is file), None)

    def _free_actor(self, pick: int) -> int:
        free = [actor for actor in range(WORKERS * helper.THREADS) if actor not in self.live]
        return free[pick % len(free)]

    def _note(self, name: str, *touched: File) -> None:
        self.steps[name] += 1
        self.touched |= {self.files.index(file) for file in touched}

    def _settled(self, file: File) -> bool:
        """Whether what readers see of it is known exactly."""
        holder = self._holder(file)
        return holder is None or not holder.pending or not holder.seen

    def _fault(self, wanted: Any) -> Any:
        return wanted if self.crew.can_fault else None

    # ---- what may go wrong ----------------------------------------------------------

    def _died(self, worker: int) -> None:
        """A worker is dead: what its writers acknowledged is there, and what they were given may be, in part."""
        for actor in list(self.live):
            if actor // helper.THREADS == worker:
                live = self.live.pop(actor)
                live.file.untidy = True
                live.file.resolve(live.possible() if live.seen else live.possible()[:1])

    def _replaced(self, reply: Reply, file: File, new: list[int], actor: int, tried: Any, excuse: bool = False) -> None:
        """A verb has put something new in the place of a file, or has not."""
        holder = self._holder(file)
        if holder is not None:
            demand(reply.error, f"{file.name} is being written, and was replaced")
            excused = tried or (excuse and reply.ours)
            demand(reply.in_use or excused, f"{file.name} is being written: {reply.error}: {reply.value}")
        elif not reply.error:
            file.become(new)
            file.untidy = bool(tried)
        elif tried:
            file.untidy = True
            file.resolve([file.records, new])
        else:
            demand(excuse and reply.ours, f"{file.name}: {reply.error}: {reply.value}")
        if reply.killed:
            self._died(actor // helper.THREADS)

    # ---- writers ------------------------------------------------------------------

    @rule(pick=some, which=files, mode=st.sampled_from("wa"), alias=aliases)
    @when(lambda self: len(self.live) < WORKERS * helper.THREADS - 1)
    def open_writer(self, pick: int, which: int, mode: str, alias: bool) -> None:
        file, actor = self.files[which], self._free_actor(pick)
        if mode == "a" and file.exact is not None and self._holder(file) is None:
            self._append_damaged(file, actor, [])
            return
        holder = self._holder(file)
        reply = self.crew.call(actor, "open", self._path(file, alias), mode)
        self._note(f"open {mode}", file)
        if holder is not None:
            demand(reply.in_use, f"{file.name} has a writer, and another was opened: {reply.error} {reply.value}")
        elif reply.error:
            demand(mode == "a" and file.misled and reply.ours, f"{file.name}: {reply.error}: {reply.value}")
        else:
            self.live[actor] = Live(actor, file, mode, seen=mode == "a" and file.records is not None)

    def _some_live(self, pick: int) -> Live:
        return list(self.live.values())[pick % len(self.live)]

    @rule(pick=some, count=few)
    @when(lambda self: self.live)
    def write(self, pick: int, count: int) -> None:
        live = self._some_live(pick)
        numbers = self._numbers(count)
        reply = self.crew.call(live.actor, "write", numbers)
        self._note("write", live.file)
        if reply.error:
            demand(reply.ours and live.file.misled, f"{live.file.name}: {reply.error}: {reply.value}")
            self.crew.call(live.actor, "abort")
            del self.live[live.actor]
            live.file.resolve(live.possible() if live.seen else live.possible()[:1])
            return
        live.pending += numbers

    @rule(pick=some, what=st.sampled_from(["flush", "sync", "close"]), fault=fault)
    @when(lambda self: self.live)
    def acknowledge(self, pick: int, what: str, fault: Any) -> None:
        live, fault = self._some_live(pick), self._fault(fault)
        reply = self.crew.call(live.actor, what, fault=fault)
        self._note(f"{what}{' with a fault' if fault else ''}", live.file)
        possible = live.possible()
        if not reply.error:
            live.file.become(possible[-1])
            live.seen, live.pending = True, []
            if what == "close":
                del self.live[live.actor]
                live.file.untidy = bool(fault) or (live.file.untidy and live.mode == "a")
            return
        demand(fault, f"{live.file.name}: {what}: {reply.error}: {reply.value}")
        demand(reply.killed or "system" in reply.error, f"{live.file.name}: {what}: {reply.error}: {reply.value}")
        del self.live[live.actor]
        live.file.untidy = True
        live.file.resolve(possible)
        if reply.killed:
            self._died(live.actor // helper.THREADS)

    @rule(pick=some)
    @when(lambda self: self.live)
    def abort(self, pick: int) -> None:
        live = self._some_live(pick)
        reply = self.crew.call(live.actor, "abort")
        self._note("abort", live.file)
        demand(not reply.error, f"abort: {reply.error}: {reply.value}")
        del self.live[live.actor]
        live.file.resolve(live.possible() if live.seen else live.possible()[:1])

    @rule(pick=some)
    @when(lambda self: self.live)
    def forget(self, pick: int) -> None:
        """Drop a writer without closing it: what it was given is kept, and a warning says where."""
        live = self._some_live(pick)
        before = set(os.listdir(self.home))
        reply = self.crew.call(live.actor, "forget")
        self._note("forget", live.file)
        demand(not reply.error, f"forget: {reply.error}: {reply.value}")
        del self.live[live.actor]
        told = [text for category, text in reply.warned if category == "UnclosedWriterWarning"]
        made = [name for name in os.listdir(self.home) if name not in before and UNCLOSED in name]
        if not live.pending:
            live.file.resolve(live.possible())
        elif live.seen:
            live.file.resolve(live.possible()[-1:])
        elif made:
            found = helper.read(os.path.join(self.home, made[0]), stream=helper.is_stream(live.file.path))
            demand(found == (live.pending, ""), f"{made[0]} holds {found}, and {live.pending} were written")
        else:
            demand(live.mode == "a", f"{live.file.name}: {live.pending} are nowhere")
            live.file.resolve([live.pending])
        demand(told or not live.pending, f"{live.file.name}: forgotten, and nobody was told: {reply.warned}")
        for name in made:
            os.unlink(os.path.join(self.home, name))

    @rule(pick=some, which=files, count=few, alias=aliases, fault=fault)
    @when(lambda self: len(self.live) < WORKERS * helper.THREADS)
    def append(self, pick: int, which: int, count: int, alias: bool, fault: Any) -> None:
        """Open, write and close in one go."""
        file, actor, fault = self.files[which], self._free_actor(pick), self._fault(fault)
        numbers = self._numbers(count)
        holder = self._holder(file)
        if file.exact is not None and holder is None:
            self._append_damaged(file, actor, numbers)
            return
        reply = self.crew.call(actor, "append", self._path(file, alias), numbers, fault=fault)
        self._note(f"append{' with a fault' if fault else ''}", file)
        base = file.records
        if holder is not None:
            demand(reply.error, f"{file.name} has a writer, and was appended to")
            demand(reply.in_use or fault, f"{file.name} has a writer: {reply.error}: {reply.value}")
        elif not reply.error:
            file.become([*(base or []), *numbers])
            # Who writes onwards looks for no temporary files.
            file.untidy = bool(fault) or (file.untidy and base is not None)
        elif fault:
            file.untidy = True
            grown = [[*(base or []), *numbers[:end]] for end in range(len(numbers) + 1)]
            file.resolve([base, *grown] if base is None else grown)
        else:
            demand(file.misled and reply.ours, f"{file.name}: append: {reply.error}: {reply.value}")
        if reply.killed:
            self._died(actor // helper.THREADS)

    def _append_damaged(self, file: File, actor: int, numbers: list[int]) -> None:
        """Refused and untouched; or only an unfinished end was cut off, and kept."""
        assert file.exact is not None
        before = set(os.listdir(self.home))
        reply = self.crew.call(actor, "append", file.path, numbers)
        self._note("append to a damaged file", file)
        if reply.error:
            demand(reply.ours and not reply.in_use, f"{file.name}: append: {reply.error}: {reply.value}")
            if file.data() == file.exact:
                return
            numbers = []  # it was opened, and the damage found when the first record was written
        made = [name for name in os.listdir(self.home) if name not in before and CUT in name]
        demand(len(made) <= 1, f"made {made}")
        cut = b""
        for name in made:
            with open(os.path.join(self.home, name), "rb") as kept:
                cut = kept.read()
            os.unlink(os.path.join(self.home, name))
            demand(any(name in text for _, text in reply.warned), f"made {name}, and said {reply.warned}")
        kept_bytes = len(file.exact) - len(cut)
        demand(file.exact[kept_bytes:] == cut, f"{file.name}: {made} is not what was cut off")
        file.appended(numbers, kept_bytes)

    # ---- verbs ------------------------------------------------------------------------

    @rule(pick=some, which=st.sampled_from([0, 3]), alias=aliases, fault=fault)
    @when(lambda self: len(self.live) < WORKERS * helper.THREADS)
    def save(self, pick: int, which: int, alias: bool, fault: Any) -> None:
        file, actor, fault = self.files[which], self._free_actor(pick), self._fault(fault)
        (number,) = self._numbers(1)
        reply = self.crew.call(actor, "save", self._path(file, alias), number, fault=fault)
        self._note(f"save{' with a fault' if fault else ''}", file)
        self._replaced(reply, file, [number], actor, fault)

    @rule(pick=some, source=files, onto=files, fault=fault)
    @when(lambda self: len(self.live) < WORKERS * helper.THREADS)
    def convert(self, pick: int, source: int, onto: int, fault: Any) -> None:
        src, dst, actor, fault = self.files[source], self.files[onto], self._free_actor(pick), self._fault(fault)
        if src is dst or not src.records or not self._settled(src):
            return
        reply = self.crew.call(actor, "convert", src.path, dst.path, fault=fault)
        self._note(f"convert{' with a fault' if fault else ''}", src, dst)
        if src.exact is not None and not reply.error:
            found, error = helper.read(dst.path)
            demand(not error, f"{src.name} was damaged, converted and can't be read: {error}")
            src.check_found(found, "", "rows")
            dst.become(found)
            return
        self._replaced(reply, dst, list(src.records), actor, fault, src.exact is not None or src.misled or src.mixed)

    @rule(pick=some, onto=files, stream=st.booleans(), fault=fault)
    @when(lambda self: len(self.live) < WORKERS * helper.THREADS)
    def merge(self, pick: int, onto: int, stream: bool, fault: Any) -> None:
        pair = (0, 3) if stream else (1, 2)
        one, dst = (self.files[pair[(onto + shift) % 2]] for shift in (0, 1))
        actor, fault = self._free_actor(pick), self._fault(fault)
        if not one.records or not self._settled(one) or one.exact is not None:
            return
        reply = self.crew.call(actor, "merge", [one.path, one.path], dst.path, fault=fault)
        self._note(f"merge{' with a fault' if fault else ''}", one, dst)
        self._replaced(reply, dst, one.records * 2, actor, fault, excuse=True)

    @rule(pick=some, source=st.sampled_from([1, 2]))
    @when(lambda self: len(self.live) < WORKERS * helper.THREADS)
    def split(self, pick: int, source: int) -> None:
        file, actor = self.files[source], self._free_actor(pick)
        if not file.records or not self._settled(file):
            return
        suffix = file.name.partition(".")[2]
        reply = self.crew.call(actor, "split", file.path, os.path.join(self.home, f"part.{suffix}"))
        self._note("split", file)
        made = sorted(name for name in os.listdir(self.home) if name.startswith("part."))
        if reply.error:
            excuse = file.exact is not None or file.misled or len(file.records) < 2
            demand(reply.ours and excuse, f"split: {reply.error}: {reply.value}")
        else:
            found = []
            for name in made:
                if "-of-" in name and not name.endswith(_BESIDE):
                    numbers, error = helper.read(os.path.join(self.home, name), stream=False)
                    demand(not error or file.misled, f"{name} can't be read: {error}")
                    found += numbers
            if not file.misled:
                file.check_found(found, "", "rows")
        for name in made:
            os.unlink(os.path.join(self.home, name))

    @rule(pick=some, source=st.sampled_from([1, 2]), onto=st.sampled_from([1, 2]))
    @when(lambda self: len(self.live) < WORKERS * helper.THREADS)
    def repair(self, pick: int, source: int, onto: int) -> None:
        src, dst, actor = self.files[source], self.files[onto], self._free_actor(pick)
        if not src.records or not self._settled(src):
            return
        reply = self.crew.call(actor, "repair", src.path, dst.path)
        self._note("repair", src, dst)
        if src.exact is None or self._holder(dst) is not None or reply.error:
            self._replaced(reply, dst, list(src.records), actor, None, excuse=True)
            return
        found, error = dst.read_alone()
        demand(not error, f"{src.name} was repaired and can't be read: {error}")
        src.check_found(found, "", "skip")
        dst.become(found)

    @rule(pick=some, which=st.sampled_from([1, 2]))
    @when(lambda self: len(self.live) < WORKERS * helper.THREADS)
    def build_index(self, pick: int, which: int) -> None:
        file, actor = self.files[which], self._free_actor(pick)
        if file.records is None:
            return
        reply = self.crew.call(actor, "index", file.path)
        self._note("index", file)
        if self._holder(file) is not None:
            demand(reply.in_use, f"{file.name} has a writer, and was indexed: {reply.error}")
        elif reply.error:
            demand(reply.ours and file.exact is not None, f"index: {reply.error}: {reply.value}")

    # ---- readers ------------------------------------------------------------------------

    @rule(pick=some, which=files, how=st.sampled_from(_READS), alias=aliases)
    @when(lambda self: len(self.live) < WORKERS * helper.THREADS)
    def read(self, pick: int, which: int, how: str, alias: bool) -> None:
        file, actor = self.files[which], self._free_actor(pick)
        if file.records is None:
            return
        reply = self.crew.call(actor, "read", self._path(file, alias), how)
        self._note(f"read {how}", file)
        demand(not reply.error, f"read: {reply.error}: {reply.value}")
        holder = self._holder(file)
        pending = tuple(holder.pending) if holder is not None and holder.seen else ()
        file.check_found(*reply.value, how, pending)

    # ---- two at once ---------------------------------------------------------------------

    @rule(
        pick=some,
        other=some,
        which=files,
        pair=st.sampled_from(["append append", "append save", "save save", "append read"]),
    )
    @when(lambda self: len(self.live) < WORKERS * helper.THREADS - 1)
    def race(self, pick: int, other: int, which: int, pair: str) -> None:
        file = self.files[which]
        stream = helper.is_stream(file.path)
        if self._holder(file) is not None or file.exact is not None or file.misled or ("save" in pair and not stream):
            return
        free = [actor for actor in range(WORKERS * helper.THREADS) if actor not in self.live]
        first = free[pick % len(free)]
        second = [actor for actor in free if actor != first][other % (len(free) - 1)]
        acts, new = [], []
        for actor, what in zip((first, second), pair.split(), strict=True):
            numbers = self._numbers(1 if what == "save" else 2)
            arguments = {"append": (numbers,), "save": (numbers[0],), "read": ("rows",)}[what]
            acts.append((actor, what, file.path, *arguments))
            new.append((what, numbers))
        if "read" in pair and file.records is None:
            return
        replies = self.crew.race(*acts)
        self._note(f"race {pair}", file)
        done = []
        for (what, numbers), reply in zip(new, replies, strict=True):
            demand(not reply.error or (reply.in_use and pair != "save save"), f"{pair}: {reply.error}: {reply.value}")
            if what == "read":
                states = [[*(file.records or []), *new[0][1][:end]] for end in range(3)]
                demand(reply.value[0] in states, f"{file.name}, read beside an append: {reply.value} of {states}")
            elif not reply.error:
                done.append((what, numbers))
        demand(done, f"{pair}: each refused for the other's sake: {replies}")
        orders = [done, done[::-1]]
        possible = []
        for order in orders:
            state = list(file.records or [])
            for what, numbers in order:
                state = numbers if what == "save" else state + numbers
            possible.append(state)
        file.resolve([*possible])
        demand(file.exact is None, f"{file.name} is not whole after {pair}")

    # ---- damage, death, lies -----------------------------------------------------------------

    @rule(which=files, how=st.sampled_from(["flip", "zeros", "cut", "tail"]), at=some, size=some)
    def damage(self, which: int, how: str, at: int, size: int) -> None:
        file = self.files[which]
        data = file.data()
        if self._holder(file) is not None or not file.records or not data:
            return
        at, size = at % len(data), 1 + size % 40
        if how == "flip":
            changed = data[:at] + bytes([data[at] ^ 1 << size % 8]) + data[at + 1 :]
        elif how == "zeros":
            changed = data[:at] + bytes(min(size, len(data) - at)) + data[at + size :]
        else:
            changed = data[: at if how == "cut" else max(len(data) - size, 0)]
        file.damage(changed)
        self._note(f"damage {how}", file)

    @rule(worker=st.integers(0, WORKERS - 1), child=st.booleans())
    def kill(self, worker: int, child: bool) -> None:
        """A process dies between two steps; a child of it may live on, with all that it inherited."""
        if not any(actor // helper.THREADS == worker for actor in self.live):
            return
        if child:
            self.crew.leave_child(worker * helper.THREADS)
        self.crew.kill(worker)
        self._note("kill")
        self._died(worker)

    @rule(
        which=files, what=st.sampled_from(["index", "stale", "schema", "lock", "link", "tmp", "cut", "pipe"]), pick=some
    )
    def plant(self, which: int, what: str, pick: int) -> None:
        """Files beside a file that lie, or lead elsewhere."""
        file = self.files[which]
        schema, index = (f"{file.path}{suffix}" for suffix in _BESIDE)
        secret = os.path.join(self.canary, "secret")
        lock = f"{file.path}.tensorbytes-lock.tmp"
        if what in ("lock", "tmp") and self._holder(file) is not None:
            return
        if what == "stale":
            other = f"{self.files[1 + pick % 2].path}.index.tb"
            if other == index or not os.path.isfile(other) or os.path.islink(other):
                return
            _remove(index)
            shutil.copy(other, index)
        elif what == "index":
            _put(index, bytes(pick % 200))
        elif what == "schema":
            _put(schema, LYING_SCHEMAS[pick % len(LYING_SCHEMAS)].encode())
        elif what == "lock":
            _put(lock, b"pid 1" * (pick % 3))
            file.untidy = True
        elif what == "pipe":
            place = (index, schema)[pick % 2]
            _remove(place)
            os.mkfifo(place)
        else:
            place = {
                "link": (index, schema)[pick % 2],
                "tmp": f"{file.path}.tensorbytes-0.tmp",
                "cut": f"{file.path}{CUT}1",
            }[what]
            _remove(place)
            os.symlink(secret, place)
            self.planted.add(place)
        self._note(f"plant {what}", file)

    @rule(which=files, beside=st.booleans())
    def remove(self, which: int, beside: bool) -> None:
        file = self.files[which]
        if self._holder(file) is not None:
            return
        for suffix in _BESIDE:
            _remove(f"{file.path}{suffix}")
        if not beside and file.records is not None:
            os.unlink(file.path)
            file.become(None)
        self._note("remove", file)

    # ---- what holds after each step ---------------------------------------------------------

    def _canary_state(self) -> dict[str, tuple[int, ...]]:
        found = {}
        for entry in os.scandir(self.canary):
            state = entry.stat(follow_symlinks=False)
            found[entry.name] = (state.st_ino, state.st_size, state.st_mtime_ns, state.st_mode)
        return found

    @invariant()
    def nothing_outside_is_touched(self) -> None:
        demand(self._canary_state() == self._canary, "something outside was touched")

    @invariant()
    def what_was_acknowledged_is_there(self) -> None:
        for which in self.touched:
            file, holder = self.files[which], self._holder(self.files[which])
            file.check("rows", tuple(holder.pending) if holder is not None and holder.seen else ())
            quick = file.exact is not None or helper.is_stream(file.path) or self.number % 4
            if self._settled(file) and not quick:
                file.check("len")
        self.touched = set()

    @invariant()
    def no_other_files_are_left(self) -> None:
        for name in os.listdir(self.home):
            path = os.path.join(self.home, name)
            if name in NAMES or name in LINKS.values() or path in self.planted:
                continue
            base = next((known for known in (*NAMES, *LINKS.values()) if name.startswith(f"{known}.")), None)
            demand(base is not None, f"there is a file {name}")
            if name.endswith(".tmp"):
                real = next((real for real, link in LINKS.items() if link == base), base)
                file = self.files[NAMES.index(str(real))]
                beside = any(f"{suffix}.tensorbytes-" in name for suffix in _BESIDE)  # the next to write one removes it
                demand(file.untidy or beside or self._holder(file) is not None, f"{name} was left")
            else:
                known = name.endswith(_BESIDE) or CUT in name
                demand(known, f"there is a file {name}")


def _remove(path: str) -> None:
    if os.path.lexists(path):
        os.unlink(path)


def _put(path: str, data: bytes) -> None:
    _remove(path)
    with open(path, "wb") as file:
        file.write(data)


def run(
    steps: int, length: int, *, derandomize: bool = False, seed: int | None = None, shrink: bool = False
) -> Counter[str]:
    """Run the machine for so many steps; how many of each sort there were. Raises at the first violation."""
    import hypothesis
    from hypothesis.stateful import run_state_machine_as_test

    Folder.steps = Counter()
    Folder.crew = Crew()
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            for turn in itertools.count():
                left = steps - sum(Folder.steps.values())
                if left <= 0:
                    break
                settings = hypothesis.settings(
                    max_examples=max(_LEAST_RUNS, min(left // length, 200)),
                    stateful_step_count=length,
                    deadline=None,
                    database=None,
                    derandomize=derandomize,
                    suppress_health_check=list(hypothesis.HealthCheck),
                    print_blob=False,
                    phases=[hypothesis.Phase.generate, *([hypothesis.Phase.shrink] if shrink else [])],
                )
                machine = Folder if seed is None else hypothesis.seed(seed + turn)(Folder)
                run_state_machine_as_test(machine, settings=settings)
                if derandomize:
                    break
    finally:
        Folder.crew.close()
    return Folder.steps
