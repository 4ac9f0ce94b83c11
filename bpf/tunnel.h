/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * TUN: the packet goes to its server inside another one, as it is: IP in IP (RFC 2003, 2473, 4213), GUE (version 0 of
 * draft-ietf-intarea-gue) or GRE (RFC 2784). What the outer header has is what IPVS writes (ip_vs_tunnel_xmit of
 * ip_vs_xmit.c); docs/explanation/tunnels.md tells where we differ. haxlb/forwarding/reference_tunnel.py says the same.
 */
#ifndef HAXLB_TUNNEL_H
#define HAXLB_TUNNEL_H

#include "send.h"

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
#define TUNNEL_PORTS 0xc000 /* the first of the source ports (RFC 6335: dynamic ones) */
#define TAG_PRIORITY 0xf000 /* and drop eligibility */
#define GUE_HEADER 4
#define GRE_HEADER 4
#define GRE_CHECKSUM_PRESENT 0x8000
/* bpf_csum_diff takes 512 bytes at most. */
#define SUM_AT_ONCE 512
#define SUM_CHUNK 64
#define SUM_CHUNKS 64 /* all of a frame of one buffer, whose page is 4096 bytes */

/* What the inner packet gives to the outer header. */
struct inner {
	__u32 length;
	__u32 hash; /* of its flow */
	__u64 sum;  /* of all its 16-bit words, not yet folded, where that is asked for */
	__u8 traffic_class;
	__u8 hops;
	__u8 next; /* what the outer one calls it */
	__u8 may_fragment;
};

/* What stands before the packet afterwards, in bytes. */
struct wrapping {
	__u32 ip;
	__u32 shim; /* UDP and GUE, or GRE */
};

/* Ones' complement: 16 bits. */
static __always_inline __u16 fold(__u64 sum)
{
	sum = (sum & 0xffffffff) + (sum >> 32);
	sum = (sum & 0xffff) + (sum >> 16);
	sum = (sum & 0xffff) + (sum >> 16);
	sum = (sum & 0xffff) + (sum >> 16);
	return sum;
}

/* What has just been written as something else. */
typedef __u32 __attribute__((may_alias)) word;

/* Of `length` bytes, known when this is compiled. */
static __always_inline __u64 sum_words(const void *words, __u32 length)
{
	__u64 sum = 0;

#pragma unroll
	for (__u32 at = 0; at < length; at += 4)
		sum += *(const word *)(words + at);
	return sum;
}

/* Of all that is left of a frame without padding; returns 0 where it does not lie in one buffer. */
static __always_inline int sum_rest(struct xdp_md *context, void *from, __u64 *sum)
{
	void *end = (void *)(long)context->data_end;
	__u64 odd = 0;
	__u32 chunks = 0;

#if WITH_JUMBO
	if (bpf_xdp_get_buff_len(context) != (__u32)(context->data_end - context->data))
		return 0;
#endif
#pragma clang loop unroll(disable)
	for (int chunk = 0; chunk < SUM_CHUNKS; chunk++) {
		if (from + SUM_CHUNK > end)
			break;
		chunks = bpf_csum_diff(NULL, 0, from, SUM_CHUNK, chunks);
		from += SUM_CHUNK;
	}
#pragma clang loop unroll(disable)
	for (int word = 0; word < SUM_CHUNK / 4; word++) {
		if (from + 4 > end)
			break;
		odd += *(__u32 *)from;
		from += 4;
	}
	if (from + 2 <= end) {
		odd += *(__u16 *)from;
		from += 2;
	}
	if (from + 1 <= end) {
		odd += *(__u8 *)from;
		from += 1;
	}
	*sum = odd + chunks;
	return from + 1 > end;
}

/*
 * The sum of the whole packet. That of a segment is known from its checksum, whose pseudo-header makes up for it, so that the
 * packet need not be read (Linux calls this local checksum offload); where the sender's was wrong, the outer one is, and who
 * would have dropped the inner packet drops the outer one. Returns 0 where the sum cannot be found.
 */
