"""Health: probe specifications and outcomes, judge, rise/fall, quorum, timetable. Pure.

The way of a result: a probe's answer -> `judge` -> Outcome -> `rise_fall` (one machine per distinct check)
-> `pool` (one per virtual server: servers, quorum, sorry server) -> effects. `timetable` says when the next
probe is due, `monitor` is the machine that holds them all.
"""
