/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * Who gets a new flow. Hash schedulers look into a ring, rr, wrr and twos walk a sequence of turns, the others compare all
 * servers of a list: three kinds of slots of backend indices. What each scheduler compares is IPVS's
 * (net/netfilter/ipvs/ip_vs_*.c); docs/explanation/schedulers.md.
 */
#ifndef HAXLB_CHOOSE_H
#define HAXLB_CHOOSE_H

#include "flow.h"
#include "maps.h"

/*
 * Slots to look at. A ring is exchanged under us at worst once between two reads of `select`; a server dies at once, while
 * the ring without it takes the writer some milliseconds; and one that is full stays in the ring, be nearly all slots its own.
 */
#if WITH_THRESHOLDS
#define PICK_ATTEMPTS 128
#else
#define PICK_ATTEMPTS 8
#endif

#define LOCALITY_EXPIRES (24 * 60 * 60) /* seconds: a set of lblcr that has not changed for so long gives up a server */

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
	/* Without a branch: see flow_score. */
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

#if WITH_LIST
static __always_inline __u32 weight_of(const struct backend *backend)
{
	return READ_ONCE(backend->weight);
}

/* What a scheduler compares: a fraction for each server, of which the least is the best. Chosen once, not for each server. */
struct measure {
	__u64 active; /* factors of the numerator */
	__u64 inactive;
	__u64 one;
	__u64 weight; /* is subtracted */
	__u64 of_weight; /* 1: the denominator is the weight, 0: it is 1 */
	__u64 idle_first;
	__u64 overflows; /* a server with more connections than its weight gets no more */
};

static __always_inline int measure_of(__u8 scheduler, struct measure *measure)
{
	__u64 waits = scheduler == SCHEDULER_SED || scheduler == SCHEDULER_NQ;
	__u64 prefers = scheduler == SCHEDULER_FO || scheduler == SCHEDULER_OVF;
	struct scratch *scratch = element(MAP(scratchpad), 0);
	volatile __u64 *kept;

	if (!scratch)
		return 0;
	/* By way of memory: the verifier would follow each scheduler through all servers of the list. */
	kept = scratch->measure;
	/* ip_vs_dest_conn_overhead: an inactive connection weighs 1, an active one 256. */
	kept[0] = prefers ? 0 : waits ? 1 : 256;
	kept[1] = !prefers && !waits;
	kept[2] = prefers ? 0x10000 : waits;
	kept[3] = prefers;
	kept[4] = !prefers && scheduler != SCHEDULER_LC;
	kept[5] = scheduler == SCHEDULER_NQ;
	kept[6] = scheduler == SCHEDULER_OVF;
	measure->active = kept[0];
	measure->inactive = kept[1];
	measure->one = kept[2];
	measure->weight = kept[3];
	measure->of_weight = kept[4];
	measure->idle_first = kept[5];
	measure->overflows = kept[6];
	return 1;
}

/* Numerator and denominator; an unusable server's numerator is all ones. */
static __always_inline void cost_of(const struct measure *measure, const struct backend *backend, const struct load *load,
				    __u64 *cost, __u64 *of)
{
	__u64 active = not_negative(READ_ONCE(load->active)), weight = weight_of(backend);
	__u64 idle, useless;

	OPAQUE(active);
	OPAQUE(weight);
	idle = -((active - 1) >> 63 & measure->idle_first);
	useless = -((weight - 1) >> 63 | (measure->overflows & (weight - active) >> 63));
	OPAQUE(idle);
	OPAQUE(useless);
	*cost = active * measure->active + not_negative(READ_ONCE(load->inactive)) * measure->inactive + measure->one -
		weight * measure->weight;
	*cost &= ~idle;
	*cost |= useless;
	*of = 1 + (weight - 1) * measure->of_weight;
}

