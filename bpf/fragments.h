/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * Later fragments have no ports: they go where the first one of their datagram went, which is written down for as long as a
 * datagram may take to be put together again. docs/explanation/related-packets.md
 */
#ifndef HAXLB_FRAGMENTS_H
#define HAXLB_FRAGMENTS_H

#include "choose.h"

#define FRAGMENTS_LAST 30 /* seconds: ipfrag_time and ip6frag_time of Linux */

/* RFC 791: addresses, protocol and identification; RFC 8200 section 4.5: without the protocol. */
static __always_inline void name_datagram(struct datagram *datagram, const struct packet *packet, int family)
{
	__builtin_memset(datagram, 0, sizeof(*datagram));
	datagram->identification = packet->identification;
	if (family == FAMILY_IPV4) {
		*(__u32 *)datagram->source = packet->source;
		*(__u32 *)datagram->destination = packet->destination;
		datagram->protocol = packet->protocol;
		return;
	}
	__builtin_memcpy(datagram->source, packet->address, 16);
	__builtin_memcpy(datagram->destination, &((struct ipv6hdr *)packet->ip)->daddr, 16);
}

/* `choice` NULL: to the other director, as `flags` and `kind` say. */
static __always_inline void remember_fragment(const struct packet *packet, int family, const struct frontend *frontend,
					      const struct choice *choice, __u8 flags, __u16 kind)
{
	struct scratch *scratch;
	struct fragment *fragment;

	if (packet->fragment != FIRST_FRAGMENT)
		return;
	scratch = element(MAP(scratchpad), 0);
	if (!scratch)
		return;
	name_datagram(&scratch->datagram, packet, family);
	fragment = &scratch->fragment;
	fragment->backend = choice ? choice->index : 0;
	fragment->incarnation = choice ? IDENTITY_INCARNATION(choice->identity) : 0;
	fragment->flags = flags | (frontend->flags & FRONTEND_SHARED ? FRAGMENT_SHARED : 0);
	fragment->service = frontend->service;
	fragment->kind = kind;
	fragment->stamp = jiffies();
	bpf_map_update_elem(MAP(fragments), &scratch->datagram, fragment, BPF_ANY);
}

/* NULL where nobody remembers the first one. */
static __always_inline struct fragment *find_fragment(const struct packet *packet, int family)
{
	struct scratch *scratch = element(MAP(scratchpad), 0);
	struct fragment *fragment;

	if (!scratch)
		return NULL;
	name_datagram(&scratch->datagram, packet, family);
	fragment = bpf_map_lookup_elem(MAP(fragments), &scratch->datagram);
	if (!fragment || age_of((__u64)fragment->stamp << 32, jiffies()) >= SECONDS(FRAGMENTS_LAST))
		return NULL;
	return fragment;
}

#endif
