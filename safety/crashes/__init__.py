"""Writers killed, starved and cut off from power at every system call: is anything lost?"""
