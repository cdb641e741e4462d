// The part of the kernel table that sampling uses: functions over one row of V logits or weights.
//
// A row is looked at in chunks of 64: their maxima tell later steps which chunks they may skip. Each
// function works on one row, so no result depends on how many rows a pass has. Knows no distribution.
#pragma once

#include <array>
#include <cstdint>

namespace slip {

constexpr int64_t kChunk = 64;
constexpr int64_t chunks_of(int64_t n) { return (n + kChunk - 1) / kChunk; }

// Where the exponentials of one race come from; see sampling/noise.py.
struct RaceStream {
  std::array<uint32_t, 2> key;
  std::array<uint32_t, 3> words;
};

// Who of a chunk may still win a race: bit i for id 64 * chunk + i. `bits` are everybody's random bits.
struct Runners {
  uint64_t mask;
  uint32_t bits[kChunk];
};

struct RowKernels {
  // Writes each chunk's maximum (chunks_of(n)) and returns the largest of all; NaN if there is one.
  float (*maxima)(const float* x, int64_t n, float* out);
  void (*maxima_double)(const double* x, int64_t n, double* out);
  // out = exp((x - top) / temperature), 0 below the smallest normal numbers; returns the sum.
  double (*exponentials)(const float* x, int64_t n, float top, float temperature, float* out);
  void (*divide)(float* x, int64_t n, float by);
  // Sum of min(p, q).
  double (*overlap)(const float* p, const float* q, int64_t n);
  // out = max(scale * p - q, 0).
  void (*excess)(const float* p, const float* q, double scale, int64_t n, double* out);
  // Bit i set where x[i] >= edge, for up to 64 numbers.
  uint64_t (*reach)(const float* x, int64_t count, float edge);
  // The runners of a chunk that may arrive no later than `slowest`; the chunk's weights from n on are 0.
  void (*runners)(const float* weights, int64_t n, int64_t chunk, const RaceStream&, double slowest, Runners&);
  void (*runners_double)(const double* weights, int64_t n, int64_t chunk, const RaceStream&, double slowest,
                         Runners&);
};

}  // namespace slip
