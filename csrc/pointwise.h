// The small steps between products: RMSNorm (1910.07467), rotation (RoFormer, 2104.09864), SwiGLU
// (2002.05202), residuals.
//
// Each works on one row, so no result can depend on the other rows. Arrays are padded with zeros to
// whole vectors of 16.
#pragma once

#include <cmath>

#include "kernels.h"

namespace SLIP_NS {

// exp(x) for x <= 88: Cody-Waite reduction to [-ln2/2, ln2/2], degree-6 polynomial; relative error below
// 2e-7, 0 below -87.3.
static inline F16 exp16(F16 x) {
  const F16 smallest = set1(-87.3f);
  const F16 clamped = min(max(x, smallest), set1(88.0f));
  const I16 n = round_to_ints(mul(clamped, set1(1.44269504088896341f)));
  const F16 nf = to_floats(n);
  F16 r = fma(nf, set1(-0.693359375f), clamped);
  r = fma(nf, set1(2.12194440e-4f), r);
  F16 p = set1(1.0f / 720.0f);
  p = fma(p, r, set1(1.0f / 120.0f));
  p = fma(p, r, set1(1.0f / 24.0f));
  p = fma(p, r, set1(1.0f / 6.0f));
  p = fma(p, r, set1(0.5f));
  p = fma(p, r, set1(1.0f));
  p = fma(p, r, set1(1.0f));
  const F16 power = as_floats(shl<23>(add(n, set1_int(127))));
  return mul(p, power);
}

static void rms_norm(const float* x, const float* weight, float eps, int64_t n, float* out) {
  F16 squares = zero();
  for (int64_t i = 0; i < n; i += 16) squares = fma(load(x + i), load(x + i), squares);
  const F16 factor = set1(1.0f / std::sqrt(sum_lanes(squares) / float(n) + eps));
  for (int64_t i = 0; i < n; i += 16) store(out + i, mul(mul(load(x + i), factor), load(weight + i)));
}

static void rotate(float* head, const float* cosine, const float* sine, int64_t n) {
  const int64_t half = n / 2;
  int64_t i = 0;
  for (; i + 16 <= half; i += 16) {
    const F16 a = load(head + i), b = load(head + half + i), c = load(cosine + i), s = load(sine + i);
    store(head + i, sub(mul(a, c), mul(b, s)));
    store(head + half + i, add(mul(b, c), mul(a, s)));
  }
  for (; i < half; ++i) {
    const float a = head[i], b = head[half + i];
    head[i] = a * cosine[i] - b * sine[i];
    head[half + i] = b * cosine[i] + a * sine[i];
  }
}

static void add_into(float* into, const float* x, int64_t n) {
  for (int64_t i = 0; i < n; i += 16) store(into + i, add(load(into + i), load(x + i)));
}

static void scale_by(float* x, float factor, int64_t n) {
  for (int64_t i = 0; i < n; i += 16) store(x + i, mul(load(x + i), set1(factor)));
}

static void swiglu(const float* x, float* out, int64_t chunks) {
  for (int64_t c = 0; c < chunks; ++c) {
    const F16 gate = load(x + 32 * c), up = load(x + 32 * c + 16);
    const F16 below = add(set1(1.0f), exp16(sub(zero(), gate)));
    store(out + 16 * c, mul(div(gate, below), up));
  }
}

}  // namespace SLIP_NS
