// Rows of activations on their way into a product: float32, bf16 pairs, or integers with a scale a group.
//
// Integers are symmetric, for each row and group of 32: int8 in [-127, 127], as llama.cpp has them, or
// 16 bits in [-32767, 32767], which stand in for bf16 where there is no bf16 multiply, with a smaller
// error. The sums belong to the *rounded* activations, because they multiply the minima (q4) and
// offsets (q8) of the weights.
#pragma once

#include "kernels.h"

namespace SLIP_NS {

static inline F16 absolute(F16 x) { return as_floats(bit_and(as_ints(x), set1_int(0x7fffffff))); }

// bf16 values, rounded to nearest even, in the upper halves of the lanes.
static inline I16 rounded_bf16(F16 x) {
  const I16 bits = as_ints(x);
  const I16 odd = bit_and(sar<16>(bits), set1_int(1));
  return bit_and(add(bits, add(odd, set1_int(0x7fff))), set1_int(int32_t(0xffff0000)));
}

static inline void pair_up(const int32_t* upper, uint32_t* pairs) {
  // One octet of 32-bit lanes, payload in the upper half, into four pairs of layout.h's order.
  constexpr int first[4] = {0, 4, 1, 5}, second[4] = {2, 6, 3, 7};
  for (int j = 0; j < 4; ++j) {
    pairs[j] = uint32_t(upper[first[j]]) >> 16 | (uint32_t(upper[second[j]]) & 0xffff0000u);
  }
}

// Codes of one group: the largest magnitude becomes `top`. Returns their sum.
static inline int32_t quantise(F16 low, F16 high, int32_t top, int32_t* codes, float* scale) {
  const float largest = max_lanes(max(absolute(low), absolute(high)));
  *scale = largest / float(top);
  const F16 inverse = set1(largest > 0.0f ? float(top) / largest : 0.0f);
  store_ints(codes, round_to_ints(mul(low, inverse)));
  store_ints(codes + 16, round_to_ints(mul(high, inverse)));
  int32_t total = 0;
  for (int i = 0; i < 32; ++i) {
    // NaN and infinity arrive as the smallest integer: kept in range here, poisoned by the scale.
    codes[i] = codes[i] < -top ? -top : codes[i] > top ? top : codes[i];
    total += codes[i];
  }
  return total;
}

static void convert(const Activations& a, Mode mode, int64_t row, const float* x, int64_t first, int64_t last) {
  for (int64_t k = first; k < last; k += kGroup) {
    const int64_t group = row * a.group_stride + k / kGroup;
    const F16 low = load(x + k - first), high = load(x + k - first + 16);
    if (a.values) {
      store(a.values + row * a.stride + k, low);
      store(a.values + row * a.stride + k + 16, high);
    }
    if (a.pairs) {
      int32_t upper[32];
      store_ints(upper, rounded_bf16(low));
      store_ints(upper + 16, rounded_bf16(high));
      for (int o = 0; o < 4; ++o) pair_up(upper + 8 * o, a.pairs + row * (a.stride / 2) + k / 2 + 4 * o);
      a.sums[group] = sum_lanes(add(as_floats(load_ints(upper)), as_floats(load_ints(upper + 16))));
    }
    if (a.scales) {
      int32_t codes[32];
      const int32_t total = quantise(low, high, mode == Mode::int8 ? 127 : 32767, codes, a.scales + group);
      a.code_sums[group] = total;
      a.sums[group] = a.scales[group] * float(total);
      if (a.codes) {
        for (int i = 0; i < 32; ++i) a.codes[row * a.stride + k + i] = int8_t(codes[i]);
      }
      if (a.wide) {
        for (int i = 0; i < 32; ++i) codes[i] = int32_t(uint32_t(codes[i]) << 16);
        for (int o = 0; o < 4; ++o) pair_up(codes + 8 * o, a.wide + row * (a.stride / 2) + k / 2 + 4 * o);
      }
    }
  }
}

}  // namespace SLIP_NS
