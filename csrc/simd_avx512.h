// Sixteen lanes as one AVX-512 register; with SLIP_BF16 also VDPBF16PS and VPDPBUSD.
//
// SLIP_SIMDE compiles the same source through SIMDe's emulation, so that its arithmetic is tested on
// machines without AVX-512.
#pragma once

#if SLIP_SIMDE
#define SIMDE_ENABLE_NATIVE_ALIASES
#include <simde/x86/avx512.h>
#include <simde/x86/f16c.h>
#include <simde/x86/fma.h>
#else
#include <immintrin.h>
#endif

#include <cstdint>

#include "layout.h"

namespace SLIP_NS {

#if SLIP_BF16
constexpr bool kBf16Dot = true;
#else
constexpr bool kBf16Dot = false;
#endif
constexpr int kRowsF32 = 16;  // accumulators; the rest of the 32 registers holds weights
constexpr int kRowsBytes = 16, kRowsWords = 12;
constexpr int kAttentionTile = 4;  // blocks of keys, or of columns, at a time

struct F16 {
  __m512 v;
};
struct I16 {
  __m512i v;
};

static inline F16 load(const float* p) { return {_mm512_loadu_ps(p)}; }
static inline void store(float* p, F16 x) { _mm512_storeu_ps(p, x.v); }
static inline I16 load_ints(const void* p) { return {_mm512_loadu_si512(p)}; }
static inline void store_ints(void* p, I16 x) { _mm512_storeu_si512(p, x.v); }
static inline I16 as_ints(F16 x) { return {_mm512_castps_si512(x.v)}; }
static inline F16 as_floats(I16 x) { return {_mm512_castsi512_ps(x.v)}; }

static inline F16 set1(float x) { return {_mm512_set1_ps(x)}; }
static inline F16 zero() { return {_mm512_setzero_ps()}; }
static inline F16 add(F16 x, F16 y) { return {_mm512_add_ps(x.v, y.v)}; }
static inline F16 sub(F16 x, F16 y) { return {_mm512_sub_ps(x.v, y.v)}; }
static inline F16 mul(F16 x, F16 y) { return {_mm512_mul_ps(x.v, y.v)}; }
static inline F16 div(F16 x, F16 y) { return {_mm512_div_ps(x.v, y.v)}; }
static inline F16 max(F16 x, F16 y) { return {_mm512_max_ps(x.v, y.v)}; }
static inline F16 min(F16 x, F16 y) { return {_mm512_min_ps(x.v, y.v)}; }
static inline F16 fma(F16 x, F16 y, F16 z) { return {_mm512_fmadd_ps(x.v, y.v, z.v)}; }

static inline I16 set1_int(int32_t x) { return {_mm512_set1_epi32(x)}; }
static inline I16 add(I16 x, I16 y) { return {_mm512_add_epi32(x.v, y.v)}; }
static inline I16 bit_and(I16 x, I16 y) { return {_mm512_and_si512(x.v, y.v)}; }
static inline I16 bit_or(I16 x, I16 y) { return {_mm512_or_si512(x.v, y.v)}; }
template <int n> static inline I16 shl(I16 x) { return {_mm512_slli_epi32(x.v, n)}; }
template <int n> static inline I16 sar(I16 x) { return {_mm512_srai_epi32(x.v, n)}; }
static inline F16 to_floats(I16 x) { return {_mm512_cvtepi32_ps(x.v)}; }
static inline I16 round_to_ints(F16 x) { return {_mm512_cvtps_epi32(x.v)}; }

static inline F16 load_halves(const uint16_t* p) {
  return {_mm512_cvtph_ps(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(p)))};
}

static inline void store_halves(uint16_t* p, F16 x) {
#if SLIP_SIMDE  // which lacks the conversion of 16
  const __m256 high = _mm256_castpd_ps(_mm512_extractf64x4_pd(_mm512_castps_pd(x.v), 1));
  __m128i* q = reinterpret_cast<__m128i*>(p);
  _mm_storeu_si128(q, _mm256_cvtps_ph(_mm512_castps512_ps256(x.v), _MM_FROUND_TO_NEAREST_INT));
  _mm_storeu_si128(q + 1, _mm256_cvtps_ph(high, _MM_FROUND_TO_NEAREST_INT));
#else
  _mm256_storeu_si256(reinterpret_cast<__m256i*>(p), _mm512_cvtps_ph(x.v, _MM_FROUND_TO_NEAREST_INT));
#endif
}

