// Sixteen lanes in plain C++: GCC/Clang vector extensions where they exist, loops elsewhere.
//
// The fallback of every machine, and the path of arm64, where compilers turn it into NEON. Each operation
// is one IEEE operation per lane; contraction is off, so a result never depends on how the compiler
// combined operations.
#pragma once

#include <cmath>
#include <cstdint>
#include <cstring>

#if defined(__SSE2__)  // every x86-64: one instruction for the integer product of two pairs
#include <emmintrin.h>
#endif

#include "layout.h"

namespace SLIP_NS {

constexpr bool kBf16Dot = false;
constexpr int kRowsF32 = 4;      // rows that share a decoded weight
constexpr int kRowsBytes = 4, kRowsWords = 4;
constexpr int kAttentionTile = 1;  // blocks of keys, or of columns, at a time

#if defined(__GNUC__)
typedef float Floats __attribute__((vector_size(64)));
typedef int32_t Ints __attribute__((vector_size(64)));
#else
template <class T>
struct Lanes {
  T v[16];
  T& operator[](int i) { return v[i]; }
  const T& operator[](int i) const { return v[i]; }
};
typedef Lanes<float> Floats;
typedef Lanes<int32_t> Ints;
#endif

#define SLIP_LANES for (int i = 0; i < 16; ++i)

struct F16 {
  Floats v;
};
struct I16 {
  Ints v;
};

static inline F16 load(const float* p) { F16 r; std::memcpy(&r, p, 64); return r; }
static inline void store(float* p, F16 a) { std::memcpy(p, &a, 64); }
static inline I16 load_ints(const void* p) { I16 r; std::memcpy(&r, p, 64); return r; }
static inline void store_ints(void* p, I16 a) { std::memcpy(p, &a, 64); }
static inline I16 as_ints(F16 a) { I16 r; std::memcpy(&r, &a, 64); return r; }
static inline F16 as_floats(I16 a) { F16 r; std::memcpy(&r, &a, 64); return r; }

#if defined(__GNUC__)
static inline F16 set1(float x) { return {x - Floats{}}; }
static inline F16 add(F16 a, F16 b) { return {a.v + b.v}; }
static inline F16 sub(F16 a, F16 b) { return {a.v - b.v}; }
static inline F16 mul(F16 a, F16 b) { return {a.v * b.v}; }
static inline F16 div(F16 a, F16 b) { return {a.v / b.v}; }
static inline F16 max(F16 a, F16 b) { return {a.v > b.v ? a.v : b.v}; }
static inline F16 min(F16 a, F16 b) { return {a.v < b.v ? a.v : b.v}; }
static inline I16 set1_int(int32_t x) { return {x - Ints{}}; }
static inline I16 add(I16 a, I16 b) { return {a.v + b.v}; }
static inline I16 bit_and(I16 a, I16 b) { return {a.v & b.v}; }
static inline I16 bit_or(I16 a, I16 b) { return {a.v | b.v}; }
template <int n> static inline I16 shl(I16 a) { return {a.v << n}; }
template <int n> static inline I16 sar(I16 a) { return {a.v >> n}; }
static inline F16 to_floats(I16 a) { return {__builtin_convertvector(a.v, Floats)}; }
static inline I16 multiply(I16 a, I16 b) { return {a.v * b.v}; }
#else
static inline F16 set1(float x) { F16 r; SLIP_LANES r.v[i] = x; return r; }
static inline F16 add(F16 a, F16 b) { SLIP_LANES a.v[i] += b.v[i]; return a; }
static inline F16 sub(F16 a, F16 b) { SLIP_LANES a.v[i] -= b.v[i]; return a; }
static inline F16 mul(F16 a, F16 b) { SLIP_LANES a.v[i] *= b.v[i]; return a; }
static inline F16 div(F16 a, F16 b) { SLIP_LANES a.v[i] /= b.v[i]; return a; }
static inline F16 max(F16 a, F16 b) { SLIP_LANES a.v[i] = a.v[i] > b.v[i] ? a.v[i] : b.v[i]; return a; }
static inline F16 min(F16 a, F16 b) { SLIP_LANES a.v[i] = a.v[i] < b.v[i] ? a.v[i] : b.v[i]; return a; }
static inline I16 set1_int(int32_t x) { I16 r; SLIP_LANES r.v[i] = x; return r; }
static inline I16 add(I16 a, I16 b) { SLIP_LANES a.v[i] += b.v[i]; return a; }
static inline I16 bit_and(I16 a, I16 b) { SLIP_LANES a.v[i] &= b.v[i]; return a; }
static inline I16 bit_or(I16 a, I16 b) { SLIP_LANES a.v[i] |= b.v[i]; return a; }
template <int n> static inline I16 shl(I16 a) { SLIP_LANES a.v[i] = int32_t(uint32_t(a.v[i]) << n); return a; }
template <int n> static inline I16 sar(I16 a) { SLIP_LANES a.v[i] >>= n; return a; }
static inline F16 to_floats(I16 a) { F16 r; SLIP_LANES r.v[i] = float(a.v[i]); return r; }
static inline I16 multiply(I16 a, I16 b) { SLIP_LANES a.v[i] *= b.v[i]; return a; }
#endif

static inline F16 zero() { return set1(0.0f); }

// a * b + c, fused where the hardware does it.
static inline F16 fma(F16 a, F16 b, F16 c) {
#if defined(__FP_FAST_FMAF)
  SLIP_LANES c.v[i] = __builtin_fmaf(a.v[i], b.v[i], c.v[i]);
  return c;
#else
  return add(mul(a, b), c);
#endif
}

static inline I16 round_to_ints(F16 a) {
  I16 r;
  SLIP_LANES r.v[i] = int32_t(std::nearbyintf(a.v[i]));
  return r;
}

static inline void store_bytes(int8_t* p, I16 a) { SLIP_LANES p[i] = int8_t(a.v[i]); }

// The upper halves of 32 lanes, four octets, as 16 pairs in layout.h's order.
static inline void store_pairs(const I16* upper, uint32_t* pairs) {
  int32_t lanes[32];
  store_ints(lanes, upper[0]);
  store_ints(lanes + 16, upper[1]);
  pair_up(lanes, pairs);
}

static inline F16 load_halves(const uint16_t* p) {
  F16 r;
  SLIP_LANES r.v[i] = half_to_float(p[i]);
  return r;
}

static inline void store_halves(uint16_t* p, F16 x) {
  SLIP_LANES p[i] = float_to_half(x.v[i]);
}

static inline float sum_lanes(F16 a) {
  float b[8], c[4];
  for (int i = 0; i < 8; ++i) b[i] = a.v[i] + a.v[i + 8];
  for (int i = 0; i < 4; ++i) c[i] = b[i] + b[i + 4];
  return (c[0] + c[2]) + (c[1] + c[3]);
}

static inline float max_lanes(F16 a) {
  float best = a.v[0];
  for (int i = 1; i < 16; ++i) best = a.v[i] > best ? a.v[i] : best;
  return best;
}

// Bit i set where a[i] >= b[i].
static inline uint32_t at_least(F16 a, F16 b) {
  uint32_t mask = 0;
  SLIP_LANES mask |= uint32_t(a.v[i] >= b.v[i]) << i;
  return mask;
}

// Two 16-bit numbers a lane, the weights' not negative: total + a.lo * x.lo + a.hi * x.hi.
static inline I16 dot_words(I16 total, I16 a, int32_t x) {
#if defined(__SSE2__)
  const __m128i pair = _mm_set1_epi32(x);
  __m128i parts[4], sums[4];
  std::memcpy(parts, &a, 64);
  std::memcpy(sums, &total, 64);
  for (int i = 0; i < 4; ++i) sums[i] = _mm_add_epi32(sums[i], _mm_madd_epi16(parts[i], pair));
  std::memcpy(&total, sums, 64);
  return total;
#else
  total = add(total, multiply(bit_and(a, set1_int(0xffff)), set1_int(int16_t(x))));
  return add(total, multiply(sar<16>(a), set1_int(x >> 16)));
#endif
}

// Four 4-bit codes times four signed bytes a lane, added up exactly.
static inline I16 dot_nibbles(I16 total, I16 codes, int32_t x) {
  // Bytes 0 and 2, then 1 and 3, as 16-bit pairs with their signs.
  const auto pair = [](int8_t low, int8_t high) {
    return int32_t(uint32_t(uint16_t(high)) << 16 | uint16_t(low));
  };
  total = dot_words(total, bit_and(codes, set1_int(0x00ff00ff)), pair(int8_t(x), int8_t(x >> 16)));
  return dot_words(total, bit_and(sar<8>(codes), set1_int(0x00ff00ff)), pair(int8_t(x >> 8), int8_t(x >> 24)));
}
static inline I16 finish_nibbles(I16 total) { return total; }
static inline void settle(I16&) {}

static inline void prefetch(const void* p) {
#if defined(__GNUC__)
  __builtin_prefetch(p);
#else
  (void)p;
#endif
}

#undef SLIP_LANES

}  // namespace SLIP_NS
