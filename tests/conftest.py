"""The state every test runs in: quiet frameworks, on the CPU, whatever the machine has.

`make test` runs the tests without the mark `deep`, `make test-deep` all of them. Hypothesis draws the same few inputs
each time under its profile `ci`, and many new ones under `deep`. support/selection.py has further options.
"""

import gc
import os
import shutil

import hypothesis
import pytest

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
os.environ.setdefault("TF_ENABLE_ONEDNN_OPTS", "0")  # only says on import that it is on
os.environ["CUDA_VISIBLE_DEVICES"] = "-1"
os.environ["JAX_PLATFORMS"] = "cpu"

# Files of tests go to memory, where there is plenty: they are many, small, and synced.
MEMORY = "/dev/shm"
if os.path.isdir(MEMORY) and shutil.disk_usage(MEMORY).free > 8 << 30:
    os.environ.setdefault("PYTEST_DEBUG_TEMPROOT", MEMORY)

pytest_plugins = ["tests.support.selection", "tests.support.processes"]

COMMON = {"deadline": None, "suppress_health_check": [hypothesis.HealthCheck.too_slow], "print_blob": True}
hypothesis.settings.register_profile("ci", max_examples=60, derandomize=True, **COMMON)
hypothesis.settings.register_profile("deep", max_examples=1500, **COMMON)
hypothesis.settings.load_profile("ci")  # --hypothesis-profile=deep takes its place


def pytest_collection_finish():
    """What is there by now stays: frameworks are millions of objects, which each gc.collect() would look at."""
    gc.collect()
    gc.freeze()


@pytest.fixture
def small_files_only():
    """The system refuses to let a file grow beyond 100 KiB, after writing what still fits."""
    resource = pytest.importorskip("resource")  # POSIX only
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (100 << 10, before[1]))
    yield
    resource.setrlimit(resource.RLIMIT_FSIZE, before)
