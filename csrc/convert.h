// Rows of activations on their way into a product: float32, bf16 pairs, or integers with a scale a group.
//
// Integers are symmetric, for each row and group of 32: int8 in [-127, 127], as llama.cpp has them, or
// 16 bits in [-32767, 32767], which stand in for bf16 beside weights stored as codes, with a smaller
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

// Codes of one group: the largest magnitude becomes `top`. Returns their sum, which is exact as a float.
static inline int32_t quantise(F16 low, F16 high, float top, I16* codes, float* scale) {
  const float largest = max_lanes(max(absolute(low), absolute(high)));
  *scale = largest / top;
  const F16 inverse = set1(largest > 0.0f ? top / largest : 0.0f);
  // Infinity arrives as NaN, which `max` turns into its second argument: in range, poisoned by the scale.
  const auto code = [&](F16 x) { return round_to_ints(min(max(mul(x, inverse), set1(-top)), set1(top))); };
  codes[0] = code(low);
  codes[1] = code(high);
  return int32_t(sum_lanes(to_floats(add(codes[0], codes[1]))));
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
      const I16 upper[2] = {rounded_bf16(low), rounded_bf16(high)};
      store_pairs(upper, a.pairs + row * (a.stride / 2) + k / 2);
    }
    if (a.scales) {
      I16 codes[2];
      const int32_t total = quantise(low, high, mode == Mode::int8 ? 127.0f : 32767.0f, codes, a.scales + group);
      a.code_sums[group] = total;
      a.sums[group] = a.scales[group] * float(total);
      if (a.codes) {
        store_bytes(a.codes + row * a.stride + k, codes[0]);
        store_bytes(a.codes + row * a.stride + k + 16, codes[1]);
      }
      if (a.wide) {
        const I16 upper[2] = {shl<16>(codes[0]), shl<16>(codes[1])};
        store_pairs(upper, a.wide + row * (a.stride / 2) + k / 2);
      }
    }
  }
}

}  // namespace SLIP_NS
