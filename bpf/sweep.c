// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * Frees the flows that are over, so that they are not counted among a server's connections until another one takes their
 * place. Run by BPF_PROG_TEST_RUN, never attached: each repetition looks at the next SWEEP_BUCKETS buckets of all tables.
 * Beside packets it is one CPU more that changes values by compare-and-swap. Where nobody runs it, nothing but the counts
 * is wrong: what is over makes room.
 *
 * A classifier by type: a repetition of an XDP program writes the kernel's dispatcher of those anew, and waits for an RCU
 * grace period both before and after (bpf_prog_change_xdp in net/bpf/test_run.c).
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
#include "features.h"
#include "maps.h"
#include "parse.h"
#include "flow.h"
#include "room.h"

#if WITH_STATELESS
/*
 * Has the ring of its service changed lately? A flow of one packet may then be one that has been there for long and says
 * little: without its record it would go elsewhere when the former ring is given up.
 */
static __always_inline int is_exceptional(__u64 value)
{
	struct backend *backend = element(MAP(backends), FLOW_BACKEND(value));
	struct service *service = backend ? element(MAP(services), backend->service) : NULL;

	return service && READ_ONCE(service->select) & SELECT_EXCEPTIONS;
}
#endif

/* Ticks without a packet after which this flow is no more. A template of a server that is gone is of no use at all. */
static __always_inline __u32 lifetime_of(__u64 value, __u8 state)
{
#if WITH_PERSISTENCE
	if (state >= FLOW_TEMPLATE) {
		struct backend *backend = element(MAP(backends), FLOW_BACKEND(value));
		struct service *service;

		if (!backend || backend->incarnation != FLOW_INCARNATION(value))
			return 0;
		service = element(MAP(services), backend->service);
		return service ? SECONDS(service->persistence) : 0;
	}
#endif
#if WITH_STATELESS
	if (state == FLOW_TCP_NEW && is_exceptional(value))
		return lifetime(FLOW_TCP_ESTABLISHED);
#endif
	return lifetime(state);
}

/* Only the sweep writes these, and one of them runs. */
static __always_inline void count_live(__u64 value, __u8 state)
{
	struct backend *backend = element(MAP(backends), FLOW_BACKEND(value));
	struct load *load = element(MAP(loads), FLOW_BACKEND(value));

	if (state <= FLOW_CLAIMED || state >= FLOW_TEMPLATE)
		return;
	if (!load || !backend || backend->incarnation != FLOW_INCARNATION(value))
		return;
	if (state == FLOW_TCP_CLOSING)
		load->counted_inactive++;
	else
		load->counted_active++;
}

/*
 * Its value has an old stamp: it is not again what it was once it has been another. The key goes with it, under a claim: it
 * would hide another record of the same flow, which two packets at once may have made.
 */
static __always_inline void sweep_way(struct flow *flow, struct sweep *sweep, __u32 now, struct sweep_order *order, int wide)
{
	__u64 value = READ_ONCE(flow->value);
	__u8 state = FLOW_STATE(value);

	if (state == FLOW_EMPTY)
		return;
	if (age_of(value, now) < lifetime_of(value, state)) {
		if (READ_ONCE(order->what))
			count_live(value, state);
		return;
	}
	if (__sync_val_compare_and_swap(&flow->value, value,
					FLOW_VALUE(0, 0, FLOW_CLAIMED, now) | (value & FLOW_SPILLED)) != value)
		return;
	account(value, -1);
	if (state != FLOW_CLAIMED) {
		forget_reply(flow, value, wide);
		sweep->expired++;
	}
	flow_release(flow);
}

static __always_inline __u32 hash_of(struct flow *flow, int wide)
{
	__u64 key = READ_ONCE(flow->key), rest[2];

	if (!wide)
		return mix((__u32)key ^ FLOW_SEED, key >> 32);
	rest[0] = READ_ONCE(((struct wide_flow *)flow)->rest[0]);
	rest[1] = READ_ONCE(((struct wide_flow *)flow)->rest[1]);
	return mix((__u32)key ^ mix_address(FLOW_SEED, rest), key >> 32);
}

/* Is a flow of this bucket in the overflow? */
static __always_inline int has_spilled(__u32 index, int wide)
{
	__u32 mask = wide ? WIDE_FLOW_BUCKETS - 1 : FLOW_BUCKETS - 1;
	void *bucket = overflow_bucket(index, wide);
	int found = 0;

	if (!bucket)
		return 1;
#pragma clang loop unroll(disable)
	for (int way = 0; way < FLOW_WAYS; way++) {
		struct flow *flow = way_of(bucket, way, wide);

		if (FLOW_STATE(READ_ONCE(flow->value)) != FLOW_EMPTY && (hash_of(flow, wide) & mask) == index)
			found = 1;
	}
	return found;
}

