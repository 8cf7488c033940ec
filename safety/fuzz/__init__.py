"""Fuzzing: the compiled kernel as a bare program, every parser, and our verdicts beside other libraries'."""
