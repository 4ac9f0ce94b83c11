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

#define ABI_VERSION 3

#if __BYTE_ORDER__ != __ORDER_LITTLE_ENDIAN__
#error "keys and values of flows are composed for little-endian machines"
#endif

#define RING_SLOTS 16384	  /* of one generation, at most */
#define RING_SLOTS_PER_ELEMENT 32 /* u16 each: 64 bytes, one cache line */
#define LIST_SERVERS 256	  /* that a scheduler which compares all of them compares */
#define EXCEPTION_WORDS 8	  /* u64 each: the bits of 512 slots, one cache line */
#define EXCEPTION_SLOTS (EXCEPTION_WORDS * 64)
#define EXCEPTION_ELEMENTS (RING_SLOTS / EXCEPTION_SLOTS)
#define FLOW_WAYS 4
#define GENERATIONS 4 /* three are in use; the fourth makes a mask of two bits safe */

/* Key of `endpoints`. Network byte order. Port 0: every port that no other endpoint has. */
struct endpoint {
	__be32 address;
	__be16 port;
	__u8 protocol;
	__u8 kind; /* ENDPOINT_… */
};

#define ENDPOINT_SERVED 0
#define ENDPOINT_WITHDRAWN 1 /* user space: kept for a while, no packet looks for it */
#define ENDPOINT_PORTLESS 2  /* of packets that do not tell their ports: there is one, of port 0, where one service has them all */

/* Key of `endpoints6`. */
struct endpoint6 {
	__u8 address[16];
	__be16 port;
	__u8 protocol;
	__u8 kind;
};

#define FRONTEND_STATELESS 0x01	 /* the ring says it all, but for slots that are exceptions */
#define FRONTEND_ANY_PORT 0x02	 /* flows are told apart by the destination port, too */
#define FRONTEND_ONE_PACKET 0x04 /* every packet is a flow of its own (UDP) */
#define FRONTEND_PERSISTENT 0x08 /* a client keeps its server for a while */
#define FRONTEND_SHARED 0x10	 /* this host and the other director are servers of the service themselves */
#define FRONTEND_LIMITED 0x20	 /* some of its servers have thresholds */

/* Value of `endpoints` and `endpoints6`: which service is offered there. */
struct frontend {
	__u16 index; /* from 1, part of the keys of its flows */
	__u16 service;
	__u16 flags;
	__u16 zero;
};

/* The first 12 bytes are the beginning of a frame that goes there. */
struct next_hop {
	__u8 destination[6];
	__u8 source[6];
	__u32 interface;
};

#define SELECT_CURRENT 0x03	/* which generation of the ring is in force */
#define SELECT_FORMER 0x0c	/* which was before, while flows of that time may be unknown */
#define SELECT_FORMER_SHIFT 2
#define FORMER_NONE 3
#define SELECT_PEER 0x10	/* which of `peers` */
#define SELECT_PEER_KNOWN 0x20	/* whether any */
#define SELECT_EXCEPTIONS 0x40	/* some slots are */

#define GENERATION_SEQUENCE 0x01	 /* rr, wrr, twos: the slots are turns */
#define GENERATION_HASH_PORT 0x02	 /* the hash covers the source port */
#define GENERATION_HASH_DESTINATION 0x04 /* dh: the hash is of the destination address */
#define GENERATION_LIST 0x08		 /* the slots are the servers, in their order: all are compared */

struct generation {
	__u32 first; /* element of `rings` */
	__u16 length; /* slots, a power of two unless a sequence or a list; 0 = no server */
	__u16 flags;
};

/* What a scheduler of a list or of turns compares. */
#define SCHEDULER_NONE 0
#define SCHEDULER_LC 1
#define SCHEDULER_WLC 2
#define SCHEDULER_SED 3
#define SCHEDULER_NQ 4
#define SCHEDULER_FO 5
#define SCHEDULER_OVF 6
#define SCHEDULER_TWOS 7
#define SCHEDULER_LBLC 8
#define SCHEDULER_LBLCR 9

/* Value of `services`. The first line is what packets read. */
struct service {
	__u8 select;
	__u8 scheduler;
	__u8 persistence_prefix; /* IPv6: bits of a client's address that count */
	__u8 flags;
	__be32 persistence_mask; /* IPv4 */
	__u32 persistence;	 /* seconds */
	__u32 zero;
	struct generation generations[GENERATIONS];
	__u32 retired; /* user space: 0 = in use, else when it was retired, as a count of retirements */
	__u32 changed; /* user space: when the ring last changed, seconds of CLOCK_MONOTONIC */
	__u64 zeros;
	struct next_hop peers[2]; /* the other director */
	__u8 identity[16];	  /* user space: which service this is */
	__u8 more_zeros[16];
};

