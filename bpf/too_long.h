/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * What is too long for the way to its server: whoever has sent it is told (RFC 1191, RFC 8201), as a router would do.
 * docs/explanation/tunnels.md
 */
#ifndef HAXLB_TOO_LONG_H
#define HAXLB_TOO_LONG_H

#include "send.h"
#include "sums.h"

#define NEXT_ICMPV6 58
#define IP_DONT_FRAGMENT 0x4000
#define IP_LEAST_MTU 68	    /* RFC 791 */
#define IPV6_LEAST_MTU 1280 /* RFC 8200 section 5 */
#define ICMP_HEADER 8
#define ICMP_UNREACHABLE 3
#define ICMP_TOO_LONG 4
#define ICMPV6_TOO_LONG 2
#define ICMP_HOPS 64
#define ICMP_TRAFFIC_CLASS 0xc0 /* internetwork control (RFC 1812 section 4.3.2.5) */
/* Errors quote as much as fits into 576 bytes (RFC 1812 section 4.3.2.3) and 1280 (RFC 4443 section 2.4). */
#define ICMP_QUOTE 548
#define ICMP_LEAST_QUOTE 68 /* the longest header and eight bytes */
#define ICMPV6_QUOTE 1232
#define ICMP_ERRORS 1000 /* a second, of each CPU */

/* Whether one more error may be sent in this second. */
static __always_inline int may_complain(struct scratch *scratch)
{
	__u32 now = jiffies();

	if (now - scratch->errors_since >= SECONDS(1)) {
		scratch->errors_since = now;
		scratch->errors = 0;
	}
	if (scratch->errors >= ICMP_ERRORS)
		return 0;
	scratch->errors++;
	return 1;
}

/* Whom no error is sent to, and about what (RFC 1122 section 3.2.2, RFC 4443 section 2.4). */
static __always_inline int deserves_no_error(const struct packet *packet, int family)
{
	__u8 first = family == FAMILY_IPV4 ? packet->source : packet->address[0];

	if (packet->fragment == LATER_FRAGMENT)
		return 1;
	if (family == FAMILY_IPV4)
		return packet->protocol == IPPROTO_ICMP || !first || first == 127 || first >= 224;
	return packet->protocol == NEXT_ICMPV6 || first == 0xff || !(packet->address[0] | packet->address[1]);
}

/* `length` bytes of a frame that has them, known when this is compiled. */
static __always_inline __u64 sum_quote(void *from, __u32 length)
{
	__u32 sum = 0;

#pragma unroll
	for (__u32 at = 0; at < length; at += SUM_AT_ONCE)
		sum = bpf_csum_diff(NULL, 0, from + at, length - at < SUM_AT_ONCE ? length - at : SUM_AT_ONCE, sum);
	return sum;
}

/*
 * The frame has been made longer by `from - to` bytes at its beginning: its Ethernet header with `offset - ETH_HLEN` bytes of
 * tags moves there, and goes back to where it came from. Returns 0 where the frame ends before.
 */
static __always_inline int turn_back(void *to, void *from, void *end, __u32 offset)
{
	__u32 macs[3];
	__u64 kinds;
	__u16 last;

	if (from + ETH_HLEN + MOST_TAGS * TAG_BYTES > end || to + ETH_HLEN + MOST_TAGS * TAG_BYTES > end)
		return 0;
	/* The places overlap: read all, then write. */
	__builtin_memcpy(macs, from + ETH_ALEN, ETH_ALEN);
	__builtin_memcpy((void *)macs + ETH_ALEN, from, ETH_ALEN);
	kinds = *(__u64 *)(from + 2 * ETH_ALEN);
	last = *(__u16 *)(from + 2 * ETH_ALEN + sizeof(kinds));
	__builtin_memcpy(to, macs, 2 * ETH_ALEN);
	to += 2 * ETH_ALEN;
	*(__u16 *)to = kinds;
	if (offset >= ETH_HLEN + TAG_BYTES) {
		*(__u16 *)(to + 2) = kinds >> 16;
		*(__u16 *)(to + 4) = kinds >> 32;
	}
	if (offset >= ETH_HLEN + 2 * TAG_BYTES) {
		*(__u16 *)(to + 6) = kinds >> 48;
		*(__u16 *)(to + 8) = last;
	}
	return 1;
}

/* Make the frame what stands before its packet, `room` bytes, and `quote` bytes of the packet. */
static __always_inline int quote_packet(struct xdp_md *context, __u32 offset, __u32 quote, __u32 room)
{
	int rest = bpf_xdp_get_buff_len(context) - offset;

	return !bpf_xdp_adjust_tail(context, (int)quote - rest) && !bpf_xdp_adjust_head(context, -(int)room);
}

