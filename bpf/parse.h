/* SPDX-License-Identifier: GPL-2.0-or-later */
/* What the forwarder reads of a frame, or why it leaves the frame to the kernel. */
#ifndef HAXLB_PARSE_H
#define HAXLB_PARSE_H

#include <linux/if_ether.h>
#include <linux/in.h>
#include <linux/ip.h>
#include <linux/ipv6.h>
#include <linux/tcp.h>
#include <linux/udp.h>

#include "abi.h"
#include "features.h"

/*
 * EtherTypes of packets that directors send each other beside plain ones: of those that IEEE 802 leaves to local use. The
 * packet itself stays as it is, and who does not know them drops it. docs/adr/0003-ask-the-peer.md
 */
#define ETH_P_IN_DOUBT 0x88b5 /* do you know its flow, or a later one of the same ports? */
#define ETH_P_ANSWERED 0x88b6 /* I do not: it is yours to place */

#define IP_FRAGMENT 0x3fff /* more fragments, or an offset */
#define IP_FRAGMENT_OFFSET 0x1fff
#define IP_PLAIN 0x45 /* version 4, a header without options */
#define MOST_TAGS 2
#define TAG_BYTES 4
#define MOST_EXTENSIONS 6

#define NEXT_HOP_BY_HOP 0
#define NEXT_ROUTING 43
#define NEXT_FRAGMENT 44
#define NEXT_DESTINATION 60

#define TCP_FIN 0x01
#define TCP_SYN 0x02
#define TCP_RST 0x04
#define TCP_ACK 0x10
#define TCP_FLAGS_BYTE 13

#define SCTP_HEADER 12
#define SCTP_INIT 1
#define SCTP_ABORT 6
#define SCTP_SHUTDOWN 7
#define SCTP_SHUTDOWN_COMPLETE 14

#define WHOLE 0
#define FIRST_FRAGMENT 1
#define LATER_FRAGMENT 2

/* The compiler must not see through a calculation that stands for a branch, or it makes one of it. */
#define OPAQUE(variable) asm volatile("" : "+r"(variable))

#define FAMILY_IPV4 4
#define FAMILY_IPV6 6

struct packet {
	void *frame;
	void *ip;
	void *transport;
	__u64 address[2]; /* of IPv6: the source's */
	__u32 source;	  /* IPv4; addresses and ports as on the wire */
	__u32 destination;
	__u16 source_port;
	__u16 destination_port;
	__u16 length; /* of IP */
	__u8 protocol;
	__u8 flags; /* TCP's, 0 for UDP; of SCTP those that mean the same */
	__u8 fragment;
	__u32 identification;
};

static __always_inline int is_syn(const struct packet *packet)
{
	return (packet->flags & (TCP_SYN | TCP_ACK | TCP_RST | TCP_FIN)) == TCP_SYN;
}

/* May be the first of its flow. */
static __always_inline int begins(const struct packet *packet)
{
	return packet->protocol == IPPROTO_UDP || is_syn(packet);
}

/* From the service's own address: no client's, and its answer would never leave the server. */
static __always_inline int is_from_itself(const struct packet *packet, int family)
{
#if WITH_IPV6
	if (family == FAMILY_IPV6) {
		const __u64 *destination = (const __u64 *)&((struct ipv6hdr *)packet->ip)->daddr;

		return packet->address[0] == destination[0] && packet->address[1] == destination[1];
	}
#endif
	return packet->source == packet->destination;
}

/* Whether the frame ends before `length` bytes from `offset`; what lies in further buffers is asked for only where it counts. */
static __always_inline int is_cut(struct xdp_md *context, __u32 offset, __u32 length)
{
	if ((void *)(long)context->data + offset + length <= (void *)(long)context->data_end)
		return 0;
#if WITH_JUMBO
	return bpf_xdp_get_buff_len(context) < offset + length;
#else
	return 1;
#endif
}

