// Rows of activations on their way into a product: float32, bf16 pairs, or int8 with a scale a group.
//
// int8 is symmetric, codes in [-127, 127], scale = largest magnitude / 127 for each row and group of 32,
// as llama.cpp does it. The sums belong to the *rounded* activations, because they multiply the minima
// (q4) and offsets (q8) of the weights.
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

static void convert(const Activations& a, Mode mode, int64_t row, const float* x, int64_t first, int64_t last) {
  for (int64_t k = first; k < last; k += kGroup) {
    const int64_t group = row * a.group_stride + k / kGroup;
    F16 low = load(x + k - first), high = load(x + k - first + 16);
    if (mode == Mode::int8) {
      const float largest = max_lanes(max(absolute(low), absolute(high)));
      const float scale = largest / 127.0f;
      const F16 inverse = set1(largest > 0.0f ? 127.0f / largest : 0.0f);
      int32_t codes[32];
      store_ints(codes, round_to_ints(mul(low, inverse)));
      store_ints(codes + 16, round_to_ints(mul(high, inverse)));
      int32_t total = 0;
      int8_t* out = a.codes + row * a.stride + k;
      for (int i = 0; i < 32; ++i) {
        // NaN and infinity arrive here as the smallest integer: kept in range, poisoned by the scale.
        const int32_t code = codes[i] < -127 ? -127 : codes[i] > 127 ? 127 : codes[i];
        out[i] = int8_t(code);
        total += code;
        codes[i] = int32_t(uint32_t(code) << 16);
      }
      if (a.wide) {
        for (int o = 0; o < 4; ++o) pair_up(codes + 8 * o, a.wide + row * (a.stride / 2) + k / 2 + 4 * o);
      }
      a.scales[group] = scale;
      a.code_sums[group] = total;
      a.sums[group] = scale * float(total);
      continue;
    }
    if (mode == Mode::bf16 && kBf16Dot) {
      int32_t upper[32];
      store_ints(upper, rounded_bf16(low));
      store_ints(upper + 16, rounded_bf16(high));
      for (int o = 0; o < 4; ++o) pair_up(upper + 8 * o, a.pairs + row * (a.stride / 2) + k / 2 + 4 * o);
      low = as_floats(load_ints(upper));
      high = as_floats(load_ints(upper + 16));
    } else {
      store(a.values + row * a.stride + k, low);
      store(a.values + row * a.stride + k + 16, high);
    }
    a.sums[group] = sum_lanes(add(low, high));
  }
}

}  // namespace SLIP_NS
