"""Programs that look for faults: fuzzers, kill points, leaks. They are run from a checkout, not installed."""
