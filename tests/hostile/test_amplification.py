"""Reading takes at most max_bytes + 16 times the input + 64 MiB: measured in processes of their own."""

import sys
from pathlib import Path

import pytest

from safety.amplification.__main__ import LIMITS, cases, run
from tests.support.tiers import deep_but

pytestmark = [
    pytest.mark.skipif(
        sys.platform != "linux" or not Path("/proc/self/clear_refs").exists(), reason="the peak is read from /proc"
    ),
    pytest.mark.timeout(1200),  # in Python, a gibibyte of records takes minutes
]

# What once took gigabytes, with the size of the input that showed it.
FOUND = {
    "160 rows of a nested tensor at stride 0": ("torchfile", "torch_nested", 1 << 24),
    "161 scales expanded by each call": ("torchfile", "torch_scales", 1 << 21),
    "162 a place for each feature of each record": ("batches", "cells", 1 << 21),
    "163 a field over and over": ("tensorproto", "repeated_field", 1 << 20),
    "164 values that stand alone": ("tensorproto", "single_values", 1 << 20),
    "165 a default that fills a shape": ("rows", "default", 1 << 22),
    "166 lists of nothing in a pickle": ("torchfile", "torch_lists", 1 << 22),
    "167 messages of five bytes": ("delimited", "tiny_messages", 1 << 18),
    "168 lists of nothing in JSON": ("safetensors", "safetensors_lists", 1 << 22),
    "169 values of a summary": ("events", "event_values", 1 << 20),
    "170 steps of nothing": ("rows", "odd_steps", 1 << 20),
    "171 extension fields": ("tensorproto", "extensions", 1 << 22),
    "172 initializers of a few bytes": ("onnx", "onnx_initializers", 1 << 20),
    "173 text in a deflated array": ("npz", "npz_text", 1 << 22),
    "174 arrays in arrays": ("gguf", "gguf_numbers", 1 << 22),
    "190 records of nothing that are counted": ("len", "many_records", 1 << 21),
    "190 records of nothing of which one is read": ("one", "many_records", 1 << 21),
    "191 an index that inflates": ("len", "planted_index", 1 << 20),
    "192 damage all over": ("verify", "damaged_records", 1 << 20),
    "192 damage all over that is skipped": ("skip", "damaged_records", 1 << 20),
}  # fmt: skip


@pytest.mark.parametrize(
    ("case", "limits"),
    deep_but(
        [(case, "1 MiB") for case in FOUND if case < "162"], [(case, limits) for case in FOUND for limits in LIMITS]
    ),
)
def test_a_small_input_takes_a_bounded_amount_of_memory(case, limits):
    found = run(*FOUND[case], LIMITS[limits])
    assert found["kept"], found


@pytest.mark.parametrize(
    "structure", deep_but(["claimed_record"], ["claimed_record", "claims_in_claims", "lost_header"])
)
def test_193_the_claim_of_a_compressed_record_takes_the_limit_once(structure):
    """What arrives of it is held, up to the limit, and never moved as a whole."""
    found = run("verify", structure, 5 << 20, 1 << 28)
    assert found["kept"], found


STRINGS = [
    ("tensorproto", "strings", "1 MiB"),
    ("tensorproto", "odd_strings", "1 MiB"),
    ("rows", "odd_strings", "1 MiB"),
]
RECORDS = [("rows", "large_record", "default"), ("batches", "large_record", "default")]


@pytest.mark.parametrize(("parser", "structure", "limits"), deep_but(STRINGS[:1], STRINGS + RECORDS))
def test_194_the_kernel_in_python_keeps_the_promise_too(parser, structure, limits, monkeypatch):
    monkeypatch.setenv("TENSORBYTES_KERNEL", "reference")
    found = run(parser, structure, 1 << 20, LIMITS[limits])
    assert found["kept"], found


@pytest.mark.deep
@pytest.mark.parametrize("limits", LIMITS)
@pytest.mark.parametrize(("parser", "structure"), sorted(cases()))
def test_every_structure_keeps_the_promise(parser, structure, limits):
    found = run(parser, structure, 1 << 20, LIMITS[limits])
    assert found["kept"], found