#define BACKEND_ALIVE 0x01
#define BACKEND_HOP 0x02   /* which of `hops` */
#define BACKEND_LOCAL 0x04 /* the server is this host: its packets are the kernel's */
#define BACKEND_TAGGED 0x08 /* the one of `vlans` that goes with BACKEND_HOP is not 0 */

#define METHOD_DR 0
#define METHOD_TUN 1
#define METHOD_NAT 2

#define TUNNEL_IPIP 0 /* ip6ip6 and the mixed forms likewise */
#define TUNNEL_GUE 1
#define TUNNEL_GRE 2

#define TUNNEL_CHECKSUM 0x01 /* of the UDP or GRE header */

/* Value of `backends`: one real server of one service. The first line is what every packet reads. */
struct backend {
	__u8 state;
	__u8 incarnation; /* counts the servers that had this index: flows of an earlier one are unknown */
	__u16 service;
	__u16 weight;
	__u8 method;
	__u8 family; /* of `address`: 4 or 6 */
	__u32 retired; /* as in struct service */
	__u32 upper;   /* uthreshold: with so many flows it gets no more; 0 = none */
	__u32 lower;   /* lthreshold: until it has fewer than this again; 0 = three quarters of `upper` */
	__u16 vlans[2]; /* of `hops`: the tag of frames that go there, 0 = none */
	struct next_hop hops[2];
	__u64 zero;
	__u8 address[16]; /* IPv4: the first four bytes */
	__u8 source[16];  /* TUN: of the outer header */
	__be16 port;
	__u16 mtu; /* of the interface that leads there */
	__u8 tunnel;
	__u8 tunnel_flags;
	__be16 tunnel_port;
	__u8 zeros[24];
};

/* Value of `loads`, by backend index: the flows that are on record for it. */
struct load {
	__u32 active;
	__u32 inactive; /* closing */
	__u32 overloaded;
	__u32 zero;
	__u32 counted_active; /* by the sweep that is to count them, 0 before it */
	__u32 counted_inactive;
	__u8 zeros[40];
};

/* States of a flow. */
#define FLOW_EMPTY 0
#define FLOW_CLAIMED 1 /* being written by a CPU */
#define FLOW_TCP_NEW 2 /* TCP and SCTP: one packet seen, a SYN or INIT, or one of a flow that began elsewhere */
#define FLOW_TCP_ESTABLISHED 3
#define FLOW_TCP_CLOSING 4 /* FIN or RST, SHUTDOWN or ABORT seen */
#define FLOW_UDP_NEW 5	   /* one packet seen */
#define FLOW_UDP 6
#define FLOW_TEMPLATE 7	   /* no flow: the server that a persistent service keeps for a client */
#define FLOW_TEMPLATE_NEW 8 /* the same, of a client that has sent one packet */
#define FLOW_STATES 15	   /* the bits of these */

/* key: source address, source port (both as on the wire), frontend index; 0 = empty */
#define FLOW_KEY(address, port, frontend) ((__u64)(frontend) << 48 | (__u64)(port) << 32 | (__u32)(address))
/* first word of a wide key: the two other words are the source address, of IPv4 in the last four bytes */
#define WIDE_KEY(destination_port, port, frontend) \
	((__u64)(frontend) << 48 | (__u64)(port) << 32 | (__u32)(destination_port) << 16 | 1)
/* value: backend index, its incarnation, state, jiffies of the last packet (to a second) */
#define FLOW_VALUE(backend, incarnation, state, stamp) \
	((__u64)(__u32)(stamp) << 32 | (__u32)(state) << 24 | (__u32)(incarnation) << 16 | (__u16)(backend))
#define FLOW_BACKEND(value) ((__u16)(value))
#define FLOW_INCARNATION(value) ((__u8)((value) >> 16))
#define FLOW_STATE(value) ((__u8)((value) >> 24) & FLOW_STATES)
#define FLOW_STAMP(value) ((__u32)((value) >> 32))
/* A bit of the first way's value, also of an empty one: some flows of this bucket have found no room and are in the overflow. */
#define FLOW_SPILLED (1ull << 31)

struct flow {
	__u64 key;
	__u64 value;
};

/* Value of `flows` and `overflow`: one cache line. */
struct bucket {
	struct flow ways[FLOW_WAYS];
};

/* A flow of IPv6, or of an endpoint for all ports. */
struct wide_flow {
	struct flow flow;
	__u64 rest[2];
};

