/* SPDX-License-Identifier: GPL-2.0-or-later */
/* Sums of 16-bit words, as the checksums of IP, UDP and GRE are made of (RFC 1071). */
#ifndef HAXLB_SUMS_H
#define HAXLB_SUMS_H

#include "parse.h"

/* bpf_csum_diff takes 512 bytes at most. */
#define SUM_AT_ONCE 512
#define SUM_CHUNK 64
#define SUM_CHUNKS 64 /* all of a frame of one buffer, whose page is 4096 bytes */

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

#endif
