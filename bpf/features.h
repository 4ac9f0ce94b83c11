/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * What the configuration needs, by -DWITH_<feature>=0 or 1: haxlb/forwarding/features.py says which. What no service
 * uses is not compiled, so that it costs nothing. Without a word, everything is compiled.
 */
#ifndef HAXLB_FEATURES_H
#define HAXLB_FEATURES_H

#ifndef WITH_ALL
#define WITH_ALL 1
#endif
#ifndef WITH_STATELESS /* a service of a hash scheduler without state */
#define WITH_STATELESS WITH_ALL
#endif
#ifndef WITH_STATEFUL /* any other */
#define WITH_STATEFUL 1
#endif
#ifndef WITH_LIST /* lc, wlc, sed, nq, fo, ovf, lblc, lblcr, twos */
#define WITH_LIST WITH_ALL
#endif
#ifndef WITH_THRESHOLDS
#define WITH_THRESHOLDS WITH_ALL
#endif
#ifndef WITH_PERSISTENCE
#define WITH_PERSISTENCE WITH_ALL
#endif
#ifndef WITH_ONE_PACKET
#define WITH_ONE_PACKET WITH_ALL
#endif
#ifndef WITH_ANY_PORT
#define WITH_ANY_PORT WITH_ALL
#endif
#ifndef WITH_IPV6
#define WITH_IPV6 WITH_ALL
#endif
#ifndef WITH_SHARED /* the directors are servers themselves */
#define WITH_SHARED WITH_ALL
#endif
#ifndef WITH_TUNNEL
#define WITH_TUNNEL WITH_ALL
#endif
#ifndef WITH_NAT
#define WITH_NAT WITH_ALL
#endif
#ifndef WITH_JUMBO /* frames of several buffers */
#define WITH_JUMBO WITH_ALL
#endif

/* lvs_timeouts, and those that keepalived has no word for: seconds without a packet. */
#define LIFETIME_CLAIMED 1
#define LIFETIME_NEW 60
#ifndef LIFETIME_TCP_ESTABLISHED
#define LIFETIME_TCP_ESTABLISHED 900
#endif
#ifndef LIFETIME_CLOSING
#define LIFETIME_CLOSING 120
#endif
#ifndef LIFETIME_UDP
#define LIFETIME_UDP 300
#endif
#ifndef LIFETIME_TEMPLATE /* the longest persistence_timeout */
#define LIFETIME_TEMPLATE 360
#endif

#endif
