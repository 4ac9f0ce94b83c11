// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * haxlb's forwarder: what IPVS does, in XDP. What is not a service's reaches the kernel untouched.
 * docs/explanation/forwarder.md tells how it decides; haxlb/forwarding/reference.py says the same in Python, and tests
 * compare the two frame by frame.
 */
#ifndef FD_flows
#include <linux/bpf.h>
#include <bpf/bpf_helpers.h>
#include <bpf/bpf_endian.h>
#ifndef NULL
#define NULL ((void *)0)
#endif
#endif

#include "abi.h"
#include "features.h"
#include "maps.h"
#include "parse.h"
#include "flow.h"
#include "choose.h"
#include "send.h"
#include "answers.h"
#include "fragments.h"
#include "tag.h"
#if WITH_TUNNEL
#include "tunnel.h"
#endif

/* How a frame of the other director is to be read. */
#define PLAIN 0
#define IN_DOUBT 1
#define ANSWERED 2

/* What is known of a packet. */
struct matter {
	struct frontend frontend;
	struct identity identity;
	__u32 offset;
	__u32 now;
	int family; /* like `standing` and `wide` known when this is compiled */
	int wide;
	int standing;
};

/* The record of a flow. */
struct record {
	struct flow *flow; /* NULL = there is none */
	__u64 value;	   /* as it was read */
	int settled;	   /* it is one of `flows` */
};

static __always_inline struct frontend *frontend_at(const struct packet *packet, int family, __u16 port)
{
	if (family == FAMILY_IPV4) {
		/* struct endpoint, written at once: the processor waits where a word is read whose parts have just been written. */
		__u64 endpoint = packet->destination | (__u64)port << 32 | (__u64)packet->protocol << 48;

		return bpf_map_lookup_elem(MAP(endpoints), &endpoint);
	}
#if WITH_IPV6
	struct endpoint6 endpoint = {};

	__builtin_memcpy(endpoint.address, &((struct ipv6hdr *)packet->ip)->daddr, 16);
	endpoint.port = port;
	endpoint.protocol = packet->protocol;
	return bpf_map_lookup_elem(MAP(endpoints6), &endpoint);
#else
	return NULL;
#endif
}

#if WITH_LIST
/* As in struct locality. */
static __always_inline void write_destination(__u8 *address, const struct packet *packet, int family)
{
#if WITH_IPV6
	if (family == FAMILY_IPV6) {
		__builtin_memcpy(address, &((struct ipv6hdr *)packet->ip)->daddr, 16);
		return;
	}
#endif
	__builtin_memset(address, 0, 16);
	*(__u32 *)address = packet->destination;
}

#endif

static __always_inline struct frontend *frontend_of(const struct packet *packet, int family)
{
	struct frontend *frontend = frontend_at(packet, family, packet->destination_port);

#if WITH_ANY_PORT
	if (!frontend)
		frontend = frontend_at(packet, family, 0);
#endif
	return frontend;
}

/* Is the server on record in `value` the one that has its index now? */
static __always_inline int is_known(__u64 value, __u32 identity, __u32 service)
{
	return IDENTITY_SERVER(identity) == IDENTITY(service, FLOW_INCARNATION(value)) && FLOW_STATE(value) > FLOW_CLAIMED;
}

static __always_inline int look_into(void *bucket, const struct matter *matter, struct record *record, int merge)
{
	record->flow = flow_find(bucket, &matter->identity, matter->wide);
	if (!record->flow)
		return 0;
	if (merge)
		record->flow = some_way(bucket, record->flow, matter->wide);
	record->value = READ_ONCE(record->flow->value);
	/* The key once more: the way may have been given to another flow meanwhile, and the value with it. */
	if (FLOW_STATE(record->value) > FLOW_CLAIMED && is_of(record->flow, &matter->identity, matter->wide))
		return 1;
	record->flow = NULL;
	record->value = 0;
	return 0;
}

