"""What tests share: builders of bytes, cases, programs that write pages. No tests of its own."""

from pathlib import Path

ROOT = Path(__file__).parents[2]
CORPUS = ROOT / "tests" / "corpus"  # small files of ours and of other libraries, checked in
REAL_FILES = ROOT.parent / "shared" / "corpus"  # files of other people's software, where they are at hand
