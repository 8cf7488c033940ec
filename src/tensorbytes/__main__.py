"""python -m tensorbytes: the command line."""

from tensorbytes.cli import main

main()
