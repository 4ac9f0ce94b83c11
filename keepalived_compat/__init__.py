"""A front end for keepalived.conf: files to judged sections, with every complaint and its place.

`reading.read` is the way in. Nothing here knows who uses the result; the keyword table (`keywords`) says of each
keyword whether the user supports it.
"""