static __always_inline int complain4(struct xdp_md *context, const struct packet *packet, __u32 offset, __u32 mtu)
{
	__u32 quote = packet->length < ICMP_QUOTE ? ICMP_LEAST_QUOTE : ICMP_QUOTE, room = sizeof(struct iphdr) + ICMP_HEADER;
	void *frame, *end, *quoted;
	struct iphdr *ip;
	__u16 *icmp;
	__u64 sum;

	if (!quote_packet(context, offset, quote, room))
		return drop(REASON_NO_ROOM);
	frame = (void *)(long)context->data;
	end = (void *)(long)context->data_end;
	if (!turn_back(frame, frame + room, end, offset))
		return drop(REASON_NO_ROOM);
	ip = frame + offset;
	icmp = (void *)(ip + 1);
	quoted = (void *)icmp + ICMP_HEADER;
	if (quoted + ICMP_LEAST_QUOTE > end)
		return drop(REASON_NO_ROOM);
	sum = sum_quote(quoted, ICMP_LEAST_QUOTE);
	if (quote == ICMP_QUOTE) {
		if (quoted + ICMP_QUOTE > end)
			return drop(REASON_NO_ROOM);
		sum += sum_quote(quoted + ICMP_LEAST_QUOTE, ICMP_QUOTE - ICMP_LEAST_QUOTE);
	}
	*(__u16 *)ip = bpf_htons(0x4500 | ICMP_TRAFFIC_CLASS);
	ip->tot_len = bpf_htons(room + quote);
	ip->id = 0;
	ip->frag_off = bpf_htons(IP_DONT_FRAGMENT);
	ip->ttl = ICMP_HOPS;
	ip->protocol = IPPROTO_ICMP;
	ip->check = 0;
	ip->saddr = packet->destination;
	ip->daddr = packet->source;
	ip->check = ~fold(sum_words(ip, sizeof(*ip)));
	icmp[0] = bpf_htons(ICMP_UNREACHABLE << 8 | ICMP_TOO_LONG);
	icmp[1] = 0;
	icmp[2] = 0;
	icmp[3] = bpf_htons(mtu);
	icmp[1] = ~fold(sum + icmp[0] + icmp[3]);
	note(REASON_TOO_BIG);
	return XDP_TX;
}

#if WITH_IPV6
static __always_inline int complain6(struct xdp_md *context, const struct packet *packet, __u32 offset, __u32 mtu)
{
	__u32 room = sizeof(struct ipv6hdr) + ICMP_HEADER;
	void *frame, *end, *quoted;
	struct ipv6hdr *ip;
	__u16 *icmp;
	__u64 sum;

	if (!quote_packet(context, offset, ICMPV6_QUOTE, room))
		return drop(REASON_NO_ROOM);
	frame = (void *)(long)context->data;
	end = (void *)(long)context->data_end;
	if (!turn_back(frame, frame + room, end, offset))
		return drop(REASON_NO_ROOM);
	ip = frame + offset;
	icmp = (void *)(ip + 1);
	quoted = (void *)icmp + ICMP_HEADER;
	if (quoted + ICMPV6_QUOTE > end)
		return drop(REASON_NO_ROOM);
	*(__u32 *)ip = bpf_htonl(6u << 28 | ICMP_TRAFFIC_CLASS << 20);
	ip->payload_len = bpf_htons(ICMP_HEADER + ICMPV6_QUOTE);
	ip->nexthdr = NEXT_ICMPV6;
	ip->hop_limit = ICMP_HOPS;
	__builtin_memcpy(&ip->saddr, quoted + sizeof(*ip) - 16, 16);
	__builtin_memcpy(&ip->daddr, packet->address, 16);
	icmp[0] = bpf_htons(ICMPV6_TOO_LONG << 8);
	icmp[1] = 0;
	icmp[2] = 0;
	icmp[3] = bpf_htons(mtu);
	/* Its pseudo-header is the addresses, the length and the protocol (RFC 8200 section 8.1). */
	sum = sum_words(&ip->saddr, 32) + bpf_htons(ICMP_HEADER + ICMPV6_QUOTE) + bpf_htons(NEXT_ICMPV6);
	sum += sum_words(icmp, ICMP_HEADER);
	icmp[1] = ~fold(sum + sum_quote(quoted, ICMPV6_QUOTE));
	note(REASON_TOO_BIG);
	return XDP_TX;
}
#endif

/*
 * The packet does not fit into the `room` of a tunnel. It cannot be made two here: its sender is told, also where it left it to
 * routers to fragment, and may send smaller ones.
 */
static __always_inline int refuse(struct xdp_md *context, struct scratch *scratch, const struct packet *packet, int family,
				  __u32 offset, int room)
{
	if (deserves_no_error(packet, family))
		return drop(REASON_NO_ROOM);
#if WITH_IPV6
	if (family == FAMILY_IPV6) {
		/* Nobody takes a smaller one for true (RFC 8201 section 4). */
		if (packet->length <= IPV6_LEAST_MTU || !may_complain(scratch))
			return drop(REASON_NO_ROOM);
		return complain6(context, packet, offset, room < IPV6_LEAST_MTU ? IPV6_LEAST_MTU : room);
	}
#endif
	if (room < IP_LEAST_MTU || !may_complain(scratch))
		return drop(REASON_NO_ROOM);
	return complain4(context, packet, offset, room);
}

#endif
