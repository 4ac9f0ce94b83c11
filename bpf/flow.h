/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * The flow tables: buckets of four flows, shared by all CPUs because nothing keeps the packets of a flow on one of them
 * (veth, RPS). A flow is in the bucket of its hash; where nothing in there makes room, in a smaller table, the overflow, and
 * the bucket says that it must be looked for there. What has sent one packet makes room when a handshake has ended, what
 * is established never: a flood of SYNs evicts SYNs. Of both tables there is a wide form for IPv6 and for endpoints of
 * all ports.
 *
 * There is no lock. A value changes by compare-and-swap only; a new key is written between a claim and the final
 * value, so that no packet takes the server of one flow for another's. docs/adr/0004-one-flow-table.md
 */
#ifndef HAXLB_FLOW_H
#define HAXLB_FLOW_H

#include "maps.h"
#include "parse.h"
#include "replies.h"

#define SECONDS(n) ((__u32)(n) * TICKS_PER_SECOND)
#define CLOSING_SURE 2 /* seconds for which a closing flow without a packet is not in doubt */
#define READ_ONCE(place) (*(volatile __typeof__(place) *)&(place))
#define WRITE_ONCE(place, content) (*(volatile __typeof__(place) *)&(place) = (content))

/* An atomic operation of whose result nothing is made is in no order with what is written and read around it, on arm64. */
#define ORDERED(operation)                    \
	do {                                  \
		__u64 before = operation;     \
                                              \
		OPAQUE(before);               \
	} while (0)

static __always_inline __u32 mix(__u32 a, __u32 b)
{
	__u64 hash = ((__u64)a << 32 | b) * 0x9e3779b97f4a7c15ull;

	hash ^= hash >> 29;
	hash *= 0xbf58476d1ce4e5b9ull;
	return hash >> 32;
}

/* Of an IPv6 address. */
static __always_inline __u32 mix_address(__u32 seed, const __u64 *address)
{
	__u32 hash = mix((__u32)address[0] ^ seed, address[0] >> 32);

	return mix((__u32)address[1] ^ hash, address[1] >> 32);
}

/* Which of the ADDRESS_BITS bits an address, and a port, have: haxlb/forwarding/hashing.py knows it too. */
static __always_inline __u32 address_bit(const __u64 *address, __u16 port, int family)
{
	/* All that is nobody's pays for it, and nothing depends on how well it is spread: one multiplication. */
	if (family == FAMILY_IPV4)
		return ((__u64)(__u32)address[0] << 32 | port) * 0x9e3779b97f4a7c15ull >> (64 - ADDRESS_BITS_LOG2);
	return mix(mix_address(port, address), 0) & (ADDRESS_BITS - 1);
}

static __always_inline __u32 jiffies(void)
{
	return bpf_jiffies64();
}

/* What a flow is found by. `wide` is known when this is compiled. */
struct identity {
	__u64 key;
	__u64 rest[2];
	__u32 hash;
};

static __always_inline void identify(struct identity *identity, const struct packet *packet, __u16 frontend, int any_port,
				     int wide)
{
	if (!wide) {
		identity->key = FLOW_KEY(packet->source, packet->source_port, frontend);
		identity->hash = mix((__u32)identity->key ^ FLOW_SEED, identity->key >> 32);
		return;
	}
	identity->key = WIDE_KEY(any_port ? packet->destination_port : 0, packet->source_port, frontend);
	identity->rest[0] = packet->address[0];
	identity->rest[1] = packet->address[1];
	/* Of IPv4 it is 0: nothing is calculated of the seed beforehand, so that a build can be given another one. */
	OPAQUE(identity->rest[0]);
	identity->hash = mix((__u32)identity->key ^ mix_address(FLOW_SEED, identity->rest), identity->key >> 32);
}

/*
 * The frontend in the key of a flow. A client's template has the key of its port 0: its flows from there are those of frontend 0,
 * which is none, whatever they go to. Without a branch: see BY_STATE.
 */
static __always_inline __u16 recorded_at(const struct packet *packet, const struct frontend *frontend)
{
#if WITH_PERSISTENCE
	__u32 taken = ((__u32)packet->source_port - 1) >> 31;

	OPAQUE(taken);
	return frontend->index & (taken - 1);
#else
	return frontend->index;
#endif
}

static __always_inline void *flow_bucket(__u32 hash, int wide)
{
	if (wide)
		return element(MAP(wide_flows), hash & (WIDE_FLOW_BUCKETS - 1));
	return element(MAP(flows), hash & (FLOW_BUCKETS - 1));
}

