"""npz archives with arrays that are not read: pickles of objects, structured arrays, long doubles."""

import io
import os

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
