/* SPDX-License-Identifier: GPL-2.0-or-later */
/* Packets of which no live server is on record: who knows, who gets them, where that is written down. */
#ifndef HAXLB_DECIDE_H
#define HAXLB_DECIDE_H

#include "clients.h"

/* What the part before has told this one; returns 0 where the packet cannot be read again. */
static __always_inline int resume(struct xdp_md *context, const struct scratch *scratch, struct matter *matter,
				  struct packet *packet)
{
	enum reason reason;

	matter->offset = scratch->offset & 31;
	matter->frontend = scratch->frontend;
	matter->now = scratch->now;
	matter->standing = scratch->standing;
#if WITH_IPV6
	if (matter->family == FAMILY_IPV6)
		reason = parse6(context, matter->offset, packet);
	else
#endif
		reason = parse4(context, matter->offset, packet);
	if (matter->wide && matter->family == FAMILY_IPV4)
		packet->address[1] = (__u64)packet->source << 32;
	identify(&matter->identity, packet, recorded_at(packet, &matter->frontend),
		 matter->frontend.flags & FRONTEND_ANY_PORT, matter->wide);
	return reason == REASON_FORWARDED;
}

/*
 * No live server is on record for this packet. Who knows, and if nobody does: is there room to write down who gets it? A
 * part of its own: what is looked for again is at hand.
 */
static __always_inline int decide(struct xdp_md *context, int family, int wide, __u32 next)
{
	struct scratch *scratch = element(MAP(scratchpad), 0);
	struct matter matter = {.family = family, .wide = wide};
	int known = 0, stateless;
	struct record record = {};
	struct packet packet = {};
	struct service *service;
	void *bucket = NULL;
	enum reason reason;

	if (!scratch || !resume(context, scratch, &matter, &packet))
		return pass(REASON_NO_SERVICE);
	service = element(MAP(services), matter.frontend.service);
	if (!service)
		return pass(REASON_NO_SERVICE);
	stateless = WITH_STATELESS && matter.frontend.flags & FRONTEND_STATELESS;
	look_for(&matter, &record, 1);
	if (record.flow) {
		struct backend *backend = element(MAP(backends), FLOW_BACKEND(record.value));

		known = backend && is_known(record.value, identity_of(backend), matter.frontend.service);
	}
	if (is_from_itself(&packet, family))
		return pass(REASON_MALFORMED);
	reason = begins(&packet) ? REASON_NEW_FLOW : known ? REASON_MOVED_FLOW : REASON_UNKNOWN_FLOW;
	scratch->backend = 0;
	scratch->recorded = RECORD_NONE;
#if WITH_STATELESS
	struct choice former = {};

	if (known || !pick_former(matter.frontend.service, service, &packet, family, &former))
		former.index = 0;
	/* UDP does not say what is a first packet: while the ring has just changed, an unknown one is of an earlier flow. */
	if (former.index && (reason == REASON_UNKNOWN_FLOW || packet.protocol == IPPROTO_UDP)) {
		scratch->backend = former.index;
		scratch->identity = former.identity;
	}
#endif
	if (reason == REASON_UNKNOWN_FLOW && !scratch->backend && !stateless) {
		const struct next_hop *peer = peer_of(service);
		int shared = WITH_SHARED && matter.frontend.flags & FRONTEND_SHARED;

		/* What it doubts it knows, or nobody does: the packet goes back, and it decides. */
		if (peer && matter.standing == IN_DOUBT && comes_from(&packet, peer))
			return to_peer(context, &packet, &matter, peer, shared ? bpf_htons(ETH_P_ANSWERED) : 0);
		if (peer && !comes_from(&packet, peer))
			return to_peer(context, &packet, &matter, peer, shared ? bpf_htons(ETH_P_IN_DOUBT) : 0);
	}
#if WITH_PERSISTENCE
	if (matter.frontend.flags & FRONTEND_PERSISTENT && !scratch->backend) {
		struct choice kept = {};

		if (find_client(service, &packet, &matter, &kept)) {
			scratch->backend = kept.index;
			scratch->identity = kept.identity;
		}
	}
#endif
	if (matter.frontend.flags & FRONTEND_ONE_PACKET) {
		reason = REASON_NEW_FLOW;
	} else if (record.flow) {
		forget_reply(record.flow, record.value, wide);
		scratch->recorded = record.settled ? RECORD_FLOW : RECORD_HALF_OPEN;
		bucket = record.settled ? flow_bucket(matter.identity.hash, wide) : half_open_bucket(matter.identity.hash, wide);
#if WITH_STATELESS
	} else if (stateless && !scratch->backend && says_the_ring(matter.frontend.service, service, &packet, family)) {
		/* A record would say the same, and slots would stay exceptions for as long as there are records. */
		reason = REASON_HASHED;
#endif
	} else {
		bucket = half_open_bucket(matter.identity.hash, wide);
		if (bucket)
			record.flow = flow_claim(bucket, &matter.identity, matter.now, wide);
		record.value = FLOW_VALUE(0, 0, FLOW_CLAIMED, matter.now);
		if (record.flow)
			scratch->recorded = RECORD_CLAIMED;
		else
			reason = REASON_TABLE_FULL;
	}
#if WITH_STATELESS
	/* It must go where its next packet, unknown again, will go. */
	if (reason == REASON_TABLE_FULL && former.index) {
		scratch->backend = former.index;
		scratch->identity = former.identity;
	}
#endif
	if (record.flow && bucket)
		scratch->way = number_of(bucket, record.flow, wide);
	scratch->value = record.value;
	scratch->reason = reason;
	scratch->hash = matter.identity.hash;
	scratch->slot_hash = pick_hash(service, &packet, family);
#if WITH_LIST
	if (service->scheduler && !scratch->backend && (reason == REASON_NEW_FLOW || reason == REASON_MOVED_FLOW)) {
		scratch->next = next;
		write_destination(scratch->destination, &packet, family);
		return go_on(context, service->scheduler >= SCHEDULER_TWOS ? PROGRAM_LOCATE : PROGRAM_COMPARE);
	}
#endif
	return go_on(context, next);
}