/* Value of `wide_flows` and `wide_overflow`: two cache lines. */
struct wide_bucket {
	struct wide_flow ways[FLOW_WAYS];
};

/* Value of `interfaces`, by interface index: what a frame must be addressed to. */
struct own_mac {
	__u8 mac[6];
	__u16 zero;
};

#define NEAR_INTERFACES 64

/*
 * Value of `near_interfaces`, by the lower bits of the interface index: the same, found without a hash. It is written in place: a
 * packet that reads it meanwhile may at worst see the MAC of another interface of this host, or none and look into `interfaces`.
 */
struct near_interface {
	__u32 interface;
	__u8 mac[6];
	__u16 zero;
};

/* Key of `virtual_macs`: another MAC that frames on this interface may be addressed to. */
struct virtual_mac {
	__u32 interface;
	__u8 mac[6];
	__u16 zero;
};

/* Key of `fragments`. IPv4: the first four bytes of the addresses. */
struct datagram {
	__u8 source[16];
	__u8 destination[16];
	__u32 identification;
	__u8 protocol; /* IPv6: 0, its fragments need not agree on it */
	__u8 zero[3];
};

#define FRAGMENT_ASKED 0x01    /* the other director was asked about the first one */
#define FRAGMENT_ANSWERED 0x02 /* it was sent back to the other director */
#define FRAGMENT_SHARED 0x04   /* FRONTEND_SHARED */

/* Value of `fragments`: where the first one went. */
struct fragment {
	__u16 backend;
	__u8 incarnation;
	__u8 flags;
	__u16 service;
	__be16 kind; /* EtherType that the other director got it with; 0 = the packet's own */
	__u32 stamp; /* jiffies */
};

/* Key of `replies`: what the answer of a server says. IPv4: the first four bytes of the addresses. */
struct answer {
	__u8 client[16];
	__u8 server[16];
	__be16 client_port;
	__be16 server_port;
	__u8 protocol;
	__u8 zero[3];
};

#define ADDRESS_BITS_LOG2 12
#define ADDRESS_BITS (1 << ADDRESS_BITS_LOG2) /* of `answer_bits` and `any_port_bits` */

#define REPLY_ANY_PORT 0x01 /* FRONTEND_ANY_PORT */

/* Value of `replies`: the flow that it answers, the address that the client knows, and the way to the client. */
struct reply {
	__u64 check; /* of the key: the memory of an entry that is removed may be another one's while it is read */
	__u8 address[16];
	__be16 port;
	__u16 frontend;
	__u16 service;
	__u16 backend;
	__u8 incarnation;
	__u8 flags;
	__u16 vlan;
	__u32 stamp; /* jiffies: of `reply_fragments` */
	struct next_hop hop;
};

/* Key of `localities`: the destination address of lblc and lblcr. */
struct locality {
	__u8 address[16];
	__u16 service;
	__u16 zero[3];
};

#define LOCALITY_SERVERS 8

/* Value of `localities`: the servers of an address, the first for lblc. */
struct locality_servers {
	__u16 backends[LOCALITY_SERVERS]; /* 0 = none */
	__u8 incarnations[LOCALITY_SERVERS];
	__u32 modified; /* jiffies */
	__u32 used;
};

/* Value of `service_tallies` and `backend_tallies`, per CPU. */
struct tally {
	__u64 packets;
	__u64 bytes; /* of IP */
	__u64 flows; /* given by a decision */
	__u64 zero;
};

/* Value of `sweeps`: how far the sweep of the flow tables has come, and what it found. */
struct sweep {
	__u32 next; /* bucket */
	__u32 zero;
	__u64 expired; /* flows */
};

#define SWEEP_BUCKETS 16 /* of one run */

/* What the sweep is to do, behind an Ethernet header. */
struct sweep_order {
	__u32 backend;	/* 0 = sweep; else correct its load: */
	__s32 active;	/* by so many */
	__s32 inactive;
	__u32 what;	/* SWEEP_… */
	__u16 lifetimes[8]; /* told: of flows, by state, seconds */
};

#define SWEEP_COUNTING 1 /* count the flows that go on, too */
#define SWEEP_RESTART 2	 /* only say that the next run begins with the first bucket */
#define SWEEP_TELL 4	 /* only return jiffies and tell lifetimes */

/*
 * The parts of the forwarder, by their place in `programs`. They are verified one by one, and a packet that is forwarded as
 * the one before it needs but the first, which is attached.
 */