static __always_inline __u8 sctp_flags(__u8 chunk)
{
	if (chunk == SCTP_INIT)
		return TCP_SYN;
	if (chunk == SCTP_ABORT)
		return TCP_RST;
	if (chunk == SCTP_SHUTDOWN || chunk == SCTP_SHUTDOWN_COMPLETE)
		return TCP_FIN;
	return TCP_ACK;
}

/* Ports and flags; `room` bytes of the packet are said to follow `ports`. */
static __always_inline enum reason parse_transport(struct packet *packet, __u16 *ports, __u32 room, void *end)
{
	__u32 least = sizeof(struct udphdr);

	if (packet->protocol == IPPROTO_TCP)
		least = sizeof(struct tcphdr);
	else if (packet->protocol == IPPROTO_SCTP)
		least = SCTP_HEADER + 1;
	if (room < least || (void *)ports + sizeof(struct udphdr) > end)
		return REASON_MALFORMED;
	packet->transport = ports;
	packet->source_port = ports[0];
	packet->destination_port = ports[1];
	packet->flags = 0;
	if (packet->protocol == IPPROTO_TCP) {
		if ((void *)ports + sizeof(struct tcphdr) > end)
			return REASON_MALFORMED;
		packet->flags = ((__u8 *)ports)[TCP_FLAGS_BYTE];
	} else if (packet->protocol == IPPROTO_SCTP) {
		if ((void *)ports + SCTP_HEADER + 1 > end)
			return REASON_MALFORMED;
		packet->flags = sctp_flags(((__u8 *)ports)[SCTP_HEADER]);
	}
	return REASON_FORWARDED;
}

/*
 * An untagged frame with a whole packet of IPv4 without options, of TCP or UDP: nearly all frames are such, and all of it lies where
 * it is expected. Returns 0 for any other, also a malformed one: PROGRAM_ANY looks at it more closely.
 */
static __always_inline int parse_plain(struct xdp_md *context, struct packet *packet)
{
	void *frame = (void *)(long)context->data, *end = (void *)(long)context->data_end;
	struct iphdr *ip = frame + ETH_HLEN;
	__u16 *ports = (void *)(ip + 1);

	if ((void *)ports + sizeof(struct udphdr) > end || *(__u16 *)(frame + 2 * ETH_ALEN) != bpf_htons(ETH_P_IP) ||
	    *(__u8 *)ip != IP_PLAIN || ip->frag_off & bpf_htons(IP_FRAGMENT))
		return 0;
	packet->frame = frame;
	packet->ip = ip;
	packet->transport = ports;
	packet->protocol = ip->protocol;
	packet->source = ip->saddr;
	packet->destination = ip->daddr;
	packet->length = bpf_ntohs(ip->tot_len);
	packet->source_port = ports[0];
	packet->destination_port = ports[1];
	packet->fragment = WHOLE;
	packet->flags = 0;
	if (is_cut(context, ETH_HLEN, packet->length))
		return 0;
	if (packet->protocol == IPPROTO_TCP) {
		if (packet->length < sizeof(*ip) + sizeof(struct tcphdr) || (void *)ports + sizeof(struct tcphdr) > end)
			return 0;
		packet->flags = ((__u8 *)ports)[TCP_FLAGS_BYTE];
		return 1;
	}
	return packet->protocol == IPPROTO_UDP && packet->length >= sizeof(*ip) + sizeof(struct udphdr);
}

