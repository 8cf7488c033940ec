"""Writers, appenders, savers and readers in threads and processes on one folder, with damage, kills and lies between
their steps (catalogue 155). `python -m safety.machine` runs many more steps; here are the same few each time.
"""

import sys

import pytest

from tests.support import ROOT

pytestmark = pytest.mark.skipif(not sys.platform.startswith("linux"), reason="processes and system calls of Linux")
if not (ROOT / "safety" / "machine").is_dir():
    pytest.skip("the folder safety is not here", allow_module_level=True)

from safety.machine import folder, helper, model  # noqa: E402


def test_155_what_was_acknowledged_is_there():
    """Nothing acknowledged is missing unless it was damaged, nothing else appears, nothing outside is touched."""
    assert sum(folder.run(250, 50, derandomize=True).values()) > 50


@pytest.mark.deep
@pytest.mark.timeout(1200)
def test_155_many_steps():
    assert sum(folder.run(8000, 100).values()) >= 8000


@pytest.mark.parametrize("name", ["x.tb", "x.tfrecord", "x.tfrecord.gz"])
def test_155_the_model_notices(name, tmp_path):
    """A record that is missing, that nobody wrote, that stands in another order; a file that was changed or is gone."""
    path = str(tmp_path / name)
    worker = helper.Worker()
    for number in range(4):
        worker.append(0, path, [number])
    file = model.File(path, [0, 1, 2, 3])
    file.check()
    data = file.data()
    assert [part.numbers for part in model.parts(data, [0, 1, 2, 3])] == [[0], [1], [2], [3]]
    for wrong in ([0, 1, 2], [0, 1, 2, 3, 4], [1, 0, 2, 3], []):
        with pytest.raises(model.Violation):
            model.File(path, wrong).check()
    with pytest.raises(model.Violation, match="nobody made it"):
        model.File(path).check()
    file.damage(data[:-3])
    assert file.untouched == [0, 1, 2]
    file.check()
    last = model.parts(data, [0, 1, 2, 3])[-1]
    for kept in (last.start - 1, 0):
        with pytest.raises(model.Violation, match="cut off"):
            file.appended([], kept)
    (tmp_path / name).write_bytes(data[:-4])
    with pytest.raises(model.Violation, match="changed by somebody else"):
        file.check()


@pytest.mark.parametrize("name", ["x.tb", "x.tfrecord"])
def test_155_the_model_knows_each_record_that_was_appended_after_damage(name, tmp_path):
    path = str(tmp_path / name)
    worker = helper.Worker()
    worker.append(0, path, [0, 1, 2])
    file = model.File(path, [0, 1, 2])
    data = file.data()
    file.damage(data[:20] + b"?" + data[21:])  # in the first record
    with open(path, "ab") as more:  # as a writer does it that looks at the end alone
        more.write(data)
    file.appended([3, 4, 5], len(data))
    whole = file.data()
    file.damage(whole[:-3])
    assert file.untouched == [1, 2, 3, 4]
    last = file.parts[-1]
    (tmp_path / name).write_bytes(whole[: last.start])
    file.appended([], last.start)
    assert file.records == [0, 1, 2, 3, 4]
