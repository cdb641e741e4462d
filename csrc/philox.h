// Philox4x32-10 (Salmon et al., SC 2011) for 16 counters at a time; see sampling/noise.py for the counters.
//
// Knows no tokens. With AVX-512 and AVX2 by hand, because compilers spend three times as long on the
// products of 32 by 32 bits; elsewhere as a loop that they can turn into vectors.
#pragma once

#include <cstdint>

#include "row_kernels.h"
#include "unroll.h"

#if defined(__AVX2__)
#include <immintrin.h>
#endif

namespace SLIP_NS {

constexpr uint32_t kPhiloxA = 0xD2511F53u, kPhiloxB = 0xCD9E8D57u;  // multipliers
constexpr uint32_t kWeylA = 0x9E3779B9u, kWeylB = 0xBB67AE85u;      // steps of the key

#if defined(__AVX512F__)

// High and low words of sixteen products.
static inline void wide_product(__m512i x, uint32_t by, __m512i* high, __m512i* low) {
  const __m512i factor = _mm512_set1_epi64(int64_t(by));
  const __m512i even = _mm512_mul_epu32(x, factor), odd = _mm512_mul_epu32(_mm512_srli_epi64(x, 32), factor);
  *high = _mm512_mask_blend_epi32(0xaaaa, _mm512_srli_epi64(even, 32), odd);
  *low = _mm512_mask_blend_epi32(0xaaaa, even, _mm512_slli_epi64(odd, 32));
}

// The 64 words of 16 consecutive counters.
static inline void philox16(uint32_t first, const slip::RaceStream& stream, uint32_t* bits) {
  const auto all = [](uint32_t x) { return _mm512_set1_epi32(int32_t(x)); };
  const __m512i lanes = _mm512_set_epi32(15, 14, 13, 12, 11, 10, 9, 8, 7, 6, 5, 4, 3, 2, 1, 0);
  __m512i c0 = _mm512_add_epi32(all(first), lanes);
  __m512i c1 = all(stream.words[0]), c2 = all(stream.words[1]), c3 = all(stream.words[2]);
  uint32_t k0 = stream.key[0], k1 = stream.key[1];
  for (int round = 0; round < 10; ++round, k0 += kWeylA, k1 += kWeylB) {
    __m512i high0, low0, high2, low2;
    wide_product(c0, kPhiloxA, &high0, &low0);
    wide_product(c2, kPhiloxB, &high2, &low2);
    c0 = _mm512_xor_si512(_mm512_xor_si512(high2, c1), all(k0));
    c2 = _mm512_xor_si512(_mm512_xor_si512(high0, c3), all(k1));
    c1 = low2;
    c3 = low0;
  }
  // From words of sixteen counters to the four words of each: first within a quarter of a register,
  // which leaves counters j, j + 4, j + 8, j + 12 in the j-th, then across them.
  const __m512i a = _mm512_unpacklo_epi32(c0, c1), b = _mm512_unpackhi_epi32(c0, c1);
  const __m512i c = _mm512_unpacklo_epi32(c2, c3), d = _mm512_unpackhi_epi32(c2, c3);
  const __m512i q0 = _mm512_unpacklo_epi64(a, c), q1 = _mm512_unpackhi_epi64(a, c);
  const __m512i q2 = _mm512_unpacklo_epi64(b, d), q3 = _mm512_unpackhi_epi64(b, d);
  const __m512i low01 = _mm512_shuffle_i32x4(q0, q1, 0x44), low23 = _mm512_shuffle_i32x4(q2, q3, 0x44);
  const __m512i high01 = _mm512_shuffle_i32x4(q0, q1, 0xee), high23 = _mm512_shuffle_i32x4(q2, q3, 0xee);
  _mm512_storeu_si512(bits, _mm512_shuffle_i32x4(low01, low23, 0x88));
  _mm512_storeu_si512(bits + 16, _mm512_shuffle_i32x4(low01, low23, 0xdd));
  _mm512_storeu_si512(bits + 32, _mm512_shuffle_i32x4(high01, high23, 0x88));
  _mm512_storeu_si512(bits + 48, _mm512_shuffle_i32x4(high01, high23, 0xdd));
}

#elif defined(__AVX2__)

// High and low words of eight products.
static inline void wide_product(__m256i x, uint32_t by, __m256i* high, __m256i* low) {
  const __m256i factor = _mm256_set1_epi64x(int64_t(by));
  const __m256i even = _mm256_mul_epu32(x, factor), odd = _mm256_mul_epu32(_mm256_srli_epi64(x, 32), factor);
  *high = _mm256_blend_epi32(_mm256_srli_epi64(even, 32), odd, 0xaa);
  *low = _mm256_blend_epi32(even, _mm256_slli_epi64(odd, 32), 0xaa);
}

static inline void philox8(uint32_t first, const slip::RaceStream& stream, uint32_t* bits) {
  const auto all = [](uint32_t x) { return _mm256_set1_epi32(int32_t(x)); };
  __m256i c0 = _mm256_add_epi32(all(first), _mm256_set_epi32(7, 6, 5, 4, 3, 2, 1, 0));
  __m256i c1 = all(stream.words[0]), c2 = all(stream.words[1]), c3 = all(stream.words[2]);
  uint32_t k0 = stream.key[0], k1 = stream.key[1];
  for (int round = 0; round < 10; ++round, k0 += kWeylA, k1 += kWeylB) {
    __m256i high0, low0, high2, low2;
    wide_product(c0, kPhiloxA, &high0, &low0);
    wide_product(c2, kPhiloxB, &high2, &low2);
    c0 = _mm256_xor_si256(_mm256_xor_si256(high2, c1), all(k0));
    c2 = _mm256_xor_si256(_mm256_xor_si256(high0, c3), all(k1));
    c1 = low2;
    c3 = low0;
  }
  // From words of eight counters to the four words of each.
  const __m256i a = _mm256_unpacklo_epi32(c0, c1), b = _mm256_unpackhi_epi32(c0, c1);
  const __m256i c = _mm256_unpacklo_epi32(c2, c3), d = _mm256_unpackhi_epi32(c2, c3);
  const __m256i r04 = _mm256_unpacklo_epi64(a, c), r15 = _mm256_unpackhi_epi64(a, c);
  const __m256i r26 = _mm256_unpacklo_epi64(b, d), r37 = _mm256_unpackhi_epi64(b, d);
  __m256i* out = reinterpret_cast<__m256i*>(bits);
  _mm256_storeu_si256(out, _mm256_permute2x128_si256(r04, r15, 0x20));
  _mm256_storeu_si256(out + 1, _mm256_permute2x128_si256(r26, r37, 0x20));
  _mm256_storeu_si256(out + 2, _mm256_permute2x128_si256(r04, r15, 0x31));
  _mm256_storeu_si256(out + 3, _mm256_permute2x128_si256(r26, r37, 0x31));
}

// The 64 words of 16 consecutive counters.
static inline void philox16(uint32_t first, const slip::RaceStream& stream, uint32_t* bits) {
  philox8(first, stream, bits);
  philox8(first + 8, stream, bits + 32);
}

#else

// The 64 words of 16 consecutive counters.
static inline void philox16(uint32_t first, const slip::RaceStream& stream, uint32_t* bits) {
  uint32_t c0[16], c1[16], c2[16], c3[16];
  for (uint32_t i = 0; i < 16; ++i) {
    c0[i] = first + i;
    c1[i] = stream.words[0];
    c2[i] = stream.words[1];
    c3[i] = stream.words[2];
  }
  uint32_t k0 = stream.key[0], k1 = stream.key[1];
  for (int round = 0; round < 10; ++round, k0 += kWeylA, k1 += kWeylB) {
    SLIP_KEEP_LOOP
    for (int i = 0; i < 16; ++i) {
      const uint64_t low = uint64_t(c0[i]) * kPhiloxA, high = uint64_t(c2[i]) * kPhiloxB;
      c0[i] = uint32_t(high >> 32) ^ c1[i] ^ k0;
      c2[i] = uint32_t(low >> 32) ^ c3[i] ^ k1;
      c1[i] = uint32_t(high);
      c3[i] = uint32_t(low);
    }
  }
  SLIP_KEEP_LOOP
  for (int i = 0; i < 16; ++i) {
    bits[4 * i] = c0[i];
    bits[4 * i + 1] = c1[i];
    bits[4 * i + 2] = c2[i];
    bits[4 * i + 3] = c3[i];
  }
}

#endif

}  // namespace SLIP_NS
