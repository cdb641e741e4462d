// Sixteen lanes as two AVX2 registers, with FMA and F16C.
#pragma once

#include <immintrin.h>

#include <cstdint>

#include "layout.h"

namespace SLIP_NS {

constexpr bool kBf16Dot = false;
constexpr int kRowsF32 = 5;       // 10 accumulators of the 16 registers
constexpr int kRowsBytes = 5, kRowsWords = 5;
constexpr int kAttentionTile = 1;  // blocks of keys, or of columns, at a time

struct F16 {
  __m256 a, b;
};
struct I16 {
  __m256i a, b;
};

static inline F16 load(const float* p) { return {_mm256_loadu_ps(p), _mm256_loadu_ps(p + 8)}; }
static inline void store(float* p, F16 x) {
  _mm256_storeu_ps(p, x.a);
  _mm256_storeu_ps(p + 8, x.b);
}
static inline I16 load_ints(const void* p) {
  const __m256i* q = static_cast<const __m256i*>(p);
  return {_mm256_loadu_si256(q), _mm256_loadu_si256(q + 1)};
}
static inline void store_ints(void* p, I16 x) {
  __m256i* q = static_cast<__m256i*>(p);
  _mm256_storeu_si256(q, x.a);
  _mm256_storeu_si256(q + 1, x.b);
}
static inline I16 as_ints(F16 x) { return {_mm256_castps_si256(x.a), _mm256_castps_si256(x.b)}; }
static inline F16 as_floats(I16 x) { return {_mm256_castsi256_ps(x.a), _mm256_castsi256_ps(x.b)}; }

static inline F16 set1(float x) { return {_mm256_set1_ps(x), _mm256_set1_ps(x)}; }
static inline F16 zero() { return {_mm256_setzero_ps(), _mm256_setzero_ps()}; }
static inline F16 add(F16 x, F16 y) { return {_mm256_add_ps(x.a, y.a), _mm256_add_ps(x.b, y.b)}; }
static inline F16 sub(F16 x, F16 y) { return {_mm256_sub_ps(x.a, y.a), _mm256_sub_ps(x.b, y.b)}; }
static inline F16 mul(F16 x, F16 y) { return {_mm256_mul_ps(x.a, y.a), _mm256_mul_ps(x.b, y.b)}; }
static inline F16 div(F16 x, F16 y) { return {_mm256_div_ps(x.a, y.a), _mm256_div_ps(x.b, y.b)}; }
static inline F16 max(F16 x, F16 y) { return {_mm256_max_ps(x.a, y.a), _mm256_max_ps(x.b, y.b)}; }
static inline F16 min(F16 x, F16 y) { return {_mm256_min_ps(x.a, y.a), _mm256_min_ps(x.b, y.b)}; }
static inline F16 fma(F16 x, F16 y, F16 z) {
  return {_mm256_fmadd_ps(x.a, y.a, z.a), _mm256_fmadd_ps(x.b, y.b, z.b)};
}

static inline I16 set1_int(int32_t x) { return {_mm256_set1_epi32(x), _mm256_set1_epi32(x)}; }
static inline I16 add(I16 x, I16 y) { return {_mm256_add_epi32(x.a, y.a), _mm256_add_epi32(x.b, y.b)}; }
static inline I16 bit_and(I16 x, I16 y) { return {_mm256_and_si256(x.a, y.a), _mm256_and_si256(x.b, y.b)}; }
static inline I16 bit_or(I16 x, I16 y) { return {_mm256_or_si256(x.a, y.a), _mm256_or_si256(x.b, y.b)}; }
template <int n> static inline I16 shl(I16 x) { return {_mm256_slli_epi32(x.a, n), _mm256_slli_epi32(x.b, n)}; }
template <int n> static inline I16 sar(I16 x) { return {_mm256_srai_epi32(x.a, n), _mm256_srai_epi32(x.b, n)}; }
static inline F16 to_floats(I16 x) { return {_mm256_cvtepi32_ps(x.a), _mm256_cvtepi32_ps(x.b)}; }
static inline I16 round_to_ints(F16 x) { return {_mm256_cvtps_epi32(x.a), _mm256_cvtps_epi32(x.b)}; }

static inline F16 load_halves(const uint16_t* p) {
  const __m128i* q = reinterpret_cast<const __m128i*>(p);
  return {_mm256_cvtph_ps(_mm_loadu_si128(q)), _mm256_cvtph_ps(_mm_loadu_si128(q + 1))};
}

static inline void store_halves(uint16_t* p, F16 x) {
  __m128i* q = reinterpret_cast<__m128i*>(p);
  _mm_storeu_si128(q, _mm256_cvtps_ph(x.a, _MM_FROUND_TO_NEAREST_INT));
  _mm_storeu_si128(q + 1, _mm256_cvtps_ph(x.b, _MM_FROUND_TO_NEAREST_INT));
}

static inline void store_bytes(int8_t* p, I16 x) {
  const __m256i words = _mm256_permute4x64_epi64(_mm256_packs_epi32(x.a, x.b), 0xd8);
  const __m128i bytes = _mm_packs_epi16(_mm256_castsi256_si128(words), _mm256_extracti128_si256(words, 1));
  _mm_storeu_si128(reinterpret_cast<__m128i*>(p), bytes);
}

// The upper halves of 32 lanes, four octets, as 16 pairs in layout.h's order.
static inline void store_pairs(const I16* upper, uint32_t* pairs) {
  int32_t lanes[32];
  store_ints(lanes, upper[0]);
  store_ints(lanes + 16, upper[1]);
  pair_up(lanes, pairs);
}

static inline float sum_lanes(F16 x) {
  const __m256 b = _mm256_add_ps(x.a, x.b);
  const __m128 c = _mm_add_ps(_mm256_castps256_ps128(b), _mm256_extractf128_ps(b, 1));
  const __m128 d = _mm_add_ps(c, _mm_movehl_ps(c, c));
  return _mm_cvtss_f32(_mm_add_ss(d, _mm_shuffle_ps(d, d, 1)));
}

static inline float max_lanes(F16 x) {
  const __m256 b = _mm256_max_ps(x.a, x.b);
  const __m128 c = _mm_max_ps(_mm256_castps256_ps128(b), _mm256_extractf128_ps(b, 1));
  const __m128 d = _mm_max_ps(c, _mm_movehl_ps(c, c));
  return _mm_cvtss_f32(_mm_max_ss(d, _mm_shuffle_ps(d, d, 1)));
}

// Bit i set where x[i] >= y[i].
static inline uint32_t at_least(F16 x, F16 y) {
  return uint32_t(_mm256_movemask_ps(_mm256_cmp_ps(x.a, y.a, _CMP_GE_OQ))) |
         uint32_t(_mm256_movemask_ps(_mm256_cmp_ps(x.b, y.b, _CMP_GE_OQ))) << 8;
}

// Four 4-bit codes times four signed bytes a lane. Sixteen bits hold the sum of a whole group: two
// products a step, eight steps, 15 * 127 each: 30,480.
static inline I16 dot_nibbles(I16 total, I16 codes, int32_t x) {
  const __m256i bytes = _mm256_set1_epi32(x);
  return {_mm256_add_epi16(total.a, _mm256_maddubs_epi16(codes.a, bytes)),
          _mm256_add_epi16(total.b, _mm256_maddubs_epi16(codes.b, bytes))};
}
static inline I16 finish_nibbles(I16 total) {
  const __m256i one = _mm256_set1_epi16(1);
  return {_mm256_madd_epi16(total.a, one), _mm256_madd_epi16(total.b, one)};
}

// Two 16-bit numbers a lane: total + a.lo * x.lo + a.hi * x.hi.
static inline I16 dot_words(I16 total, I16 a, int32_t x) {
  const __m256i pair = _mm256_set1_epi32(x);
  return {_mm256_add_epi32(total.a, _mm256_madd_epi16(a.a, pair)),
          _mm256_add_epi32(total.b, _mm256_madd_epi16(a.b, pair))};
}

// The sum is made here: left to itself, GCC keeps the products of several steps, more than it has registers for.
static inline void settle(I16& x) {
#if defined(__GNUC__)
  __asm__("" : "+x"(x.a), "+x"(x.b));
#endif
}

static inline void prefetch(const void* p) { _mm_prefetch(static_cast<const char*>(p), _MM_HINT_T0); }

}  // namespace SLIP_NS
