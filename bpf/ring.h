/* SPDX-License-Identifier: GPL-2.0-or-later */
/* Who gets a new flow. rr and wrr walk a sequence, sh and mh look into a Maglev ring; both are slots of backend indices. */
#ifndef HAXLB_RING_H
#define HAXLB_RING_H

#include "flow.h"
#include "maps.h"

/*
 * Slots to look at. A ring is exchanged under us at worst once between two reads of `select`; and a server dies at
 * once, while the ring without it takes the writer some milliseconds.
 */
#define PICK_ATTEMPTS 8

struct choice {
	struct backend *backend;
	__u32 index;
	__u32 identity; /* the backend's first word as it was read */
};

#define IDENTITY_STATE(identity) ((identity) & 0xff)
#define IDENTITY_INCARNATION(identity) ((identity) >> 8 & 0xff)
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

/* Directors that share a configuration must come to the same slot: nothing of this host goes into the hash. */
static __always_inline __u32 ring_hash(const struct packet *packet, __u16 flags)
{
	return mix(packet->source, flags & HALF_HASH_PORT ? packet->source_port : 0);
}

/*
 * Choose a live server. `in_turn`: the sequence of rr and wrr moves on; otherwise, and for sh and mh always, the
 * choice is a function of the packet. Returns 0 when there is no server.
 */
static __always_inline int pick(__u32 index, struct service *service, const struct packet *packet, int in_turn,
				struct choice *choice)
{
#pragma unroll
	for (int attempt = 0; attempt < PICK_ATTEMPTS; attempt++) {
		__u32 which = READ_ONCE(service->select) & SELECT_HALF;
		struct half *half = &service->halves[which];
		__u32 length = READ_ONCE(half->length), slot;
		__u16 *slots;

		if (!length)
			return 0;
		if (half->flags & HALF_SEQUENCE) {
			__u64 *cursor = element(MAP(cursors), index);

			if (in_turn && cursor)
				slot = __sync_fetch_and_add(cursor, 1) % length;
			else /* the whole flow: with its address alone one busy NAT would weigh on one server */
				slot = (ring_hash(packet, HALF_HASH_PORT) % length + attempt) % length;
		} else {
			slot = (ring_hash(packet, half->flags) % length + attempt) % length;
		}
		slots = element(MAP(rings), (index * 2 + which) * RING_ELEMENTS + slot / RING_SLOTS_PER_ELEMENT);
		if (!slots)
			return 0;
		choice->index = slots[slot % RING_SLOTS_PER_ELEMENT];
		choice->backend = element(MAP(backends), choice->index);
		if (!choice->backend)
			return 0;
		choice->identity = identity_of(choice->backend);
		if (choice->identity & BACKEND_ALIVE && choice->identity >> 16 == index)
			return 1;
	}
	return 0;
}

#endif
