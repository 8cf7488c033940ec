"""Checkpoints of several safetensors files, as model hubs hold them."""

import json
import os
import shutil
import stat

import numpy as np
import pytest
import safetensors.numpy
import torch

import tensorbytes as tb
from tensorbytes.errors import CorruptError, LimitError, Limits, LossError, UnsupportedError, UsageError
from tensorbytes.formats._safetensors import shards
from tensorbytes.io import publish, storage
from tensorbytes.io.hidden import is_hidden

MODEL = {f"layer.{i}.weight": np.full((10, 10), i, np.float32) for i in range(7)}
INDEX = "model.safetensors.index.json"


@pytest.fixture
def folder(tmp_path):
    """A checkpoint of four shards, written by the library as transformers would."""
    places = {}
    names = list(MODEL)
    for number in range(4):
        file = f"model-{number + 1:05d}-of-00004.safetensors"
        some = names[2 * number : 2 * number + 2]
        safetensors.numpy.save_file({name: MODEL[name] for name in some}, tmp_path / file, {"format": "pt"})
        places |= dict.fromkeys(some, file)
    index = {"metadata": {"total_size": 2800}, "weight_map": places}
    (tmp_path / INDEX).write_text(json.dumps(index, indent=2, sort_keys=True) + "\n")
    return tmp_path


def same(got, want=MODEL):
    return got.keys() == want.keys() and all(
        got[name].dtype == want[name].dtype and np.array_equal(got[name], want[name]) for name in want
    )


def edit(folder, change):
    index = json.loads((folder / INDEX).read_text())
    change(index)
    (folder / INDEX).write_text(json.dumps(index))


def listing(folder):
    return sorted(os.listdir(folder))


# ---- reading ----------------------------------------------------------------


@pytest.mark.parametrize("name", ["", INDEX, "model.safetensors"])
def test_read_by_folder_by_index_and_by_name(folder, name):
    path = folder / name
    assert same(tb.load(path))
    assert same(tb.load(path, mmap=True))
    assert same(tb.load(str(path), format="safetensors"))
    assert list(tb.load(path, names=["layer.3.weight"])) == ["layer.3.weight"]
    with tb.open(path, to="torch") as opened:
        assert sorted(opened.keys()) == sorted(MODEL)
        assert opened.meta == {"format": "pt"}
        assert torch.equal(opened["layer.6.weight"][2:4], torch.full((2, 10), 6.0))
        assert opened.verify() == 1


def test_a_folder_with_a_single_file(tmp_path):
    safetensors.numpy.save_file(MODEL, tmp_path / "model.safetensors")
    (tmp_path / "config.json").write_text("{}")
    assert same(tb.load(tmp_path))


def test_other_names_of_the_index(folder):
    os.rename(folder / INDEX, folder / "diffusion_model.safetensors.index.fp16.json")
    assert same(tb.load(folder))


def test_a_folder_that_holds_two(folder):
    safetensors.numpy.save_file(MODEL, folder / "model.safetensors")
    with pytest.raises(UsageError, match="pass the path of one"):
        tb.load(folder)
    assert same(tb.load(folder / INDEX))
    os.unlink(folder / "model.safetensors")
    shutil.copy(folder / INDEX, folder / "other.safetensors.index.json")
    with pytest.raises(UsageError, match="pass the path of one"):
        tb.load(folder)


def test_a_file_beside_an_index_of_its_own_name(folder):
    index = (folder / INDEX).read_text()
    os.unlink(folder / INDEX)
    (folder / "other.safetensors.index.json").write_text(index)
    assert same(tb.load(folder))
    safetensors.numpy.save_file(OTHER, folder / "other.safetensors")
    with pytest.raises(
        UsageError, match=r"other\.safetensors\.index\.json and other\.safetensors; pass the path of one"
    ):
        tb.load(folder)
    assert same(tb.load(folder / "other.safetensors"), OTHER)