/* Find the record of the packet's flow. `merge`: much comes after, see some_way. */
static __always_inline void look_for(const struct matter *matter, struct record *record, int merge)
{
	void *bucket = flow_bucket(matter->identity.hash, matter->wide);

	record->flow = NULL;
	record->value = 0;
	record->settled = 1;
	if (bucket && look_into(bucket, matter, record, merge))
		return;
	record->settled = 0;
	bucket = half_open_bucket(matter->identity.hash, matter->wide);
	if (bucket)
		look_into(bucket, matter, record, merge);
}

/* The other director, where it may know what we do not: it does not of services whose ring says it all. */
static __always_inline const struct next_hop *peer_of(struct service *service)
{
	__u64 select = READ_ONCE(service->select), known = select & SELECT_PEER_KNOWN;

	/* The compiler would make the pointer, and its absence, from the bit. */
	OPAQUE(known);
	return known ? &service->peers[(select & SELECT_PEER) / SELECT_PEER] : NULL;
}

static __always_inline int comes_from(const struct packet *packet, const struct next_hop *hop)
{
	return same_mac(source_mac(packet), hop->destination);
}

static __always_inline int to_peer(struct xdp_md *context, const struct packet *packet, const struct matter *matter,
				   const struct next_hop *peer, __u16 kind)
{
	__u32 offset = matter->offset;
	__u16 *place;

	remember_fragment(packet, matter->family, &matter->frontend, NULL,
			  matter->standing == PLAIN ? FRAGMENT_ASKED : FRAGMENT_ANSWERED, kind);

	/* The compiler would count back from the packet, and the verifier does not like that. */
	OPAQUE(offset);
	place = packet->frame + (offset - sizeof(kind) & 31);
	if (kind && (void *)(place + 1) <= (void *)(long)context->data_end)
		*place = kind;
	note(REASON_ASKED_PEER);
	return send(context, packet, peer);
}

static __always_inline int to_server(struct xdp_md *context, const struct packet *packet, const struct matter *matter,
				     const struct choice *choice, enum reason reason, __u32 flows, int tagged)
{
	/*
	 * By any other method clients and servers may well be behind one router. And the other director may ask about what we
	 * have placed there ourselves: as a plain frame it is that server's.
	 */
	if (same_mac(source_mac(packet), hop_of(choice->backend, choice->identity)->destination) && matter->standing != IN_DOUBT &&
	    (!(WITH_TUNNEL || WITH_NAT) || choice->backend->method == METHOD_DR))
		return pass(REASON_LOOP);
	return forward_to(context, packet, matter->family, matter->offset, &matter->frontend, choice, reason, flows, matter->now,
			  tagged);
}

/* The packet goes to its server; nothing is in the way any more. */
static __always_inline int hand_over(struct xdp_md *context, const struct packet *packet, const struct matter *matter,
				     const struct choice *choice, enum reason reason, __u32 flows)
{
	remember_fragment(packet, matter->family, &matter->frontend, choice, 0, 0);
	/* One test for two rarities. */
	if (choice->identity & (BACKEND_LOCAL | BACKEND_TAGGED)) {
		if (choice->identity & BACKEND_LOCAL)
			return pass(REASON_LOCAL);
		return to_server(context, packet, matter, choice, reason, flows, 1);
	}
	return to_server(context, packet, matter, choice, reason, flows, 0);
}

/* It is no client's; it may be a server's answer to one. */
static __always_inline int not_a_service(struct xdp_md *context, const struct packet *packet, __u32 offset, int family)
{
#if WITH_NAT
	struct scratch *scratch = element(MAP(scratchpad), 0);

	if (scratch && may_answer(packet, family)) {
		scratch->offset = offset;
		scratch->family = family;
		return go_on(context, PROGRAM_REPLY);
	}
#endif
	return pass(REASON_NO_SERVICE);
}

