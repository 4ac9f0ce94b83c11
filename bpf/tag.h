/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * VLAN tags (IEEE 802.1Q): a frame leaves with the one tag of the way to its server, or with none. The tag that it came with is
 * rewritten, dropped or put in; its priority and drop eligibility stay.
 */
#ifndef HAXLB_TAG_H
#define HAXLB_TAG_H

#include "send.h"

#define TAG_VLAN 0x0fff
#define TAG_PRIORITY 0xf000

/* Give the frame whose packet begins at `offset` the tag of VLAN `wanted`, or none; NULL where it cannot be. */
static __always_inline void *put_tag(struct xdp_md *context, __u32 offset, __u32 wanted)
{
	void *frame = (void *)(long)context->data, *end = (void *)(long)context->data_end;
	__u32 tags = (offset - ETH_HLEN) / TAG_BYTES & 3, control = 0;
	__u16 kind, *words = frame + 2 * ETH_ALEN + tags * TAG_BYTES;

	if ((void *)(words + 1) > end || frame + ETH_HLEN > end)
		return NULL;
	kind = *words;
	if (tags) {
		if (frame + ETH_HLEN + TAG_BYTES > end)
			return NULL;
		control = bpf_ntohs(*(__u16 *)(frame + ETH_HLEN));
	}
	/* A tag of VLAN 0 says a priority and no VLAN (IEEE 802.1Q section 9.6). */
	if (tags != 1 || (control & TAG_VLAN) != wanted) {
		int spare = (int)tags - (wanted != 0);

		if (spare && bpf_xdp_adjust_head(context, spare * TAG_BYTES))
			return NULL;
		frame = (void *)(long)context->data;
		end = (void *)(long)context->data_end;
		if (frame + ETH_HLEN + TAG_BYTES > end)
			return NULL;
		words = frame + 2 * ETH_ALEN;
		if (wanted) {
			/* The tag that was there alone keeps its kind. */
			if (tags != 1)
				words[0] = bpf_htons(ETH_P_8021Q);
			words[1] = bpf_htons((control & TAG_PRIORITY) | wanted);
			words[2] = kind;
		} else {
			words[0] = kind;
		}
	}
	return frame;
}

/*
 * The last part of the way of a packet whose frame has a tag, or needs one: it counts, and it sends. The parts before have
 * said in the scratchpad what `leave` would have to know.
 */
static __always_inline int retag(struct xdp_md *context)
{
	struct scratch *scratch = element(MAP(scratchpad), 0);
	struct packet packet = {};
	struct choice choice;
	__u32 reason;

	if (!scratch)
		return drop(REASON_NO_ROOM);
	choice.index = scratch->backend;
	choice.identity = scratch->identity;
	choice.backend = element(MAP(backends), choice.index);
	reason = scratch->reason;
	if (!choice.backend || reason >= REASON_COUNT)
		return drop(REASON_NO_ROOM);
	packet.frame = put_tag(context, scratch->offset,
			       choice.backend->vlans[(choice.identity & BACKEND_HOP) / BACKEND_HOP] & TAG_VLAN);
	if (!packet.frame)
		return drop(REASON_NO_ROOM);
	packet.length = scratch->length;
	return leave(context, &packet, &scratch->frontend, &choice, reason, scratch->flows);
}

#endif
