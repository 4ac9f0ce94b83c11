"""A front end for keepalived.conf: files to judged sections, with every complaint and its place.

`reading.read` is the way in. Nothing here knows who uses the result; the keyword table (`keywords`) says of each
keyword whether the user supports it.

A block without keywords is a Section whose `lines` are lists of words. They become frozen values with their places by

* `values_addresses.read_addresses(lines, complaints, block=…)` -> AddressLine (virtual_ipaddress, …_excluded,
  static_ipaddress), `values_addresses.read_peers(lines, complaints)` -> PeerLine (unicast_peer);
* `values_routes.read_routes(lines, complaints, block=…)` -> RouteLine, `values_rules.read_rules(…)` -> RuleLine;
* `values_groups.read_group(lines, complaints)` -> GroupRange and GroupMark (virtual_server_group), `read_linkbeat` ->
  LinkbeatLine, `read_delays` -> DelayLine (interface_up_down_delays);
* `values_tracking.read_tracks(lines, complaints, block="track_script")` -> TrackLine, and
  `values_tracking.read_weight(entry.words[1:], complaints, block=…, limit=…)` -> Weight of a `weight N [reverse]`;
* `values_line.name_list(lines)` -> the words of `group`, `interfaces`, `notification_email`.

Each files a complaint for what it does not use, says what is lost by it, and leaves it out of its result.
"""
