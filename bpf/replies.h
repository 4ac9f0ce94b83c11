/* SPDX-License-Identifier: GPL-2.0-or-later */
/* NAT: what a server's answer is found by. An entry of `replies` lives as long as the record of the flow it answers. */
#ifndef HAXLB_REPLIES_H
#define HAXLB_REPLIES_H

#include "features.h"
#include "maps.h"
#include "parse.h"

/*
 * The flow of this record is no more, or its server no longer: so is what that one answers. The record still has the flow's
 * key, and `value` is what it said last. That the server's index may since be another server's is for user space: it looks
 * through all entries when it gives an index away.
 */
static __always_inline void forget_reply(const struct flow *flow, __u64 value, int wide)
{
#if WITH_NAT
	struct backend *backend = element(MAP(backends), FLOW_BACKEND(value));
	struct scratch *scratch = element(MAP(scratchpad), 0);
	__u64 key = flow->key;
	__u8 state = FLOW_STATE(value);
	struct answer *answer;

	if (!scratch || !backend || backend->method != METHOD_NAT || backend->incarnation != FLOW_INCARNATION(value))
		return;
	answer = &scratch->answer;
	__builtin_memset(answer, 0, sizeof(*answer));
	if (!wide)
		*(__u32 *)answer->client = key;
	else if (backend->family == FAMILY_IPV4)
		*(__u32 *)answer->client = ((struct wide_flow *)flow)->rest[1] >> 32;
	else
		__builtin_memcpy(answer->client, ((struct wide_flow *)flow)->rest, 16);
	__builtin_memcpy(answer->server, backend->address, 16);
	answer->client_port = key >> 32;
	answer->server_port = backend->port;
	/* A server that keeps the port of the packet: of such a frontend the key has it. */
	if (wide && !answer->server_port)
		answer->server_port = key >> 16;
	answer->protocol = state == FLOW_UDP_NEW || state == FLOW_UDP ? IPPROTO_UDP : IPPROTO_TCP;
	bpf_map_delete_elem(MAP(replies), answer);
#endif
}

#endif
