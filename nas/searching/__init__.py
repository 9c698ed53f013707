"""Search: algorithms that propose attention mechanisms, and the loop that trains and records them.

Import from the module you need: this package imports nothing, so that reading a front stays quick.
"""
