"""Faults that are planted in the scheduler one at a time, to measure what the tool finds.

    table.py     FAULTS: name, what it is, the snippet, how it is planted, what lint is expected to say and where
    plants.py    how: functions that change the scheduler of this process, with a MonkeyPatch
    snippets.py  the programs, the line of the fault marked
    runner.py    `python -m tests.faults.runner`: lints every fault in one process, prints JSON

A fault is planted in a test alone, never by a switch of the tool.
"""
