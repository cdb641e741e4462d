// The hot part of sampling over a large vocabulary: a row's distribution, and exponential races.
//
// The same results as sampling/processors.py and sampling/race.py, without sorting the vocabulary and
// without noise for tokens that can't win. Knows no model. V vocabulary.
#pragma once

#include <cstdint>
#include <utility>
#include <vector>

#include "kernels.h"

namespace slip {

// What is left of a distribution; see sampling/processors.py.
struct Filters {
  double temperature;  // 0: all mass on the highest logit, ties to the lowest id
  int64_t top_k;       // 0: all
  double top_p;        // 1: all
  double min_p;        // 0: all
};

// Writes the (V,) probabilities and returns the highest logit. If that is not finite, nothing is written.
float distribution(const RowKernels& rows, const float* logits, int64_t size, const Filters& filters, float* out);

// The highest logit, and its id, the lowest of several. If it is not finite (NaN if any is), the id is 0.
std::pair<int64_t, float> best(const RowKernels& rows, const float* logits, int64_t size);

// The first `count` of E[t] / weight[t] in order, ties to the lowest id; weight 0 never arrives.
std::vector<int64_t> race(const RowKernels& rows, const float* weights, int64_t size, const RaceStream& stream,
                          int64_t count);
std::vector<int64_t> race(const RowKernels& rows, const double* weights, int64_t size, const RaceStream& stream,
                          int64_t count);

}  // namespace slip
