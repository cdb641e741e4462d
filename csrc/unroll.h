// Asks the compiler to unroll the loop that follows, because accumulators must become registers, or not
// to unroll it, because they would no longer fit.
#pragma once

#if defined(__GNUC__) && !defined(__clang__)
#define SLIP_UNROLL _Pragma("GCC unroll 16")
#define SLIP_KEEP_LOOP _Pragma("GCC unroll 1")
#elif defined(__clang__)
#define SLIP_UNROLL _Pragma("clang loop unroll(full)")
#define SLIP_KEEP_LOOP _Pragma("clang loop unroll(disable)")
#else
#define SLIP_UNROLL
#define SLIP_KEEP_LOOP
#endif
