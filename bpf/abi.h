/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * Shapes that the forwarder shares with user space. haxlb/forwarding/layout.py says the same in Python; a test
 * compiles this file and compares. Any change here or in maps.h is another SHAPES_DIGEST there, and with it a new
 * directory of pins; a change of meaning alone (of `mix`, say) is a new ABI_VERSION.
 *
 * Whatever a packet may read while user space writes it changes in ONE byte: a record keeps the old and the new part
 * side by side, and a bit of that byte says which of the two is in force.
 */
#ifndef HAXLB_ABI_H
#define HAXLB_ABI_H

#include <linux/types.h>

#define ABI_VERSION 1

#if __BYTE_ORDER__ != __ORDER_LITTLE_ENDIAN__
#error "keys and values of flows are composed for little-endian machines"
#endif

#define RING_SLOTS 16384	    /* of one half; Maglev fills all, a sequence as many as it is long */
#define RING_SLOTS_PER_ELEMENT 32   /* u16 each: 64 bytes, one cache line */
#define RING_ELEMENTS (RING_SLOTS / RING_SLOTS_PER_ELEMENT)
#define FLOW_WAYS 4

/* Key of `endpoints`; the value is the service's index, from 1. Network byte order. */
struct endpoint {
	__be32 address;
	__be16 port;
	__u8 protocol;
	__u8 zero;
};

/* The first 12 bytes are the beginning of a frame that goes there. */
struct next_hop {
	__u8 destination[6];
	__u8 source[6];
	__u32 interface;
};

#define SELECT_HALF 0x01       /* which half of the ring, and of `halves` */
#define SELECT_PEER 0x02       /* which of `peers` */
#define SELECT_PEER_KNOWN 0x04 /* whether any */

#define HALF_SEQUENCE 0x01  /* rr, wrr: the next slot; else sh, mh: the slot of the source's hash */
#define HALF_HASH_PORT 0x02 /* the hash covers the source port */

struct half {
	__u32 length; /* slots; 0 = no server */
	__u16 flags;
	__u16 zero;
};

/* Value of `services`. */
struct service {
	__u8 select;
	__u8 protocol;
	__be16 port;
	__be32 address;
	struct half halves[2];
	struct next_hop peers[2]; /* the other director */
	__u32 retired;		  /* user space: 0 = in use, else when it was retired, as a count of retirements */
	__u32 zero;
};

#define BACKEND_ALIVE 0x01
#define BACKEND_HOP 0x02   /* which of `hops` */
#define BACKEND_LOCAL 0x04 /* the server is this host: its packets are the kernel's */

/* Value of `backends`: one real server of one service. */
struct backend {
	__u8 state;
	__u8 incarnation; /* counts the servers that had this index: flows of an earlier one are unknown */
	__u16 service;
	__be32 address;
	__be16 port;
	__u16 weight;
	__u32 retired; /* as in struct service */
	struct next_hop hops[2];
	__u8 zero[16];
};

/* States of a flow. Half-open and closing flows make room for new ones, the others only when they have expired. */
#define FLOW_EMPTY 0
#define FLOW_CLAIMED 1 /* being written by a CPU */
#define FLOW_TCP_NEW 2 /* one packet seen: a SYN, or one of a flow that began elsewhere */
#define FLOW_TCP_ESTABLISHED 3
#define FLOW_TCP_CLOSING 4 /* FIN or RST seen */
#define FLOW_UDP_NEW 5	   /* one packet seen */
#define FLOW_UDP 6

/* Seconds without a packet. */
#define LIFETIME_CLAIMED 1
#define LIFETIME_TCP_NEW 60
#define LIFETIME_TCP_ESTABLISHED 900
#define LIFETIME_TCP_CLOSING 120
#define LIFETIME_UDP 300

/* key: source address, source port (both as on the wire), service index; 0 = empty */
#define FLOW_KEY(address, port, service) ((__u64)(service) << 48 | (__u64)(port) << 32 | (__u32)(address))
/* value: backend index, its incarnation, state, jiffies of the last packet (to a second) */
#define FLOW_VALUE(backend, incarnation, state, stamp) \
	((__u64)(__u32)(stamp) << 32 | (__u32)(state) << 24 | (__u32)(incarnation) << 16 | (__u16)(backend))
#define FLOW_BACKEND(value) ((__u16)(value))
#define FLOW_INCARNATION(value) ((__u8)((value) >> 16))
#define FLOW_STATE(value) ((__u8)((value) >> 24))
#define FLOW_STAMP(value) ((__u32)((value) >> 32))

struct flow {
	__u64 key;
	__u64 value;
};

/* Value of `flows`: one cache line. */
struct bucket {
	struct flow ways[FLOW_WAYS];
};

/* Value of `interfaces`, by interface index: what a frame must be addressed to. */
struct own_mac {
	__u8 mac[6];
	__u16 zero;
};

/* Value of `service_tallies` and `backend_tallies`, per CPU. */
struct tally {
	__u64 packets;
	__u64 bytes; /* of IP */
	__u64 flows; /* given by a decision */
	__u64 zero;
};

/* Why a packet went where it went; index into the one per-CPU value of `verdicts`. */
enum reason {
	/* to a server */
	REASON_FORWARDED,    /* its flow's server */
	REASON_NEW_FLOW,     /* a decision, recorded */
	REASON_MOVED_FLOW,   /* its flow's server was dead: a decision, recorded */
	REASON_UNKNOWN_FLOW, /* TCP, no SYN, no flow: the server of its hash, recorded */
	REASON_TABLE_FULL,   /* no room for its flow: the server of its hash */
	/* to the other director */
	REASON_ASKED_PEER, /* TCP, no SYN, no flow: the peer may know it */
	/* to this host's kernel, untouched */
	REASON_NOT_IPV4,
	REASON_MALFORMED,
	REASON_FRAGMENT,
	REASON_NOT_TCP_UDP,
	REASON_NO_SERVICE,
	REASON_NOT_FOR_US, /* addressed to another MAC: a flooded frame */
	REASON_LOCAL,	   /* its server is this host */
	REASON_LOOP,	   /* its server is who sent it */
	/* dropped */
	REASON_NO_SERVER,
	REASON_COUNT
};

#endif
