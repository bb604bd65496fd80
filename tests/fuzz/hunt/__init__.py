"""Random programs of plain tinygrad. Each runs on several releases and on the patches; numpy gives the right values.

plan.py        a program as data: a list of statements
pool.py        the values that a statement may read
statements.py  the kinds of statements, and how often each
draw.py        draws plans
worker.py      runs programs on one tinygrad and compares every realize
runner.py      the workers: one process for each tinygrad, started again after a hang
finds.py       the finds: grouped by cause, in files that merge
__main__.py    `python -m tests.fuzz hunt`
"""
