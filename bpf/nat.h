/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * NAT, IPVS's masquerading: the packet gets the server's address and port, and the server's answer, which comes back through
 * this host, those that the client knows. docs/explanation/nat.md
 */
#ifndef HAXLB_NAT_H
#define HAXLB_NAT_H

#include "related.h"
#include "send.h"
#include "tag.h"
#include "tunnel.h"
#include "translate.h"

#if WITH_NAT

static __always_inline __u64 check_of(const struct answer *answer)
{
	const __u32 *words = (const __u32 *)answer;
	__u32 hash = FLOW_SEED;

#pragma unroll
	for (int word = 0; word < 8; word++)
		hash = mix(hash, words[word]);
	return (__u64)hash << 32 | words[8];
}

/* Returns 0 where there is no entry, or it was about to be another one's. */
static __always_inline int read_reply(const struct answer *answer, struct reply *reply)
{
	struct reply *entry = bpf_map_lookup_elem(MAP(replies), answer);

	if (!entry)
		return 0;
	*reply = *entry;
	asm volatile("" : : : "memory");
	/* The first word of an entry is the first that is written. */
	return READ_ONCE(entry->check) == check_of(answer);
}

/*
 * The flow of an answer goes on. Neither SYN and ACK nor a datagram settles it: a forger would bring a server to that. What a
 * client says to it does, as in IPVS's table of TCP states (tcp_states of ip_vs_proto_tcp.c, row `syn` of its OUTPUT).
 */
static __always_inline void touch_flow(const struct packet *packet, const struct record *record, __u32 now)
{
	__u8 state = FLOW_STATE(record->value);

	if (packet->protocol == IPPROTO_TCP) {
		if (packet->flags & (TCP_FIN | TCP_RST))
			state = FLOW_TCP_CLOSING;
		else if (packet->flags & TCP_SYN)
			return;
	}
	if (flow_needs_touch(record->value, state, now))
		flow_touch(record->flow, record->value, state, now);
}

/*
 * Find the record of the flow that an entry answers, and let `packet` touch it, if there is one. Returns 0 where it has ended, or
 * has another server now.
 */
static __always_inline int find_flow(struct matter *matter, const struct answer *answer, const struct reply *reply,
				     const struct packet *packet, __u32 now)
{
	const __u64 *address = (const __u64 *)answer->client;
	struct packet client = {};
	struct record record = {};

	client.source = *(__u32 *)address;
	client.source_port = answer->client_port;
	client.destination_port = reply->port;
	client.address[0] = matter->family == FAMILY_IPV6 ? address[0] : 0;
	client.address[1] = matter->family == FAMILY_IPV6 ? address[1] : (__u64)client.source << 32;
	identify(&matter->identity, &client, reply->frontend, reply->flags & REPLY_ANY_PORT, matter->wide);
	look_for(matter, &record, 1);
	if (!record.flow || FLOW_BACKEND(record.value) != reply->backend ||
	    FLOW_INCARNATION(record.value) != reply->incarnation)
		return 0;
	if (packet)
		touch_flow(packet, &record, now);
	return 1;
}

static __always_inline int find_any_flow(int family, const struct answer *answer, const struct reply *reply,
					 const struct packet *packet, __u32 now)
{
	struct matter narrow = {.family = family}, wide = {.family = family, .wide = 1};

	if (family == FAMILY_IPV6 || (WITH_ANY_PORT && reply->flags & REPLY_ANY_PORT))
		return find_flow(&wide, answer, reply, packet, now);
	return find_flow(&narrow, answer, reply, packet, now);
}

/* Of the frame's only tag; 0 where it has none. */
static __always_inline __u16 vlan_of(struct xdp_md *context, const struct packet *packet, __u32 offset)
{
	if (offset == ETH_HLEN || packet->frame + ETH_HLEN + TAG_BYTES > (void *)(long)context->data_end)
		return 0;
	return bpf_ntohs(*(__u16 *)(packet->frame + ETH_HLEN)) & TAG_VLAN;
}

/* Whether the answer to this packet is known already, and the way of it still is where the packet came from. */
static __always_inline int is_expected(struct xdp_md *context, const struct packet *packet, const struct scratch *scratch,
				       const struct answer *answer)
{
	struct reply *entry = bpf_map_lookup_elem(MAP(replies), answer);

	return entry && entry->backend == scratch->backend && entry->incarnation == IDENTITY_INCARNATION(scratch->identity) &&
	       entry->frontend == recorded_at(packet, &scratch->frontend) && entry->port == packet->destination_port &&
	       same_mac(source_mac(packet), entry->hop.destination) && same_mac(packet->frame, entry->hop.source) &&
	       entry->hop.interface == context->ingress_ifindex && entry->vlan == vlan_of(context, packet, scratch->offset);
}

