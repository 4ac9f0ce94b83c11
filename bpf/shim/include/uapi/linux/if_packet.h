#include_next <linux/if_packet.h>
