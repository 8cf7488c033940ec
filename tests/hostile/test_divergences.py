"""What the pages say of libraries that are not compared by machine: they read these bytes, and we refuse them."""

import gguf
import pytest

import tensorbytes as tb
from tests.formats.test_gguf import BAD as GGUF
from tests.formats.test_onnx import BAD as ONNX
from tests.formats.test_onnx import theirs

ONNX_READS = [
    "20 packed -1", "33 bool byte 2", "33 bool value 2", "34 dirty padding", "34 dirty padding, typed",
    "values out of range, int8", "values out of range, uint32", "74 raw and typed", "74 two typed fields",
]  # fmt: skip
GGUF_READS = ["3 a text past the end", "45 a text of bytes", "33 a bool of 2"]


@pytest.mark.parametrize("case", ONNX_READS)
def test_onnx_reads_what_we_refuse(case):
    raw, error, words = ONNX[case]
    theirs(raw)
    with pytest.raises(error, match=words):
        tb.loads(raw, "onnx")


@pytest.mark.parametrize("case", GGUF_READS)
def test_gguf_reads_what_we_refuse(case, tmp_path):
    raw, error, words = GGUF[case]
    (tmp_path / "x.gguf").write_bytes(raw)
    gguf.GGUFReader(tmp_path / "x.gguf")
    with pytest.raises(error, match=words):
        tb.loads(raw, "gguf")
