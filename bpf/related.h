/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * Packets that belong to a flow without naming its ports where a packet names them: later fragments, and ICMP errors about
 * what a server sent to its client (ip_vs_in_icmp of net/netfilter/ipvs/ip_vs_core.c). They find the server of the flow;
 * they never begin one, nor change its record. docs/explanation/related-packets.md
 */
#ifndef HAXLB_RELATED_H
#define HAXLB_RELATED_H

#include "fragments.h"
#include "send.h"

#define ICMP_HEADER_BYTES 8
#define QUOTED_TRANSPORT 8 /* RFC 792: what an error quotes of it at least */
#define PROTOCOL_ICMPV6 58
#define MOST_QUOTED_EXTENSIONS 4

/* Destination unreachable, source quench, time exceeded, parameter problem (RFC 792). */
#define ERRORS4 (1 << 3 | 1 << 4 | 1 << 11 | 1 << 12)
/* Destination unreachable, packet too big, time exceeded, parameter problem (RFC 4443). */
#define ERRORS6 (1 << 1 | 1 << 2 | 1 << 3 | 1 << 4)

static __always_inline int is_error(__u8 type, __u32 errors)
{
	return type < 32 && errors >> type & 1;
}

/* It is no service's, but may be about what NAT has translated: what a server sends, or an error about that. */
static __always_inline int not_related(struct xdp_md *context, const struct matter *matter, enum reason reason)
{
#if WITH_NAT
	struct scratch *scratch = element(MAP(scratchpad), 0);

	if (scratch) {
		scratch->offset = matter->offset;
		scratch->family = matter->family;
		scratch->reason = reason;
		tail_call(context, MAP(programs), PROGRAM_REPLY);
	}
#endif
	return pass(reason);
}

static __always_inline int shares(const struct matter *matter)
{
	return WITH_SHARED && matter->frontend.flags & FRONTEND_SHARED;
}

/* The endpoint of all packets to the address that do not tell their ports: there is one where they can go but one way. */
static __always_inline struct frontend *portless_frontend(const struct packet *packet, int family)
{
	if (family == FAMILY_IPV4) {
		struct endpoint endpoint = {};

		endpoint.address = packet->destination;
		endpoint.protocol = packet->protocol;
		endpoint.kind = ENDPOINT_PORTLESS;
		return bpf_map_lookup_elem(MAP(endpoints), &endpoint);
	}
#if WITH_IPV6
	struct endpoint6 endpoint = {};

	__builtin_memcpy(endpoint.address, &((struct ipv6hdr *)packet->ip)->daddr, 16);
	endpoint.protocol = packet->protocol;
	endpoint.kind = ENDPOINT_PORTLESS;
	return bpf_map_lookup_elem(MAP(endpoints6), &endpoint);
#else
	return NULL;
#endif
}

/* A later fragment. */
static __always_inline int follow_first(struct xdp_md *context, const struct packet *packet, struct matter *matter)
{
	struct fragment *fragment = find_fragment(packet, matter->family);
	struct choice choice = {};

	if (fragment) {
		struct service *service = element(MAP(services), fragment->service);
		const struct next_hop *peer = service ? peer_of(service) : NULL;
		__u8 flags = fragment->flags;
		int from_peer = peer && comes_from(packet, peer);

		if (!is_for_us(context, packet->frame))
			return pass(REASON_NOT_FOR_US);
		if (flags & FRAGMENT_SHARED && from_peer && matter->standing == PLAIN)
			return pass(REASON_LOCAL);
		if (flags & FRAGMENT_ASKED && peer && !from_peer && matter->standing == PLAIN)
			return to_peer(context, packet, matter, peer, fragment->kind);
		if (flags & FRAGMENT_ANSWERED && from_peer && matter->standing == IN_DOUBT)
			return to_peer(context, packet, matter, peer, fragment->kind);
		choice.index = fragment->backend;
		choice.backend = element(MAP(backends), choice.index);
		if (flags & (FRAGMENT_ASKED | FRAGMENT_ANSWERED) || !choice.backend)
			return pass(REASON_FRAGMENT);
		choice.identity = identity_of(choice.backend);
		matter->frontend.service = fragment->service;
		if (IDENTITY_SERVER(choice.identity) != IDENTITY(fragment->service, fragment->incarnation) ||
		    !(choice.identity & BACKEND_ALIVE))
			return pass(REASON_FRAGMENT);
		return hand_over(context, packet, matter, &choice, REASON_LATER_FRAGMENT, 0);
	}
#if WITH_STATELESS
	struct frontend *frontend = portless_frontend(packet, matter->family);

	if (frontend) {
		struct service *service = element(MAP(services), frontend->service);
		const struct next_hop *peer = service ? peer_of(service) : NULL;

		matter->frontend = *frontend;
		if (!is_for_us(context, packet->frame))
			return pass(REASON_NOT_FOR_US);
		if (shares(matter) && peer && comes_from(packet, peer) && matter->standing == PLAIN)
			return pass(REASON_LOCAL);
		if (by_ring(frontend->service, packet, matter->family, &choice))
			return hand_over(context, packet, matter, &choice, REASON_LATER_FRAGMENT, 0);
		return pass(REASON_FRAGMENT);
	}
#endif
	return not_related(context, matter, REASON_FRAGMENT);
}