def test_a_folder_of_links_to_another_one(folder, tmp_path_factory):
    links = tmp_path_factory.mktemp("links")
    for name in listing(folder):
        os.symlink(folder / name, links / name)
    with pytest.raises(UnsupportedError, match="or pass the real folder"):
        tb.load(links)
    assert same(tb.load(os.path.dirname(os.path.realpath(links / INDEX))))


def test_a_folder_that_holds_none(tmp_path):
    with pytest.raises(UsageError, match="folder"):
        tb.load(tmp_path)


def test_no_shard_is_read_before_it_is_asked_for(folder):
    path = folder / "model-00002-of-00004.safetensors"
    data = bytearray(path.read_bytes())
    data[-4:] = b"\xff" * 4
    path.write_bytes(data)
    with tb.open(folder) as opened:
        assert np.array_equal(opened["layer.0.weight"].load(), MODEL["layer.0.weight"])
        assert np.isnan(opened["layer.3.weight"][-1, -1])


def test_a_missing_shard_is_named(folder):
    os.unlink(folder / "model-00003-of-00004.safetensors")
    with pytest.raises(CorruptError, match=r"model-00003-of-00004\.safetensors.*is missing"):
        tb.load(folder)


def test_a_damaged_shard_is_named(folder):
    path = folder / "model-00003-of-00004.safetensors"
    path.write_bytes(path.read_bytes()[:-1])
    with pytest.raises(CorruptError, match=r"model-00003-of-00004\.safetensors: the file ends before"):
        tb.load(folder)


def test_index_and_shards_must_agree(folder):
    edit(folder, lambda index: index["weight_map"].pop("layer.5.weight"))
    with pytest.raises(CorruptError, match=r"layer\.5\.weight' is in this shard, and the index does not say so"):
        tb.load(folder)
    edit(folder, lambda index: index["weight_map"].update({"layer.5.weight": "model-00001-of-00004.safetensors"}))
    with pytest.raises(CorruptError, match=r"layer\.5\.weight' is not in this shard"):
        tb.open(folder).keys()


@pytest.mark.parametrize("name", [
    "../model.safetensors", "/etc/passwd", "sub/model.safetensors", "..", ".", "", "a\\b", "C:model", "a\0b", "s/../x",
])  # fmt: skip
def test_shards_stand_beside_their_index(folder, name):
    edit(folder, lambda index: index["weight_map"].update({"layer.5.weight": name}))
    with pytest.raises(CorruptError, match="not a plain file name"):
        tb.load(folder)


def test_no_link_leads_out(folder, tmp_path_factory):
    outside = tmp_path_factory.mktemp("outside")
    path = folder / "model-00001-of-00004.safetensors"
    shutil.move(path, outside / "x")
    os.symlink(outside / "x", path)
    with pytest.raises(UnsupportedError, match=r"leads out.*copy the file into the folder, or pass the real folder"):
        tb.load(folder)
    os.unlink(path)
    shutil.move(outside / "x", folder / "inside")
    os.symlink("inside", path)
    assert same(tb.load(folder))


def test_snapshots_of_a_hub_s_cache_are_links(folder, tmp_path_factory):
    cache = tmp_path_factory.mktemp("models--a--b")
    (cache / "blobs").mkdir()
    snapshot = cache / "snapshots" / "0123abcd"
    snapshot.mkdir(parents=True)
    for number, name in enumerate(listing(folder)):
        shutil.copy(folder / name, cache / "blobs" / str(number))
        os.symlink(f"../../blobs/{number}", snapshot / name)
    assert same(tb.load(snapshot))
    os.unlink(snapshot / "model-00001-of-00004.safetensors")
    os.symlink(folder / "model-00001-of-00004.safetensors", snapshot / "model-00001-of-00004.safetensors")
    with pytest.raises(UnsupportedError, match=r"leads out.*copy the file into the folder, or pass the real folder"):
        tb.load(snapshot)


