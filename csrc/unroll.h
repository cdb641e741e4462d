// Asks the compiler to unroll the loop that follows: accumulators must become registers.
#pragma once

#if defined(__GNUC__) && !defined(__clang__)
#define SLIP_UNROLL _Pragma("GCC unroll 16")
#elif defined(__clang__)
#define SLIP_UNROLL _Pragma("clang loop unroll(full)")
#else
#define SLIP_UNROLL
#endif