static __always_inline int sum_of(struct xdp_md *context, const struct packet *packet, int family, __u32 offset, __u64 *sum)
{
	void *end = (void *)(long)context->data_end, *ip = (void *)(long)context->data + offset;
	__u32 header = family == FAMILY_IPV4 ? sizeof(struct iphdr) : sizeof(struct ipv6hdr);
	int known = packet->fragment == WHOLE && (packet->protocol == IPPROTO_TCP || packet->protocol == IPPROTO_UDP);
	struct udphdr *udp = ip + header;

	if (known && (void *)(udp + 1) <= end) {
		/* Options and extension headers may name another destination, and are in no checksum. */
		if (family == FAMILY_IPV4)
			known = *(__u8 *)ip == 0x45;
		else
			known = ((struct ipv6hdr *)ip)->nexthdr == packet->protocol;
		/* Nor is what UDP does not cover of the packet. */
		if (packet->protocol == IPPROTO_UDP)
			known = known && udp->check && bpf_ntohs(udp->len) == packet->length - header;
		if (known && family == FAMILY_IPV4) {
			/* The header's own checksum makes its sum nothing. */
			*sum = (__u16)~fold((__u64)packet->source + packet->destination + bpf_htons(packet->protocol) +
					    bpf_htons(packet->length - header));
			return 1;
		}
		if (known) {
			/* Addresses and length are both in the header and in the pseudo-header. */
			*sum = (__u64)*(__u32 *)ip + *(__u16 *)(ip + 6) + (__u16)~bpf_htons(packet->protocol);
			return 1;
		}
	}
	return sum_rest(context, (void *)(long)context->data + offset, sum);
}

static __always_inline void look_at(const struct packet *packet, int family, struct inner *inner)
{
	__u32 ports = 0;

	inner->length = packet->length;
	inner->sum = 0;
	/* The fragments of a datagram stay together. */
	if (packet->fragment == WHOLE &&
	    (packet->protocol == IPPROTO_TCP || packet->protocol == IPPROTO_UDP || packet->protocol == IPPROTO_SCTP))
		ports = (__u32)packet->destination_port << 16 | packet->source_port;
	if (family == FAMILY_IPV4) {
		const struct iphdr *ip = packet->ip;

		inner->hash = mix(packet->source, ports);
		inner->traffic_class = ip->tos;
		inner->hops = ip->ttl;
		inner->next = IPPROTO_IPIP;
		inner->may_fragment = !(ip->frag_off & bpf_htons(IP_DONT_FRAGMENT));
		return;
	}
	inner->hash = mix(mix_address(0, packet->address), ports);
	inner->traffic_class = bpf_ntohs(*(__u16 *)packet->ip) >> 4;
	inner->hops = ((struct ipv6hdr *)packet->ip)->hop_limit;
	inner->next = IPPROTO_IPV6;
	inner->may_fragment = 1;
}

static __always_inline void wrapping_of(const struct backend *backend, struct wrapping *wrapping)
{
	__u32 gue = backend->tunnel == TUNNEL_GUE, gre = backend->tunnel == TUNNEL_GRE;
	__u32 checked = backend->tunnel_flags & TUNNEL_CHECKSUM;

	wrapping->ip = backend->family == FAMILY_IPV6 ? sizeof(struct ipv6hdr) : sizeof(struct iphdr);
	wrapping->shim = gue * (sizeof(struct udphdr) + GUE_HEADER) + gre * (GRE_HEADER + 4 * checked);
	/* One number from here on, not each of six. */
	OPAQUE(wrapping->shim);
}

/* Of a UDP checksum: none is what 0 says. */
static __always_inline __u16 checksum_of(__u64 sum)
{
	__u16 checksum = ~fold(sum);

	return checksum ? checksum : 0xffff;
}