def test_a_pipe_or_a_folder_is_no_shard(folder):
    path = folder / "model-00001-of-00004.safetensors"
    os.unlink(path)
    os.mkfifo(path)
    with pytest.raises(CorruptError, match="regular file"):
        tb.load(folder)
    os.unlink(path)
    path.mkdir()
    with pytest.raises(CorruptError, match="regular file"):
        tb.open(folder).keys()


@pytest.mark.parametrize("text", [
    "", "[]", "null", "{}", '{"weight_map": []}', '{"weight_map": {"a": 1}}', '{"weight_map": {"a": null}}',
    '{"weight_map": {"a": "x", "a": "x"}}', "{" * 50_000, '{"weight_map": {"\\ud800": "x"}}', "\ufeff{}",
])  # fmt: skip
def test_a_damaged_index(folder, text):
    (folder / INDEX).write_text(text)
    with pytest.raises(CorruptError, match=r"index\.json"):
        tb.load(folder)


def test_every_truncation_of_an_index(folder):
    data = (folder / INDEX).read_bytes()
    for size in range(len(data.rstrip())):
        (folder / INDEX).write_bytes(data[:size])
        with pytest.raises(CorruptError):
            tb.load(folder)


def test_limits_are_for_all_shards_together(folder):
    with pytest.raises(LimitError, match="over 5 tensors"):
        tb.load(folder, limits=Limits(max_tensors=5))


def test_an_index_of_nothing(tmp_path):
    (tmp_path / INDEX).write_text('{"metadata": {}, "weight_map": {}}')
    assert tb.load(tmp_path) == {}


def test_metadata_of_the_first_shard_wins(folder):
    some = {"layer.6.weight": MODEL["layer.6.weight"]}
    safetensors.numpy.save_file(some, folder / "model-00004-of-00004.safetensors", {"format": "np", "more": "1"})
    assert tb.open(folder).meta == {"format": "pt", "more": "1"}


# ---- writing ----------------------------------------------------------------


def test_written_as_others_write_them(tmp_path, folder):
    """The same names and the same index; the shards are the library's to the byte."""
    made = tmp_path / "made"
    made.mkdir()
    tb.save(MODEL, made / "model.safetensors", max_shard_bytes=800, meta={"format": "pt"})
    theirs = [name for name in listing(folder) if name != "made"]
    assert listing(made) == theirs
    for name in theirs:
        assert (made / name).read_bytes() == (folder / name).read_bytes()
    assert same(tb.load(made))


def test_a_tensor_over_the_limit_is_alone(tmp_path):
    x = {
        "a": np.zeros(10, np.uint8),
        "big": np.zeros(500, np.uint8),
        "b": np.ones(10, np.uint8),
        "c": np.ones(90, np.uint8),
    }
    tb.save(x, tmp_path / "m.safetensors", max_shard_bytes=100)
    assert listing(tmp_path) == [*(f"m-0000{n}-of-00003.safetensors" for n in (1, 2, 3)), "m.safetensors.index.json"]
    index = json.loads((tmp_path / "m.safetensors.index.json").read_text())
    assert index["metadata"] == {"total_size": 610}
    assert index["weight_map"]["b"] == index["weight_map"]["c"] == "m-00003-of-00003.safetensors"
    assert same(tb.load(tmp_path / "m.safetensors"), x)


def test_one_shard_is_a_plain_file(tmp_path):
    tb.save(MODEL, tmp_path / "model.safetensors", max_shard_bytes=1 << 20)
    assert listing(tmp_path) == ["model.safetensors"]
    assert (tmp_path / "model.safetensors").read_bytes() == safetensors.numpy.save(MODEL)


