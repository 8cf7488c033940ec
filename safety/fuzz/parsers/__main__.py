import sys

from safety.fuzz.parsers.run import main

sys.exit(main())
