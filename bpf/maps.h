/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * The maps. bcc is only the compiler: haxlb.linux.compiler makes or opens the pinned maps first and names their file
 * descriptors by -DFD_<map>=<number>. Plain clang gets declarations for libbpf instead.
 */
#ifndef HAXLB_MAPS_H
#define HAXLB_MAPS_H

#include "abi.h"

#ifdef FD_flows

#define MAP(name) ((void *)bpf_pseudo_fd(1, FD_##name))

#else

#ifndef FLOW_BUCKETS
#define FLOW_BUCKETS 65536
#define OVERFLOW_BUCKETS 8192
#define WIDE_FLOW_BUCKETS 16384
#define WIDE_OVERFLOW_BUCKETS 2048
#define SERVICES 64
#define FRONTENDS 256
#define BACKENDS 4096
#define RINGS 8192
#define REPLIES 4096
#define TICKS_PER_SECOND 250
#define FLOW_SEED 0
#endif

#define MAP(name) (&name)
#define MAP_OF(name, kind, key_type, value_type, entries, options) \
	struct {                                                     \
		__uint(type, BPF_MAP_TYPE_##kind);                   \
		__type(key, key_type);                               \
		__type(value, value_type);                           \
		__uint(max_entries, entries);                        \
		__uint(map_flags, options);                          \
	} name SEC(".maps")

struct address_bits {
	__u64 words[ADDRESS_BITS / 64];
};
struct verdicts {
	__u64 packets[REASON_COUNT];
};
struct ring_element {
	__u16 slots[RING_SLOTS_PER_ELEMENT];
};
struct exceptions_element {
	__u64 words[EXCEPTION_WORDS];
};
MAP_OF(endpoints, HASH, struct endpoint, struct frontend, FRONTENDS, 0);
MAP_OF(endpoints6, HASH, struct endpoint6, struct frontend, FRONTENDS, 0);
MAP_OF(any_port_bits, ARRAY, __u32, struct address_bits, 1, 0);
MAP_OF(services, ARRAY, __u32, struct service, SERVICES + 1, 0);
MAP_OF(cursors, ARRAY, __u32, __u64, SERVICES + 1, 0);
MAP_OF(rings, ARRAY, __u32, struct ring_element, RINGS, BPF_F_MMAPABLE);
MAP_OF(exceptions, ARRAY, __u32, struct exceptions_element, (SERVICES + 1) * EXCEPTION_ELEMENTS, BPF_F_MMAPABLE);
MAP_OF(backends, ARRAY, __u32, struct backend, BACKENDS, 0);
MAP_OF(loads, ARRAY, __u32, struct load, BACKENDS, BPF_F_MMAPABLE);
MAP_OF(flows, ARRAY, __u32, struct bucket, FLOW_BUCKETS, BPF_F_MMAPABLE);
MAP_OF(overflow, ARRAY, __u32, struct bucket, OVERFLOW_BUCKETS, BPF_F_MMAPABLE);
MAP_OF(wide_flows, ARRAY, __u32, struct wide_bucket, WIDE_FLOW_BUCKETS, BPF_F_MMAPABLE);
MAP_OF(wide_overflow, ARRAY, __u32, struct wide_bucket, WIDE_OVERFLOW_BUCKETS, BPF_F_MMAPABLE);
MAP_OF(interfaces, HASH, __u32, struct own_mac, 256, 0);
MAP_OF(near_interfaces, ARRAY, __u32, struct near_interface, NEAR_INTERFACES, 0);
MAP_OF(virtual_macs, HASH, struct virtual_mac, __u32, 1024, 0);
MAP_OF(devices, DEVMAP_HASH, __u32, __u32, 256, 0);
MAP_OF(fragments, LRU_HASH, struct datagram, struct fragment, 8192, 0);
MAP_OF(replies, HASH, struct answer, struct reply, REPLIES, 0);
MAP_OF(answer_bits, ARRAY, __u32, struct address_bits, 1, 0);
MAP_OF(reply_fragments, LRU_HASH, struct datagram, struct reply, 4096, 0);
MAP_OF(localities, LRU_HASH, struct locality, struct locality_servers, 4096, 0);
MAP_OF(programs, PROG_ARRAY, __u32, __u32, PROGRAMS, 0);
MAP_OF(scratchpad, PERCPU_ARRAY, __u32, struct scratch, 1, 0);
MAP_OF(service_tallies, PERCPU_ARRAY, __u32, struct tally, SERVICES + 1, 0);
MAP_OF(backend_tallies, PERCPU_ARRAY, __u32, struct tally, BACKENDS, 0);
MAP_OF(verdicts, PERCPU_ARRAY, __u32, struct verdicts, 1, 0);
MAP_OF(sweeps, ARRAY, __u32, struct sweep, 1, 0);

#endif

/* Helper 12, as the kernel takes it: bcc has a function of its own, with the arguments in another order. */
#define tail_call(context, programs, index) ((void (*)(void *, void *, __u32))12)(context, programs, index)

static __always_inline void *element(void *map, __u32 index)
{
	return bpf_map_lookup_elem(map, &index);
}

#endif
