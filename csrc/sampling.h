// The hot part of sampling: an exponential race and the top-p set over a large vocabulary.
//
// The same results as sampling/race.py and sampling/processors.py, without drawing noise for the
// whole vocabulary and without sorting it. Knows no model. V vocabulary.
#pragma once

#include <array>
#include <cstdint>
#include <vector>

namespace slip {

// Ten rounds of Philox4x32 (Salmon et al., SC 2011).
std::array<uint32_t, 4> philox(std::array<uint32_t, 4> counter, std::array<uint32_t, 2> key);

// Where the exponentials of one race come from; see sampling/noise.py.
struct RaceStream {
  std::array<uint32_t, 2> key;
  std::array<uint32_t, 3> words;
};

// The first `count` of E[t] / weight[t] in order, ties to the lowest id; weight 0 never arrives.
template <class Weight>
std::vector<int64_t> race(const Weight* weights, int64_t size, const RaceStream& stream, int64_t count);

// Writes the weights of the smallest heaviest set with a share `mass` of the total, 0 elsewhere.
void top_p(const float* weights, int64_t size, double mass, float* out);

}  // namespace slip
