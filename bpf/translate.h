/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * Other addresses and ports in a packet, or in the one that an ICMP error quotes. Checksums change by what the packet changes
 * (RFC 1624), so that a wrong one stays wrong.
 */
#ifndef HAXLB_TRANSLATE_H
#define HAXLB_TRANSLATE_H

#include "send.h"
#include "tag.h"
#include "tunnel.h"

#if WITH_NAT

#define TCP_CHECKSUM_END 18
#define ICMP_CHECKSUM 2
#define REPLY_EXPECTED 0x80000000 /* in `flows` of the scratchpad: PROGRAM_EXPECT has been here */
#define OUTWARD 1 /* what a server has sent, or what is about that */
#define INWARD 0

/* An address; IPv4 in the first word. */
struct address {
	__u32 words[4];
};

static __always_inline __u64 changed(__u64 sum, __u32 from, __u32 to)
{
	return sum + (__u32)~from + to;
}

static __always_inline __u16 folded(__u64 sum)
{
	sum = (sum & 0xffffffff) + (sum >> 32);
	sum = (sum & 0xffff) + (sum >> 16);
	sum = (sum & 0xffff) + (sum >> 16);
	return (sum & 0xffff) + (sum >> 16);
}

/* Equation 3 of RFC 1624. */
static __always_inline __u16 corrected(__u16 checksum, __u64 sum)
{
	return ~folded((__u16)~checksum + sum);
}

/* UDP's: 0 says that there is none. */
static __always_inline __u16 corrected_udp(__u16 checksum, __u64 sum)
{
	__u16 result = corrected(checksum, sum);

	if (!checksum)
		return 0;
	return result ? result : 0xffff;
}

static __always_inline __u32 words_of(int family)
{
	return family == FAMILY_IPV4 ? 1 : 4;
}

/* The place of the source or the destination in a header of IP. */
static __always_inline __u32 *address_in(void *ip, int family, int destination)
{
	if (family == FAMILY_IPV4)
		return destination ? &((struct iphdr *)ip)->daddr : &((struct iphdr *)ip)->saddr;
	return (__u32 *)(destination ? &((struct ipv6hdr *)ip)->daddr : &((struct ipv6hdr *)ip)->saddr);
}

static __always_inline int is_same_address(const void *a, const void *b)
{
	const __u32 *one = a, *other = b;

	return !((one[0] ^ other[0]) | (one[1] ^ other[1]) | (one[2] ^ other[2]) | (one[3] ^ other[3]));
}

static __always_inline void read_address(void *address, const __u32 *place, int family)
{
	__builtin_memcpy(address, place, 4 * words_of(family));
}

/* The compiler may count from elsewhere than the pointer whose bounds have been verified: once more, where it cannot know. */
static __always_inline int is_within(struct packet *packet, int family, void *end)
{
	__u32 header = family == FAMILY_IPV4 ? sizeof(struct iphdr) : sizeof(struct ipv6hdr);
	void *frame = packet->frame, *ip = packet->ip;

	if (!frame || !ip)
		return 0;
	OPAQUE(frame);
	OPAQUE(ip);
	if (frame + ETH_HLEN > end || ip + header > end)
		return 0;
	packet->frame = frame;
	packet->ip = ip;
	return 1;
}

/* By way of memory: the verifier would follow all that comes once for each protocol, and for each kind of packet. */
static __always_inline void blur(struct scratch *scratch, struct packet *packet)
{
	WRITE_ONCE(scratch->hash, (__u32)packet->protocol << 16 | (__u32)packet->fragment << 8 | packet->flags);
	packet->protocol = READ_ONCE(scratch->hash) >> 16;
	packet->fragment = READ_ONCE(scratch->hash) >> 8;
	packet->flags = READ_ONCE(scratch->hash);
}

/* Returns the sum of what it changes. */
static __always_inline __u64 write_address(__u32 *place, const __u32 *words, int family)
{
	__u64 sum = 0;

#pragma unroll
	for (__u32 word = 0; word < words_of(family); word++) {
		sum = changed(sum, place[word], words[word]);
		place[word] = words[word];
	}
	return sum;
}

/* TTL or hop limit: one less. Returns the sum of what that changes, which only IPv4's checksum covers. */
static __always_inline __u64 age_packet(void *ip, int family)
{
	struct iphdr *header = ip;
	__u16 was;

	if (family == FAMILY_IPV6) {
		((struct ipv6hdr *)ip)->hop_limit--;
		return 0;
	}
	was = *(__u16 *)&header->ttl;
	header->ttl--;
	return changed(0, was, *(__u16 *)&header->ttl);
}

static __always_inline __u8 hops_left(const void *ip, int family)
{
	return family == FAMILY_IPV4 ? ((struct iphdr *)ip)->ttl : ((struct ipv6hdr *)ip)->hop_limit;
}

/*
 * Exchange a port, and correct the checksum of TCP or UDP for that and for `sum`. Returns the sum of what has changed here, for
 * the checksum of an ICMP error around it. `room`: bytes of the packet from `ports` on.
 */