/* `shim` lies within the frame; `pseudo` is the sum of the outer addresses. */
static __always_inline void write_shim(void *shim, const struct backend *backend, const struct inner *inner, __u64 pseudo)
{
	__u16 *words = shim;

	if (backend->tunnel == TUNNEL_GUE) {
		__u16 length = bpf_htons(inner->length + sizeof(struct udphdr) + GUE_HEADER);

		words[0] = bpf_htons(TUNNEL_PORTS | inner->hash >> 18);
		words[1] = backend->tunnel_port;
		words[2] = length;
		words[3] = 0;
		/* Version 0, no private fields, not a control message. */
		words[4] = bpf_htons(inner->next);
		words[5] = 0;
		if (backend->tunnel_flags & TUNNEL_CHECKSUM)
			words[3] = checksum_of(pseudo + bpf_htons(IPPROTO_UDP) + length + sum_words(words, 12) + inner->sum);
	} else if (backend->tunnel == TUNNEL_GRE) {
		words[0] = 0;
		words[1] = inner->next == IPPROTO_IPIP ? bpf_htons(ETH_P_IP) : bpf_htons(ETH_P_IPV6);
		if (backend->tunnel_flags & TUNNEL_CHECKSUM) {
			words[0] = bpf_htons(GRE_CHECKSUM_PRESENT);
			words[2] = 0;
			words[3] = 0;
			words[2] = ~fold(sum_words(words, 8) + inner->sum);
		}
	}
}

static __always_inline __u8 outer_protocol(const struct backend *backend, const struct inner *inner)
{
	if (backend->tunnel == TUNNEL_GUE)
		return IPPROTO_UDP;
	return backend->tunnel == TUNNEL_GRE ? IPPROTO_GRE : inner->next;
}

/* Returns 0 where the frame ends before. */
static __always_inline int write_outer4(void *at, void *end, const struct backend *backend, const struct inner *inner,
					const struct wrapping *wrapping)
{
	__u32 source = *(__u32 *)backend->source, destination = *(__u32 *)backend->address;
	struct iphdr *ip = at;

	if (at + sizeof(*ip) + sizeof(struct udphdr) + GUE_HEADER > end)
		return 0;
	*(__u16 *)ip = bpf_htons(0x4500 | inner->traffic_class);
	ip->tot_len = bpf_htons(wrapping->ip + wrapping->shim + inner->length);
	/* Only who may be fragmented needs an identification (RFC 6864). */
	ip->id = inner->may_fragment ? bpf_get_prandom_u32() : 0;
	ip->frag_off = inner->may_fragment ? 0 : bpf_htons(IP_DONT_FRAGMENT);
	ip->ttl = inner->hops;
	ip->protocol = outer_protocol(backend, inner);
	ip->check = 0;
	ip->saddr = source;
	ip->daddr = destination;
	ip->check = ~fold(sum_words(ip, sizeof(*ip)));
	write_shim(ip + 1, backend, inner, (__u64)source + destination);
	return 1;
}

/* Also where no service is of IPv6: servers may be. */
static __always_inline int write_outer6(void *at, void *end, const struct backend *backend, const struct inner *inner,
					const struct wrapping *wrapping)
{
	struct ipv6hdr *ip = at;

	if (at + sizeof(*ip) + sizeof(struct udphdr) + GUE_HEADER > end)
		return 0;
	/* The flow label is for those who spread flows on the way (RFC 6438). */
	*(__u32 *)ip = bpf_htonl(6u << 28 | (__u32)inner->traffic_class << 20 | inner->hash >> 12);
	ip->payload_len = bpf_htons(wrapping->shim + inner->length);
	ip->nexthdr = outer_protocol(backend, inner);
	ip->hop_limit = inner->hops;
	__builtin_memcpy(&ip->saddr, backend->source, 16);
	__builtin_memcpy(&ip->daddr, backend->address, 16);
	write_shim(ip + 1, backend, inner, sum_words(backend->source, 16) + sum_words(backend->address, 16));
	return 1;
}

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

/* Ethernet allows no frame of less than 60 bytes: cut off what is not of the packet. Returns 0 where there is none. */
static __always_inline int trim(struct xdp_md *context, int family, __u32 offset)
{
	void *end = (void *)(long)context->data_end, *ip = (void *)(long)context->data + offset;
	int padding;

	if (ip + sizeof(struct iphdr) > end)
		return 0;
	if (family == FAMILY_IPV4)
		padding = -bpf_ntohs(((struct iphdr *)ip)->tot_len);
	else
		padding = -bpf_ntohs(((struct ipv6hdr *)ip)->payload_len) - (int)sizeof(struct ipv6hdr);
#if WITH_JUMBO
	padding += (int)bpf_xdp_get_buff_len(context) - (int)offset;
#else
	padding += (int)(context->data_end - context->data) - (int)offset;
#endif
	return padding <= 0 || !bpf_xdp_adjust_tail(context, -padding);
}

