/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * TUN: the packet goes to its server inside another one, as it is: IP in IP (RFC 2003, 2473, 4213), GUE (version 0 of
 * draft-ietf-intarea-gue) or GRE (RFC 2784). What the outer header has is what IPVS writes (ip_vs_tunnel_xmit of
 * ip_vs_xmit.c); docs/explanation/tunnels.md tells where we differ. haxlb/forwarding/reference_tunnel.py says the same.
 */
#ifndef HAXLB_TUNNEL_H
#define HAXLB_TUNNEL_H

#include "send.h"
#include "sums.h"
#include "too_long.h"

#define TUNNEL_PORTS 0xc000 /* the first of the source ports (RFC 6335: dynamic ones) */
#define TAG_PRIORITY 0xf000 /* and drop eligibility */
#define GUE_HEADER 4
#define GRE_HEADER 4
#define GRE_CHECKSUM_PRESENT 0x8000

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
