/* SPDX-License-Identifier: GPL-2.0-or-later */
/* What the forwarder reads of a frame, or why it leaves the frame to the kernel. */
#ifndef HAXLB_PARSE_H
#define HAXLB_PARSE_H

#include <linux/if_ether.h>
#include <linux/in.h>
#include <linux/ip.h>
#include <linux/tcp.h>
#include <linux/udp.h>

#include "abi.h"

/*
 * EtherType of an IPv4 packet of which a director doubts whose it is: it asks the other one by it. Of those that IEEE 802
 * leaves to local use: the packet itself stays as it is, and who does not know it drops it.
 */
#define ETH_P_IN_DOUBT 0x88b5
#define IP_FRAGMENT 0x3fff /* more fragments, or an offset */

#define TCP_FIN 0x01
#define TCP_SYN 0x02
#define TCP_RST 0x04
#define TCP_ACK 0x10
#define TCP_FLAGS_BYTE 13

struct packet {
	void *frame;
	__u32 source; /* addresses and ports as on the wire */
	__u32 destination;
	__u16 source_port;
	__u16 destination_port;
	__u16 length; /* of IP */
	__u8 protocol;
	__u8 flags; /* TCP's, 0 for UDP */
};

static __always_inline int is_syn(const struct packet *packet)
{
	return (packet->flags & (TCP_SYN | TCP_ACK | TCP_RST | TCP_FIN)) == TCP_SYN;
}

/* Fill `packet` from a frame of IPv4; returns REASON_FORWARDED when it may be a service's. */
static __always_inline enum reason parse(struct xdp_md *context, struct packet *packet)
{
	void *frame = (void *)(long)context->data, *end = (void *)(long)context->data_end;
	struct iphdr *ip = frame + ETH_HLEN;
	__u32 header, transport = sizeof(struct udphdr);
	__u16 *ports;

	if ((void *)(ip + 1) > end)
		return REASON_MALFORMED;
	header = (*(__u8 *)ip & 0x0f) * 4;
	if (*(__u8 *)ip >> 4 != 4 || header < sizeof(*ip))
		return REASON_MALFORMED;
	if (ip->frag_off & bpf_htons(IP_FRAGMENT))
		return REASON_FRAGMENT;
	packet->protocol = ip->protocol;
	if (packet->protocol == IPPROTO_TCP)
		transport = sizeof(struct tcphdr);
	else if (packet->protocol != IPPROTO_UDP)
		return REASON_NOT_TCP_UDP;

	packet->length = bpf_ntohs(ip->tot_len);
	if (packet->length < header + transport || frame + ETH_HLEN + packet->length > end)
		return REASON_MALFORMED;
	ports = (void *)ip + header;
	/* The verifier does not follow the length: say again what has been established. */
	if ((void *)ports + sizeof(struct udphdr) > end)
		return REASON_MALFORMED;
	packet->source_port = ports[0];
	packet->destination_port = ports[1];
	packet->flags = 0;
	if (packet->protocol == IPPROTO_TCP) {
		if ((void *)ports + sizeof(struct tcphdr) > end)
			return REASON_MALFORMED;
		packet->flags = ((__u8 *)ports)[TCP_FLAGS_BYTE];
	}
	packet->frame = frame;
	packet->source = ip->saddr;
	packet->destination = ip->daddr;
	return REASON_FORWARDED;
}

#endif
