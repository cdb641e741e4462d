// How weights lie in memory: one packed layout for every instruction set.
//
// A matrix of N outputs and K inputs is cut into panels of 16 outputs. A panel is a sequence of 64-byte
// vectors, each holding four bytes for each of its 16 outputs, in the order in which k is walked:
//
//   f32   one vector per k
//   bf16  one vector per pair of k; the pairs of an octet of k are (0,2) (4,6) (1,3) (5,7)
//   q8    8 vectors per group of 32 k: 4 consecutive k each, stored as code + 128; after all groups of
//         the panel come their scales, 16 halves a group
//   q4    4 vectors per group of 32 k: byte i of vector p holds k = 8p + i in its low nibble and
//         k = 8p + 4 + i in its high one; then 16 half scales and 16 half minima (320 bytes a group)
//
// The odd pair order of bf16 is what 4-bit codes in this layout unpack to with one shift. N is padded
// to 16 and K to 32 with zeros. Values: q8 scale * (code - 128), q4 scale * code + minimum.
#pragma once

#include <cstdint>
#include <cstring>

namespace slip {

constexpr int64_t kPanel = 16;  // outputs of a panel
constexpr int64_t kGroup = 32;  // inputs that share a scale
constexpr int64_t kVector = 64; // bytes of a vector

enum class Format : int { f32 = 0, bf16 = 1, q8 = 2, q4 = 3 };

// Numbers as a checkpoint stores them.
enum class Source : int { f32 = 0, f16 = 1, bf16 = 2, q8_0 = 3, q4_0 = 4, q4_1 = 5 };

static inline int64_t round_up(int64_t n, int64_t unit) { return (n + unit - 1) / unit * unit; }

static inline int64_t panel_bytes(Format format, int64_t cols) {
  const int64_t groups = cols / kGroup;
  switch (format) {
    case Format::f32: return cols * kVector;
    case Format::bf16: return cols / 2 * kVector;
    case Format::q8: return round_up(groups * (8 * kVector + 32), kVector);
    case Format::q4: return groups * 5 * kVector;
  }
  return 0;
}

// A packed matrix; `data` is 64-byte aligned and owned by somebody else.
struct Matrix {
  Format format = Format::f32;
  int64_t rows = 0;  // outputs, padded to 16
  int64_t cols = 0;  // inputs, padded to 32
  const uint8_t* data = nullptr;

  int64_t panels() const { return rows / kPanel; }
  int64_t panel_stride() const { return panel_bytes(format, cols); }
};

// `static`, so that no instruction set's translation unit can lend its own version to another.

static inline float bits_to_float(uint32_t bits) {
  float value;
  std::memcpy(&value, &bits, 4);
  return value;
}

static inline uint32_t float_to_bits(float value) {
  uint32_t bits;
  std::memcpy(&bits, &value, 4);
  return bits;
}

static inline float bf16_to_float(uint16_t value) { return bits_to_float(uint32_t(value) << 16); }

// Round to nearest even; the value is finite.
static inline uint16_t float_to_bf16(float value) {
  const uint32_t bits = float_to_bits(value);
  return uint16_t((bits + 0x7fff + ((bits >> 16) & 1)) >> 16);
}

static inline float half_to_float(uint16_t half) {
  const uint32_t sign = uint32_t(half & 0x8000) << 16;
  const uint32_t magnitude = half & 0x7fff;
  if (magnitude >= 0x7c00) return bits_to_float(sign | 0x7f800000 | (magnitude & 0x3ff) << 13);
  if (magnitude < 0x0400) {  // subnormal: magnitude * 2^-24, exact
    return bits_to_float(sign | float_to_bits(float(magnitude) * 5.9604644775390625e-8f));
  }
  return bits_to_float(sign | ((magnitude << 13) + 0x38000000));
}

// Round to nearest even; overflow gives infinity.
static inline uint16_t float_to_half(float value) {
  const uint32_t bits = float_to_bits(value);
  const uint16_t sign = uint16_t((bits >> 16) & 0x8000);
  const uint32_t magnitude = bits & 0x7fffffff;
  if (magnitude >= 0x7f800000) return uint16_t(sign | (magnitude > 0x7f800000 ? 0x7e00 : 0x7c00));
  if (magnitude >= 0x477ff000) return uint16_t(sign | 0x7c00);
  if (magnitude < 0x38800000) {  // subnormal: adding 1/2 leaves magnitude / 2^-24 in the low bits
    return uint16_t(sign | (float_to_bits(bits_to_float(magnitude) + 0.5f) - 0x3f000000));
  }
  return uint16_t(sign | ((magnitude - 0x38000000 + 0xfff + ((magnitude >> 13) & 1)) >> 13));
}

// 32 numbers, each in the upper half of its lane, as 16 pairs in the order above.
static inline void pair_up(const int32_t* upper, uint32_t* pairs) {
  constexpr int first[4] = {0, 4, 1, 5}, second[4] = {2, 6, 3, 7};
  for (int octet = 0; octet < 4; ++octet) {
    for (int j = 0; j < 4; ++j) {
      const int32_t* at = upper + 8 * octet;
      pairs[4 * octet + j] = uint32_t(at[first[j]]) >> 16 | (uint32_t(at[second[j]]) & 0xffff0000u);
    }
  }
}

}  // namespace slip
