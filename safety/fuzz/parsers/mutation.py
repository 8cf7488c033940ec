"""Volume: mutations of a corpus without instrumentation, many times as fast as under libFuzzer.

python -m safety.fuzz.parsers.mutation NAME SECONDS CORPUS ARTIFACTS prints how many inputs it tried.
Which code they reach is libFuzzer's work: its corpus is what is mutated here.
"""

from __future__ import annotations

import gc
import hashlib
import json
import random
import resource
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path

from safety.fuzz.parsers.harness import Target, runner
from safety.fuzz.parsers.targets import TARGETS

_BATCH = 256
_UNSEALED = 8
_SECONDS_PER_INPUT = 1.0
_INTERESTING = (
    b"\0", b"\1", b"\x7f", b"\x80", b"\xff", b"\0\0", b"\xff\xff", b"\xff\x7f", b"\0\0\0\0", b"\xff\xff\xff\xff",
    b"\xff\xff\xff\x7f", b"\0\0\0\x80", b"\xff" * 8, b"\xff" * 7 + b"\x7f", b"\0" * 7 + b"\x80", b"\0" * 8,
    b"\xff" * 9 + b"\1", b"\x80\x80\x80\x80\x10",
)  # fmt: skip


def mutations(target: Target, corpus: Sequence[bytes], seed: int) -> Callable[[], bytes]:
    """A function that gives one mutated input after another."""
    chance = random.Random(seed)
    draw, change = chance.getrandbits, target.mutate
    words = (*_INTERESTING, *target.tokens)
    items, count, most, seal = sorted(corpus, key=len), len(corpus), target.max_len, target.seal

    def one() -> bytes:
        bits = draw(60)
        if change is not None and not bits & 3 << 58:
            made = change(items[(bits & 0xFFFF) % count], chance)
            return (made if seal is None else seal(made))[:most]
        # The smallest of four: small ones are parsed faster, and have their faults as well.
        data = bytearray(items[min(bits >> shift & 0x7FFF for shift in (0, 15, 30, 45)) * count >> 15])
        bits = draw(60)
        for _ in range(1 + (bits & 3) % 3):
            size = len(data)
            at = (bits >> 6 & 0x3FFF) % size if size else 0
            kind = bits >> 2 & 15
            bits = draw(60)
            if kind < 4 and size:
                data[at] ^= 1 << (bits & 7)
            elif kind < 8 and size:
                data[at] = bits & 0xFF
            elif kind < 10:
                word = words[(bits & 0xFFF) % len(words)]
                data[at : at + len(word)] = word
            elif kind == 10:
                data[at:at] = words[(bits & 0xFFF) % len(words)]
            elif kind == 11:
                del data[at : at + 1 + (bits & 15)]
            elif kind == 12:
                data[at:at] = data[at : at + 1 + (bits & 31)]
            elif kind == 13 and size:
                data[at] = (data[at] + (bits & 31) - 16) & 0xFF
            else:
                other = items[(bits >> 8 & 0xFFFF) % count]
                start = (bits >> 24) % (len(other) + 1)
                data[at:] = other[start:] if bits & 1 else other[start : start + (bits >> 1 & 31)] + data[at:]
        made = bytes(data)
        if seal is not None and bits % _UNSEALED:
            made = seal(made)
        return made[:most]

    return one


def volume(target: Target, corpus: Sequence[bytes], seconds: float, seed: int, artifacts: Path) -> dict[str, float]:
    """Try mutations for some time; findings are saved, and end it."""
    once, make = runner(target), mutations(target, corpus or [b""], seed)
    gc.collect()
    gc.freeze()
    executions = accepted = 0
    slowest = 0.0
    end, begin = time.monotonic() + seconds, time.process_time()
    while time.monotonic() < end:
        batch = [make() for _ in range(_BATCH)]
        before = time.process_time()
        for data in batch:
            try:
                accepted += once(data)
            except BaseException as error:
                _keep(target, data, f"{type(error).__name__}: {error}", artifacts)
                raise
        executions += _BATCH
        taken = time.process_time() - before
        slowest = max(slowest, taken)
        if taken > _SECONDS_PER_INPUT:
            _find_slow(target, batch, artifacts)
    return {
        "executions": executions,
        "accepted": accepted,
        "cpu_seconds": round(time.process_time() - begin, 1),
        "slowest_batch_seconds": round(slowest, 3),
        "rss_mb": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss >> 10,
    }


def _keep(target: Target, data: bytes, what: str, artifacts: Path) -> None:
    path = artifacts / f"crash-{target.name}-{hashlib.sha1(data).hexdigest()[:12]}"
    path.write_bytes(data)
    print(f"finding: {what}\nwritten to {path}", file=sys.stderr)


def _find_slow(target: Target, batch: list[bytes], artifacts: Path) -> None:
    """Raise if one of these inputs alone takes too long."""
    once = runner(target)
    for data in batch:
        before = time.process_time()
        once(data)
        taken = time.process_time() - before
        if taken > _SECONDS_PER_INPUT:
            _keep(target, data, f"{taken:.1f} s of processor time", artifacts)
            raise TimeoutError(f"{target.name}: {len(data)} bytes take {taken:.1f} s")


def main() -> None:
    name, seconds, corpus, artifacts, seed = sys.argv[1:6]
    files = [path.read_bytes() for path in sorted(Path(corpus).iterdir())] if Path(corpus).is_dir() else []
    target = TARGETS[name]
    files = [data for data in files if len(data) <= target.max_len]
    print(json.dumps(volume(target, files, float(seconds), int(seed), Path(artifacts))))


if __name__ == "__main__":
    main()
