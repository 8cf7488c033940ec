"""Speed beside other libraries: `python -m benchmarks` (or `make bench`).

peers.py    the libraries, each behind the same four verbs; record_peers.py and
            record_tensorflow.py, those that read and write Examples
record_data.py  the Examples
compression_peers.py, compression_data.py  libraries that compress, and what they are given
codec_libraries.py  by itself: the libraries that our codecs could have been made of
timing.py   how calls are timed
*_rows.py   what is timed, and the targets
turns.py, walks.py, lines.py  by themselves: two states of the package beside each other, by time, by the functions
            that a call visits and the files that it opens, and by lines of code; states.py, what they share
report.py   results.json, the tables and the chart
"""