/* Fill `packet` from a frame of IPv4 whose packet begins at `offset`; returns REASON_FORWARDED when it may be a service's. */
static __always_inline enum reason parse4(struct xdp_md *context, __u32 offset, struct packet *packet)
{
	void *frame = (void *)(long)context->data, *end = (void *)(long)context->data_end;
	struct iphdr *ip = frame + offset;
	__u32 header, first;

	/* The verifier asks for both where `offset` is read from memory. */
	if ((void *)(ip + 1) > end || frame + ETH_HLEN > end)
		return REASON_MALFORMED;
	header = (*(__u8 *)ip & 0x0f) * 4;
	if (*(__u8 *)ip >> 4 != 4 || header < sizeof(*ip))
		return REASON_MALFORMED;
	packet->frame = frame;
	packet->ip = ip;
	packet->protocol = ip->protocol;
	packet->source = ip->saddr;
	packet->destination = ip->daddr;
	packet->length = bpf_ntohs(ip->tot_len);
	/* Without a branch: the verifier would follow all that comes for whole packets and for first fragments. */
	first = bpf_ntohs(ip->frag_off) >> 13 & 1;
	OPAQUE(first);
	packet->fragment = first;
	packet->identification = ip->id;
	if (packet->length < header || is_cut(context, offset, packet->length))
		return REASON_MALFORMED;
	if (ip->frag_off & bpf_htons(IP_FRAGMENT_OFFSET)) {
		packet->fragment = LATER_FRAGMENT;
		return REASON_FRAGMENT;
	}
	if (packet->protocol != IPPROTO_TCP && packet->protocol != IPPROTO_UDP && packet->protocol != IPPROTO_SCTP) {
		packet->transport = (void *)ip + header;
		return REASON_OTHER_PROTOCOL;
	}
	return parse_transport(packet, (void *)ip + header, packet->length - header, end);
}

#if WITH_IPV6
/* As parse4. */
static __always_inline enum reason parse6(struct xdp_md *context, __u32 offset, struct packet *packet)
{
	void *frame = (void *)(long)context->data, *end = (void *)(long)context->data_end;
	struct ipv6hdr *ip = frame + offset;
	__u32 length, headers = sizeof(*ip);
	__u8 *header = (void *)(ip + 1);

	if ((void *)(ip + 1) > end || frame + ETH_HLEN > end || *(__u8 *)ip >> 4 != 6)
		return REASON_MALFORMED;
	packet->frame = frame;
	packet->ip = ip;
	packet->protocol = ip->nexthdr;
	packet->address[0] = *(__u64 *)&ip->saddr;
	packet->address[1] = *((__u64 *)&ip->saddr + 1);
	packet->fragment = WHOLE;
	length = sizeof(*ip) + bpf_ntohs(ip->payload_len);
	if (length > 0xffff || is_cut(context, offset, length))
		return REASON_MALFORMED;
	packet->length = length;
#pragma unroll
	for (int extension = 0; extension < MOST_EXTENSIONS; extension++) {
		if (packet->protocol != NEXT_HOP_BY_HOP && packet->protocol != NEXT_ROUTING &&
		    packet->protocol != NEXT_FRAGMENT && packet->protocol != NEXT_DESTINATION)
			break;
		if ((void *)(header + 8) > end)
			return REASON_MALFORMED;
		if (packet->protocol == NEXT_FRAGMENT) {
			__u16 place = bpf_ntohs(*(__u16 *)(header + 2));

			packet->identification = *(__u32 *)(header + 4);
			if (place & 0xfff8)
				packet->fragment = LATER_FRAGMENT;
			else if (place & 1)
				packet->fragment = FIRST_FRAGMENT;
			packet->protocol = header[0];
			headers += 8;
			header += 8;
			if (packet->fragment == LATER_FRAGMENT)
				return REASON_FRAGMENT;
		} else {
			__u32 size = (header[1] + 1) * 8;

			packet->protocol = header[0];
			headers += size;
			header += size;
		}
	}
	if (headers > length)
		return REASON_MALFORMED;
	if (packet->protocol != IPPROTO_TCP && packet->protocol != IPPROTO_UDP && packet->protocol != IPPROTO_SCTP) {
		packet->transport = header;
		return REASON_OTHER_PROTOCOL;
	}
	return parse_transport(packet, (__u16 *)header, length - headers, end);
}
#endif

#endif
