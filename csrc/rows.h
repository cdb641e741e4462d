// Sampling's steps over one row of logits or weights; see row_kernels.h.
//
// Loops over plain arrays of 16 are written so that compilers turn them into vectors without being
// allowed to reorder anything: every lane has its own running sum or maximum.
#pragma once

#include <cmath>
#include <cstring>

#include "pointwise.h"
#include "row_kernels.h"

namespace SLIP_NS {

using slip::kChunk;

// Copies `count` numbers and fills up with another one. No templates of the standard library here:
// the linker keeps one instance of them, and it might be one that needs this instruction set.
template <class T>
static inline void padded(const T* from, int64_t count, T* to, int64_t size, T filler) {
  for (int64_t i = 0; i < size; ++i) to[i] = i < count ? from[i] : filler;
}

static inline float chunk_maximum(const float* x, F16* poison) {
  // A maximum returns its second operand where one is NaN, on every instruction set.
  F16 best = set1(-INFINITY);
  for (int64_t i = 0; i < kChunk; i += 16) {
    const F16 values = load(x + i);
    best = max(best, values);
    *poison = add(*poison, mul(max(set1(-3e38f), values), zero()));
  }
  return max_lanes(best);
}

static float maxima(const float* x, int64_t n, float* out) {
  F16 poison = zero();  // NaN stays NaN here, and so does infinity; minus infinity is kept out
  float top = -INFINITY;
  int64_t first = 0;
  for (; first + kChunk <= n; first += kChunk, ++out) {
    *out = chunk_maximum(x + first, &poison);
    top = *out > top ? *out : top;
  }
  if (first < n) {
    float rest[kChunk];
    padded(x + first, n - first, rest, kChunk, -INFINITY);
    *out = chunk_maximum(rest, &poison);
    top = *out > top ? *out : top;
  }
  if (sum_lanes(poison) != 0.0f) {
    for (int64_t i = 0; i < n; ++i) {
      if (x[i] != x[i]) return x[i];
    }
  }
  return top;
}

static void maxima_double(const double* x, int64_t n, double* out) {
  for (int64_t first = 0; first < n; first += kChunk, ++out) {
    const int64_t count = n - first < kChunk ? n - first : kChunk;
    double best[8] = {};  // weights are not negative
    int64_t i = 0;
    for (; i + 8 <= count; i += 8) {
      for (int64_t j = 0; j < 8; ++j) best[j] = x[first + i + j] > best[j] ? x[first + i + j] : best[j];
    }
    for (; i < count; ++i) best[0] = x[first + i] > best[0] ? x[first + i] : best[0];
    *out = best[0];
    for (int j = 1; j < 8; ++j) *out = best[j] > *out ? best[j] : *out;
  }
}

static inline double sum16(const double* sums) {
  double four[4];
  for (int j = 0; j < 4; ++j) four[j] = (sums[j] + sums[j + 4]) + (sums[j + 8] + sums[j + 12]);
  return (four[0] + four[1]) + (four[2] + four[3]);
}

static inline void add_doubles(const float* x, double* sums) {
  for (int j = 0; j < 16; ++j) sums[j] += double(x[j]);
}

static double exponentials(const float* x, int64_t n, float top, float temperature, float* out) {
  // The lanes' exp never falls below exp(-87.3), which is taken off so that masked tokens weigh 0.
  const F16 t = set1(temperature), shift = set1(top), least = exp16(set1(-87.3f));
  double sums[16] = {};
  int64_t i = 0;
  for (; i + 16 <= n; i += 16) {
    store(out + i, sub(exp16(div(sub(load(x + i), shift), t)), least));
    add_doubles(out + i, sums);
  }
  if (i < n) {
    float line[16];
    padded(x + i, n - i, line, 16, -INFINITY);
    store(line, sub(exp16(div(sub(load(line), shift), t)), least));
    for (int64_t j = 0; i + j < n; ++j) out[i + j] = line[j];
    add_doubles(line, sums);
  }
  return sum16(sums);
}

static void divide(float* x, int64_t n, float by) {
  const F16 divisor = set1(by);
  int64_t i = 0;
  for (; i + 16 <= n; i += 16) store(x + i, div(load(x + i), divisor));
  for (; i < n; ++i) x[i] /= by;
}

static double overlap(const float* p, const float* q, int64_t n) {
  double sums[16] = {};
  float line[16];
  int64_t i = 0;
  for (; i + 16 <= n; i += 16) {
    store(line, min(load(p + i), load(q + i)));
    add_doubles(line, sums);
  }
  for (; i < n; ++i) sums[i & 15] += double(p[i] < q[i] ? p[i] : q[i]);
  return sum16(sums);
}

static void excess(const float* p, const float* q, double scale, int64_t n, double* out) {
  for (int64_t i = 0; i < n; ++i) {
    const double more = scale * double(p[i]) - double(q[i]);
    out[i] = more > 0.0 ? more : 0.0;
  }
}

// Ten rounds of Philox4x32 (Salmon et al., SC 2011) on 16 consecutive counters.
static inline void philox16(uint32_t first, const slip::RaceStream& stream, uint32_t* bits) {
  uint32_t c0[16], c1[16], c2[16], c3[16];
  for (uint32_t i = 0; i < 16; ++i) {
    c0[i] = first + i;
    c1[i] = stream.words[0];
    c2[i] = stream.words[1];
    c3[i] = stream.words[2];
  }
  uint32_t k0 = stream.key[0], k1 = stream.key[1];
  for (int round = 0; round < 10; ++round) {
    for (int i = 0; i < 16; ++i) {
      const uint64_t low = uint64_t(c0[i]) * 0xD2511F53u, high = uint64_t(c2[i]) * 0xCD9E8D57u;
      c0[i] = uint32_t(high >> 32) ^ c1[i] ^ k0;
      c2[i] = uint32_t(low >> 32) ^ c3[i] ^ k1;
      c1[i] = uint32_t(high);
      c3[i] = uint32_t(low);
    }
    k0 += 0x9E3779B9u;
    k1 += 0xBB67AE85u;
  }
  for (int i = 0; i < 16; ++i) {
    bits[4 * i] = c0[i];
    bits[4 * i + 1] = c1[i];
    bits[4 * i + 2] = c2[i];
    bits[4 * i + 3] = c3[i];
  }
}

template <class Weight>
static inline void find_runners(const Weight* weights, int64_t n, int64_t chunk, const slip::RaceStream& stream,
                                double slowest, slip::Runners& out) {
  philox16(uint32_t(chunk * (kChunk / 4)), stream, out.bits);
  const Weight* w = weights + chunk * kChunk;
  Weight rest[kChunk];
  if (const int64_t count = n - chunk * kChunk; count < kChunk) {
    padded(w, count, rest, kChunk, Weight(0));
    w = rest;
  }
  // -log u >= 1 - u, so most runners are out without a logarithm.
  uint8_t in[kChunk];
  for (int64_t i = 0; i < kChunk; ++i) {
    const double signed_bits = double(int32_t(~out.bits[i] ^ 0x80000000u));
    const double missing = (signed_bits + 2147483648.5) * (1.0 / 4294967296.0);  // 1 - u
    const double weight = double(w[i]);
    in[i] = uint8_t((weight > 0.0) & (missing * (1.0 - 1e-12) <= slowest * weight));
  }
  uint64_t mask = 0;
  for (int64_t i = 0; i < kChunk; i += 8) {
    uint64_t eight;
    std::memcpy(&eight, in + i, 8);
    if (eight == 0) continue;
    for (int64_t j = 0; j < 8; ++j) mask |= uint64_t(in[i + j]) << (i + j);
  }
  out.mask = mask;
}

static void runners(const float* weights, int64_t n, int64_t chunk, const slip::RaceStream& stream,
                    double slowest, slip::Runners& out) {
  find_runners(weights, n, chunk, stream, slowest, out);
}

static void runners_double(const double* weights, int64_t n, int64_t chunk, const slip::RaceStream& stream,
                           double slowest, slip::Runners& out) {
  find_runners(weights, n, chunk, stream, slowest, out);
}

}  // namespace SLIP_NS
