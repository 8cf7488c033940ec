"""The state every test runs in: quiet frameworks, on the CPU, whatever the machine has."""

import os

import pytest

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
os.environ.setdefault("TF_ENABLE_ONEDNN_OPTS", "0")  # only says on import that it is on
os.environ["CUDA_VISIBLE_DEVICES"] = "-1"
os.environ["JAX_PLATFORMS"] = "cpu"

# What is the same whichever kernel is at work is run once, with the compiled one: it takes minutes.
ONCE = ("test_bench", "test_docs", "test_layers", "test_other_languages", "test_report", "test_viewer")


def pytest_collection_modifyitems(config, items):
    if os.environ.get("TENSORBYTES_KERNEL") != "reference" or config.getoption("file_or_dir"):
        return  # a file that was asked for is run
    config.hook.pytest_deselected(items=[item for item in items if item.path.name.startswith(ONCE)])
    items[:] = [item for item in items if not item.path.name.startswith(ONCE)]


@pytest.fixture
def small_files_only():
    """The system refuses to let a file grow beyond 100 KiB, after writing what still fits."""
    resource = pytest.importorskip("resource")  # POSIX only
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (100 << 10, before[1]))
    yield
    resource.setrlimit(resource.RLIMIT_FSIZE, before)