#if WITH_PERSISTENCE
/* The record that says which server a client has, of all its flows to a service: a fwmark joins its ports. */
static __always_inline void identify_client(struct identity *identity, const struct packet *packet, struct service *service,
					    const struct matter *matter)
{
	struct packet client = {};

	client.source = packet->source & service->persistence_mask;
	if (matter->wide && matter->family == FAMILY_IPV4)
		client.address[1] = (__u64)client.source << 32;
	if (matter->family == FAMILY_IPV6) {
		__u32 bits = service->persistence_prefix & 127;

		/* 0 is all of them; masks are of bytes in the order of the wire. */
		client.address[0] = packet->address[0];
		client.address[1] = packet->address[1];
		if (bits && bits < 64) {
			client.address[0] &= __builtin_bswap64(~(~0ull >> bits));
			client.address[1] = 0;
		} else if (bits) {
			client.address[1] &= __builtin_bswap64(bits == 64 ? 0 : ~(~0ull >> (bits - 64)));
		}
	}
	/* A flow from port 0 is never recorded, so a service's number is not taken for a frontend's. */
	identify(identity, &client, matter->frontend.service, 0, matter->wide);
}

/* persistence_timeout: the server that this client has. Returns 0 when there is none. */
static __always_inline int find_client(struct service *service, const struct packet *packet, const struct matter *matter,
				       struct choice *choice)
{
	struct flow *template = NULL;
	struct identity client;
	void *bucket;
	__u64 value;

	identify_client(&client, packet, service, matter);
	bucket = flow_bucket(client.hash, matter->wide);
	if (bucket)
		template = flow_find(bucket, &client, matter->wide);
	if (!template)
		return 0;
	template = some_way(bucket, template, matter->wide);
	value = READ_ONCE(template->value);
	choice->index = FLOW_BACKEND(value);
	choice->backend = element(MAP(backends), choice->index);
	if (!choice->backend || FLOW_STATE(value) != FLOW_TEMPLATE || age_of(value, matter->now) >= SECONDS(service->persistence))
		return 0;
	choice->identity = identity_of(choice->backend);
	if (!is_known(value, choice->identity, matter->frontend.service) || !(choice->identity & BACKEND_ALIVE))
		return 0;
	flow_touch(template, value, FLOW_TEMPLATE, matter->now);
	return 1;
}

/* It has this one from now on. Without room it has none, and its next flow may go elsewhere. */
static __always_inline void remember_client(struct service *service, const struct packet *packet, const struct matter *matter,
					    const struct choice *choice)
{
	__u64 recorded = FLOW_VALUE(choice->index, IDENTITY_INCARNATION(choice->identity), FLOW_TEMPLATE, matter->now);
	struct flow *template = NULL;
	struct identity client;
	void *bucket;

	identify_client(&client, packet, service, matter);
	bucket = flow_bucket(client.hash, matter->wide);
	if (!bucket)
		return;
	template = flow_find(bucket, &client, matter->wide);
	if (template) {
		__u64 value = READ_ONCE(template->value);

		/* Another service's flow cannot have this key, and a claim of another CPU is for the same client. */
		if (FLOW_STATE(value) == FLOW_TEMPLATE) {
			__sync_val_compare_and_swap(&template->value, value, recorded);
			return;
		}
	}
	template = flow_claim(bucket, &client, matter->now, matter->wide);
	if (template)
		__sync_val_compare_and_swap(&template->value, FLOW_VALUE(0, 0, FLOW_CLAIMED, matter->now), recorded);
}

/* A flow of a persistent service that goes on keeps its client's server, too. */
static __always_inline void keep_template(const struct packet *packet, const struct matter *matter)
{
	struct service *service = element(MAP(services), matter->frontend.service);
	struct flow *template = NULL;
	struct identity client;
	void *bucket;
	__u64 value;

	if (!service)
		return;
	identify_client(&client, packet, service, matter);
	bucket = flow_bucket(client.hash, matter->wide);
	if (bucket)
		template = flow_find(bucket, &client, matter->wide);
	if (!template)
		return;
	value = READ_ONCE(template->value);
	if (FLOW_STATE(value) == FLOW_TEMPLATE && age_of(value, matter->now) < SECONDS(service->persistence))
		flow_touch(template, value, FLOW_TEMPLATE, matter->now);
}
#endif

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

