"""What tinygrad did: every hook on tinygrad, every difference between its releases, and the records of what happened.

Any stock tinygrad from 0.12.0 on is observed as it is: no code of it is replaced. An import hook notes the tests of the
functions that decide (decisions.py), a recording dict notes what puts a node into the realize map, a watched
RewriteContext follows each buffer, store and kernel to its node (hooks.py, pass_recorder.py). Each schedule becomes one
plain record (records.py).

    recorder = Recorder()
    hooks.start(recorder)         # before the first import of tinygrad
    ...                           # the snippet runs
    recorder.schedules            # list[ScheduleRecord]
    recorder.missing              # what could not be observed, one line each
"""