static __always_inline __u64 write_port(void *ports, __u8 protocol, int destination, __u16 port, __u64 sum, __u32 room, void *end)
{
	__u16 *place = ports + (destination ? 2 : 0), *checksum, was;
	__u64 here = changed(0, *place, port);

	*place = port;
	if (protocol == IPPROTO_UDP) {
		checksum = ports + __builtin_offsetof(struct udphdr, check);
		was = *checksum;
		*checksum = corrected_udp(was, sum + here);
		return changed(here, was, *checksum);
	}
	/* An ICMP error need not hold so much of it. */
	if (room < TCP_CHECKSUM_END || ports + TCP_CHECKSUM_END > end)
		return here;
	checksum = ports + __builtin_offsetof(struct tcphdr, check);
	was = *checksum;
	*checksum = corrected(was, sum + here);
	return changed(here, was, *checksum);
}

/* Give the packet another source (`outward`) or destination. */
static __always_inline void rewrite(const struct packet *packet, int family, int outward, const __u32 *address, __u16 port,
				    void *end)
{
	__u64 sum = write_address(address_in(packet->ip, family, !outward), address, family);

	if (family == FAMILY_IPV4) {
		struct iphdr *ip = packet->ip;

		ip->check = corrected(ip->check, sum + age_packet(ip, family));
	} else {
		age_packet(packet->ip, family);
	}
	if (packet->fragment != LATER_FRAGMENT && packet->transport + sizeof(struct udphdr) <= end)
		write_port(packet->transport, packet->protocol, !outward, port, sum, ~0u, end);
}

/* The packet that an ICMP error is about. */
struct quoted {
	void *icmp;
	void *ip;
	void *ports;
	__u32 room; /* bytes of it from `ports` on */
	__u8 protocol;
};

/* Returns 0 where that is no error, or about nothing of ours. */
static __always_inline int parse_quoted(const struct packet *packet, int family, struct quoted *quoted, void *end)
{
	__u8 *icmp = packet->transport;
	__u32 header;
	void *ip;

	if (packet->fragment != WHOLE || (void *)icmp + ICMP_HEADER_BYTES > end)
		return 0;
	quoted->icmp = icmp;
	ip = icmp + ICMP_HEADER_BYTES;
	if (family == FAMILY_IPV4) {
		if (packet->protocol != IPPROTO_ICMP || !is_error(*icmp, ERRORS4))
			return 0;
		if (ip + sizeof(struct iphdr) > end)
			return 0;
		header = (*(__u8 *)ip & 0x0f) * 4;
		if (*(__u8 *)ip >> 4 != 4 || header < sizeof(struct iphdr) ||
		    ((struct iphdr *)ip)->frag_off & bpf_htons(IP_FRAGMENT_OFFSET))
			return 0;
		quoted->protocol = ((struct iphdr *)ip)->protocol;
	} else {
		if (packet->protocol != PROTOCOL_ICMPV6 || !is_error(*icmp, ERRORS6))
			return 0;
		if (ip + sizeof(struct ipv6hdr) > end || *(__u8 *)ip >> 4 != 6)
			return 0;
		header = sizeof(struct ipv6hdr);
		quoted->protocol = ((struct ipv6hdr *)ip)->nexthdr;
		/* What is too big may well be a fragment; other extensions are not looked through. */
		if (quoted->protocol == NEXT_FRAGMENT) {
			__u8 *fragment = ip + header;

			if ((void *)fragment + 8 > end || *(__u16 *)(fragment + 2) & bpf_htons(0xfff8))
				return 0;
			quoted->protocol = fragment[0];
			header += 8;
		}
	}
	if (quoted->protocol != IPPROTO_TCP && quoted->protocol != IPPROTO_UDP)
		return 0;
	quoted->ip = ip;
	quoted->ports = ip + header;
	if (quoted->ports + sizeof(struct udphdr) > end)
		return 0;
	/* The frame may be longer than the packet. */
	header = packet->length - (__u32)((__u64)quoted->ports - (__u64)packet->ip);
	OPAQUE(header);
	quoted->room = header;
	return (__s32)header >= (__s32)sizeof(struct udphdr);
}

/* As `rewrite`, of an ICMP error: the packet it quotes went the other way. All three or four checksums are right after it. */
static __always_inline void rewrite_error(const struct packet *packet, const struct quoted *quoted, int family, int outward,
					  const __u32 *address, __u16 port, void *end)
{
	__u64 outer = write_address(address_in(packet->ip, family, !outward), address, family);
	__u64 inner = write_address(address_in(quoted->ip, family, outward), address, family);
	__u64 sum = inner;
	__u16 *checksum = quoted->icmp + ICMP_CHECKSUM;

	if (family == FAMILY_IPV4) {
		struct iphdr *ip = packet->ip;
		__u16 was;

		ip->check = corrected(ip->check, outer + age_packet(ip, family));
		ip = quoted->ip;
		was = ip->check;
		ip->check = corrected(was, inner);
		sum = changed(sum, was, ip->check);
	} else {
		age_packet(packet->ip, family);
		/* ICMPv6 covers a pseudo header (RFC 4443 section 2.3). */
		sum += outer;
	}
	sum += write_port(quoted->ports, quoted->protocol, outward, port, inner, quoted->room, end);
	*checksum = corrected(*checksum, sum);
}

#endif

#endif
