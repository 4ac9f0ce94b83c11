/* SPDX-License-Identifier: GPL-2.0-or-later */
/* How a packet leaves: verdicts, counters, and the way to a server. */
#ifndef HAXLB_SEND_H
#define HAXLB_SEND_H

#include "choose.h"
#include "maps.h"

static __always_inline void note(enum reason reason)
{
	__u64 *packets = element(MAP(verdicts), 0);

	if (packets)
		packets[reason]++;
}

static __always_inline int pass(enum reason reason)
{
	note(reason);
	return XDP_PASS;
}

static __always_inline int drop(enum reason reason)
{
	note(reason);
	return XDP_DROP;
}

/* Go on in another part of the program; returns only where that is not built: then no service needs it. */
static __always_inline int go_on(struct xdp_md *context, __u32 program)
{
	tail_call(context, MAP(programs), program);
	return pass(REASON_NO_SERVICE);
}

static __always_inline int same_mac(const void *a, const void *b)
{
	/* The last four bytes differ most, and lie on an even address in a frame and in our records. */
	return *(__u32 *)(a + 2) == *(__u32 *)(b + 2) && *(__u16 *)a == *(__u16 *)b;
}

static __always_inline const void *source_mac(const struct packet *packet)
{
	return packet->frame + ETH_ALEN;
}

/* A bridge floods what it has no entry for, and a veth takes it all: only frames to a MAC of ours are ours. */
static __always_inline int is_for_us(struct xdp_md *context, const void *frame)
{
	__u32 interface = context->ingress_ifindex;
	struct near_interface *near = element(MAP(near_interfaces), interface & (NEAR_INTERFACES - 1));
	struct virtual_mac virtual = {};
	struct own_mac *own;

	if (near && near->interface == interface && same_mac(frame, near->mac))
		return 1;
	own = bpf_map_lookup_elem(MAP(interfaces), &interface);
	if (!own)
		return 0;
	if (same_mac(frame, own->mac))
		return 1;
	virtual.interface = interface;
	__builtin_memcpy(virtual.mac, frame, ETH_ALEN);
	return bpf_map_lookup_elem(MAP(virtual_macs), &virtual) != NULL;
}

/* Out of another interface: by the devmap, or by its index where it is not in there. */
static __always_inline int redirect(__u32 interface)
{
	int verdict = bpf_redirect_map(MAP(devices), interface, XDP_DROP);

	return verdict == XDP_REDIRECT ? verdict : bpf_redirect(interface, 0);
}

static __always_inline int send(struct xdp_md *context, const struct packet *packet, const struct next_hop *hop)
{
	const __u32 *macs = (const __u32 *)hop;
	__u32 *frame = packet->frame;

	frame[0] = macs[0];
	frame[1] = macs[1];
	frame[2] = macs[2];
	if (hop->interface == context->ingress_ifindex)
		return XDP_TX;
	return redirect(hop->interface);
}

static __always_inline void count(void *map, __u32 index, const struct packet *packet, __u32 flows)
{
	struct tally *tally = element(map, index);

	if (!tally)
		return;
	tally->packets++;
	tally->bytes += packet->length;
	tally->flows += flows;
}

/* What leaves for a server is counted. */
static __always_inline int leave(struct xdp_md *context, const struct packet *packet, const struct frontend *frontend,
				 const struct choice *choice, enum reason reason, __u32 flows)
{
	note(reason);
	count(MAP(service_tallies), frontend->service, packet, flows);
	count(MAP(backend_tallies), choice->index, packet, flows);
	return send(context, packet, hop_of(choice->backend, choice->identity));
}

/* Whether a frame whose packet begins at `offset` may have other VLAN tags than those of the way: PROGRAM_TAG sees to it. */
static __always_inline int is_tagged(const struct choice *choice, __u32 offset)
{
	return choice->identity & BACKEND_TAGGED || offset != ETH_HLEN;
}

/*
 * Hand over to a server. All that is not a mere exchange of MACs is for another part. `tagged`, the way has a tag, is known when
 * this is compiled, and for untagged frames `offset` is.
 */
static __always_inline int forward_to(struct xdp_md *context, const struct packet *packet, int family, __u32 offset,
				      const struct frontend *frontend, const struct choice *choice, enum reason reason,
				      __u32 flows, __u32 now, int tagged)
{
	int is_direct = 1;

#if WITH_TUNNEL || WITH_NAT
	is_direct = choice->backend->method == METHOD_DR;
#endif
	if (tagged || !is_direct || offset != ETH_HLEN) {
		struct scratch *scratch = element(MAP(scratchpad), 0);

		if (!scratch)
			return drop(REASON_NO_ROOM);
		scratch->offset = offset;
		scratch->family = family;
		scratch->frontend = *frontend;
		scratch->backend = choice->index;
		scratch->identity = choice->identity;
		scratch->reason = reason;
		scratch->flows = flows;
		scratch->now = now;
		scratch->length = packet->length;
#if WITH_TUNNEL
		if (choice->backend->method == METHOD_TUN)
			return go_on(context, PROGRAM_TUNNEL);
#endif
#if WITH_NAT
		if (choice->backend->method == METHOD_NAT)
			return go_on(context, PROGRAM_NAT);
#endif
		return go_on(context, PROGRAM_TAG);
	}
	return leave(context, packet, frontend, choice, reason, flows);
}

#endif