/* The server of the flow that an error is about. `packet` is the client's that would belong to it. */
static __always_inline int of_flow(struct xdp_md *context, const struct packet *packet, struct matter *matter)
{
	struct service *service = element(MAP(services), matter->frontend.service);
	struct choice choice = {};
	const struct next_hop *peer;
	struct record record;

	if (!service)
		return pass(REASON_NO_SERVICE);
	peer = peer_of(service);
	identify(&matter->identity, packet, recorded_at(packet, &matter->frontend),
		 matter->frontend.flags & FRONTEND_ANY_PORT, matter->wide);
	look_for(matter, &record, 1);
	if (record.flow) {
		choice.index = FLOW_BACKEND(record.value);
		choice.backend = element(MAP(backends), choice.index);
		if (!choice.backend)
			return pass(REASON_NO_SERVICE);
		choice.identity = identity_of(choice.backend);
		if (is_known(record.value, choice.identity, matter->frontend.service)) {
			if (choice.identity & BACKEND_ALIVE)
				return hand_over(context, packet, matter, &choice, REASON_ICMP_ERROR, 0);
			/* Its next packet will be given another server, which knows nothing of what the error is about. */
			return pass(REASON_OTHER_PROTOCOL);
		}
	}
#if WITH_STATELESS
	if (matter->frontend.flags & FRONTEND_STATELESS) {
		if (pick_former(matter->frontend.service, service, packet, matter->family, &choice) ||
		    pick(matter->frontend.service, service, pick_hash(service, packet, matter->family), 0, WITH_THRESHOLDS,
			 &choice))
			return hand_over(context, packet, matter, &choice, REASON_ICMP_ERROR, 0);
		return pass(REASON_OTHER_PROTOCOL);
	}
#endif
	if (peer && matter->standing == PLAIN && !comes_from(packet, peer) && !(matter->frontend.flags & FRONTEND_ONE_PACKET))
		return to_peer(context, packet, matter, peer, shares(matter) ? bpf_htons(ETH_P_IN_DOUBT) : 0);
	return pass(REASON_OTHER_PROTOCOL);
}

/* An ICMP error about a packet from a virtual server to `packet`'s source; that one's ports are turned round already. */
static __always_inline int follow_error(struct xdp_md *context, struct packet *packet, struct matter *matter)
{
	struct frontend *frontend = frontend_of(packet, matter->family);

	if (!frontend || is_from_itself(packet, matter->family))
		return not_related(context, matter, REASON_OTHER_PROTOCOL);
	matter->frontend = *frontend;
	if (!is_for_us(context, packet->frame))
		return pass(REASON_NOT_FOR_US);
#if WITH_SHARED
	if (shares(matter) && matter->standing == PLAIN) {
		struct service *service = element(MAP(services), frontend->service);
		const struct next_hop *peer = service ? peer_of(service) : NULL;

		if (peer && comes_from(packet, peer))
			return pass(REASON_LOCAL);
	}
#endif
#if WITH_STATELESS
	if (matter->frontend.flags & FRONTEND_STATELESS) {
		struct choice choice = {};

		if (by_ring(matter->frontend.service, packet, matter->family, &choice))
			return hand_over(context, packet, matter, &choice, REASON_ICMP_ERROR, 0);
	}
#endif
#if WITH_ANY_PORT
	if (matter->family == FAMILY_IPV4 && matter->frontend.flags & FRONTEND_ANY_PORT) {
		packet->address[0] = 0;
		packet->address[1] = (__u64)packet->source << 32;
		matter->wide = 1;
		return of_flow(context, packet, matter);
	}
#endif
	return of_flow(context, packet, matter);
}

/* Ports of the packet that is quoted, from its client's side; 0 where they are not. `room`: bytes of the error from there. */
static __always_inline int turn_round(struct packet *packet, __u8 protocol, __u16 *ports, __s32 room, void *end)
{
	if (protocol != IPPROTO_TCP && protocol != IPPROTO_UDP && protocol != IPPROTO_SCTP)
		return 0;
	if (room < QUOTED_TRANSPORT || (void *)ports + QUOTED_TRANSPORT > end)
		return 0;
	packet->protocol = protocol;
	packet->source_port = ports[1];
	packet->destination_port = ports[0];
	packet->flags = TCP_ACK;
	return 1;
}

