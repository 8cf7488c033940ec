"""Every truncation and every flipped bit of small files of every format: our exceptions, the same data, or, where there
are no checksums, other data that is sound; no crash, no second, no memory that was not promised.

The files are in support/sweeps/files.py, the ways of reading in read.py, the rules in run.py.
`python -m tests.support.sweeps.run` sweeps larger and more files.
"""

import sys

import pytest

from tensorbytes import formats
from tests.support.sweeps.files import AREAS, TRIAL, goldens
from tests.support.sweeps.run import sweep
from tests.support.tiers import deep_but

# Formats whose fields come one after the other, with nothing that says how many: cut between two, it is another file.
# So are Arrow's streams, whose end need not be marked.
OPEN_ENDED = {"protobuf", "tensorproto", "onnx", "onnx external data", "delimited", "arrow"}

pytestmark = pytest.mark.skipif(not sys.platform.startswith("linux"), reason="limits of memory, and /proc")


# The areas of a second or two, which show before each commit that the sweeps work; the others before each release.
QUICK = ("gguf", "tensorproto")


@pytest.mark.parametrize("area", deep_but(QUICK, AREAS))
def test_every_truncation_and_every_flipped_bit(area):
    found = sweep(area, small=True)
    files = goldens(area, True)
    assert found.failures == []
    assert found.reads == sum(9 * len(golden.data) * len(golden.ways) for golden in files)
    assert found.traced > found.reads // 50
    assert sum(found.verdicts.values()) == found.reads
    if area != "record index":  # one that is no good is made anew
        assert found.verdicts["refused"] > 0
    if all(golden.checked for golden in files):
        assert found.verdicts["other"] == 0
    assert (found.verdicts["shorter"] > 0) == (area in OPEN_ENDED)


def test_every_format_is_swept():
    swept = {golden.format for area in AREAS for golden in goldens(area, True)}
    assert swept >= {name for name in formats.BUILTIN if formats.get(name).documents}  # records have golden files too
    with_checksums = {area for area in AREAS if any(golden.checked for golden in goldens(area, True))}
    assert with_checksums == {
        "tb", "tb compressed", "tb quantized", "tb streams", "as large files", "npz", "torchfile", "checkpoint",
        "savedmodel", "tfrecord", "tfrecord compressed", "events", "record index", "manifest",
    }  # fmt: skip


@pytest.mark.deep
def test_the_sweep_finds_each_kind_of_fault():
    """A process that dies is named, with its case, and the others go on."""
    found = sweep(TRIAL, small=True)
    assert found.verdicts["refused"] == 8
    case = "trial: two bytes, trial: "
    expected = {
        "cut to 0 bytes": "! 20",
        "cut to 1 bytes": "! KeyError: 'o'",
        "bit 0 of byte 0": "the process died of SIGABRT",
        "bit 1 of byte 0": "! MemoryError",
        "bit 2 of byte 0": "! byte 99 is outside the file",
        "bit 3 of byte 0": "! other data, in silence",
        "bit 4 of byte 0": "! 1.1",
        "bit 5 of byte 0": "! RecursionError",
        "bit 6 of byte 0": "! no checksum covers this byte",
        "bit 7 of byte 0": "! no checksum covers this byte",
    }
    assert len(found.failures) == len(expected)
    for name, what in expected.items():
        (failure,) = [text for text in found.failures if text.startswith(case + name)]
        assert what in failure