/*
 * See to it that it is, and hand back. The client is where its last request came from, but for one that the other director has
 * passed on. The packet is dropped where there is no room, or another flow is answered by the same addresses and ports. A part
 * of its own for the verifier.
 */
static __always_inline int expect_reply(struct xdp_md *context, struct scratch *scratch, int family)
{
	const struct frontend *frontend = &scratch->frontend;
	struct answer *answer = &scratch->answer;
	struct packet packet = {};
	struct reply *entry, reply = {};
	__u16 recorded;

#if WITH_IPV6
	if (family == FAMILY_IPV6)
		parse6(context, scratch->offset & 31, &packet);
	else
#endif
		parse4(context, scratch->offset & 31, &packet);
	if (!is_within(&packet, family, (void *)(long)context->data_end))
		return drop(REASON_NO_ROOM);
	recorded = recorded_at(&packet, frontend);
	entry = bpf_map_lookup_elem(MAP(replies), answer);
	if (entry && entry->frontend == recorded && entry->port == packet.destination_port) {
		struct service *service = element(MAP(services), frontend->service);
		const struct next_hop *peer = service ? peer_of(service) : NULL;

		if (peer && comes_from(&packet, peer) && entry->backend == scratch->backend &&
		    entry->incarnation == IDENTITY_INCARNATION(scratch->identity))
			goto expected;
	} else if (entry && read_reply(answer, &reply) && find_any_flow(family, answer, &reply, NULL, 0)) {
		return drop(REASON_TABLE_FULL);
	}
	__builtin_memset(&reply, 0, sizeof(reply));
	reply.check = check_of(answer);
	read_address(reply.address, address_in(packet.ip, family, 1), family);
	reply.port = packet.destination_port;
	reply.frontend = recorded;
	reply.service = frontend->service;
	reply.backend = scratch->backend;
	reply.incarnation = IDENTITY_INCARNATION(scratch->identity);
	reply.flags = frontend->flags & FRONTEND_ANY_PORT ? REPLY_ANY_PORT : 0;
	reply.vlan = vlan_of(context, &packet, scratch->offset);
	__builtin_memcpy(reply.hop.destination, source_mac(&packet), ETH_ALEN);
	__builtin_memcpy(reply.hop.source, packet.frame, ETH_ALEN);
	reply.hop.interface = context->ingress_ifindex;
	if (bpf_map_update_elem(MAP(replies), answer, &reply, 0))
		return drop(REASON_TABLE_FULL);
	note_server(answer, family);
expected:
	scratch->flows |= REPLY_EXPECTED;
	return go_on(context, PROGRAM_NAT);
}

