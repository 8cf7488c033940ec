"""Valid structures that grow when they are read, and how much memory each takes: see docs/safety.md.

inputs.py    the structures of each format, and how each is read
records.py   those of records and events
child.py     reads one of them in a process of its own, and tells the peak
__main__.py  runs all of them: `python -m safety.amplification`
"""
