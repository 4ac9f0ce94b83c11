/* SPDX-License-Identifier: GPL-2.0-or-later */
/* Packets that belong to a flow without naming its ports: later fragments, and ICMP errors about one of its packets. */
#ifndef HAXLB_RELATED_H
#define HAXLB_RELATED_H

#include "send.h"

static __always_inline void remember_fragment(const struct packet *packet, int family, __u32 service,
					      const struct choice *choice, __u32 now)
{
}

static __always_inline int follow(struct xdp_md *context, int family)
{
	return pass(REASON_OTHER_PROTOCOL);
}

#endif