/* To the server. */
static __always_inline int translate_request(struct xdp_md *context, struct scratch *scratch, int family)
{
	__u32 offset = scratch->offset & 31, reason = scratch->reason;
	void *end = (void *)(long)context->data_end;
	struct answer *answer = &scratch->answer;
	struct packet packet = {};
	struct choice choice = {};
	struct frontend frontend;
	struct address address;
	__u16 port;

	choice.index = scratch->backend;
	choice.identity = scratch->identity;
	choice.backend = element(MAP(backends), choice.index);
	if (!choice.backend || reason >= REASON_COUNT || choice.backend->family != family)
		return drop(REASON_NO_SERVER);
	/* Of two tags the answer would have to have both. */
	if (offset > ETH_HLEN + TAG_BYTES)
		return drop(REASON_NO_ROOM);
#if WITH_IPV6
	if (family == FAMILY_IPV6)
		parse6(context, offset, &packet);
	else
#endif
		parse4(context, offset, &packet);
	/* The part before has read the packet; the verifier does not know. */
	if (!is_within(&packet, family, end) || (!packet.transport && packet.fragment != LATER_FRAGMENT))
		return drop(REASON_NO_SERVER);
	/* Without a record nobody would know the answer. */
	if (reason == REASON_TABLE_FULL)
		return drop(reason);
	if (hops_left(packet.ip, family) <= 1)
		return drop(REASON_HOP_LIMIT);
	if (choice.backend->mtu && packet.length > choice.backend->mtu) {
		scratch->next = choice.backend->mtu;
		return go_on(context, PROGRAM_TOO_BIG);
	}
	frontend = scratch->frontend;
	__builtin_memcpy(&address, choice.backend->address, sizeof(address));
	port = choice.backend->port ? choice.backend->port : packet.destination_port;
	if (packet.fragment == LATER_FRAGMENT) {
		rewrite(&packet, family, INWARD, address.words, 0, end);
	} else if (packet.protocol == IPPROTO_TCP || packet.protocol == IPPROTO_UDP) {
		__builtin_memset(answer, 0, sizeof(*answer));
		read_address(answer->client, address_in(packet.ip, family, 0), family);
		__builtin_memcpy(answer->server, &address, sizeof(address));
		answer->client_port = packet.source_port;
		answer->server_port = port;
		answer->protocol = packet.protocol;
		blur(scratch, &packet);
		/* It would answer itself without us. */
		if (is_same_address(answer->client, answer->server))
			return pass(REASON_LOOP);
		/* Packets that are flows of their own have no record either: as in IPVS, what answers them is the kernel's. */
		if (!(frontend.flags & FRONTEND_ONE_PACKET) && !(scratch->flows & REPLY_EXPECTED) &&
		    !is_expected(context, &packet, scratch, answer))
			return go_on(context, PROGRAM_EXPECT);
		rewrite(&packet, family, INWARD, address.words, port, end);
	} else {
		struct quoted quoted;

		/* SCTP: its CRC covers the whole packet, and the configuration does not let it come here. */
		if (packet.protocol == IPPROTO_SCTP)
			return drop(REASON_NO_SERVER);
		if (!parse_quoted(&packet, family, &quoted, end))
			return pass(REASON_OTHER_PROTOCOL);
		if (!choice.backend->port)
			port = *(__u16 *)quoted.ports;
		rewrite_error(&packet, &quoted, family, INWARD, address.words, port, end);
	}
	scratch->flows &= ~REPLY_EXPECTED;
	/* The scratchpad still says what that part asks for. */
	if (is_tagged(&choice, offset))
		return go_on(context, PROGRAM_TAG);
	return leave(context, &packet, &frontend, &choice, reason, scratch->flows);
}

static __always_inline int send_reply(struct xdp_md *context, struct scratch *scratch, struct packet *packet,
				      const struct reply *reply)
{
	if (reply->vlan || scratch->offset != ETH_HLEN) {
		packet->frame = put_tag(context, scratch->offset, reply->vlan);
		if (!packet->frame)
			return drop(REASON_NO_ROOM);
	}
	note(REASON_REPLY);
	return send(context, packet, &reply->hop);
}

/* Later fragments follow their first. */
static __always_inline int reply_fragment(struct xdp_md *context, struct scratch *scratch, struct packet *packet, int family)
{
	struct reply *first, reply;

	name_datagram(&scratch->datagram, packet, family);
	first = bpf_map_lookup_elem(MAP(reply_fragments), &scratch->datagram);
	if (!first || age_of((__u64)first->stamp << 32, jiffies()) >= SECONDS(FRAGMENTS_LAST))
		return pass(REASON_FRAGMENT);
	reply = *first;
	if (!is_for_us(context, packet->frame))
		return pass(REASON_NOT_FOR_US);
	if (hops_left(packet->ip, family) <= 1)
		return pass(REASON_HOP_LIMIT);
	rewrite(packet, family, OUTWARD, (__u32 *)reply.address, 0, (void *)(long)context->data_end);
	return send_reply(context, scratch, packet, &reply);
}

/* About a packet that we have sent to a server: by that one, or by a router on the way, and to the client in any case. */
static __always_inline int reply_error(struct xdp_md *context, struct scratch *scratch, struct packet *packet, int family)
{
	void *end = (void *)(long)context->data_end;
	struct answer *answer = &scratch->answer;
	struct address recipient = {};
	struct quoted quoted = {};
	struct reply reply;
	__u16 *ports;

	if (!parse_quoted(packet, family, &quoted, end))
		return pass(REASON_OTHER_PROTOCOL);
	__builtin_memset(answer, 0, sizeof(*answer));
	read_address(answer->client, address_in(quoted.ip, family, 0), family);
	read_address(answer->server, address_in(quoted.ip, family, 1), family);
	ports = quoted.ports;
	answer->client_port = ports[0];
	answer->server_port = ports[1];
	answer->protocol = quoted.protocol;
	read_address(&recipient, address_in(packet->ip, family, 1), family);
	if (!is_same_address(&recipient, answer->client) || !read_reply(answer, &reply))
		return pass(REASON_OTHER_PROTOCOL);
	if (!is_for_us(context, packet->frame))
		return pass(REASON_NOT_FOR_US);
	if (hops_left(packet->ip, family) <= 1)
		return pass(REASON_HOP_LIMIT);
	rewrite_error(packet, &quoted, family, OUTWARD, (__u32 *)reply.address, reply.port, end);
	return send_reply(context, scratch, packet, &reply);
}

