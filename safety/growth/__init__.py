"""How the cost of what a sound file may hold grows with it: python -m safety.growth"""
