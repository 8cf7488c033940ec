"""Fuzzing of every parser of bytes from strangers: python -m safety.fuzz.parsers [--seconds N] [--only NAME].

harness.py       what a target is, and what must hold for whatever bytes it gets
targets.py       the table of them, out of formats.py and records.py
seeds.py         small valid inputs, which the fuzzers start from
tokens.py        words of the formats, which mutations put in
structured.py    mutations that know the shape of messages, JSON and pickles
sealing.py       checksums and lengths made right after a mutation
child.py         one target under libFuzzer (atheris), guided by coverage; instrumented.py says of what
mutation.py      one target without instrumentation: many more inputs out of the corpus that this left
run.py           all of them for a time, and what they did (safety/results/fuzz_parsers.json)
keep.py          the small corpora of safety/fuzz/corpus out of the grown ones

safety/fuzz/corpora.py reads and writes what is kept; tests/hostile/test_fuzz_corpus.py tries all of it again.
"""
