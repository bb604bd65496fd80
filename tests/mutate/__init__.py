"""Changes the tool in one place at a time and looks whether a test fails: `python -m tests.mutate`.

A change that no test notices (a survivor) gets a test, or its code is dead. The user's files are never changed: all
tests run in a copy.
"""