static inline void store_bytes(int8_t* p, I16 x) {
  _mm_storeu_si128(reinterpret_cast<__m128i*>(p), _mm512_cvtepi32_epi8(x.v));
}

// The upper halves of 32 lanes, four octets, as 16 pairs in layout.h's order.
static inline void store_pairs(const I16* upper, uint32_t* pairs) {
  const __m512i first = _mm512_set_epi32(29, 25, 28, 24, 21, 17, 20, 16, 13, 9, 12, 8, 5, 1, 4, 0);
  const __m512i second = _mm512_add_epi32(first, _mm512_set1_epi32(2));
  const __m512i low = _mm512_srli_epi32(_mm512_permutex2var_epi32(upper[0].v, first, upper[1].v), 16);
  const __m512i high = _mm512_permutex2var_epi32(upper[0].v, second, upper[1].v);
  _mm512_storeu_si512(pairs, _mm512_or_si512(low, _mm512_and_si512(high, _mm512_set1_epi32(int32_t(0xffff0000)))));
}

static inline float sum_lanes(F16 x) {
  const __m256 high = _mm256_castpd_ps(_mm512_extractf64x4_pd(_mm512_castps_pd(x.v), 1));
  const __m256 b = _mm256_add_ps(_mm512_castps512_ps256(x.v), high);
  const __m128 c = _mm_add_ps(_mm256_castps256_ps128(b), _mm256_extractf128_ps(b, 1));
  const __m128 d = _mm_add_ps(c, _mm_movehl_ps(c, c));
  return _mm_cvtss_f32(_mm_add_ss(d, _mm_shuffle_ps(d, d, 1)));
}

static inline float max_lanes(F16 x) {
  const __m256 high = _mm256_castpd_ps(_mm512_extractf64x4_pd(_mm512_castps_pd(x.v), 1));
  const __m256 b = _mm256_max_ps(_mm512_castps512_ps256(x.v), high);
  const __m128 c = _mm_max_ps(_mm256_castps256_ps128(b), _mm256_extractf128_ps(b, 1));
  const __m128 d = _mm_max_ps(c, _mm_movehl_ps(c, c));
  return _mm_cvtss_f32(_mm_max_ss(d, _mm_shuffle_ps(d, d, 1)));
}

// Bit i set where x[i] >= y[i].
static inline uint32_t at_least(F16 x, F16 y) { return _mm512_cmp_ps_mask(x.v, y.v, _CMP_GE_OQ); }

#if SLIP_BF16  // with VNNI: four unsigned bytes times four signed bytes a lane, exactly
static inline I16 dot_bytes(I16 total, I16 codes, int32_t x) {
  return {_mm512_dpbusd_epi32(total.v, codes.v, _mm512_set1_epi32(x))};
}
static inline I16 dot_nibbles(I16 total, I16 codes, int32_t x) { return dot_bytes(total, codes, x); }
static inline I16 finish_nibbles(I16 total) { return total; }
#else  // 4-bit codes alone fit the 16-bit sums; see simd_avx2.h
static inline I16 dot_nibbles(I16 total, I16 codes, int32_t x) {
  return {_mm512_add_epi16(total.v, _mm512_maddubs_epi16(codes.v, _mm512_set1_epi32(x)))};
}
static inline I16 finish_nibbles(I16 total) { return {_mm512_madd_epi16(total.v, _mm512_set1_epi16(1))}; }
#endif

// Two 16-bit numbers a lane: total + a.lo * x.lo + a.hi * x.hi.
static inline I16 dot_words(I16 total, I16 a, int32_t x) {
#if SLIP_BF16
  return {_mm512_dpwssd_epi32(total.v, a.v, _mm512_set1_epi32(x))};
#else
  return {_mm512_add_epi32(total.v, _mm512_madd_epi16(a.v, _mm512_set1_epi32(x)))};
#endif
}

static inline void settle(I16&) {}  // there are registers enough

#if SLIP_BF16
// acc + w.hi * x.hi + w.lo * x.lo, in the processor's own order.
static inline F16 dot_bf16(F16 acc, I16 w, uint32_t x) {
  return {_mm512_dpbf16_ps(acc.v, (__m512bh)w.v, (__m512bh)_mm512_set1_epi32(int32_t(x)))};
}
#endif

static inline void prefetch(const void* p) { _mm_prefetch(static_cast<const char*>(p), _MM_HINT_T0); }

}  // namespace SLIP_NS