/* To the client: what a server has sent. */
static __always_inline int translate_reply(struct xdp_md *context, struct scratch *scratch, int family)
{
	__u32 offset = scratch->offset & 31, reason, now = jiffies();
	struct answer *answer = &scratch->answer;
	struct packet packet = {};
	struct reply reply;

#if WITH_IPV6
	if (family == FAMILY_IPV6)
		reason = parse6(context, offset, &packet);
	else
#endif
		reason = parse4(context, offset, &packet);
	if (reason == REASON_MALFORMED || !is_within(&packet, family, (void *)(long)context->data_end))
		return pass(reason);
	if (packet.fragment == LATER_FRAGMENT)
		return reply_fragment(context, scratch, &packet, family);
	if (!packet.transport)
		return pass(reason);
	if (reason != REASON_FORWARDED)
		return reply_error(context, scratch, &packet, family);
	__builtin_memset(answer, 0, sizeof(*answer));
	read_address(answer->client, address_in(packet.ip, family, 1), family);
	read_address(answer->server, address_in(packet.ip, family, 0), family);
	answer->client_port = packet.destination_port;
	answer->server_port = packet.source_port;
	answer->protocol = packet.protocol;
	blur(scratch, &packet);
	if (!read_reply(answer, &reply))
		return pass(REASON_NO_SERVICE);
	if (!is_for_us(context, packet.frame))
		return pass(REASON_NOT_FOR_US);
	if (!find_any_flow(family, answer, &reply, &packet, now)) {
		bpf_map_delete_elem(MAP(replies), answer);
		return pass(REASON_NO_SERVICE);
	}
	if (hops_left(packet.ip, family) <= 1)
		return pass(REASON_HOP_LIMIT);
	if (packet.fragment == FIRST_FRAGMENT) {
		name_datagram(&scratch->datagram, &packet, family);
		reply.stamp = now;
		bpf_map_update_elem(MAP(reply_fragments), &scratch->datagram, &reply, 0);
	}
	rewrite(&packet, family, OUTWARD, (__u32 *)reply.address, reply.port, (void *)(long)context->data_end);
	return send_reply(context, scratch, &packet, &reply);
}

static __always_inline int translate(struct xdp_md *context)
{
	struct scratch *scratch = element(MAP(scratchpad), 0);

	if (!scratch)
		return drop(REASON_NO_ROOM);
#if WITH_IPV6
	if (scratch->family == FAMILY_IPV6)
		return translate_request(context, scratch, FAMILY_IPV6);
#endif
	return translate_request(context, scratch, FAMILY_IPV4);
}

static __always_inline int expect(struct xdp_md *context)
{
	struct scratch *scratch = element(MAP(scratchpad), 0);

	if (!scratch)
		return drop(REASON_NO_ROOM);
#if WITH_IPV6
	if (scratch->family == FAMILY_IPV6)
		return expect_reply(context, scratch, FAMILY_IPV6);
#endif
	return expect_reply(context, scratch, FAMILY_IPV4);
}

/* A part of its own, or the verifier would follow it once for each kind of packet. */
static __always_inline int tell_sender(struct xdp_md *context)
{
	struct scratch *scratch = element(MAP(scratchpad), 0);
	struct packet packet = {};
	__u32 offset;

	if (!scratch)
		return drop(REASON_NO_ROOM);
	offset = scratch->offset & 31;
#if WITH_IPV6
	if (scratch->family == FAMILY_IPV6) {
		parse6(context, offset, &packet);
		return refuse(context, scratch, &packet, FAMILY_IPV6, offset, scratch->next);
	}
#endif
	parse4(context, offset, &packet);
	return refuse(context, scratch, &packet, FAMILY_IPV4, offset, scratch->next);
}

static __always_inline int answer(struct xdp_md *context)
{
	struct scratch *scratch = element(MAP(scratchpad), 0);

	if (!scratch)
		return pass(REASON_NO_SERVICE);
#if WITH_IPV6
	if (scratch->family == FAMILY_IPV6)
		return translate_reply(context, scratch, FAMILY_IPV6);
#endif
	return translate_reply(context, scratch, FAMILY_IPV4);
}

#endif

#endif