/* Where none is there any more, packets need not look. One that comes meanwhile is found here, or is noted after this. */
static __always_inline void sweep_note(void *bucket, __u32 index, int wide)
{
	struct flow *first = way_of(bucket, 0, wide);

	if (!(READ_ONCE(first->value) & FLOW_SPILLED) || has_spilled(index, wide))
		return;
	ORDERED(__sync_fetch_and_and(&first->value, ~FLOW_SPILLED));
	if (has_spilled(index, wide))
		ORDERED(__sync_fetch_and_or(&first->value, FLOW_SPILLED));
}

/* The verifier must not know which bucket it is, or it would verify each. */
#define SWEEP(table, wide, home)                                                                                        \
	do {                                                                                                        \
		_Pragma("clang loop unroll(disable)") for (__u32 each = 0; each < SWEEP_BUCKETS; each++)             \
		{                                                                                                   \
			void *bucket = element(MAP(table), first + each);                                           \
                                                                                                                    \
			if (!bucket)                                                                                \
				return;                                                                             \
			_Pragma("clang loop unroll(disable)") for (int way = 0; way < FLOW_WAYS; way++) sweep_way(   \
				way_of(bucket, way, wide), sweep, now, order, wide);                              \
			if (home)                                                                                   \
				sweep_note(bucket, first + each, wide);                                             \
		}                                                                                                   \
		return;                                                                                             \
	} while (0)

#define ALL_BUCKETS (FLOW_BUCKETS + OVERFLOW_BUCKETS + WIDE_FLOW_BUCKETS + WIDE_OVERFLOW_BUCKETS)

/* Every table holds a multiple of SWEEP_BUCKETS: one repetition is of one table. */
static __always_inline void sweep_some(struct sweep *sweep, __u32 first, __u32 now, struct sweep_order *order)
{
	if (first < FLOW_BUCKETS)
		SWEEP(flows, 0, 1);
	first -= FLOW_BUCKETS;
	if (first < OVERFLOW_BUCKETS)
		SWEEP(overflow, 0, 0);
	first -= OVERFLOW_BUCKETS;
	if (first < WIDE_FLOW_BUCKETS)
		SWEEP(wide_flows, 1, 1);
	first -= WIDE_FLOW_BUCKETS;
	SWEEP(wide_overflow, 1, 0);
}

/* Whoever lists flows need not know what this was compiled for. A template's is its service's. */
static __always_inline void tell(struct sweep_order *order)
{
	order->lifetimes[FLOW_CLAIMED] = LIFETIME_CLAIMED;
	order->lifetimes[FLOW_TCP_NEW] = LIFETIME_NEW;
	order->lifetimes[FLOW_TCP_ESTABLISHED] = LIFETIME_TCP_ESTABLISHED;
	order->lifetimes[FLOW_TCP_CLOSING] = LIFETIME_CLOSING;
	order->lifetimes[FLOW_UDP_NEW] = LIFETIME_UDP;
	order->lifetimes[FLOW_UDP] = LIFETIME_UDP;
}

#ifndef FD_flows
SEC("tc")
#endif
int haxlb_sweep(struct __sk_buff *context)
{
	struct sweep_order *order = (void *)(long)context->data + ETH_HLEN;
	struct sweep *sweep = element(MAP(sweeps), 0);
	struct load *load;
	__u32 first;

	if ((void *)(order + 1) > (void *)(long)context->data_end || !sweep)
		return 0;
	if (order->backend) {
		load = element(MAP(loads), order->backend);
		if (!load)
			return 0;
		add(&load->active, order->active);
		add(&load->inactive, order->inactive);
		return 1;
	}
	if (order->what & SWEEP_TELL) {
		tell(order);
		return jiffies();
	}
	if (order->what & SWEEP_RESTART) {
		sweep->next = 0;
		return 1;
	}
	first = sweep->next;
	if (first >= ALL_BUCKETS)
		first = 0;
	sweep->next = first + SWEEP_BUCKETS;
	sweep_some(sweep, first, jiffies(), order);
	return 1;
}

#ifndef FD_flows
char _license[] SEC("license") = "GPL";
#endif
