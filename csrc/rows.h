// Sampling's steps over one row of logits or weights; see row_kernels.h.
//
// Loops over plain arrays of 16 are written so that compilers turn them into vectors without being
// allowed to reorder anything: every lane has its own running sum or maximum. They stay loops
// (SLIP_KEEP_LOOP), because GCC unrolls short ones first and then finds no vectors in them.
#pragma once

#include <cmath>

#include "philox.h"
#include "pointwise.h"
#include "row_kernels.h"
#include "unroll.h"

namespace SLIP_NS {

using slip::kChunk;

// Copies `count` numbers and fills up with another one. No templates of the standard library here:
// the linker keeps one instance of them, and it might be one that needs this instruction set.
template <class T>
static inline void padded(const T* from, int64_t count, T* to, int64_t size, T filler) {
  for (int64_t i = 0; i < size; ++i) to[i] = i < count ? from[i] : filler;
}

constexpr int64_t kFar = 2048;  // numbers between the one in use and the one being prefetched

static inline float chunk_maximum(const float* x, F16* poison) {
  // A maximum returns its second operand where one is NaN, on every instruction set.
  F16 best = set1(-INFINITY);
  for (int64_t i = 0; i < kChunk; i += 16) {
    prefetch(x + i + kFar);
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
  SLIP_KEEP_LOOP
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

static inline uint64_t reach_all(const float* x, F16 edge) {
  uint64_t mask = 0;
  for (int i = 0; i < kChunk; i += 16) mask |= uint64_t(at_least(load(x + i), edge)) << i;
  return mask;
}

static uint64_t reach(const float* x, int64_t count, float edge) {
  if (count == kChunk) return reach_all(x, set1(edge));
  uint64_t mask = 0;
  for (int64_t i = 0; i < count; ++i) mask |= uint64_t(x[i] >= edge) << i;
  return mask;
}

// A chunk's weights as kChunk floats: in place, or else in `room`, which holds zeros.
static inline const float* floats_of(const float* from, int64_t count, float* room) {
  if (count == kChunk) return from;
  for (int64_t i = 0; i < count; ++i) room[i] = from[i];
  return room;
}

static inline const float* floats_of(const double* from, int64_t count, float* room) {
  for (int64_t i = 0; i < count; ++i) room[i] = float(from[i]);
  return room;
}

template <class Weight>
static inline void find_runners(const Weight* weights, int64_t n, int64_t chunk, const slip::RaceStream& stream,
                                double slowest, slip::Runners& out) {
  philox16(uint32_t(chunk * (kChunk / 4)), stream, out.bits);
  const Weight* from = weights + chunk * kChunk;
  const int64_t count = n - chunk * kChunk < kChunk ? n - chunk * kChunk : kChunk;
  float room[kChunk] = {};
  const float* w = floats_of(from, count, room);
  int32_t halves[kChunk];
  for (int64_t i = 0; i < kChunk; ++i) halves[i] = int32_t(~out.bits[i] >> 1);
  // Since -log u >= 1 - u, who arrives by `slowest` weighs at least (1 - u) / slowest; so most are out
  // without a logarithm. 1 - u is a little more than halves / 2^31, and the margin is for rounding.
  // Weights out of float32's comfort just run.
  const bool comfort = slowest > 1e-20 && slowest < 1e20;
  const F16 scale = set1(comfort ? float((1.0 - 1e-5) / 2147483648.0 / slowest) : 0.0f);
  const F16 smallest = set1(comfort ? 1e-45f : -1.0f);
  out.mask = 0;
  for (int64_t i = 0; i < kChunk; i += 16) {
    const F16 needed = max(mul(to_floats(load_ints(halves + i)), scale), smallest);
    out.mask |= uint64_t(at_least(load(w + i), needed)) << i;
  }
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
