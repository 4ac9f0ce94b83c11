/* SPDX-License-Identifier: GPL-2.0-or-later */
/* persistence_timeout: the server that a client keeps, whatever flow it begins. */
#ifndef HAXLB_CLIENTS_H
#define HAXLB_CLIENTS_H

#include "matter.h"
#include "room.h"

#if WITH_PERSISTENCE
/* The record that says which server a client has, of all its flows to a service: a fwmark joins its ports. */
static __always_inline void identify_client(struct identity *identity, const struct packet *packet, struct service *service,
					    const struct matter *matter)
{
	struct packet client = {};

	if (matter->family == FAMILY_IPV4)
		client.source = packet->source & service->persistence_mask;
	if (matter->wide && matter->family == FAMILY_IPV4)
		client.address[1] = (__u64)client.source << 32;
	if (matter->family == FAMILY_IPV6) {
		__u32 bits = service->persistence_prefix & 127;

		/* 0 is all of them; masks are of bytes in the order of the wire. */
		client.address[0] = packet->address[0];
		client.address[1] = packet->address[1];
		if (bits && bits < 64) {
			client.address[0] &= __builtin_bswap64(~(~0ull >> bits));
			client.address[1] = 0;
		} else if (bits) {
			client.address[1] &= __builtin_bswap64(bits == 64 ? 0 : ~(~0ull >> (bits - 64)));
		}
	}
	/* A flow from port 0 is never recorded, so a service's number is not taken for a frontend's. */
	identify(identity, &client, matter->frontend.service, 0, matter->wide);
}

static __always_inline int is_client(__u64 value, struct service *service, __u32 now)
{
	return FLOW_STATE(value) >= FLOW_TEMPLATE && age_of(value, now) < SECONDS(service->persistence);
}

/* persistence_timeout: the server that this client has. Returns 0 when there is none. */
static __always_inline int find_client(struct service *service, const struct packet *packet, const struct matter *matter,
				       struct choice *choice)
{
	struct flow *template = NULL;
	struct identity client;
	void *bucket;
	__u64 value;

	identify_client(&client, packet, service, matter);
	bucket = flow_bucket(client.hash, matter->wide);
	if (bucket)
		template = flow_find(bucket, &client, matter->wide);
	if (!template)
		return 0;
	template = some_way(bucket, template, matter->wide);
	value = READ_ONCE(template->value);
	choice->index = FLOW_BACKEND(value);
	choice->backend = element(MAP(backends), choice->index);
	if (!choice->backend || !is_client(value, service, matter->now))
		return 0;
	choice->identity = identity_of(choice->backend);
	if (!is_known(value, choice->identity, matter->frontend.service) || !(choice->identity & BACKEND_ALIVE))
		return 0;
	/* Its second flow, or the second packet of one: it is none of the forged ones of a flood. */
	flow_touch(template, value, FLOW_TEMPLATE, matter->now);
	return 1;
}

/*
 * It has this one from now on. Without room it has none, and its next flow may go elsewhere. Until its second packet it makes room
 * itself, as IPVS gives up what is not assured (IP_VS_CTPL_S_ASSURED): else a flood of forged clients would fill the table.
 */
static __always_inline void remember_client(struct service *service, const struct packet *packet, const struct matter *matter,
					    const struct choice *choice)
{
	__u8 incarnation = IDENTITY_INCARNATION(choice->identity);
	struct flow *template = NULL;
	struct identity client;
	__u64 claimed = 0;
	void *bucket;

	identify_client(&client, packet, service, matter);
	bucket = flow_bucket(client.hash, matter->wide);
	if (!bucket)
		return;
	template = flow_find(bucket, &client, matter->wide);
	if (template) {
		__u64 value = READ_ONCE(template->value);

		/* Another service's flow cannot have this key, and a claim of another CPU is for the same client. */
		if (FLOW_STATE(value) >= FLOW_TEMPLATE) {
			flow_change(template, value, FLOW_VALUE(choice->index, incarnation, FLOW_STATE(value), matter->now));
			return;
		}
	}
	template = flow_claim(bucket, &client, matter->now, matter->wide, &claimed);
	if (template)
		flow_change(template, claimed, FLOW_VALUE(choice->index, incarnation, FLOW_TEMPLATE_NEW, matter->now));
}

/* A flow of a persistent service that goes on, and has come into `state` by it, keeps its client's server, too. */
static __always_inline void keep_template(const struct packet *packet, const struct matter *matter, __u8 state)
{
	struct service *service = element(MAP(services), matter->frontend.service);
	struct flow *template = NULL;
	struct identity client;
	void *bucket;
	__u64 value;

	if (!service)
		return;
	identify_client(&client, packet, service, matter);
	bucket = flow_bucket(client.hash, matter->wide);
	if (bucket)
		template = flow_find(bucket, &client, matter->wide);
	if (!template)
		return;
	value = READ_ONCE(template->value);
	if (is_client(value, service, matter->now))
		flow_touch(template, value, state == FLOW_TCP_ESTABLISHED || state == FLOW_UDP ? FLOW_TEMPLATE : FLOW_STATE(value),
			   matter->now);
}
#endif

#endif
