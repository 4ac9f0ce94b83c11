/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * Schedulers that compare servers by what they have to do: all of a list, two that chance names, or those that a destination
 * address has kept to. What each of them compares is IPVS's (net/netfilter/ipvs/ip_vs_*.c); docs/explanation/schedulers.md.
 */
#ifndef HAXLB_COMPARE_H
#define HAXLB_COMPARE_H

#include "choose.h"

#if WITH_LIST

#define LOCALITY_EXPIRES (24 * 60 * 60) /* seconds: a set of lblcr that has not changed for so long gives up a server */

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

#endif
