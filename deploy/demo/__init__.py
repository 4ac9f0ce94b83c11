"""`make demo`: a pair of directors that carries real HTTP traffic through every failure, and a report of it.

`run` is the play, `stage` its network and hosts, `load` the client, `report` what the client saw.
"""