def test_structures_and_notes_in_shards(tmp_path):
    x = {"b": [np.zeros(40), "text", 3], "a": (torch.eye(5).to_sparse(), 2j), "c": np.ones((3, 3), np.int8)}
    tb.save(x, tmp_path / "model.safetensors", max_shard_bytes=100, extended=True, meta={"k": "v"})
    assert len(listing(tmp_path)) > 3
    for got in (tb.load(tmp_path, to="original"), tb.open(tmp_path, to="original")[0]):
        assert tb.equal(got, x)
    assert tb.open(tmp_path).meta == {"k": "v"}


def test_the_parts_of_one_value_stay_together(tmp_path):
    tb.save(
        {f"s{i}": torch.eye(9).to_sparse() for i in range(3)},
        tmp_path / "m.safetensors",
        max_shard_bytes=1,
        extended=True,
    )
    assert len(listing(tmp_path)) == 4
    for name in listing(tmp_path)[:3]:
        assert torch.equal(next(iter(tb.load(tmp_path / name, to="torch").values())).to_dense(), torch.eye(9))


@pytest.mark.parametrize("size", [0, -1, 1.5, "5GB", True, None])
def test_the_size_is_a_number(tmp_path, size):
    if size is None:
        tb.save(MODEL, tmp_path / "model.safetensors", max_shard_bytes=None)
        assert listing(tmp_path) == ["model.safetensors"]
        return
    with pytest.raises(UsageError, match="max_shard_bytes"):
        tb.save(MODEL, tmp_path / "model.safetensors", max_shard_bytes=size)


def test_shards_want_a_path(tmp_path):
    for target in (tmp_path, tmp_path / "model.bin", open(tmp_path / "x.safetensors", "wb")):  # noqa: SIM115
        with pytest.raises(UsageError):
            tb.save(MODEL, target, "safetensors", max_shard_bytes=10)
        if hasattr(target, "close"):
            target.close()


# ---- replacing --------------------------------------------------------------

OTHER = {name: x + 100 for name, x in MODEL.items()}


def test_a_checkpoint_is_replaced(folder):
    path = folder / "model.safetensors"
    os.chmod(folder / INDEX, stat.S_IRUSR | stat.S_IWUSR)
    tb.save(OTHER, path, max_shard_bytes=800)
    assert len(listing(folder)) == 5
    assert same(tb.load(folder), OTHER)
    tb.save(MODEL, path, max_shard_bytes=1200)  # fewer shards: none of the old ones stays
    assert len(listing(folder)) == 4
    assert same(tb.load(folder))
    tb.save(OTHER, path, max_shard_bytes=1 << 20)
    assert listing(folder) == ["model.safetensors"]
    assert same(tb.load(folder), OTHER)
    tb.save(MODEL, path, max_shard_bytes=800)
    assert len(listing(folder)) == 5
    assert same(tb.load(folder))


@pytest.mark.parametrize("sync", [True, False])
def test_a_checkpoint_is_replaced_by_a_single_file(folder, sync):
    (folder / "model-00009-of-00009.safetensors").write_bytes(b"not in the index")
    tb.save(OTHER, folder / "model.safetensors", sync=sync)
    assert listing(folder) == ["model-00009-of-00009.safetensors", "model.safetensors"]
    assert same(tb.load(folder), OTHER)


def test_a_checkpoint_of_another_name_stays(folder):
    before = listing(folder)
    tb.save(OTHER, folder / "other.safetensors")
    tb.save(OTHER, folder / "model", "safetensors")
    assert listing(folder) == sorted([*before, "other.safetensors", "model"])
    assert same(tb.load(folder / INDEX))


def test_a_crash_on_the_way_to_a_single_file(folder, monkeypatch):
    def dying(path):
        raise Crash

    monkeypatch.setattr(os, "unlink", dying)
    with pytest.raises(Crash):
        tb.save(OTHER, folder / "model.safetensors")
    with pytest.raises(UsageError, match="pass the path of one"):
        tb.load(folder)
    assert same(tb.load(folder / "model.safetensors"), OTHER)
    assert same(tb.load(folder / INDEX))