#if WITH_LIST
/*
 * The server that the scheduler prefers goes into the scratchpad. `locate`: the better of two for twos, for lblc and lblcr the
 * one that the destination has kept to so far, if that still does.
 */
static __always_inline int compare_servers(struct xdp_md *context, int locate)
{
	struct scratch *scratch = element(MAP(scratchpad), 0);
	struct choice choice = {};
	struct service *service;
	int chosen;
	__u32 index;

	if (!scratch)
		return pass(REASON_NO_SERVICE);
	index = scratch->frontend.service;
	service = element(MAP(services), index);
	if (!service)
		return pass(REASON_NO_SERVICE);
	if (!locate)
		chosen = compare(index, service, scratch->destination, scratch->now, &choice);
	else if (service->scheduler == SCHEDULER_TWOS)
		chosen = of_two(index, service, &choice);
	else
		chosen = find_locality(index, service, scratch->destination, scratch->now, &choice);
	/* Of two that are full the next turn decides. */
	if (!chosen && locate && service->scheduler != SCHEDULER_TWOS)
		return go_on(context, PROGRAM_COMPARE);
	if (chosen) {
		scratch->backend = choice.index;
		scratch->identity = choice.identity;
	}
	return go_on(context, scratch->next);
}
#endif

/* Who gets the packet, where no part before has chosen. Before the packet is read again: much would be verified many times. */
static __always_inline int settle_choice(struct scratch *scratch, __u32 index, __u32 reason)
{
	struct service *service = element(MAP(services), index);
	int in_turn = reason == REASON_NEW_FLOW || reason == REASON_MOVED_FLOW;
	struct choice choice = {};

	if (scratch->backend)
		return 1;
	/* The best of a list would have been chosen already; of turns, those that chance named may be full. */
	if (!service || (WITH_LIST && service->scheduler && service->scheduler != SCHEDULER_TWOS && in_turn))
		return 0;
	if (!pick(index, service, READ_ONCE(scratch->slot_hash), in_turn, &choice))
		return 0;
	WRITE_ONCE(scratch->backend, choice.index);
	WRITE_ONCE(scratch->identity, choice.identity);
	return 1;
}

/* Where the flow is or shall be on record; NULL where it shall not. */
static __always_inline struct flow *place_of(const struct scratch *scratch, __u32 hash, int wide)
{
	void *bucket;

	if (!scratch->recorded)
		return NULL;
	bucket = scratch->recorded == RECORD_FLOW ? flow_bucket(hash, wide) : half_open_bucket(hash, wide);
	return bucket ? numbered(bucket, scratch->way, wide) : NULL;
}

/* Choose a server, write it down, hand over. */
static __always_inline int place(struct xdp_md *context, int family, int wide)
{
	struct scratch *scratch = element(MAP(scratchpad), 0);
	struct matter matter = {.family = family, .wide = wide};
	struct choice choice = {};
	struct packet packet = {};
	struct flow *flow;
	__u32 reason;

	if (!scratch)
		return pass(REASON_NO_SERVICE);
	reason = READ_ONCE(scratch->reason);
	flow = place_of(scratch, scratch->hash, wide);
	if (!settle_choice(scratch, scratch->frontend.service, reason)) {
		if (flow && scratch->recorded == RECORD_CLAIMED)
			flow_release(flow);
		return drop(REASON_NO_SERVER);
	}
	choice.index = READ_ONCE(scratch->backend);
	choice.identity = READ_ONCE(scratch->identity);
	choice.backend = element(MAP(backends), choice.index);
	if (!choice.backend || reason >= REASON_COUNT || !resume(context, scratch, &matter, &packet))
		return pass(REASON_NO_SERVICE);
	if (flow) {
		__u64 recorded = FLOW_VALUE(choice.index, IDENTITY_INCARNATION(choice.identity), state_of_first(&packet),
					    matter.now);

		if (__sync_val_compare_and_swap(&flow->value, scratch->value, recorded) == scratch->value) {
			/* As when a connection is bound: the mark of a full server follows each change of its flows. */
			is_full(&choice);
			account(scratch->value, -1);
			account(recorded, 1);
			is_full(&choice);
		}
	}
#if WITH_PERSISTENCE
	if (matter.frontend.flags & FRONTEND_PERSISTENT && (reason == REASON_NEW_FLOW || reason == REASON_MOVED_FLOW)) {
		struct service *service = element(MAP(services), matter.frontend.service);

		if (service)
			remember_client(service, &packet, &matter, &choice);
	}
#endif
	return hand_over(context, &packet, &matter, &choice, reason, flow != NULL);
}

#endif
