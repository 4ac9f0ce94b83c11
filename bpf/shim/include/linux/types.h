#pragma once
#include_next <linux/types.h>
typedef __u8 u8; typedef __u16 u16; typedef __u32 u32; typedef __u64 u64;
typedef __s8 s8; typedef __s16 s16; typedef __s32 s32; typedef __s64 s64;
typedef _Bool bool; typedef __kernel_size_t size_t; typedef unsigned long uintptr_t;
#define true 1
#define false 0
#ifndef NULL
#define NULL ((void *)0)
#endif
