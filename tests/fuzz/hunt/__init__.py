"""Random programs of plain tinygrad, each run on several releases and on the patches, the numpy reference as
judge.

plan.py      a program as data: a list of statements
table.py     what a statement may be, and how often: elements.py, reduces.py, places.py, memory.py; pool.py
draw.py      draws plans
worker.py    runs programs on one tinygrad and judges every realize of them
runner.py    the workers: one process for each tinygrad, started again after a hang
reduce.py    makes a plan small while it fails in the same way
finds.py     what was found: told apart by cause, kept in files that merge
__main__.py  `python -m tests.fuzz hunt`
"""
