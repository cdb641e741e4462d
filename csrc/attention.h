// Attention of one row over its sequence, in logical key order: the prefix, then the row's ancestors.
//
// Keys are stored transposed, 16 slots side by side, so that a score never depends on its neighbours;
// scores are moved into logical order before anything is summed over them. So the slot in which a key
// happens to lie, and the other rows of the tree, can't change a bit. Softmax in two passes (exact
// maximum first); its sum runs over lanes by logical index. Shape letters: H query heads that share
// keys, D head width.
#pragma once

#include "kernels.h"
#include "pointwise.h"
#include "unroll.h"

namespace SLIP_NS {

template <bool wide>
static inline F16 load_number(const uint8_t* base, int64_t index) {
  if constexpr (wide) return load(reinterpret_cast<const float*>(base) + index);
  else return load_halves(reinterpret_cast<const uint16_t*>(base) + index);
}

// Scores of H queries against B neighbouring blocks of 16 slots, `step` bytes apart. Neither H nor B
// changes a score: they keep the processor from waiting for one sum.
template <int H, int B, bool wide>
static inline void score_blocks(const uint8_t* keys, int64_t step, const float* queries, int64_t d, float* scores,
                                int64_t stride) {
  F16 acc[B][H];
  SLIP_UNROLL for (int b = 0; b < B; ++b) SLIP_UNROLL for (int h = 0; h < H; ++h) acc[b][h] = zero();
  for (int64_t i = 0; i < d; ++i) {
    F16 key[B];
    SLIP_UNROLL for (int b = 0; b < B; ++b) key[b] = load_number<wide>(keys + b * step, i * 16);
    SLIP_UNROLL for (int h = 0; h < H; ++h) {
      const F16 query = set1(queries[h * d + i]);
      SLIP_UNROLL for (int b = 0; b < B; ++b) acc[b][h] = fma(key[b], query, acc[b][h]);
    }
  }
  SLIP_UNROLL for (int b = 0; b < B; ++b) SLIP_UNROLL for (int h = 0; h < H; ++h)
    store(scores + h * stride + b * 16, acc[b][h]);
}

// The weighted sum of values, C times 16 columns at a time.
template <int H, int C, bool wide>
static inline void mix_columns(const AttentionTask& t, int first_head, const float* inverse, int64_t column) {
  constexpr int64_t size = wide ? 4 : 2;
  const float* weights = t.scores + first_head * t.score_stride;
  F16 acc[C][H];
  SLIP_UNROLL for (int c = 0; c < C; ++c) SLIP_UNROLL for (int h = 0; h < H; ++h) acc[c][h] = zero();
  const auto take = [&](const uint8_t* values, int64_t slot, int64_t at) {
    F16 value[C];
    SLIP_UNROLL for (int c = 0; c < C; ++c) value[c] = load_number<wide>(values, slot * t.head_dim + c * 16);
    SLIP_UNROLL for (int h = 0; h < H; ++h) {
      const F16 weight = set1(weights[h * t.score_stride + at]);
      SLIP_UNROLL for (int c = 0; c < C; ++c) acc[c][h] = fma(value[c], weight, acc[c][h]);
    }
  };
  for (int64_t start = 0; start < t.committed; start += kPage) {
    const uint8_t* values = t.pages[start / kPage] + t.value_offset + column * size;
    const int64_t count = t.committed - start < kPage ? t.committed - start : kPage;
    for (int64_t i = 0; i < count; ++i) take(values, i, start + i);
  }
  for (int64_t j = 0; j < t.pending; ++j) {
    const int64_t slot = t.committed + t.ancestors[j];
    take(t.pages[slot / kPage] + t.value_offset + column * size, slot % kPage, t.committed + j);
  }
  SLIP_UNROLL for (int c = 0; c < C; ++c) SLIP_UNROLL for (int h = 0; h < H; ++h)
    store(t.out + (first_head + h) * t.out_stride + column + c * 16, mul(acc[c][h], set1(inverse[h])));
}

template <int H, bool wide>
static inline void mix(const AttentionTask& t, int first_head, const float* inverse) {
  int64_t column = 0;
  for (; column + 16 * kAttentionTile <= t.head_dim; column += 16 * kAttentionTile)
    mix_columns<H, kAttentionTile, wide>(t, first_head, inverse, column);
  for (; column < t.head_dim; column += 16) mix_columns<H, 1, wide>(t, first_head, inverse, column);
}

template <int H, bool wide>
static void attend_heads(const AttentionTask& t, int first_head) {
  constexpr int64_t size = wide ? 4 : 2;
  const int64_t slots = t.committed + t.ancestors[t.pending - 1] + 1;
  const float* queries = t.queries + first_head * t.head_dim;
  for (int64_t start = 0; start < slots; start += kPage) {
    const uint8_t* page = t.pages[start / kPage] + t.key_offset;
    const int64_t step = 16 * t.head_dim * size, count = slots - start < kPage ? slots - start : kPage;
    float* scores = t.scores + first_head * t.score_stride + start;
    int64_t slot = 0;
    for (; slot + 16 * (kAttentionTile - 1) < count; slot += 16 * kAttentionTile)
      score_blocks<H, kAttentionTile, wide>(page + slot / 16 * step, step, queries, t.head_dim, scores + slot,
                                            t.score_stride);
    for (; slot < count; slot += 16)
      score_blocks<H, 1, wide>(page + slot / 16 * step, step, queries, t.head_dim, scores + slot, t.score_stride);
  }
  const int64_t count = t.committed + t.pending;
  float inverse[H];
  for (int h = 0; h < H; ++h) {
    float* scores = t.scores + (first_head + h) * t.score_stride;
    for (int64_t j = 0; j < t.pending; ++j) scores[t.committed + j] = scores[t.committed + t.ancestors[j]];
    for (int64_t i = count; i % 16 != 0; ++i) scores[i] = -1e30f;
    F16 largest = set1(-1e30f);
    for (int64_t i = 0; i < count; i += 16) largest = max(load(scores + i), largest);
    const F16 top = set1(max_lanes(largest));
    F16 total = zero();
    for (int64_t i = 0; i < count; i += 16) {
      const F16 shifted = sub(load(scores + i), top);
      F16 weight = exp16(shifted);
      store(scores + i, weight);
      if (i + 16 > count) {  // the padding after the last key weighs exactly nothing
        for (int64_t j = count; j < i + 16; ++j) scores[j] = 0.0f;
        weight = load(scores + i);
      }
      total = add(total, weight);
    }
    inverse[h] = 1.0f / sum_lanes(total);
  }
  mix<H, wide>(t, first_head, inverse);
}

template <bool wide>
static void attend_all(const AttentionTask& t) {
  int head = 0;
  for (; head + 4 <= t.heads; head += 4) attend_heads<4, wide>(t, head);
  switch (t.heads - head) {
    case 3: return attend_heads<3, wide>(t, head);
    case 2: return attend_heads<2, wide>(t, head);
    case 1: return attend_heads<1, wide>(t, head);
    default: return;
  }
}

static void attend(const AttentionTask& t) { t.wide ? attend_all<true>(t) : attend_all<false>(t); }

// Writes one key (transposed) or value of one slot.
static void store_cache(const float* x, uint8_t* base, int64_t slot, bool wide, bool value, int64_t n) {
  const int64_t at = slot % kPage;
  const int64_t start = value ? at * n : at / 16 * 16 * n + at % 16;
  const int64_t step = value ? 1 : 16;
  float* floats = reinterpret_cast<float*>(base) + start;
  uint16_t* halves = reinterpret_cast<uint16_t*>(base) + start;
  for (int64_t i = 0; i < n; i += 16) {
    uint16_t line[16];
    if (!wide) store_halves(line, load(x + i));
    for (int64_t j = 0; j < 16; ++j) {
      if (wide) floats[(i + j) * step] = x[i + j];
      else halves[(i + j) * step] = line[j];
    }
  }
}

}  // namespace SLIP_NS
