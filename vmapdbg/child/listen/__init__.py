"""What tinygrad did: every hook on tinygrad, every difference between its releases, and the records of what happened.

Stock tinygrad of any release from 0.12.0 on is observed with none of its code replaced. An import hook notes the tests
of the functions that decide (instrument.py, deciding.py), a recording dict who realizes a node, a watched
RewriteContext which node each buffer, store and kernel belongs to (hooks.py, recorder.py). Each schedule becomes one
plain record (records.py); classify.py and verdicts.py name the rules in it.

    recorder = hooks.start()      # before the first import of tinygrad
    ...                           # the snippet runs
    recorder.schedules            # list[ScheduleRecord]
    recorder.missing              # what could not be observed, one line each

What differs between releases is chosen by what the imported tinygrad has, not by its version number (`releases.py`).
A name that the tool relies on and that is missing switches off the part that needs it, with a line in
`Adapter.missing`.
"""