static __always_inline void *overflow_bucket(__u32 hash, int wide)
{
	if (wide)
		return element(MAP(wide_overflow), hash & (WIDE_OVERFLOW_BUCKETS - 1));
	return element(MAP(overflow), hash & (OVERFLOW_BUCKETS - 1));
}

static __always_inline struct flow *way_of(void *bucket, int way, int wide)
{
	if (wide)
		return &((struct wide_bucket *)bucket)->ways[way].flow;
	return &((struct bucket *)bucket)->ways[way];
}

static __always_inline int is_of(struct flow *flow, const struct identity *identity, int wide)
{
	if (READ_ONCE(flow->key) != identity->key)
		return 0;
	if (!wide)
		return 1;
	return READ_ONCE(((struct wide_flow *)flow)->rest[0]) == identity->rest[0] &&
	       READ_ONCE(((struct wide_flow *)flow)->rest[1]) == identity->rest[1];
}

/*
 * The same way, by a calculation that the verifier does not follow: else it would verify all that comes after four times,
 * once for each.
 */
static __always_inline __u8 number_of(void *bucket, struct flow *flow, int wide)
{
	OPAQUE(flow);
	return (__u64)((void *)flow - bucket) / (wide ? sizeof(struct wide_flow) : sizeof(struct flow));
}

static __always_inline struct flow *numbered(void *bucket, __u8 way, int wide)
{
	return bucket + (__u32)(way & (FLOW_WAYS - 1)) * (wide ? sizeof(struct wide_flow) : sizeof(struct flow));
}

static __always_inline struct flow *some_way(void *bucket, struct flow *flow, int wide)
{
	return numbered(bucket, number_of(bucket, flow, wide), wide);
}

static __always_inline struct flow *flow_find(void *bucket, const struct identity *identity, int wide)
{
	if (is_of(way_of(bucket, 0, wide), identity, wide))
		return way_of(bucket, 0, wide);
	if (is_of(way_of(bucket, 1, wide), identity, wide))
		return way_of(bucket, 1, wide);
	if (is_of(way_of(bucket, 2, wide), identity, wide))
		return way_of(bucket, 2, wide);
	if (is_of(way_of(bucket, 3, wide), identity, wide))
		return way_of(bucket, 3, wide);
	return NULL;
}

/*
 * Eight numbers of 16 bits in two words, by state; that of FLOW_TEMPLATE_NEW stands where an empty way has none. The verifier
 * follows every branch of a program: a switch for each of four ways would be hundreds of paths.
 */
#define BY_STATE(state, template_new, claimed, new, established, closing, udp_new, udp, template)                              \
	by_state(state,                                                                                                        \
		 (__u64)(template_new) | (__u64)(claimed) << 16 | (__u64)(new) << 32 | (__u64)(established) << 48,             \
		 (__u64)(closing) | (__u64)(udp_new) << 16 | (__u64)(udp) << 32 | (__u64)(template) << 48)

static __always_inline __u32 by_state(__u8 state, __u64 low, __u64 high)
{
	__u64 upper = -(__u64)(state >> 2 & 1);

	OPAQUE(upper);
	return (low ^ ((low ^ high) & upper)) >> (state & 3) * 16 & 0xffff;
}

/* Ticks without a packet after which a flow is no more. Only its service knows how long a template lasts: long enough. */
static __always_inline __u32 lifetime(__u8 state)
{
	return SECONDS(BY_STATE(state, LIFETIME_TEMPLATE, LIFETIME_CLAIMED, LIFETIME_NEW, LIFETIME_TCP_ESTABLISHED, LIFETIME_CLOSING,
				LIFETIME_UDP, LIFETIME_UDP, LIFETIME_TEMPLATE));
}

/* Ticks without a packet. Another CPU may have read the clock after us and stamped the flow before we look: that is 0. */
static __always_inline __u32 age_of(__u64 value, __u32 now)
{
	__u32 age = now - FLOW_STAMP(value);
	__u64 ahead = age;

	OPAQUE(ahead);
	ahead = ((__u64)(__u32)-SECONDS(1) - ahead) >> 63;
	OPAQUE(ahead);
	return age & (ahead - 1);
}

/*
 * Does the flow go on, or does this packet begin another one on the same ports? A TCP packet without SYN can only
 * belong to the flow, however long it slept; a SYN on an established flow is a retransmission, a forgery, or a client
 * that lost its memory: its server is the one that can tell, and no forger can move the flow.
 */
