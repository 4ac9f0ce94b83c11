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
#include "matter.h"
#include "clients.h"
#include "decide.h"

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
				flow_touch(record.flow, record.value, state, matter->now);
#if WITH_PERSISTENCE
				if (matter->frontend.flags & FRONTEND_PERSISTENT)
					keep_template(packet, matter, state);
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
