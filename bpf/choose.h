/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * Who gets a new flow. Hash schedulers look into a ring, rr, wrr and twos walk a sequence of turns, the others compare all
 * servers of a list (compare.h): three kinds of slots of backend indices. docs/explanation/schedulers.md
 */
#ifndef HAXLB_CHOOSE_H
#define HAXLB_CHOOSE_H

#include "flow.h"
#include "maps.h"

/*
 * Slots to look at. A ring is exchanged under us at worst once between two reads of `select`; a server dies at once, while
 * the ring without it takes the writer some milliseconds; and one that is full stays in the ring, be nearly all slots its own.
 */
#define PICK_ATTEMPTS 128
#define FEW_ATTEMPTS 8 /* where no server has thresholds */

struct choice {
	struct backend *backend;
	__u32 index;
	__u32 identity; /* the backend's first word as it was read */
};

#define IDENTITY_STATE(identity) ((identity) & 0xff)
#define IDENTITY_INCARNATION(identity) ((identity) >> 8 & 0xff)
#define IDENTITY_SERVICE(identity) ((identity) >> 16)
/* What makes an index the same server of the same service: all but the state. */
#define IDENTITY_SERVER(identity) ((identity) & ~0xffu)
#define IDENTITY(service, incarnation) ((__u32)(service) << 16 | (__u32)(incarnation) << 8)

static __always_inline __u32 identity_of(const struct backend *backend)
{
	return READ_ONCE(*(__u32 *)backend);
}

static __always_inline const struct next_hop *hop_of(const struct backend *backend, __u32 identity)
{
	return &backend->hops[(identity & BACKEND_HOP) / BACKEND_HOP];
}

static __always_inline struct generation *current_of(struct service *service, __u8 select)
{
	return &service->generations[select & SELECT_CURRENT];
}

/* The one before, while there may be unknown flows of its time; else NULL. */
static __always_inline struct generation *former_of(struct service *service, __u8 select)
{
	__u32 former = (select & SELECT_FORMER) >> SELECT_FORMER_SHIFT;

	return former == FORMER_NONE ? NULL : &service->generations[former];
}

/* Directors that share a configuration must come to the same slot: nothing of this host goes into the hash. */
static __always_inline __u32 ring_hash(const struct packet *packet, __u16 flags, int family)
{
	__u16 port = flags & GENERATION_HASH_PORT ? packet->source_port : 0;

	if (family == FAMILY_IPV4)
		return mix(flags & GENERATION_HASH_DESTINATION ? packet->destination : packet->source, port);
#if WITH_IPV6
	if (flags & GENERATION_HASH_DESTINATION)
		return mix(mix_address(0, (__u64 *)&((struct ipv6hdr *)packet->ip)->daddr), port);
	return mix(mix_address(0, packet->address), port);
#else
	return 0;
#endif
}

/* Is it alive, and a server of this service? Else the slot is of another time. */
static __always_inline int look_up(__u32 first, __u32 slot, __u32 service, struct choice *choice)
{
	__u16 *slots = element(MAP(rings), first + slot / RING_SLOTS_PER_ELEMENT);

	if (!slots)
		return 0;
	choice->index = slots[slot % RING_SLOTS_PER_ELEMENT];
	choice->backend = element(MAP(backends), choice->index);
	if (!choice->backend)
		return 0;
	choice->identity = identity_of(choice->backend);
	return choice->identity & BACKEND_ALIVE && IDENTITY_SERVICE(choice->identity) == service;
}

/*
 * uthreshold and lthreshold (ip_vs_bind_dest and ip_vs_dest_totalconns of ip_vs_conn.c): who has reached the upper one gets
 * nothing until the flows have become fewer than the lower one.
 */
static __always_inline int has_too_many(const struct choice *choice, struct load *load)
{
#if WITH_THRESHOLDS
	__u64 upper = READ_ONCE(choice->backend->upper), lower = READ_ONCE(choice->backend->lower), flows, was, reached, still;

	if (!upper)
		return 0;
	flows = not_negative(READ_ONCE(load->active) + READ_ONCE(load->inactive));
	was = READ_ONCE(load->overloaded);
	/* Without a branch: see BY_STATE. */
	OPAQUE(upper);
	OPAQUE(lower);
	OPAQUE(flows);
	reached = ((upper - 1) - flows) >> 63;
	still = (((lower - 1) - flows) & ~((lower - 1) & ~lower)) >> 63;
	OPAQUE(still);
	/* Without a lower threshold: three quarters of the upper one. */
	still |= ((lower - 1) & ~lower) >> 63 & (upper * 3 - 1 - flows * 4) >> 63;
	reached |= still & was;
	OPAQUE(reached);
	if (reached != was)
		WRITE_ONCE(load->overloaded, (__u32)reached);
	return reached;
#else
	return 0;
#endif
}