def test_the_index_goes_before_the_shards(folder, monkeypatch):
    removed, unlink = [], os.unlink
    monkeypatch.setattr(os, "unlink", lambda path: removed.append(os.path.basename(path)) or unlink(path))
    tb.save(OTHER, folder / "model.safetensors")
    removed = [name for name in removed if not is_hidden(name)]
    assert removed[0] == INDEX
    assert len(removed) == 5


def test_files_of_others_stay(folder):
    (folder / "notes.txt").write_text("mine")
    safetensors.numpy.save_file(MODEL, folder / "adapter-00001-of-00001.safetensors")
    edit(
        folder,
        lambda index: index["weight_map"].update({"more": "adapter-00001-of-00001.safetensors", "text": "notes.txt"}),
    )
    tb.save(OTHER, folder / "model.safetensors", max_shard_bytes=1200)
    assert {"notes.txt", "adapter-00001-of-00001.safetensors"} < set(listing(folder))


def test_a_loss_leaves_the_old_checkpoint_alone(folder):
    before = {name: (folder / name).read_bytes() for name in listing(folder)}
    with pytest.raises(LossError):
        tb.save({**OTHER, "x": "text"}, folder / "model.safetensors", max_shard_bytes=800)
    assert {name: (folder / name).read_bytes() for name in listing(folder)} == before


class Crash(BaseException):
    """The end of the process, as far as files can tell."""


@pytest.mark.parametrize("most", [800, 1200])
def test_a_crash_at_any_step_never_leaves_a_mix(folder, most, tmp_path_factory, monkeypatch):
    """After each change to the folder: the old checkpoint, the new one, or none at all."""
    seen = set()
    for step in range(100):
        copy = tmp_path_factory.mktemp("copy") / "x"
        shutil.copytree(folder, copy)
        left = [step]

        def dying(function, left=left):
            def call(*args, **kwargs):
                if not left[0]:
                    raise Crash
                left[0] -= 1
                return function(*args, **kwargs)

            return call

        with monkeypatch.context() as patch:
            for name in ("replace", "unlink", "fsync"):
                patch.setattr(os, name, dying(getattr(os, name)))
            try:
                tb.save(OTHER, copy / "model.safetensors", max_shard_bytes=most)
                finished = True
            except Crash:
                finished = False
        index = copy / INDEX
        if not index.exists():
            seen.add("none")
        else:
            got = tb.load(index)
            seen.add("old" if same(got) else "new" if same(got, OTHER) else "mix")
        if finished:
            break
    assert finished
    assert seen == ({"old", "none", "new"} if most == 800 else {"old", "new"})


def test_a_full_disk_leaves_the_old_checkpoint_and_no_rubbish(folder, small_files_only):
    before = listing(folder)
    with pytest.raises(OSError, match="large"):
        tb.save({**OTHER, "big": np.zeros(1 << 20)}, folder / "model.safetensors", max_shard_bytes=800)
    assert listing(folder) == before
    assert same(tb.load(folder))


def test_shards_are_synced_before_the_index_speaks_of_them(tmp_path, monkeypatch):
    order = []
    write, sync = storage.write, publish.sync_folder
    monkeypatch.setattr(
        storage,
        "write",
        lambda target, pieces, sync: order.append((os.path.basename(target), sync)) or write(target, pieces, sync=sync),
    )
    monkeypatch.setattr(publish, "sync_folder", lambda path: order.append("folder") or sync(path))
    tb.save(MODEL, tmp_path / "model.safetensors", max_shard_bytes=1500)
    names = [step[0] if isinstance(step, tuple) else step for step in order]
    assert names.index(INDEX) > 0
    assert names[names.index(INDEX) - 1] == "folder"
    assert all(name.endswith(".tmp") or name == "folder" for name in names[: names.index(INDEX)])
    assert all(step[1] for step in order if isinstance(step, tuple))
    assert shards.find(str(tmp_path)) == [str(tmp_path / INDEX)]