/* No record says where this packet goes. */
static __always_inline int undecided(struct xdp_md *context, const struct matter *matter)
{
	struct scratch *scratch = element(MAP(scratchpad), 0);

	if (!scratch)
		return pass(REASON_NO_SERVICE);
	scratch->offset = matter->offset;
	scratch->standing = matter->standing;
	scratch->frontend = matter->frontend;
	scratch->now = matter->now;
	if (matter->family == FAMILY_IPV6)
		return go_on(context, PROGRAM_DECIDE6);
	return go_on(context, matter->wide ? PROGRAM_DECIDE4_WIDE : PROGRAM_DECIDE4);
}

/* The packet of a service that keeps its flows on record, or of a slot of a ring whose flows may be. */
static __always_inline int with_record(struct xdp_md *context, const struct packet *packet, struct matter *matter)
{
	struct record record;
	struct choice choice;

	matter->now = jiffies();
	identify(&matter->identity, packet, recorded_at(packet, &matter->frontend),
		 matter->frontend.flags & FRONTEND_ANY_PORT, matter->wide);
	/* The first packet of a flow needs this line as well: let the processor wait for both at once. */
	if (!matter->wide && begins(packet)) {
		struct flow *half_open = half_open_bucket(matter->identity.hash, matter->wide);

		if (half_open)
			READ_ONCE(half_open->key);
	}
	look_for(matter, &record, 0);
	if (record.flow) {
		choice.index = FLOW_BACKEND(record.value);
		choice.backend = element(MAP(backends), choice.index);
		if (!choice.backend)
			return pass(REASON_NO_SERVICE);
		choice.identity = identity_of(choice.backend);
		if (is_known(record.value, choice.identity, matter->frontend.service) && choice.identity & BACKEND_ALIVE &&
		    flow_goes_on(packet, record.value, matter->now)) {
			const struct next_hop *hop = hop_of(choice.backend, choice.identity);
			__u8 state = state_after(packet, FLOW_STATE(record.value));

			/* On the interface that it leaves by, what it must be addressed to is at hand. */
			if (!(hop->interface == context->ingress_ifindex && same_mac(packet->frame, hop->source)) &&
			    !is_for_us(context, packet->frame))
				return pass(REASON_NOT_FOR_US);
			if (flow_needs_touch(record.value, state, matter->now)) {
				/* Of a ring that says it all the other director has no other record. */
				if (!(matter->frontend.flags & FRONTEND_STATELESS) &&
				    flow_is_in_doubt(record.value, matter->now)) {
					struct service *service = element(MAP(services), matter->frontend.service);
					const struct next_hop *peer = service ? peer_of(service) : NULL;

					if (peer && !comes_from(packet, peer))
						return to_peer(context, packet, matter, peer, bpf_htons(ETH_P_IN_DOUBT));
				}
				if (!record.settled && (state == FLOW_TCP_ESTABLISHED || state == FLOW_UDP))
					flow_settle(record.flow, record.value,
						    FLOW_VALUE(choice.index, FLOW_INCARNATION(record.value), state, matter->now),
						    &matter->identity, matter->now, matter->wide);
				else
					flow_touch(record.flow, record.value, state, matter->now);
#if WITH_PERSISTENCE
				if (matter->frontend.flags & FRONTEND_PERSISTENT)
					keep_template(packet, matter);
#endif
			}
			return hand_over(context, packet, matter, &choice, REASON_FORWARDED, 0);
		}
	}
	if (!is_for_us(context, packet->frame))
		return pass(REASON_NOT_FOR_US);
	return undecided(context, matter);
}

