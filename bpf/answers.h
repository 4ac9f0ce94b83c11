/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * NAT: which packets may be the answer of a server. All that is no service's would have to be looked up, and what this host
 * gets for itself is not to pay for that: a bit for each address and port of a server says that it has been asked.
 */
#ifndef HAXLB_ANSWERS_H
#define HAXLB_ANSWERS_H

#include "flow.h"

static __always_inline int may_answer(const struct packet *packet, int family)
{
	__u64 *words = element(MAP(answer_bits), 0), address[2];
	__u32 bit;

	address[0] = family == FAMILY_IPV4 ? packet->source : packet->address[0];
	address[1] = family == FAMILY_IPV4 ? 0 : packet->address[1];
	bit = address_bit(address, packet->source_port, family);
	return words && READ_ONCE(words[bit / 64]) >> (bit % 64) & 1;
}

/* It stays when the server goes: its packets then are looked up for nothing. */
static __always_inline void note_server(const struct answer *answer, int family)
{
	__u32 bit = address_bit((const __u64 *)answer->server, answer->server_port, family);
	__u64 *words = element(MAP(answer_bits), 0);

	if (words && !(READ_ONCE(words[bit / 64]) >> (bit % 64) & 1))
		__sync_fetch_and_or(&words[bit / 64], 1ull << (bit % 64));
}

#endif
