// The functions that exist once per instruction set, behind one table of pointers.
//
// Everything hot is written once, over vectors of 16 floats (simd_*.h), and compiled once per
// instruction set; the table is the only way in. Knows no model and no threads: each function works on
// the range it is given. Shape letters: R rows, K inputs, N outputs, D head width.
#pragma once

#include <cstdint>

#include "layout.h"
#include "row_kernels.h"

namespace slip {

// How activations enter a product. `bf16` is 16-bit integers with a scale per group of 32 for weights
// stored as codes, and float32 for weights stored as floats where there is no bf16 multiply.
enum class Mode : int { f32 = 0, bf16 = 1, int8 = 2 };

// Rows of activations, converted once and read by every panel. Arrays that nobody needs are null.
struct Activations {
  int64_t rows = 0;
  int64_t cols = 0;              // K, padded to 32
  int64_t stride = 0;            // elements between rows: cols + padding against cache-set conflicts
  float* values = nullptr;       // (R, stride) as they are
  uint32_t* pairs = nullptr;     // (R, stride / 2) bf16 pairs in layout.h's order
  int8_t* codes = nullptr;       // (R, stride) int8
  uint32_t* wide = nullptr;      // (R, stride / 2) integers as 16-bit pairs in layout.h's order
  float* scales = nullptr;       // (R, group_stride) scale of each group of integers
  int32_t* code_sums = nullptr;  // (R, group_stride) their sum
  float* sums = nullptr;         // (R, group_stride) sum of the rounded activations
  int64_t group_stride = 0;
};

// One sequence's keys and values of one layer and one key-value head, in pages of kPage slots.
constexpr int64_t kPage = 64;

struct AttentionTask {
  const uint8_t* const* pages;  // the sequence's pages
  int64_t key_offset;           // bytes from a page's start to this layer's and head's keys
  int64_t value_offset;         // the same for its values
  int64_t committed;            // slots of the prefix
  int64_t pending;              // pending ancestors, the row itself included
  const int32_t* ancestors;     // (pending,) pending slots, ascending
  bool wide;                    // float32 cache, otherwise half precision
  int64_t head_dim;             // D, padded to 16
  int64_t heads;                // query heads that share this key-value head
  const float* queries;         // (heads, D), rotated and scaled
  float* scores;                // scratch: (heads, score_stride)
  int64_t score_stride;
  float* out;                   // (heads, out_stride)
  int64_t out_stride;
};

struct Kernels {
  const char* name;
  bool bf16_dot;

  // All rows times the panels [first, last); y begins at the first panel's column and has `stride`
  // floats a row.
  void (*multiply)(const Matrix&, const Activations&, Mode, int64_t first, int64_t last, float* y,
                   int64_t stride);
  // Converts inputs [first, last) (multiples of 32) of one row; x begins at input `first`.
  void (*convert)(const Activations&, Mode, int64_t row, const float* x, int64_t first, int64_t last);
  void (*attend)(const AttentionTask&);
  // out = x / rms(x) * weight; n true width, padded arrays with zeros up to a multiple of 16.
  void (*rms_norm)(const float* x, const float* weight, float eps, int64_t n, float* out);
  // Rotates one head in place: pairs (i, i + n/2).
  void (*rotate)(float* head, const float* cosine, const float* sine, int64_t n);
  void (*add)(float* into, const float* x, int64_t n);
  void (*scale)(float* x, float factor, int64_t n);
  // out[16c + i] = silu(x[32c + i]) * x[32c + 16 + i].
  void (*swiglu)(const float* x, float* out, int64_t chunks);
  // Writes a key (transposed) or value of one slot; `base` is the page's keys or values of one head.
  void (*store_cache)(const float* x, uint8_t* base, int64_t slot, bool wide, bool value, int64_t n);
  RowKernels rows;
};

const Kernels& portable_kernels();
#if SLIP_X86
const Kernels& avx2_kernels();
const Kernels& avx512_kernels();
const Kernels& avx512_bf16_kernels();
#endif

}  // namespace slip