#if WITH_STATELESS
/* Choose by the ring alone. Returns 0 where the flow may be on record, or the server of the slot has just died. */
static __always_inline int by_ring(__u32 index, const struct packet *packet, int family, struct choice *choice)
{
	struct service *service = element(MAP(services), index);
	struct generation *ring;
	__u32 length, slot;
	__u8 select;

	if (!service)
		return 0;
	select = READ_ONCE(service->select);
	ring = current_of(service, select);
	length = READ_ONCE(ring->length);
	slot = ring_hash(packet, READ_ONCE(ring->flags), family) & (length - 1);
	if (!length || (select & SELECT_EXCEPTIONS && is_exception(index, slot)))
		return 0;
	return look_up(READ_ONCE(ring->first), slot, index, choice);
}
#endif

/*
 * A frame whose packet begins at `offset`. `plain`: of parse_plain, else returns -1.
 */
static __always_inline int forward(struct xdp_md *context, __u32 offset, int family, int standing, int plain)
{
	struct matter matter = {.offset = offset, .family = family, .wide = family == FAMILY_IPV6, .standing = standing};
	enum reason reason = REASON_FORWARDED;
	struct packet packet = {};
	struct frontend *frontend;

	if (plain) {
		if (!parse_plain(context, &packet))
			return -1;
	} else {
#if WITH_IPV6
		reason = family == FAMILY_IPV4 ? parse4(context, offset, &packet) : parse6(context, offset, &packet);
#else
		reason = parse4(context, offset, &packet);
#endif
	}
	if (reason != REASON_FORWARDED) {
		if (reason == REASON_FRAGMENT || reason == REASON_OTHER_PROTOCOL)
			return go_on(context, family == FAMILY_IPV4 ? PROGRAM_RELATED4 : PROGRAM_RELATED6);
		return pass(reason);
	}
	frontend = frontend_of(&packet, family);
	if (!frontend)
		return not_a_service(context, &packet, offset, family);
	/* In one piece. */
	*(__u64 *)&matter.frontend = *(__u64 *)frontend;
#if WITH_ANY_PORT
	if (plain && matter.frontend.flags & FRONTEND_ANY_PORT)
		return -1;
#endif
#if WITH_SHARED
	if (matter.frontend.flags & FRONTEND_SHARED && standing == PLAIN) {
		struct service *service = element(MAP(services), matter.frontend.service);
		const struct next_hop *peer = service ? peer_of(service) : NULL;

		/* It has chosen us, the server: to forward the packet again could go on for ever. */
		if (peer && comes_from(&packet, peer))
			return pass(REASON_LOCAL);
	}
#endif
#if WITH_STATELESS
	if (!WITH_STATEFUL || matter.frontend.flags & FRONTEND_STATELESS) {
		struct choice choice;

		if (by_ring(matter.frontend.service, &packet, family, &choice)) {
			const struct next_hop *hop = hop_of(choice.backend, choice.identity);

			if (is_from_itself(&packet, family))
				return pass(REASON_MALFORMED);
			if (!(hop->interface == context->ingress_ifindex && same_mac(packet.frame, hop->source)) &&
			    !is_for_us(context, packet.frame))
				return pass(REASON_NOT_FOR_US);
			return hand_over(context, &packet, &matter, &choice, REASON_HASHED, 0);
		}
	}
#endif
#if WITH_ANY_PORT
	if (family == FAMILY_IPV4 && matter.frontend.flags & FRONTEND_ANY_PORT) {
		packet.address[0] = 0;
		packet.address[1] = (__u64)packet.source << 32;
		matter.wide = 1;
		return with_record(context, &packet, &matter);
	}
#endif
	return with_record(context, &packet, &matter);
}

#include "related.h"
#include "nat.h"

#ifdef FD_flows
#define PART(name) int haxlb_##name(struct xdp_md *context)
#else
#define PART(name) SEC("xdp") int haxlb_##name(struct xdp_md *context)
#endif