/* The packet is in the scratchpad's words; it leaves in a tunnel. */
static __always_inline int wrap(struct xdp_md *context, struct scratch *scratch, int family)
{
	__u32 offset = scratch->offset & 31, index = scratch->backend, counted = scratch->reason, tag, at;
	struct choice choice = {.backend = element(MAP(backends), index), .index = index, .identity = scratch->identity};
	struct backend *backend = choice.backend;
	struct wrapping wrapping = {};
	struct packet packet = {};
	struct inner inner = {};
	void *frame, *end;
	__u16 *kind;
	int room, written;
	enum reason reason;

	if (!backend || counted >= REASON_COUNT || !trim(context, family, offset))
		return drop(REASON_NO_ROOM);
#if WITH_IPV6
	if (family == FAMILY_IPV6)
		reason = parse6(context, offset, &packet);
	else
#endif
		reason = parse4(context, offset, &packet);
	if (reason == REASON_MALFORMED)
		return pass(REASON_MALFORMED);
	/* The address of this host is learned with the way to the server. */
	if (!*(__u32 *)backend->source)
		return drop(REASON_NO_SERVER);
	wrapping_of(backend, &wrapping);
	room = (int)backend->mtu - (int)wrapping.ip - (int)wrapping.shim;
	if (packet.length > room)
		return refuse(context, scratch, &packet, family, offset, room);
	look_at(&packet, family, &inner);
	if (backend->tunnel != TUNNEL_IPIP && backend->tunnel_flags & TUNNEL_CHECKSUM &&
	    !sum_of(context, &packet, family, offset, &inner.sum))
		return drop(REASON_NO_ROOM);
	tag = backend->vlans[(choice.identity & BACKEND_HOP) / BACKEND_HOP];
	at = tag ? ETH_HLEN + TAG_BYTES : ETH_HLEN;
	/* Its priority and drop eligibility stay. */
	if (tag && offset > ETH_HLEN && packet.frame + ETH_HLEN + TAG_BYTES <= (void *)(long)context->data_end)
		tag |= bpf_ntohs(*(__u16 *)(packet.frame + ETH_HLEN)) & TAG_PRIORITY;
	if (bpf_xdp_adjust_head(context, (int)offset - (int)(at + wrapping.ip + wrapping.shim)))
		return drop(REASON_NO_ROOM);
	frame = (void *)(long)context->data;
	end = (void *)(long)context->data_end;
	kind = frame + 2 * ETH_ALEN;
	if (frame + ETH_HLEN + TAG_BYTES > end)
		return drop(REASON_NO_ROOM);
	if (tag) {
		kind[0] = bpf_htons(ETH_P_8021Q);
		kind[1] = bpf_htons(tag);
		kind += 2;
	}
	if (backend->family == FAMILY_IPV6) {
		*kind = bpf_htons(ETH_P_IPV6);
		written = write_outer6(kind + 1, end, backend, &inner, &wrapping);
	} else {
		*kind = bpf_htons(ETH_P_IP);
		written = write_outer4(kind + 1, end, backend, &inner, &wrapping);
	}
	if (!written)
		return drop(REASON_NO_ROOM);
	packet.frame = frame;
	return leave(context, &packet, &scratch->frontend, &choice, counted, scratch->flows);
}

static __always_inline int tunnel(struct xdp_md *context)
{
	struct scratch *scratch = element(MAP(scratchpad), 0);

	if (!scratch)
		return drop(REASON_NO_ROOM);
#if WITH_IPV6
	if (scratch->family == FAMILY_IPV6)
		return wrap(context, scratch, FAMILY_IPV6);
#endif
	return wrap(context, scratch, FAMILY_IPV4);
}

#endif
