/* SPDX-License-Identifier: GPL-2.0-or-later */
/* Room for a new flow: who makes way in its bucket, and when it goes into the overflow. docs/adr/0004-one-flow-table.md */
#ifndef HAXLB_ROOM_H
#define HAXLB_ROOM_H

#include "flow.h"

#if OVERFLOW_BUCKETS > FLOW_BUCKETS || WIDE_OVERFLOW_BUCKETS > WIDE_FLOW_BUCKETS
#error "the flows of a bucket overflow into one"
#endif

#define NEW_KEPT 3     /* seconds for which a flow of one packet keeps its place: a handshake has ended by then */
#define CLOSING_KEPT 5 /* the same of a closing one: its last packets are over by then, but for one closed on one side only */
#define LESSER(a, b) ((a) < (b) ? (a) : (b))

/* Seconds without a packet after which it makes room. */
static __always_inline __u64 makes_room_after(__u8 state)
{
	return BY_STATE(state, LESSER(NEW_KEPT, LIFETIME_TEMPLATE), LIFETIME_CLAIMED, LESSER(NEW_KEPT, LIFETIME_NEW),
			LIFETIME_TCP_ESTABLISHED, LESSER(CLOSING_KEPT, LIFETIME_CLOSING), LESSER(NEW_KEPT, LIFETIME_UDP),
			LIFETIME_UDP, LIFETIME_TEMPLATE);
}

/*
 * How gladly a way makes room, 0 = not at all: an empty one, then those that could for longest. `now` has ones below the ticks.
 * Without a branch: see BY_STATE.
 */
static __always_inline __u64 flow_score(__u64 value, __u64 now)
{
	__u64 state = FLOW_STATE(value), empty, room;
	__s64 overdue;

	OPAQUE(state);
	/* Of a stamp that another CPU has written after we read the clock: less than nothing. */
	overdue = ((__s64)(now - value) >> 32) - (__s64)(makes_room_after(state) * SECONDS(1));
	empty = (state - 1) >> 63;
	room = ~(__u64)(overdue >> 63) | -empty;
	OPAQUE(room);
	return room & ((1ull << 33) + overdue + (empty << 40));
}

/* Take a way for a new flow; `claimed` is what its value is then. NULL when none makes room, or another CPU was faster. */
static __always_inline struct flow *flow_claim(void *bucket, const struct identity *identity, __u32 now, int wide, __u64 *claimed)
{
	__u64 best_value = 0, best_score = 0, best_way = 0;
	struct flow *best;

#pragma unroll
	for (int way = 0; way < FLOW_WAYS; way++) {
		__u64 value = READ_ONCE(way_of(bucket, way, wide)->value);
		__u64 score = flow_score(value, (__u64)now << 32 | 0xffffffff);
		__u64 better = (best_score - score) >> 63;

		/* No processor foresees which it is. */
		OPAQUE(better);
		better = -better;
		best_way ^= (best_way ^ way) & better;
		best_value ^= (best_value ^ value) & better;
		best_score ^= (best_score ^ score) & better;
	}
	if (!best_score)
		return NULL;
	best = numbered(bucket, best_way, wide);
	*claimed = FLOW_VALUE(0, 0, FLOW_CLAIMED, now) | (best_value & FLOW_SPILLED);
	if (__sync_val_compare_and_swap(&best->value, best_value, *claimed) != best_value)
		return NULL;
	account(best_value, -1);
	forget_reply(best, best_value, wide);
	WRITE_ONCE(best->key, identity->key);
	if (wide) {
		WRITE_ONCE(((struct wide_flow *)best)->rest[0], identity->rest[0]);
		WRITE_ONCE(((struct wide_flow *)best)->rest[1], identity->rest[1]);
	}
	return best;
}

/* Is there a flow of one packet in it? */
static __always_inline int has_new(void *bucket, int wide)
{
	__u64 found = 0;

#pragma unroll
	for (int way = 0; way < FLOW_WAYS; way++)
		found |= BY_STATE(FLOW_STATE(READ_ONCE(way_of(bucket, way, wide)->value)), 1, 1, 1, 0, 0, 1, 0, 0);
	OPAQUE(found);
	return found;
}

/*
 * The same where its bucket makes no room. Not where it is flows of one packet that take it: a flood would fill the overflow, too.
 * It is noted in the bucket when the key is written, before any packet can look for it.
 */
static __always_inline struct flow *flow_overflow(void *home, const struct identity *identity, __u32 now, int wide, __u64 *claimed)
{
	void *bucket = overflow_bucket(identity->hash, wide);
	struct flow *flow = NULL;

	if (bucket && !has_new(home, wide))
		flow = flow_claim(bucket, identity, now, wide, claimed);
	if (flow)
		ORDERED(__sync_fetch_and_or(&way_of(home, 0, wide)->value, FLOW_SPILLED));
	return flow;
}

static __always_inline void flow_release(struct flow *flow)
{
	WRITE_ONCE(flow->key, 0);
	ORDERED(__sync_fetch_and_and(&flow->value, FLOW_SPILLED));
}

#endif
