// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * haxlb's forwarder: direct routing of IPv4 TCP and UDP in XDP. What is not a service's reaches the kernel untouched.
 * docs/explanation/forwarder.md tells how it decides; haxlb/forwarding/reference.py says the same in Python, and tests
 * compare the two frame by frame.
 */
#ifndef FD_flows
#include <linux/bpf.h>
#include <bpf/bpf_helpers.h>
#include <bpf/bpf_endian.h>
#ifndef NULL
#define NULL ((void *)0)
#endif
#endif

#include "abi.h"
#include "maps.h"
#include "parse.h"
#include "flow.h"
#include "ring.h"

static __always_inline void note(enum reason reason)
{
	__u64 *packets = element(MAP(verdicts), 0);

	if (packets)
		packets[reason]++;
}

static __always_inline int pass(enum reason reason)
{
	note(reason);
	return XDP_PASS;
}

static __always_inline int drop(enum reason reason)
{
	note(reason);
	return XDP_DROP;
}

static __always_inline int same_mac(const void *a, const void *b)
{
	/* The last four bytes differ most, and lie on an even address in a frame and in our records. */
	return *(__u32 *)(a + 2) == *(__u32 *)(b + 2) && *(__u16 *)a == *(__u16 *)b;
}

static __always_inline const void *source_mac(const struct packet *packet)
{
	return packet->frame + ETH_ALEN;
}

/* A bridge floods what it has no entry for, and a veth takes it all: only frames to our own MAC are ours. */
static __always_inline int is_for_us(struct xdp_md *context, const void *frame)
{
	__u32 interface = context->ingress_ifindex;
	struct own_mac *own = bpf_map_lookup_elem(MAP(interfaces), &interface);

	return own && same_mac(frame, own->mac);
}

static __always_inline int send(struct xdp_md *context, const struct packet *packet, const struct next_hop *hop)
{
	__builtin_memcpy(packet->frame, hop, 2 * ETH_ALEN);
	if (hop->interface == context->ingress_ifindex)
		return XDP_TX;
	return bpf_redirect(hop->interface, 0);
}

static __always_inline void count(void *map, __u32 index, const struct packet *packet, __u32 flows)
{
	struct tally *tally = element(map, index);

	if (!tally)
		return;
	tally->packets++;
	tally->bytes += packet->length;
	tally->flows += flows;
}

static __always_inline int forward_to(struct xdp_md *context, const struct packet *packet, __u32 service,
				      const struct choice *choice, enum reason reason, __u32 flows)
{
	note(reason);
	count(MAP(service_tallies), service, packet, flows);
	count(MAP(backend_tallies), choice->index, packet, flows);
	return send(context, packet, hop_of(choice->backend, choice->identity));
}

/* The other director, where it may know what we do not: only in a service that takes turns. */
static __always_inline const struct next_hop *peer_of(struct service *service)
{
	__u8 select = READ_ONCE(service->select);

	if (!(select & SELECT_PEER_KNOWN) || !(service->halves[select & SELECT_HALF].flags & HALF_SEQUENCE))
		return NULL;
	return &service->peers[(select & SELECT_PEER) / SELECT_PEER];
}

/*
 * The other director took the SYN if we did not: it may know the flow. What it sends us it does not know, and what no
 * one knows is decided here.
 */
static __always_inline const struct next_hop *peer_to_ask(struct service *service, const struct packet *packet)
{
	const struct next_hop *peer = peer_of(service);

	return peer && same_mac(source_mac(packet), peer->destination) ? NULL : peer;
}

static __always_inline int to_peer(struct xdp_md *context, const struct packet *packet, const struct next_hop *peer)
{
	note(REASON_ASKED_PEER);
	return send(context, packet, peer);
}

static __always_inline __u32 *service_of(const struct packet *packet)
{
	struct endpoint endpoint = {};

	endpoint.address = packet->destination;
	endpoint.port = packet->destination_port;
	endpoint.protocol = packet->protocol;
	return bpf_map_lookup_elem(MAP(endpoints), &endpoint);
}

/* Is the server on record in `value` the one that has its index now? */
static __always_inline int is_known(__u64 value, __u32 identity, __u32 service)
{
	return IDENTITY_SERVER(identity) == IDENTITY(service, FLOW_INCARNATION(value)) && FLOW_STATE(value) > FLOW_CLAIMED;
}

/*
 * Where a packet goes back to that the peer doubts and that is of no flow of ours: to the peer, as a packet of IPv4, and what
 * it has on record decides. NULL: it is ours to handle.
 */
static __always_inline const struct next_hop *way_back(const struct packet *packet)
{
	__u32 *index = service_of(packet);
	struct service *service = index ? element(MAP(services), *index) : NULL;
	const struct next_hop *peer = service ? peer_of(service) : NULL;
	struct bucket *bucket;
	struct backend *backend;
	struct flow *flow;
	__u64 key, value;

	if (!peer || !same_mac(source_mac(packet), peer->destination) || packet->protocol != IPPROTO_TCP || is_syn(packet))
		return NULL;
	key = FLOW_KEY(packet->source, packet->source_port, *index);
	bucket = bucket_of(key);
	flow = bucket ? flow_find(bucket, key) : NULL;
	if (!flow)
		return peer;
	value = READ_ONCE(flow->value);
	backend = element(MAP(backends), FLOW_BACKEND(value));
	return backend && is_known(value, identity_of(backend), *index) ? NULL : peer;
}

