/* SPDX-License-Identifier: GPL-2.0-or-later */
/* What is known of a packet: its endpoint, its record, the other director; and how it leaves once that is enough. */
#ifndef HAXLB_MATTER_H
#define HAXLB_MATTER_H

#include "send.h"
#include "answers.h"
#include "fragments.h"
#include "tag.h"

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
	int overflown;	   /* it is one of the overflow */
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

#if WITH_ANY_PORT
/* Few packets that no endpoint of their port takes are for an address of which all ports are a service's: a bit says so. */
static __always_inline int may_take_any_port(const struct packet *packet, int family)
{
	__u64 *words = element(MAP(any_port_bits), 0);
	__u32 bit;

#if WITH_IPV6
	if (family == FAMILY_IPV6) {
		struct in6_addr address = ((struct ipv6hdr *)packet->ip)->daddr;

		bit = address_bit((const __u64 *)&address, 0, family);
	} else
#endif
	{
		__u64 address = packet->destination;

		bit = address_bit(&address, 0, family);
	}
	return words && READ_ONCE(words[bit / 64]) >> (bit % 64) & 1;
}
#endif

static __always_inline struct frontend *frontend_of(const struct packet *packet, int family)
{
	struct frontend *frontend = frontend_at(packet, family, packet->destination_port);

#if WITH_ANY_PORT
	if (!frontend && may_take_any_port(packet, family))
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
	record->overflown = 0;
	if (!bucket || look_into(bucket, matter, record, merge) ||
	    !(READ_ONCE(way_of(bucket, 0, matter->wide)->value) & FLOW_SPILLED))
		return;
	record->overflown = 1;
	bucket = overflow_bucket(matter->identity.hash, matter->wide);
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
	if (may_answer(packet, family)) {
		struct scratch *scratch = element(MAP(scratchpad), 0);

		if (!scratch)
			return pass(REASON_NO_SERVICE);
		scratch->offset = offset;
		scratch->family = family;
		return go_on(context, PROGRAM_REPLY);
	}
#endif
	return pass(REASON_NO_SERVICE);
}

#endif
