// Packed weights times a few rows: each weight is read once a pass and decoded once a row block.
//
// Panels are the outer loop and row blocks the inner one, so that a panel comes from memory once and
// from the cache after that. One panel at a time, also for a single row whose accumulator waits for its
// own latency: one stream from memory is worth more than the wait. No result depends on it: every output
// has one accumulator (one per group of 32 where weights have scales), fed in the panel's own order of k,
// whatever M is. Shape letters: M rows of a block, G groups of 32.
#pragma once

#include "kernels.h"
#include "unroll.h"

namespace SLIP_NS {

constexpr int64_t kAhead = 4096;  // bytes between the vector in use and the one being prefetched

// The rows of one block: pointers into Activations, moved to the block's first row.
struct Block {
  const float* values;
  const uint32_t* pairs;
  const int8_t* codes;
  const uint32_t* wide;
  const float* scales;
  const int32_t* code_sums;
  const float* sums;
  int64_t stride, group_stride, cols;
};

static inline int32_t quad(const int8_t* codes) {
  int32_t x;
  std::memcpy(&x, codes, 4);
  return x;
}

struct TimesF32 {
  static constexpr int rows = kRowsF32;
  template <int M>
  static inline void run(const uint8_t* w, const Block& x, float* y, int64_t ldy) {
    F16 acc[M];
    SLIP_UNROLL for (int m = 0; m < M; ++m) acc[m] = zero();
    for (int64_t k = 0; k < x.cols; ++k) {
      const uint8_t* at = w + k * kVector;
      prefetch(at + kAhead);
      const F16 weight = load(reinterpret_cast<const float*>(at));
      SLIP_UNROLL for (int m = 0; m < M; ++m) acc[m] = fma(weight, set1(x.values[m * x.stride + k]), acc[m]);
    }
    SLIP_UNROLL for (int m = 0; m < M; ++m) store(y + m * ldy, acc[m]);
  }
};

// First and second k of the pair j of an octet.
constexpr int kPairFirst[4] = {0, 4, 1, 5};
constexpr int kPairSecond[4] = {2, 6, 3, 7};

struct TimesBf16 {
  static constexpr int rows = kRowsF32;
  template <int M>
  static inline void run(const uint8_t* w, const Block& x, float* y, int64_t ldy) {
    F16 acc[M];
    SLIP_UNROLL for (int m = 0; m < M; ++m) acc[m] = zero();
    for (int64_t octet = 0; octet < x.cols / 8; ++octet) {
      SLIP_UNROLL for (int j = 0; j < 4; ++j) {
        const uint8_t* at = w + (octet * 4 + j) * kVector;
        prefetch(at + kAhead);
        const I16 pair = load_ints(at);
#if SLIP_BF16
        SLIP_UNROLL for (int m = 0; m < M; ++m)
          acc[m] = dot_bf16(acc[m], pair, x.pairs[m * (x.stride / 2) + octet * 4 + j]);
#else
        const float* values = x.values + octet * 8;
        const F16 first = as_floats(shl<16>(pair));
        SLIP_UNROLL for (int m = 0; m < M; ++m)
          acc[m] = fma(first, set1(values[m * x.stride + kPairFirst[j]]), acc[m]);
        const F16 second = as_floats(bit_and(pair, set1_int(int32_t(0xffff0000))));
        SLIP_UNROLL for (int m = 0; m < M; ++m)
          acc[m] = fma(second, set1(values[m * x.stride + kPairSecond[j]]), acc[m]);
#endif
      }
    }
    SLIP_UNROLL for (int m = 0; m < M; ++m) store(y + m * ldy, acc[m]);
  }
};

// Integer activations: a group is added up exactly in integers, then scaled. `Dot` knows how a vector of
// codes meets the activations, how many vectors a group has, and how its loops are best compiled: what
// GCC makes of them decides a third of the speed where there are only 16 registers.
template <class Dot>
struct TimesIntegers {
  static constexpr int rows = Dot::rows;
  static constexpr bool four_bits = Dot::vectors == 4;
  template <int M>
  static inline void run(const uint8_t* w, const Block& x, float* y, int64_t ldy) {
    const int64_t groups = x.cols / kGroup;
    constexpr int64_t group_bytes = (four_bits ? 5 : 8) * kVector;
    // In memory, because registers are for the integers: touched once a group, and aligned, because a
    // store across cache lines is slow to read again.
    alignas(64) float out[M][kPanel];
    SLIP_UNROLL for (int m = 0; m < M; ++m) store(out[m], zero());
    SLIP_KEEP_LOOP for (int64_t g = 0; g < groups; ++g) {
      const uint8_t* at = w + g * group_bytes;
      I16 total[M];
      SLIP_UNROLL for (int m = 0; m < M; ++m) total[m] = set1_int(0);
      if constexpr (Dot::unrolled) {
        SLIP_UNROLL for (int v = 0; v < Dot::vectors; ++v) {
          prefetch(at + kAhead + v * kVector);
          Dot::step(total, load_ints(at + v * kVector), x, g * kGroup, v);
        }
      } else {
        SLIP_KEEP_LOOP for (int v = 0; v < Dot::vectors; ++v) {
          prefetch(at + kAhead + v * kVector);
          Dot::step(total, load_ints(at + v * kVector), x, g * kGroup, v);
        }
      }
      if constexpr (four_bits) {
        prefetch(at + kAhead + 4 * kVector);
        const uint16_t* halves = reinterpret_cast<const uint16_t*>(at + 4 * kVector);
        const F16 scale = load_halves(halves), minimum = load_halves(halves + 16);
        SLIP_UNROLL for (int m = 0; m < M; ++m) {
          const F16 scaled = mul(to_floats(Dot::finish(total[m])), set1(x.scales[m * x.group_stride + g]));
          const F16 sum = fma(scaled, scale, load(out[m]));
          store(out[m], fma(minimum, set1(x.sums[m * x.group_stride + g]), sum));
        }
      } else {
        const uint8_t* scales = w + groups * 8 * kVector + g * 32;
        const F16 scale = load_halves(reinterpret_cast<const uint16_t*>(scales));
        SLIP_UNROLL for (int m = 0; m < M; ++m) {
          // Codes are stored + 128, which leaves through the sum of the activations.
          const I16 exact = add(total[m], set1_int(-128 * x.code_sums[m * x.group_stride + g]));
          const F16 scaled = mul(to_floats(exact), set1(x.scales[m * x.group_stride + g]));
          store(out[m], fma(scaled, scale, load(out[m])));
        }
      }
    }
    SLIP_UNROLL for (int m = 0; m < M; ++m) store(y + m * ldy, load(out[m]));
  }
};

// 4-bit codes times int8 activations, bytes times bytes: low nibbles, then high ones.
struct Q4Bytes {
  static constexpr int rows = kRowsBytes;
  static constexpr int vectors = 4;
  static constexpr bool unrolled = true;
  template <int M>
  static inline void step(I16 (&total)[M], I16 codes, const Block& x, int64_t k, int v) {
    const int8_t* at = x.codes + k + v * 8;
    const I16 mask = set1_int(0x0f0f0f0f), low = bit_and(codes, mask), high = bit_and(sar<4>(codes), mask);
    SLIP_UNROLL for (int m = 0; m < M; ++m) settle(total[m] = dot_nibbles(total[m], low, quad(at + m * x.stride)));
    SLIP_UNROLL for (int m = 0; m < M; ++m)
      settle(total[m] = dot_nibbles(total[m], high, quad(at + m * x.stride + 4)));
  }
  static inline I16 finish(I16 total) { return finish_nibbles(total); }
};

// 4-bit codes times 16-bit activations: layout.h's four pairs of an octet.
struct Q4Words {
  static constexpr int rows = kRowsWords;
  static constexpr int vectors = 4;
  static constexpr bool unrolled = false;
  template <int M>
  static inline void step(I16 (&total)[M], I16 codes, const Block& x, int64_t k, int v) {
    const uint32_t* at = x.wide + k / 2 + v * 4;
    SLIP_UNROLL for (int j = 0; j < 4; ++j) {
      const I16 nibbles = bit_and(codes, set1_int(0x000f000f));
      SLIP_UNROLL for (int m = 0; m < M; ++m)
        total[m] = dot_words(total[m], nibbles, int32_t(at[m * (x.stride / 2) + j]));
      codes = sar<4>(codes);
    }
  }
  static inline I16 finish(I16 total) { return total; }
};

// 8-bit codes times 16-bit activations: numbers 0 and 2 of four, then 1 and 3, as layout.h pairs them.
struct Q8Words {
  static constexpr int rows = kRowsWords;
  static constexpr int vectors = 8;
  static constexpr bool unrolled = true;
  template <int M>
  static inline void step(I16 (&total)[M], I16 codes, const Block& x, int64_t k, int v) {
    const uint32_t* at = x.wide + k / 2 + v / 2 * 4 + v % 2;
    const I16 mask = set1_int(0x00ff00ff), even = bit_and(codes, mask), odd = bit_and(sar<8>(codes), mask);
    const int64_t stride = x.stride / 2;
    SLIP_UNROLL for (int m = 0; m < M; ++m)
      settle(total[m] = dot_words(total[m], even, int32_t(at[m * stride])));
    SLIP_UNROLL for (int m = 0; m < M; ++m)
      settle(total[m] = dot_words(total[m], odd, int32_t(at[m * stride + 2])));
  }
  static inline I16 finish(I16 total) { return total; }
};

#if SLIP_BF16
// 8-bit codes times int8 activations, bytes times bytes.
struct Q8Bytes {
  static constexpr int rows = kRowsBytes;
  static constexpr int vectors = 8;
  static constexpr bool unrolled = true;
  template <int M>
  static inline void step(I16 (&total)[M], I16 codes, const Block& x, int64_t k, int v) {
    const int8_t* at = x.codes + k + v * 4;
    SLIP_UNROLL for (int m = 0; m < M; ++m) total[m] = dot_bytes(total[m], codes, quad(at + m * x.stride));
  }
  static inline I16 finish(I16 total) { return total; }
};

using TimesQ8Int8 = TimesIntegers<Q8Bytes>;
#else
using TimesQ8Int8 = TimesIntegers<Q8Words>;
#endif
using TimesQ8 = TimesIntegers<Q8Words>;
using TimesQ4 = TimesIntegers<Q4Words>;
using TimesQ4Int8 = TimesIntegers<Q4Bytes>;

// Calls the instance for `rows` rows, counting down from the largest.
template <class Times, int M>
static void run_block(int64_t rows, const uint8_t* w, const Block& x, float* y, int64_t ldy) {
  if (rows == M) return Times::template run<M>(w, x, y, ldy);
  if constexpr (M > 1) run_block<Times, M - 1>(rows, w, x, y, ldy);
}

static inline Block block_at(const Activations& x, int64_t row) {
  auto at = [](auto* base, int64_t offset) { return base ? base + offset : base; };
  return {at(x.values, row * x.stride),          at(x.pairs, row * (x.stride / 2)),
          at(x.codes, row * x.stride),           at(x.wide, row * (x.stride / 2)),
          at(x.scales, row * x.group_stride),    at(x.code_sums, row * x.group_stride),
          at(x.sums, row * x.group_stride),      x.stride,
          x.group_stride,                        x.cols};
}

template <class Times>
static void run_panels(const Matrix& w, const Activations& x, int64_t first, int64_t last, float* y, int64_t ldy) {
  const int64_t bytes = w.panel_stride(), blocks = (x.rows + Times::rows - 1) / Times::rows;
  for (int64_t panel = first; panel < last; ++panel) {
    for (int64_t b = 0; b < blocks; ++b) {
      const int64_t row = x.rows * b / blocks, end = x.rows * (b + 1) / blocks;
      run_block<Times, Times::rows>(end - row, w.data + panel * bytes, block_at(x, row),
                                    y + row * ldy + (panel - first) * kPanel, ldy);
    }
  }
}

static void multiply(const Matrix& w, const Activations& x, Mode mode, int64_t first, int64_t last, float* y,
                     int64_t ldy) {
  switch (w.format) {
    case Format::f32: return run_panels<TimesF32>(w, x, first, last, y, ldy);
    case Format::bf16: return run_panels<TimesBf16>(w, x, first, last, y, ldy);
    case Format::q8:
      return mode == Mode::int8 ? run_panels<TimesQ8Int8>(w, x, first, last, y, ldy)
                                : run_panels<TimesQ8>(w, x, first, last, y, ldy);
    case Format::q4:
      return mode == Mode::int8 ? run_panels<TimesQ4Int8>(w, x, first, last, y, ldy)
                                : run_panels<TimesQ4>(w, x, first, last, y, ldy);
  }
}

}  // namespace SLIP_NS
