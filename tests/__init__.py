"""The tests: `make test` before each commit, `make test-deep` before each release; see CONTRIBUTING.md."""