/* The best server of the list; of equals the first. Returns 0 where there is none. */
static __always_inline int least(__u32 index, struct service *service, __u8 scheduler, struct choice *choice)
{
	struct generation *list = current_of(service, READ_ONCE(service->select));
	__u32 first = READ_ONCE(list->first), length = READ_ONCE(list->length), best = 0;
	__u64 least_cost = ~0ull, least_of = 1;
	struct measure measure;

	if (!measure_of(scheduler, &measure))
		return 0;
#pragma clang loop unroll(disable)
	for (__u32 slot = 0; slot < LIST_SERVERS; slot++) {
		struct choice candidate = {};
		struct load *load;
		__u64 cost, of;

		if (slot >= length)
			break;
		if (!look_up(first, slot, index, &candidate))
			continue;
		load = element(MAP(loads), candidate.index);
		if (!load || has_too_many(&candidate, load))
			continue;
		cost_of(&measure, candidate.backend, load, &cost, &of);
		if (cost != ~0ull && (!best || cost * least_of < least_cost * of)) {
			best = candidate.index;
			least_cost = cost;
			least_of = of;
		}
	}
	choice->index = best;
	choice->backend = element(MAP(backends), best);
	if (!best || !choice->backend)
		return 0;
	choice->identity = identity_of(choice->backend);
	return 1;
}

/* ip_vs_lblc.c, is_overloaded: more connections than weight, while another server has less than half of that. */
static __always_inline int is_busy(__u32 index, struct service *service, const struct choice *choice)
{
	struct generation *list = current_of(service, READ_ONCE(service->select));
	__u32 first = READ_ONCE(list->first), length = READ_ONCE(list->length);
	struct load *load = element(MAP(loads), choice->index);

	if (!load || READ_ONCE(load->active) <= weight_of(choice->backend))
		return 0;
#pragma clang loop unroll(disable)
	for (__u32 slot = 0; slot < LIST_SERVERS; slot++) {
		struct choice other = {};

		if (slot >= length)
			break;
		if (!look_up(first, slot, index, &other))
			continue;
		load = element(MAP(loads), other.index);
		if (load && (__u64)READ_ONCE(load->active) * 2 < weight_of(other.backend))
			return 1;
	}
	return 0;
}

/* A member of a set that can still get flows. */
static __always_inline int is_member(__u32 index, __u16 member, __u8 incarnation, struct choice *choice)
{
	if (!member)
		return 0;
	choice->index = member;
	choice->backend = element(MAP(backends), member);
	if (!choice->backend)
		return 0;
	choice->identity = identity_of(choice->backend);
	return IDENTITY_SERVER(choice->identity) == IDENTITY(index, incarnation) && choice->identity & BACKEND_ALIVE &&
	       weight_of(choice->backend) && !is_full(choice);
}

static __always_inline void name_locality(struct locality *locality, __u32 index, const __u8 *destination)
{
	__builtin_memset(locality, 0, sizeof(*locality));
	__builtin_memcpy(locality->address, destination, 16);
	locality->service = index;
}

/*
 * lblc and lblcr: each destination address keeps to a server (lblcr: to the least loaded of a set of them), until that one is
 * overloaded while others idle. Returns 0 when there is none to keep to.
 */
static __always_inline int find_locality(__u32 index, struct service *service, const __u8 *destination, __u32 now,
					 struct choice *choice)
{
	__u64 least_cost = 0, least_of = 1, most_cost = 0, most_of = 1;
	__u32 best = 0, worst = 0, members = 0;
	struct locality_servers *servers;
	struct locality locality;
	struct measure measure;

	name_locality(&locality, index, destination);
	servers = bpf_map_lookup_elem(MAP(localities), &locality);
	if (!servers || !measure_of(SCHEDULER_WLC, &measure))
		return 0;
#pragma clang loop unroll(disable)
	for (__u32 place = 0; place < LOCALITY_SERVERS; place++) {
		struct choice candidate = {};
		struct load *load;
		__u64 cost, of;

		if (!is_member(index, servers->backends[place], servers->incarnations[place], &candidate))
			continue;
		load = element(MAP(loads), candidate.index);
		if (!load)
			continue;
		members++;
		cost_of(&measure, candidate.backend, load, &cost, &of);
		if (!best || cost * least_of < least_cost * of) {
			best = candidate.index;
			least_cost = cost;
			least_of = of;
		}
		if (!worst || cost * most_of > most_cost * of) {
			worst = place + 1;
			most_cost = cost;
			most_of = of;
		}
	}
	servers->used = now;
	if (members > 1 && now - servers->modified > SECONDS(LOCALITY_EXPIRES)) {
		servers->backends[(worst - 1) & (LOCALITY_SERVERS - 1)] = 0;
		servers->modified = now;
	}
	choice->index = best;
	choice->backend = element(MAP(backends), best);
	if (!best || !choice->backend)
		return 0;
	choice->identity = identity_of(choice->backend);
	return !is_busy(index, service, choice);
}