static __always_inline int is_full(const struct choice *choice)
{
#if WITH_THRESHOLDS
	struct load *load = READ_ONCE(choice->backend->upper) ? element(MAP(loads), choice->index) : NULL;

	return load ? has_too_many(choice, load) : 0;
#else
	return 0;
#endif
}

/* What `pick` goes by where it takes no turn. */
static __always_inline __u32 pick_hash(struct service *service, const struct packet *packet, int family)
{
	__u16 flags = READ_ONCE(current_of(service, READ_ONCE(service->select))->flags);

	/* Of turns and lists the whole flow: with its address alone one busy NAT would weigh on one server. */
	if (flags & (GENERATION_SEQUENCE | GENERATION_LIST))
		flags = GENERATION_HASH_PORT;
	return ring_hash(packet, flags, family);
}

/* The next turn of a sequence. A division by every packet would cost more than to begin anew now and then. */
static __always_inline __u32 turn_of(__u64 *cursor, __u32 length)
{
	__u64 turn = __sync_fetch_and_add(cursor, 1), first;

	if (turn < length)
		return turn;
	first = turn % length;
	/* Where another CPU was faster, one of the next turns does it. */
	__sync_val_compare_and_swap(cursor, turn + 1, first + 1);
	return first;
}

/*
 * Choose a live server by the slots of the generation in force. `in_turn`: a sequence moves on; otherwise, and in a ring
 * always, the choice is a function of `hash`, the packet's. Returns 0 when there is no server.
 */
static __always_inline int pick(__u32 index, struct service *service, __u32 hash, int in_turn, int limited, struct choice *choice)
{
	struct generation *generation = current_of(service, READ_ONCE(service->select));
	__u32 length = READ_ONCE(generation->length), first = READ_ONCE(generation->first), slot, passed;
	struct scratch *scratch = element(MAP(scratchpad), 0);
	__u16 flags = READ_ONCE(generation->flags);
	volatile __u64 *found;
	__u64 *cursor = NULL;

	if (!length || !scratch)
		return 0;
	/* By way of memory: the verifier would follow what comes after once for each turn and attempt. */
	found = scratch->measure;
	if (flags & GENERATION_SEQUENCE && in_turn) {
		cursor = element(MAP(cursors), index);
		if (!cursor)
			return 0;
		found[0] = turn_of(cursor, length);
	} else {
		found[0] = hash % length;
	}
	slot = found[0];
	found[0] = 0;
	/* So it is nearly always. */
	if (!limited && look_up(first, slot, index, choice))
		return 1;
#pragma clang loop unroll(disable)
	for (__u32 attempt = 0; attempt < (limited ? PICK_ATTEMPTS : FEW_ATTEMPTS); attempt++) {
		struct choice candidate = {};

		if (look_up(first, slot, index, &candidate) && !(limited && is_full(&candidate))) {
			found[0] = candidate.index;
			found[1] = attempt;
			break;
		}
		found[2] = (slot + 1) % length;
		slot = found[2];
	}
	choice->index = found[0];
	if (!choice->index)
		return 0;
	choice->backend = element(MAP(backends), choice->index);
	if (!choice->backend)
		return 0;
	choice->identity = identity_of(choice->backend);
	/* Who has been passed over has had its turn. */
	passed = found[1];
	if (cursor && passed)
		__sync_fetch_and_add(cursor, (__u64)passed);
	return 1;
}

/* The server that a packet of an unknown flow had before the ring changed. Returns 0 when there was none, or it is dead. */
static __always_inline int pick_former(__u32 index, struct service *service, const struct packet *packet, int family,
				       struct choice *choice)
{
	struct generation *former = former_of(service, READ_ONCE(service->select));
	__u32 length;

	if (!former)
		return 0;
	length = READ_ONCE(former->length);
	if (!length || former->flags & (GENERATION_SEQUENCE | GENERATION_LIST))
		return 0;
	return look_up(READ_ONCE(former->first), ring_hash(packet, former->flags, family) % length, index, choice);
}

/* Will every packet of a flow that begins now find its server by the ring? Not while it has just changed, or its server died. */
static __always_inline int says_the_ring(__u32 index, struct service *service, const struct packet *packet, int family)
{
	__u8 select = READ_ONCE(service->select);
	struct generation *ring = current_of(service, select);
	__u32 length = READ_ONCE(ring->length);
	struct choice choice = {};

	if (!length || former_of(service, select))
		return 0;
	return look_up(READ_ONCE(ring->first), ring_hash(packet, READ_ONCE(ring->flags), family) & (length - 1), index, &choice);
}

/* Is this slot of the current ring one whose flows may be with another server? */
static __always_inline int is_exception(__u32 service, __u32 slot)
{
	__u64 *words = element(MAP(exceptions), service * EXCEPTION_ELEMENTS + slot / EXCEPTION_SLOTS);

	return words && READ_ONCE(words[slot / 64 % EXCEPTION_WORDS]) >> (slot % 64) & 1;
}

#endif