/* What is attached. */
PART(forward)
{
	int verdict = forward(context, ETH_HLEN, FAMILY_IPV4, PLAIN, 1);

	if (__builtin_expect(verdict >= 0, 1))
		return verdict;
	return go_on(context, PROGRAM_ANY);
}

PART(any)
{
	void *frame = (void *)(long)context->data, *end = (void *)(long)context->data_end;
	struct scratch *scratch = element(MAP(scratchpad), 0);
	__u32 offset = ETH_HLEN;
	__u16 kind;

	if (!scratch || frame + ETH_HLEN > end)
		return pass(REASON_MALFORMED);
	kind = *(__u16 *)(frame + ETH_HLEN - 2);
#pragma unroll
	for (int tag = 0; tag < MOST_TAGS; tag++) {
		if (kind != bpf_htons(ETH_P_8021Q) && kind != bpf_htons(ETH_P_8021AD))
			break;
		if (frame + offset + TAG_BYTES > end)
			return pass(REASON_MALFORMED);
		offset += TAG_BYTES;
		kind = *(__u16 *)(frame + offset - 2);
	}
	scratch->offset = offset;
	scratch->standing = PLAIN;
	if ((kind == bpf_htons(ETH_P_IN_DOUBT) || kind == bpf_htons(ETH_P_ANSWERED)) && is_for_us(context, frame)) {
		if (frame + offset + 1 > end)
			return pass(REASON_MALFORMED);
		scratch->standing = kind == bpf_htons(ETH_P_IN_DOUBT) ? IN_DOUBT : ANSWERED;
		kind = *(__u8 *)(frame + offset) >> 4 == 6 ? bpf_htons(ETH_P_IPV6) : bpf_htons(ETH_P_IP);
		*(__u16 *)(frame + offset - 2) = kind;
	}
	if (kind == bpf_htons(ETH_P_IP))
		return go_on(context, PROGRAM_ANY4);
	if (kind == bpf_htons(ETH_P_IPV6))
		return go_on(context, PROGRAM_ANY6);
	return pass(REASON_NOT_IP);
}

static __always_inline int forward_any(struct xdp_md *context, int family)
{
	struct scratch *scratch = element(MAP(scratchpad), 0);

	return scratch ? forward(context, scratch->offset & 31, family, scratch->standing, 0) : pass(REASON_NO_SERVICE);
}

PART(any4)
{
	return forward_any(context, FAMILY_IPV4);
}

PART(related4)
{
	return follow(context, FAMILY_IPV4);
}

PART(tag)
{
	return retag(context);
}

#if WITH_LIST
PART(compare)
{
	return compare_servers(context, 0);
}

PART(locate)
{
	return compare_servers(context, 1);
}
#endif

PART(decide4)
{
	return decide(context, FAMILY_IPV4, 0, PROGRAM_PLACE4);
}

PART(place4)
{
	return place(context, FAMILY_IPV4, 0);
}

#if WITH_ANY_PORT
PART(decide4_wide)
{
	return decide(context, FAMILY_IPV4, 1, PROGRAM_PLACE4_WIDE);
}

PART(place4_wide)
{
	return place(context, FAMILY_IPV4, 1);
}
#endif

#if WITH_IPV6
PART(any6)
{
	return forward_any(context, FAMILY_IPV6);
}

PART(related6)
{
	return follow(context, FAMILY_IPV6);
}

PART(decide6)
{
	return decide(context, FAMILY_IPV6, 1, PROGRAM_PLACE6);
}

PART(place6)
{
	return place(context, FAMILY_IPV6, 1);
}
#endif

#if WITH_TUNNEL
PART(tunnel)
{
	return tunnel(context);
}
#endif

#if WITH_NAT
PART(nat)
{
	return translate(context);
}

PART(reply)
{
	return answer(context);
}

PART(expect)
{
	return expect(context);
}

PART(too_big)
{
	return tell_sender(context);
}
#endif

#ifndef FD_flows
char _license[] SEC("license") = "GPL";
#endif
