/* SPDX-License-Identifier: GPL-2.0-or-later */
/* Packets of which no live server is on record: who knows, who gets them, where that is written down. */
#ifndef HAXLB_DECIDE_H
#define HAXLB_DECIDE_H

#include "clients.h"
#include "compare.h"
#include "room.h"

/*
 * What the part before has told this one; returns 0 where the packet cannot be read again. Nothing of `packet` need be set before:
 * the compiler would clear it all on each way out of reading it.
 */
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
	if (reason != REASON_FORWARDED)
		return 0;
	if (matter->wide && matter->family == FAMILY_IPV4) {
		packet->address[0] = 0;
		packet->address[1] = (__u64)packet->source << 32;
	}
	identify(&matter->identity, packet, recorded_at(packet, &matter->frontend),
		 matter->frontend.flags & FRONTEND_ANY_PORT, matter->wide);
	return 1;
}

static __always_inline void *bucket_of(__u32 hash, int overflown, int wide)
{
	return overflown ? overflow_bucket(hash, wide) : flow_bucket(hash, wide);
}

/*
 * A place for a flow of which there is no record. Not in the overflow where it ends already: few packets of it will follow, and a
 * flood of RSTs, which make no room for longer than SYNs, would fill that.
 */
static __always_inline void claim(const struct matter *matter, const struct packet *packet, struct record *record)
{
	void *home = flow_bucket(matter->identity.hash, matter->wide);

	if (!home)
		return;
	record->overflown = 0;
	record->flow = flow_claim(home, &matter->identity, matter->now, matter->wide, &record->value);
	if (record->flow || packet->flags & (TCP_FIN | TCP_RST))
		return;
	record->overflown = 1;
	record->flow = flow_overflow(home, &matter->identity, matter->now, matter->wide, &record->value);
}

/* Its server is known: so that the next packet finds it. */
static __always_inline void write_down(struct flow *flow, __u64 value, const struct packet *packet, struct choice *choice, __u32 now)
{
	__u8 state = state_of_first(packet);
	struct load *load = element(MAP(loads), choice->index);

	if (!load || !flow_change(flow, value, FLOW_VALUE(choice->index, IDENTITY_INCARNATION(choice->identity), state, now)))
		return;
	/* As when a connection is bound: the mark of a full server follows each change of its flows. */
	is_full(choice);
	account(value, -1);
	/* An index that has just been given to another server: see account. */
	if (!((identity_of(choice->backend) ^ choice->identity) & IDENTITY(0, 0xff)))
		add(state == FLOW_TCP_CLOSING ? &load->inactive : &load->active, 1);
	is_full(choice);
}

/*
 * What most flows begin with: nothing of it is on record, and a ring or a turn says who gets it. Another part of the program
 * would read all of the packet once more. To look for one among servers with thresholds would be too much for the verifier.
 */
static __always_inline int begin(struct xdp_md *context, const struct packet *packet, const struct matter *matter,
				 const struct record *record, struct service *service, enum reason reason)
{
	struct choice choice = {};

	if (!pick(matter->frontend.service, service, pick_hash(service, packet, matter->family), reason == REASON_NEW_FLOW, 0,
		  &choice)) {
		if (record->flow)
			flow_release(record->flow);
		return drop(REASON_NO_SERVER);
	}
	if (record->flow)
		write_down(record->flow, record->value, packet, &choice, matter->now);
	return hand_over(context, packet, matter, &choice, reason, record->flow != NULL);
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
	struct service *service;
	struct packet packet;
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
		scratch->recorded = RECORD_KNOWN;
#if WITH_STATELESS
	} else if (stateless && !scratch->backend && says_the_ring(matter.frontend.service, service, &packet, family)) {
		/* A record would say the same, and slots would stay exceptions for as long as there are records. */
		reason = REASON_HASHED;
#endif
	} else {
		claim(&matter, &packet, &record);
		if (record.flow) {
			scratch->recorded = RECORD_CLAIMED;
		} else {
			reason = REASON_TABLE_FULL;
#if WITH_STATELESS
			/* It must go where its next packet, unknown again, will go. */
			if (former.index) {
				scratch->backend = former.index;
				scratch->identity = former.identity;
			}
#endif
		}
		if (!wide && !stateless && !scratch->backend && !service->scheduler &&
		    !(matter.frontend.flags & (FRONTEND_PERSISTENT | FRONTEND_LIMITED)))
			return begin(context, &packet, &matter, &record, service, reason);
	}
	if (record.flow) {
		void *bucket = bucket_of(matter.identity.hash, record.overflown, wide);

		scratch->way = (bucket ? number_of(bucket, record.flow, wide) : 0) | (record.overflown ? WAY_OVERFLOWN : 0);
	}
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
	/* Of two that are full the hash of the flow decides. */
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
	/* Chance is a hash of the cursor: it must not begin anew, or the same two would be named again and again. */
	if (!pick(index, service, READ_ONCE(scratch->slot_hash), in_turn && !(WITH_LIST && service->scheduler),
		  WITH_THRESHOLDS, &choice))
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
	bucket = bucket_of(hash, scratch->way & WAY_OVERFLOWN, wide);
	return bucket ? numbered(bucket, scratch->way, wide) : NULL;
}

/* Choose a server, write it down, hand over. */
static __always_inline int place(struct xdp_md *context, int family, int wide)
{
	struct scratch *scratch = element(MAP(scratchpad), 0);
	struct matter matter = {.family = family, .wide = wide};
	struct choice choice = {};
	struct packet packet;
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
	if (flow)
		write_down(flow, scratch->value, &packet, &choice, matter.now);
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