/* It keeps to this one from now on: lblc alone, lblcr beside the others. */
static __always_inline void note_locality(__u32 index, struct service *service, const __u8 *destination, __u32 now,
					  const struct choice *choice)
{
	int replicates = service->scheduler == SCHEDULER_LBLCR;
	struct locality_servers fresh = {}, *servers;
	struct locality locality;
	__u32 free = 0;

	name_locality(&locality, index, destination);
	servers = bpf_map_lookup_elem(MAP(localities), &locality);
	if (!servers) {
		fresh.backends[0] = choice->index;
		fresh.incarnations[0] = IDENTITY_INCARNATION(choice->identity);
		fresh.modified = fresh.used = now;
		bpf_map_update_elem(MAP(localities), &locality, &fresh, 0);
		return;
	}
	if (replicates) {
		/* The place of one that is no more, else the last. One that has a place already changes nothing. */
		free = LOCALITY_SERVERS - 1;
#pragma clang loop unroll(disable)
		for (__u32 place = LOCALITY_SERVERS; place > 0; place--) {
			__u32 at = (place - 1) & (LOCALITY_SERVERS - 1);
			struct choice member;

			if (servers->backends[at] == choice->index &&
			    servers->incarnations[at] == IDENTITY_INCARNATION(choice->identity))
				return;
			if (!is_member(index, servers->backends[at], servers->incarnations[at], &member))
				free = at;
		}
	}
	servers->backends[free & (LOCALITY_SERVERS - 1)] = choice->index;
	servers->incarnations[free & (LOCALITY_SERVERS - 1)] = IDENTITY_INCARNATION(choice->identity);
	servers->modified = now;
}

/* ip_vs_twos.c: of two servers that chance names, by weight, the one with less to do. Returns 0 where both are full. */
static __always_inline int of_two(__u32 index, struct service *service, struct choice *choice)
{
	struct generation *turns = current_of(service, READ_ONCE(service->select));
	__u32 first = READ_ONCE(turns->first), length = READ_ONCE(turns->length);
	__u64 *cursor = element(MAP(cursors), index), turn, cost, of, other_cost, other_of;
	struct load *load, *other_load;
	struct measure measure;
	struct choice other = {};
	int second;

	if (!cursor || !length || !measure_of(SCHEDULER_WLC, &measure))
		return 0;
	turn = __sync_fetch_and_add(cursor, 1);
	second = look_up(first, mix(turn, 2) % length, index, &other) && !is_full(&other);
	if (!look_up(first, mix(turn, 1) % length, index, choice) || is_full(choice)) {
		*choice = other;
		return second;
	}
	if (!second)
		return 1;
	load = element(MAP(loads), choice->index);
	other_load = element(MAP(loads), other.index);
	if (!load || !other_load)
		return 1;
	cost_of(&measure, choice->backend, load, &cost, &of);
	cost_of(&measure, other.backend, other_load, &other_cost, &other_of);
	if (other_cost * of < cost * other_of)
		*choice = other;
	return 1;
}

/* Choose for a new flow by comparing the servers. */
static __always_inline int compare(__u32 index, struct service *service, const __u8 *destination, __u32 now,
				   struct choice *choice)
{
	__u8 scheduler = READ_ONCE(service->scheduler);

	if (!least(index, service, scheduler, choice))
		return 0;
	if (scheduler == SCHEDULER_LBLC || scheduler == SCHEDULER_LBLCR)
		note_locality(index, service, destination, now, choice);
	return 1;
}
#endif

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
static __always_inline int pick(__u32 index, struct service *service, __u32 hash, int in_turn, struct choice *choice)
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
#pragma clang loop unroll(disable)
	for (__u32 attempt = 0; attempt < PICK_ATTEMPTS; attempt++) {
		struct choice candidate = {};

		if (look_up(first, slot, index, &candidate) && !is_full(&candidate)) {
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
