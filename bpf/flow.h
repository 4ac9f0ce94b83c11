/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * The flow table: buckets of four flows, one cache line each, shared by all CPUs because nothing keeps the packets of
 * a flow on one of them (veth, RPS).
 *
 * There is no lock. A value changes by compare-and-swap only; a new key is written between a claim and the final
 * value, so that no packet takes the server of one flow for another's. docs/adr/0004-one-flow-table.md
 */
#ifndef HAXLB_FLOW_H
#define HAXLB_FLOW_H

#include "maps.h"
#include "parse.h"

#define SECONDS(n) ((__u32)(n) * TICKS_PER_SECOND)
#define CLOSING_SURE 2 /* seconds for which a closing flow without a packet is not in doubt */
#define READ_ONCE(place) (*(volatile __typeof__(place) *)&(place))
#define WRITE_ONCE(place, content) (*(volatile __typeof__(place) *)&(place) = (content))

/* A way that must not be taken scores 0; an expired one more than any that has not expired. */
#define SCORE_EXPIRED 0x80000000u
#define SCORE_EMPTY 0xffffffffu

static __always_inline __u32 mix(__u32 a, __u32 b)
{
	__u64 hash = ((__u64)a << 32 | b) * 0x9e3779b97f4a7c15ull;

	hash ^= hash >> 29;
	hash *= 0xbf58476d1ce4e5b9ull;
	return hash >> 32;
}

static __always_inline __u32 jiffies(void)
{
	return bpf_jiffies64();
}

static __always_inline __u32 lifetime(__u8 state)
{
	switch (state) {
	case FLOW_CLAIMED:
		return SECONDS(LIFETIME_CLAIMED);
	case FLOW_TCP_NEW:
		return SECONDS(LIFETIME_TCP_NEW);
	case FLOW_TCP_ESTABLISHED:
		return SECONDS(LIFETIME_TCP_ESTABLISHED);
	case FLOW_TCP_CLOSING:
		return SECONDS(LIFETIME_TCP_CLOSING);
	default:
		return SECONDS(LIFETIME_UDP);
	}
}

/* Ticks without a packet. Another CPU may have read the clock after us and stamped the flow before we look: that is 0. */
static __always_inline __u32 age_of(__u64 value, __u32 now)
{
	__u32 age = now - FLOW_STAMP(value);

	return age > (__u32)-SECONDS(1) ? 0 : age;
}

static __always_inline struct bucket *bucket_of(__u64 key)
{
	return element(MAP(flows), mix((__u32)key ^ FLOW_SEED, key >> 32) & (FLOW_BUCKETS - 1));
}

static __always_inline struct flow *flow_find(struct bucket *bucket, __u64 key)
{
	if (READ_ONCE(bucket->ways[0].key) == key)
		return &bucket->ways[0];
	if (READ_ONCE(bucket->ways[1].key) == key)
		return &bucket->ways[1];
	if (READ_ONCE(bucket->ways[2].key) == key)
		return &bucket->ways[2];
	if (READ_ONCE(bucket->ways[3].key) == key)
		return &bucket->ways[3];
	return NULL;
}

/*
 * Does the flow go on, or does this packet begin another one on the same ports? A TCP packet without SYN can only
 * belong to the flow, however long it slept; a SYN on an established flow is a retransmission, a forgery, or a client
 * that lost its memory: its server is the one that can tell, and no forger can move the flow.
 */
static __always_inline int flow_goes_on(const struct packet *packet, __u64 value, __u32 now)
{
	__u8 state = FLOW_STATE(value);

	if (packet->protocol == IPPROTO_TCP && !is_syn(packet))
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

/* Who loses the race leaves it: another packet has just done the same, or the way is no longer the flow's. */
static __always_inline void flow_touch(struct flow *flow, __u64 value, __u8 state, __u32 now)
{
	__sync_val_compare_and_swap(&flow->value, value,
				    FLOW_VALUE(FLOW_BACKEND(value), FLOW_INCARNATION(value), state, now));
}

/*
 * A flow that was closing and has been silent: its client may have opened another one on the same ports since, through
 * the other director, and this packet may be that one's. docs/adr/0003-ask-the-peer.md
 */
static __always_inline int flow_is_in_doubt(__u64 value, __u32 now)
{
	return FLOW_STATE(value) == FLOW_TCP_CLOSING && age_of(value, now) >= SECONDS(CLOSING_SURE);
}

static __always_inline __u32 flow_score(__u64 value, __u32 now)
{
	__u8 state = FLOW_STATE(value);
	__u32 age = age_of(value, now);

	if (state == FLOW_EMPTY)
		return SCORE_EMPTY;
	if (age >= lifetime(state))
		return age / 2 | SCORE_EXPIRED;
	if (state == FLOW_TCP_NEW || state == FLOW_TCP_CLOSING || state == FLOW_UDP_NEW)
		return age + 1;
	return 0;
}

/*
 * Take a way for a new flow: an empty one, else the longest expired, else the half-open or closing one that was
 * longest silent. NULL when there is none, or another CPU was faster.
 */
static __always_inline struct flow *flow_claim(struct bucket *bucket, __u64 key, __u32 now)
{
	struct flow *best = NULL;
	__u64 best_value = 0;
	__u32 best_score = 0;

#pragma unroll
	for (int way = 0; way < FLOW_WAYS; way++) {
		__u64 value = READ_ONCE(bucket->ways[way].value);
		__u32 score = flow_score(value, now);

		if (score > best_score) {
			best = &bucket->ways[way];
			best_value = value;
			best_score = score;
		}
	}
	if (!best)
		return NULL;
	if (__sync_val_compare_and_swap(&best->value, best_value, FLOW_VALUE(0, 0, FLOW_CLAIMED, now)) != best_value)
		return NULL;
	WRITE_ONCE(best->key, key);
	return best;
}

static __always_inline void flow_release(struct flow *flow)
{
	WRITE_ONCE(flow->key, 0);
	WRITE_ONCE(flow->value, 0);
}

#endif