#define PROGRAM_DECIDE4 0      /* no live server is on record: is it to be decided here, and where is it recorded? */
#define PROGRAM_DECIDE4_WIDE 1 /* the same, of an endpoint for all ports */
#define PROGRAM_DECIDE6 2
#define PROGRAM_PLACE4 3 /* it is: choose a server, record it */
#define PROGRAM_PLACE4_WIDE 4
#define PROGRAM_PLACE6 5
#define PROGRAM_ANY 6 /* not an untagged frame with a whole packet of IPv4 and TCP or UDP */
#define PROGRAM_ANY4 7
#define PROGRAM_ANY6 8
#define PROGRAM_COMPARE 9 /* between deciding and placing: compare all servers of a list */
#define PROGRAM_LOCATE 10 /* before that: the server that a destination address had last, or the better of two */
#define PROGRAM_RELATED4 11 /* later fragments, ICMP errors */
#define PROGRAM_RELATED6 12
#define PROGRAM_TUNNEL 13
#define PROGRAM_NAT 14
#define PROGRAM_REPLY 15 /* NAT: what a server answers */
#define PROGRAM_TAG 16   /* a frame that leaves with other VLAN tags than it came with */
#define PROGRAM_TOO_BIG 17 /* NAT: the packet does not fit, and its sender is told */
#define PROGRAM_EXPECT 18  /* NAT: write down what the server's answer is found by */
#define PROGRAMS 24

/* Value of `scratchpad`, per CPU: what one part of the program tells the next. */
struct scratch {
	__u32 offset; /* of the packet in the frame */
	__u8 family;
	__u8 standing;
	__u8 recorded; /* RECORD_… */
	__u8 way;      /* of its bucket, and WAY_OVERFLOWN */
	struct frontend frontend;
	__u32 hash; /* of the flow */
	__u32 now;
	__u32 backend; /* where it goes; 0 = to be chosen */
	__u32 identity;
	__u32 reason;
	__u32 flows; /* that it begins */
	__u64 value; /* of the record */
	__u8 destination[16]; /* as in struct locality */
	__u32 next;	      /* part of the program, after PROGRAM_COMPARE; for PROGRAM_TOO_BIG what fits */
	__u32 length;	      /* of IP, as it is counted: for PROGRAM_TAG */
	__u64 measure[7]; /* struct measure of compare.h */
	__u32 errors_since; /* jiffies: ICMP errors of a tunnel are counted by the second */
	__u32 errors;
	__u32 slot_hash; /* of a ring, of turns or of a list: pick_hash of choose.h */
	__u32 zeros[3];
	struct answer answer; /* that is forgotten */
	struct datagram datagram; /* composed here: the stack is small */
	struct fragment fragment;
	__u8 more_zeros[12];
};

#define RECORD_NONE 0
#define RECORD_KNOWN 1
#define RECORD_CLAIMED 2 /* and ours */

#define WAY_OVERFLOWN FLOW_WAYS /* the bucket is one of the overflow */

/* Why a packet went where it went; index into the one per-CPU value of `verdicts`. */
enum reason {
	/* to a server */
	REASON_FORWARDED,    /* its flow's server */
	REASON_HASHED,	     /* the server of its hash: nothing is on record, nothing need be */
	REASON_NEW_FLOW,     /* a decision, recorded */
	REASON_MOVED_FLOW,   /* its flow's server was dead: a decision, recorded */
	REASON_UNKNOWN_FLOW, /* no first packet, no flow: the server of its hash, recorded */
	REASON_TABLE_FULL,   /* no room for its flow: the server of its hash */
	REASON_ICMP_ERROR,   /* about a packet of a flow: its server */
	REASON_LATER_FRAGMENT, /* the server of its first one */
	/* to a client */
	REASON_REPLY,	/* NAT: the answer of a server */
	REASON_TOO_BIG, /* TUN: it does not fit, as an ICMP error tells its sender */
	/* to the other director */
	REASON_ASKED_PEER, /* no first packet, no flow: the peer may know it */
	/* to this host's kernel, untouched */
	REASON_NOT_IP,
	REASON_MALFORMED,
	REASON_FRAGMENT,       /* its first one is not known */
	REASON_OTHER_PROTOCOL, /* neither TCP, UDP nor SCTP, and no ICMP error of ours */
	REASON_NO_SERVICE,
	REASON_NOT_FOR_US, /* addressed to another MAC: a flooded frame */
	REASON_LOCAL,	   /* its server is this host */
	REASON_LOOP,	   /* its server is who sent it */
	/* dropped */
	REASON_NO_SERVER,
	REASON_NO_ROOM, /* the frame cannot be made longer, or the packet not be fragmented */
	REASON_HOP_LIMIT, /* NAT: it has come to the end of its TTL */
	REASON_COUNT
};

#endif