static __always_inline int flow_goes_on(const struct packet *packet, __u64 value, __u32 now)
{
	__u8 state = FLOW_STATE(value);

	if (!begins(packet))
		return 1;
	return state != FLOW_TCP_CLOSING && age_of(value, now) < lifetime(state);
}

/* The state of a flow after this packet of it. */
static __always_inline __u8 state_after(const struct packet *packet, __u8 state)
{
	if (packet->protocol == IPPROTO_UDP)
		return FLOW_UDP;
	if (packet->flags & (TCP_FIN | TCP_RST))
		return FLOW_TCP_CLOSING;
	if (state == FLOW_TCP_NEW && !is_syn(packet))
		return FLOW_TCP_ESTABLISHED;
	return state;
}

/* The state of a flow whose first packet this is. */
static __always_inline __u8 state_of_first(const struct packet *packet)
{
	if (packet->protocol == IPPROTO_UDP)
		return FLOW_UDP_NEW;
	return packet->flags & (TCP_FIN | TCP_RST) ? FLOW_TCP_CLOSING : FLOW_TCP_NEW;
}

/* Keep the stamp to a second: most packets then write nothing, and CPUs do not fight for the cache line. */
static __always_inline int flow_needs_touch(__u64 value, __u8 state, __u32 now)
{
	return state != FLOW_STATE(value) || age_of(value, now) >= SECONDS(1);
}

/*
 * A flow that was closing and has been silent: its client may have opened another one on the same ports since, through
 * the other director, and this packet may be that one's. docs/adr/0003-ask-the-peer.md
 */
static __always_inline int flow_is_in_doubt(__u64 value, __u32 now)
{
	return FLOW_STATE(value) == FLOW_TCP_CLOSING && age_of(value, now) >= SECONDS(CLOSING_SURE);
}

static __always_inline void add(__u32 *counter, int change)
{
	__sync_fetch_and_add(counter, (__u32)change);
}

/* A counter that a sweep has yet to correct may be below zero. */
static __always_inline __u64 not_negative(__u32 counter)
{
	__u64 sign = counter >> 31;

	OPAQUE(sign);
	return counter & (sign - 1);
}

/*
 * Count a flow in or out (`change` 1 or -1) of its server's load. As in IPVS (tcp_state_active_table of ip_vs_proto_tcp.c)
 * a half-open connection is active, a closing one is not. A flow of an earlier server of that index was counted there.
 */
static __always_inline void account(__u64 value, int change)
{
	__u8 state = FLOW_STATE(value);
	struct backend *backend;
	struct load *load;

	if (state <= FLOW_CLAIMED || state >= FLOW_TEMPLATE)
		return;
	backend = element(MAP(backends), FLOW_BACKEND(value));
	load = element(MAP(loads), FLOW_BACKEND(value));
	if (!load || !backend || READ_ONCE(backend->incarnation) != FLOW_INCARNATION(value))
		return;
	add(state == FLOW_TCP_CLOSING ? &load->inactive : &load->active, change);
}

/* The same flow in another state: only where it begins or ceases to close does that change the load. */
static __always_inline void account_change(__u64 from, __u64 to)
{
	if ((FLOW_STATE(from) == FLOW_TCP_CLOSING) == (FLOW_STATE(to) == FLOW_TCP_CLOSING))
		return;
	account(from, -1);
	account(to, 1);
}

/*
 * Change a value that nobody else may have changed; what is noted of its bucket stays. Returns 0 where somebody has.
 */
static __always_inline int flow_change(struct flow *flow, __u64 value, __u64 next)
{
	__u64 seen = __sync_val_compare_and_swap(&flow->value, value, next | (value & FLOW_SPILLED));

	if (seen == value)
		return 1;
	if ((seen ^ value) & ~FLOW_SPILLED)
		return 0;
	return __sync_val_compare_and_swap(&flow->value, seen, next | (seen & FLOW_SPILLED)) == seen;
}

/*
 * Who loses the race leaves it: another packet has just done the same, or the way is no longer the flow's. The stamp alone is
 * written without a race, which would wait for a cache line that is not at hand: of a way that has become another flow's or
 * empty meanwhile it says nothing wrong.
 */
static __always_inline void flow_touch(struct flow *flow, __u64 value, __u8 state, __u32 now)
{
	__u64 touched = FLOW_VALUE(FLOW_BACKEND(value), FLOW_INCARNATION(value), state, now) | (value & FLOW_SPILLED);

	if (state == FLOW_STATE(value)) {
		WRITE_ONCE(((__u32 *)&flow->value)[1], now);
		return;
	}
	if (__sync_val_compare_and_swap(&flow->value, value, touched) == value)
		account_change(value, touched);
}

#endif