/* Returns 0 where the packet is no error about one that a virtual server sent. */
static __always_inline int read_error4(struct xdp_md *context, struct packet *packet)
{
	void *end = (void *)(long)context->data_end, *icmp = packet->transport;
	__u32 before = (*(__u8 *)packet->ip & 0x0f) * 4 + ICMP_HEADER_BYTES, header;
	struct iphdr *quoted = icmp + ICMP_HEADER_BYTES;

	if (packet->protocol != IPPROTO_ICMP || packet->fragment != WHOLE || (void *)(quoted + 1) > end ||
	    !is_error(*(__u8 *)icmp, ERRORS4))
		return 0;
	header = (*(__u8 *)quoted & 0x0f) * 4;
	if (*(__u8 *)quoted >> 4 != 4 || header < sizeof(*quoted) || quoted->frag_off & bpf_htons(IP_FRAGMENT_OFFSET) ||
	    quoted->saddr != packet->destination)
		return 0;
	packet->source = quoted->daddr;
	return turn_round(packet, quoted->protocol, (void *)quoted + header, (__s32)packet->length - (__s32)(before + header), end);
}

#if WITH_IPV6
/* As read_error4. */
static __always_inline int read_error6(struct xdp_md *context, struct packet *packet)
{
	void *end = (void *)(long)context->data_end, *icmp = packet->transport;
	struct ipv6hdr *quoted = icmp + ICMP_HEADER_BYTES;
	__u8 *header = (void *)(quoted + 1);
	__u64 *from, *to;
	__u8 protocol;
	__s32 room;

	if (packet->protocol != PROTOCOL_ICMPV6 || packet->fragment != WHOLE || (void *)(quoted + 1) > end ||
	    !is_error(*(__u8 *)icmp, ERRORS6) || *(__u8 *)quoted >> 4 != 6)
		return 0;
	from = (__u64 *)&quoted->saddr;
	to = (__u64 *)&((struct ipv6hdr *)packet->ip)->daddr;
	if (from[0] != to[0] || from[1] != to[1])
		return 0;
	packet->address[0] = *(__u64 *)&quoted->daddr;
	packet->address[1] = *((__u64 *)&quoted->daddr + 1);
	protocol = quoted->nexthdr;
	room = (__s32)packet->length - (__s32)((void *)header - packet->ip);
#pragma unroll
	for (int extension = 0; extension < MOST_QUOTED_EXTENSIONS; extension++) {
		__u32 size;

		if (protocol != NEXT_HOP_BY_HOP && protocol != NEXT_ROUTING && protocol != NEXT_FRAGMENT &&
		    protocol != NEXT_DESTINATION)
			break;
		if ((void *)(header + 8) > end)
			return 0;
		if (protocol == NEXT_FRAGMENT && bpf_ntohs(*(__u16 *)(header + 2)) & 0xfff8)
			return 0;
		size = protocol == NEXT_FRAGMENT ? 8 : (header[1] + 1) * 8;
		protocol = header[0];
		header += size;
		room -= size;
	}
	return turn_round(packet, protocol, (__u16 *)header, room, end);
}
#endif

/* A packet that is no whole one of TCP, UDP or SCTP. */
static __always_inline int follow(struct xdp_md *context, int family)
{
	struct scratch *scratch = element(MAP(scratchpad), 0);
	struct matter matter = {.family = family, .wide = family == FAMILY_IPV6};
	struct packet packet = {};
	enum reason reason;
	int is_related;

	if (!scratch)
		return pass(REASON_NO_SERVICE);
	matter.offset = scratch->offset & 31;
	matter.standing = scratch->standing;
	matter.now = jiffies();
#if WITH_IPV6
	reason = family == FAMILY_IPV4 ? parse4(context, matter.offset, &packet) : parse6(context, matter.offset, &packet);
#else
	reason = parse4(context, matter.offset, &packet);
#endif
	if (reason == REASON_FRAGMENT)
		return follow_first(context, &packet, &matter);
	if (reason != REASON_OTHER_PROTOCOL)
		return pass(reason);
#if WITH_IPV6
	is_related = family == FAMILY_IPV4 ? read_error4(context, &packet) : read_error6(context, &packet);
#else
	is_related = read_error4(context, &packet);
#endif
	return is_related ? follow_error(context, &packet, &matter) : not_related(context, &matter, REASON_OTHER_PROTOCOL);
}

#endif
