"""JSON that two parsers would take for different things (catalogue 40 to 47), wherever a file of ours holds JSON."""

import json

import numpy as np
import pytest

import tensorbytes as tb
from tensorbytes.errors import CorruptError, SchemaError, UsageError
from tensorbytes.ops import manifests
from tests.support.hostile_json import HOSTILE, PLACES, manifest_beside, read, schema_beside
from tests.support.work import count

# JSON over 64 KiB does not get as far as the parser: the header of an npy array is no longer.
SHORT = ("npy note", "npz note")
# A comment ends with its line; and a comment without JSON is one of others.
ELSEWHERE = {"47 a raw line feed": "something follows the dict"}
NO_NOTE = {(place, "nothing") for place in SHORT}


def refusal(attempt):
    with pytest.raises((CorruptError, tb.errors.LimitError)) as caught:
        attempt()
    return caught.value


@pytest.mark.parametrize("case", HOSTILE)
@pytest.mark.parametrize("place", PLACES)
def test_json_of_a_file_is_read_strictly(place, case, tmp_path):
    if (place, case) in NO_NOTE:
        pytest.skip("an npy header may hold any comment")
    text, words = HOSTILE[case]
    path = PLACES[place](text, tmp_path)
    if place in SHORT:
        words = "header" if len(text) > 60_000 else ELSEWHERE.get(case, words)
    for way, attempt in read(path, place).items():
        steps, error = count(refusal, attempt)
        assert steps <= 10_000 + 10 * len(text), way
        said = str(error).replace(str(tmp_path), "")
        assert len(said) < 1000
        assert any(word.lower() in said.lower() for word in words.split("|")), f"{way}: {said}"


@pytest.mark.parametrize("case", [name for name in HOSTILE if name != "nothing"])
def test_the_schema_beside_records_is_read_strictly(case, tmp_path):
    path = schema_beside(HOSTILE[case][0], tmp_path)
    for attempt in (lambda: list(tb.open_records(path)), lambda: tb.records.Schema.from_json(HOSTILE[case][0])):
        with pytest.raises(SchemaError) as caught:
            attempt()
        assert len(str(caught.value)) < 1000


@pytest.mark.parametrize("case", HOSTILE)
def test_a_manifest_is_read_strictly(case, tmp_path):
    path = manifest_beside(HOSTILE[case][0], tmp_path)
    with pytest.raises(UsageError, match="manifest"):
        manifests.read_manifest(manifests.find_beside(str(path)))


def test_a_manifest_with_a_key_twice_vouches_for_nothing(tmp_path):
    """Whoever reads the first of two digests would be told something else than we are."""
    path = tmp_path / "x.npy"
    np.save(path, np.arange(3))
    beside = tb.verify(path, write_manifest=True).manifest
    row = json.loads((tmp_path / "x.npy.sums.json").read_text())["tensors"][0]
    twice = json.dumps(row)[:-1] + ', "sha256": "' + "0" * 64 + '"}'
    (tmp_path / "x.npy.sums.json").write_text('{"tensorbytes.sums": 1, "tensors": [' + twice + "]}")
    with pytest.raises(UsageError, match="not a manifest"):
        manifests.read_manifest(beside)


@pytest.mark.parametrize("place", [name for name in PLACES if "index" not in name])
def test_spaces_around_json_are_json(place, tmp_path):
    """46: what RFC 8259 calls white space, and nothing else, may surround a value."""
    sound = b'{"x":{"dtype":"U8","shape":[4],"data_offsets":[0,4]}}' if place == "safetensors header" else b"{}"
    path = PLACES[place](b"  " + sound + b" ", tmp_path)
    for attempt in read(path, place).values():
        attempt()


def test_a_manifest_of_another_version_is_called_so(tmp_path):
    (tmp_path / "x.sums.json").write_text('{"tensorbytes.sums": 2, "tensors": []}')
    with pytest.raises(UsageError, match="a manifest of version 2; this one reads version 1"):
        manifests.read_manifest(str(tmp_path / "x.sums.json"))
