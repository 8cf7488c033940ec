"""One target under libFuzzer, in a process of its own: python -m safety.fuzz.parsers.child NAME [libFuzzer's options].

The library is instrumented as it is imported, so it must not have been imported before.
"""

from __future__ import annotations

import gc
import random
import sys

import atheris  # type: ignore[import-untyped]

from safety.fuzz.parsers.instrumented import others

# Mutated bytes are sealed but for one in so many: what guards the rest is tested, too.
_UNSEALED = 8
# One in so many is changed by what knows its structure.
_STRUCTURED = 3


def main() -> None:
    name = sys.argv[1]
    with atheris.instrument_imports(include=["tensorbytes"], exclude=others(name)):
        from safety.fuzz.parsers.targets import TARGETS
    from safety.fuzz.parsers.harness import runner

    target = TARGETS[name]
    once = runner(target)
    list(target.seeds())  # imports what the first inputs would
    seal, change, chance = target.seal, target.mutate, random.Random(0)

    def mutated(data: bytes, max_size: int, seed: int) -> bytes:
        if change is not None and seed % _STRUCTURED == 0:
            data = change(data, chance)
        else:
            data = atheris.Mutate(data, max_size)
        return (seal(data) if seal is not None and seed % _UNSEALED else data)[:max_size]

    gc.collect()
    gc.freeze()
    # The first argument is the program, as libFuzzer starts it again to merge corpora; the rest is its own.
    program = f"{sys.executable} -m {__spec__.name} {name}"
    options = {} if seal is None and change is None else {"custom_mutator": mutated}
    atheris.Setup([program, *sys.argv[2:]], once, internal_libfuzzer=True, **options)
    atheris.Fuzz()


if __name__ == "__main__":
    main()
