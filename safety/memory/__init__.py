"""Memory: leaks, allocations that fail, and the extension under the sanitizers."""