/* No live server is on record for this packet. `flow` is its entry if it has one, `value` what was read there. */
static __always_inline int decide(struct xdp_md *context, const struct packet *packet, __u32 index, __u64 key,
				  struct bucket *bucket, struct flow *flow, __u64 value, int known, __u32 now)
{
	struct service *service = element(MAP(services), index);
	int begins = packet->protocol == IPPROTO_UDP || is_syn(packet);
	enum reason reason = begins ? REASON_NEW_FLOW : known ? REASON_MOVED_FLOW : REASON_UNKNOWN_FLOW;
	struct flow *claimed = NULL;
	struct choice choice = {};
	__u64 recorded;

	if (!service)
		return pass(REASON_NO_SERVICE);
	if (reason == REASON_UNKNOWN_FLOW) {
		const struct next_hop *peer = peer_to_ask(service, packet);

		if (peer)
			return to_peer(context, packet, peer);
	}
	/* Room first: a flow that is not recorded must go where its next packet, unknown again, will go. */
	if (!flow) {
		flow = claimed = flow_claim(bucket, key, now);
		if (!flow)
			reason = REASON_TABLE_FULL;
	}
	if (!pick(index, service, packet, flow && reason != REASON_UNKNOWN_FLOW, &choice)) {
		if (claimed)
			flow_release(claimed);
		return drop(REASON_NO_SERVER);
	}
	if (flow) {
		recorded = FLOW_VALUE(choice.index, IDENTITY_INCARNATION(choice.identity), state_of_first(packet), now);
		if (claimed)
			WRITE_ONCE(claimed->value, recorded);
		else
			__sync_val_compare_and_swap(&flow->value, value, recorded);
	}
	if (choice.identity & BACKEND_LOCAL)
		return pass(REASON_LOCAL);
	if (same_mac(source_mac(packet), hop_of(choice.backend, choice.identity)->destination))
		return pass(REASON_LOOP);
	return forward_to(context, packet, index, &choice, reason, flow != NULL);
}

#ifndef FD_flows
SEC("xdp")
#endif
int haxlb_forward(struct xdp_md *context)
{
	struct ethhdr *ethernet = (void *)(long)context->data;
	struct packet packet;
	struct bucket *bucket;
	struct flow *flow;
	struct choice choice;
	enum reason reason;
	__u32 *index, service, now;
	__u64 key, value = 0;
	int known = 0;

	if ((void *)(ethernet + 1) > (void *)(long)context->data_end)
		return pass(REASON_MALFORMED);
	if (__builtin_expect(ethernet->h_proto != bpf_htons(ETH_P_IP), 0)) {
		const struct next_hop *back;
		struct packet asked;

		if (ethernet->h_proto != bpf_htons(ETH_P_IN_DOUBT) || !is_for_us(context, ethernet))
			return pass(REASON_NOT_IPV4);
		ethernet->h_proto = bpf_htons(ETH_P_IP);
		/* Parsed apart, so that no other packet has to say that it is not one of these. */
		if (parse(context, &asked) == REASON_FORWARDED) {
			back = way_back(&asked);
			if (back)
				return to_peer(context, &asked, back);
		}
	}
	reason = parse(context, &packet);
	if (reason != REASON_FORWARDED)
		return pass(reason);
	index = service_of(&packet);
	if (!index)
		return pass(REASON_NO_SERVICE);
	service = *index;

	now = jiffies();
	key = FLOW_KEY(packet.source, packet.source_port, service);
	bucket = bucket_of(key);
	if (!bucket)
		return pass(REASON_NO_SERVICE);
	flow = flow_find(bucket, key);
	if (flow) {
		value = READ_ONCE(flow->value);
		/* The key once more: the way may have been given to another flow meanwhile, and the value with it. */
		if (READ_ONCE(flow->key) != key)
			flow = NULL;
	}
	if (flow) {
		choice.index = FLOW_BACKEND(value);
		choice.backend = element(MAP(backends), choice.index);
		if (!choice.backend)
			return pass(REASON_NO_SERVICE);
		choice.identity = identity_of(choice.backend);
		known = is_known(value, choice.identity, service);
		if (known && choice.identity & BACKEND_ALIVE && flow_goes_on(&packet, value, now)) {
			const struct next_hop *hop = hop_of(choice.backend, choice.identity);
			__u8 state = state_after(&packet, FLOW_STATE(value));

			/* On the interface that it leaves by, what it must be addressed to is at hand. */
			if (hop->interface == context->ingress_ifindex ? !same_mac(packet.frame, hop->source)
								       : !is_for_us(context, packet.frame))
				return pass(REASON_NOT_FOR_US);
			if (flow_needs_touch(value, state, now)) {
				if (flow_is_in_doubt(value, now)) {
					struct service *its = element(MAP(services), service);
					const struct next_hop *peer = its ? peer_to_ask(its, &packet) : NULL;

					if (peer) {
						struct ethhdr *asks = packet.frame;

						asks->h_proto = bpf_htons(ETH_P_IN_DOUBT);
						return to_peer(context, &packet, peer);
					}
				}
				flow_touch(flow, value, state, now);
			}
			if (choice.identity & BACKEND_LOCAL)
				return pass(REASON_LOCAL);
			if (same_mac(source_mac(&packet), hop->destination))
				return pass(REASON_LOOP);
			return forward_to(context, &packet, service, &choice, REASON_FORWARDED, 0);
		}
	}
	if (!is_for_us(context, packet.frame))
		return pass(REASON_NOT_FOR_US);
	return decide(context, &packet, service, key, bucket, flow, value, known, now);
}

#ifndef FD_flows
char _license[] SEC("license") = "GPL";
#endif
