"""npz archives with what is not read (pickles of objects, other dtypes, other files) and with stale checksums."""

import io
import os
import zipfile

import numpy as np
import pytest

import tensorbytes as tb


class Evil:
    def __reduce__(self):
        return os.mkdir, ("executed",)


SAVES = {"stored": np.savez, "deflated": np.savez_compressed}


@pytest.mark.parametrize("save", SAVES)
def test_an_array_of_objects_hides_nothing_else(save, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    odd = np.array([[Evil(), {}]], object)
    SAVES[save]("x.npz", a=np.arange(3), odd=odd, s=np.zeros(2, "i4,O"), b=np.ones(2))
    found = {each.name: (each.kind, each.dtype, each.shape) for each in tb.inspect("x.npz").tensors}
    assert found["odd"] == ("object", "object", (1, 2))
    assert found["s"] == ("object", "structured", ())
    assert "not read" in str(tb.inspect("x.npz"))
    with tb.open("x.npz") as file:
        assert file["b"].load().tolist() == [1, 1]
        with pytest.raises(tb.errors.UnsupportedError, match=r"odd\.npy.*pickle"):
            file["odd"].load()
    for mmap in (False, True):
        with pytest.raises(tb.errors.UnsupportedError, match=r"odd\.npy.*objects='skip'"):
            tb.load("x.npz", mmap=mmap)
        got = tb.load("x.npz", mmap=mmap, objects="skip")
        assert {name: array.tolist() for name, array in got.items()} == {"a": [0, 1, 2], "b": [1, 1]}
    with pytest.raises(tb.errors.LossError, match="odd: left out: object") as caught:
        tb.convert("x.npz", "y.tb")
    assert caught.value.feature == "objects"
    report = tb.convert("x.npz", "y.tb", allow="objects", verify=True)
    assert [loss.name for loss in report.losses] == ["odd", "s"]
    assert sorted(os.listdir()) == ["x.npz", "y.tb"]


def test_nothing_but_objects():
    file = io.BytesIO()
    np.savez(file, odd=np.array([None], object))
    with pytest.raises(tb.errors.UnsupportedError, match="pickle"):
        tb.loads(file.getvalue())
    assert tb.loads(file.getvalue(), objects="skip") == {}
    with pytest.raises(tb.errors.UsageError, match="'skip'"):
        tb.loads(file.getvalue(), objects=True)


def test_one_array_of_objects_stays_refused(tmp_path):
    np.save(tmp_path / "x.npy", np.array([{}], object))
    for read in (tb.load, lambda path: tb.open(path).entries(), tb.inspect):
        with pytest.raises(tb.errors.UnsupportedError, match="pickle"):
            read(tmp_path / "x.npy")


# ---- members that are not arrays --------------------------------------------


@pytest.mark.parametrize("method", [zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED])
@pytest.mark.parametrize("first", [True, False])
def test_members_that_are_not_arrays_hide_nothing(method, first, tmp_path):
    """NumPy gives their bytes in place of an array; here they are listed, refused by name, and left out on request."""
    path, plain = tmp_path / "x.npz", io.BytesIO()
    np.save(plain, np.arange(3))
    with zipfile.ZipFile(path, "w", method) as file:
        members = {"readme.txt": b"hello", "a.npy": plain.getvalue(), "folder/": b"", "empty.npy": b""}
        for name in members if first else reversed(members):
            file.writestr(name, members[name])
    assert np.load(path)["a"].tolist() == [0, 1, 2]
    found = {each.name: (each.kind, each.dtype) for each in tb.inspect(path, "npz").tensors}
    assert found["readme.txt"] == ("object", "file")
    assert found["a"][0] == "tensor"
    for mmap in (False, True):
        with pytest.raises(tb.errors.UnsupportedError, match=r"not an npy array.*objects='skip'"):
            tb.load(path, "npz", mmap=mmap)
        got = tb.load(path, "npz", mmap=mmap, objects="skip")
        assert {name: array.tolist() for name, array in got.items()} == {"a": [0, 1, 2]}
    assert tb.load(path, "npz", names=["a"])["a"].tolist() == [0, 1, 2]
    report = tb.convert(path, tmp_path / "y.tb", src_format="npz", allow="objects")
    assert {loss.name for loss in report.losses} == {"readme.txt", "folder/", "empty"}


# ---- checksums --------------------------------------------------------------


def _with_stale_sum(path, name):
    """A zip archive as tools leave it that change a member and not its checksums."""
    raw = bytearray(path.read_bytes())
    with zipfile.ZipFile(path) as file:
        info = next(info for info in file.infolist() if info.filename.endswith(name))
    if any(raw[info.header_offset + 14 : info.header_offset + 18]):  # else it follows the content
        raw[info.header_offset + 14] ^= 1
    raw[raw.index(b"PK\1\2", raw.rindex(info.filename.encode()) - 46) + 16] ^= 1
    path.write_bytes(raw)


@pytest.mark.parametrize("save", SAVES)
def test_stale_checksums_are_ignored_when_that_is_asked_for(save, tmp_path):
    path = tmp_path / "x.npz"
    SAVES[save](path, a=np.arange(3), b=np.ones(2))
    _with_stale_sum(path, "a.npy")
    for mmap in (False, True):
        if not mmap or save == "deflated":
            with pytest.raises(tb.errors.CorruptError, match=r"checksum of the member 'a\.npy'.*checksums='ignore'"):
                tb.load(path, mmap=mmap)
        assert tb.load(path, mmap=mmap, checksums="ignore")["a"].tolist() == [0, 1, 2]
    assert not tb.verify(path).ok


@pytest.mark.parametrize("large", [False, True])
def test_stale_checksums_of_torch_files(large, tmp_path):
    torch = pytest.importorskip("torch")
    path = tmp_path / "x.pt"
    want = torch.arange(2_000_000 if large else 4, dtype=torch.float32)
    torch.save({"w": want}, path)
    for member in ("data/0", "data.pkl"):
        _with_stale_sum(path, member)
        for options in ({}, {"to": "torch"}):
            with pytest.raises(tb.errors.CorruptError, match=r"checksum of the member.*checksums='ignore'"):
                tb.load(path, **options)
        for options in ({}, {"mmap": True}):
            assert tb.equal(tb.load(path, checksums="ignore", **options)["w"], want)
    with pytest.raises(tb.errors.UsageError, match="'ignore'"):
        tb.load(path, checksums=False)


def test_checksums_that_are_ignored_still_bound_what_is_inflated(tmp_path):
    path = tmp_path / "x.npz"
    np.savez_compressed(path, a=np.zeros(1000))
    raw = bytearray(path.read_bytes())
    at = raw.rindex(b"PK\1\2")
    for place in (22, at + 24):  # the size that the member states
        raw[place] ^= 1
    path.write_bytes(raw)
    with pytest.raises(tb.errors.CorruptError):
        tb.load(path, checksums="ignore")


def test_empty_arrays_take_no_bytes_rather_than_unknown_ones(tmp_path):
    np.savez_compressed(tmp_path / "x.npz", a=np.zeros((0, 3)), b=np.zeros(2))
    assert [each.nbytes for each in tb.inspect(tmp_path / "x.npz").tensors] == [0, 16]
