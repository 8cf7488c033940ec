"""The optional C extension; everything else is in pyproject.toml."""

import os
import sysconfig

from setuptools import Extension, setup

WINDOWS = os.name == "nt"
# One build serves every CPython from 3.11 on, but for free-threaded ones, which have no limited API.
LIMITED = not sysconfig.get_config_var("Py_GIL_DISABLED")
SOURCES = (
    "binding",
    "codec_binding",
    "columns",
    "columns_binding",
    "example",
    "example_binding",
    "example_decode",
    "example_write",
    "filters",
    "gather_binding",
    "header",
    "huffman",
    "keys",
    "large",
    "objects",
    "objects_binding",
    "numbers",
    "numbers_binding",
    "planes",
    "rows_binding",
    "salvage",
    "varints",
    "wire",
)
HEADERS = (
    "binding",
    "columns",
    "example",
    "example_parts",
    "filters",
    "header",
    "huffman",
    "instruction",
    "keys",
    "large",
    "messages",
    "objects",
    "numbers",
    "planes",
    "salvage",
    "varints",
    "wire",
)

kernel = Extension(
    "tensorbytes._wire._kernel",
    [f"src/tensorbytes/_wire/{name}.c" for name in SOURCES],
    depends=[f"src/tensorbytes/_wire/{name}.h" for name in HEADERS],
    # Nobody asks which exceptions of arithmetic were met, and without them loops over floats become vectors.
    extra_compile_args=["/O2"] if WINDOWS else ["-O3", "-std=c11", "-fvisibility=hidden", "-fno-trapping-math"],
    extra_link_args=[] if WINDOWS else ["-pthread"],
    py_limited_api=LIMITED,
    # No compiler is not an error: reference.py takes over. A release build must not
    # ship without the kernel, so it sets this variable.
    optional=not os.environ.get("TENSORBYTES_REQUIRE_KERNEL"),
)

setup(ext_modules=[kernel], options={"bdist_wheel": {"py_limited_api": "cp311"}} if LIMITED else {})
