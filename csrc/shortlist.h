// What a drafter asks of a row of its logits: the few tokens that matter, and a race among them.
//
// The same results as drafters/shortlist.py and sampling/race.py. Knows no tree. v drafter vocabulary,
// n tokens of a shortlist.
#pragma once

#include "sampling.h"

namespace slip {

// Writes the distribution of (v,) logits to `probs` and, if the tokens of at least `light` times the
// best one's probability hold `most` of it, moves those to the front, renormalised, their indices to
// `places`, ascending. Returns how many there are, v if all stay, and the highest logit in `best`; if
// that is not finite, nothing is written.
int64_t shortlist(const RowKernels& rows, const float* logits, int64_t size, const Filters& filters, float light,
                  double most, float* probs, int64_t* places, float& best);

struct Arrival {
  double time;
  int64_t place;
};

// The first `count` of E[ids[i]] / weights[i] in order, ties to the lowest place; weight 0 never arrives.
std::vector<Arrival> race_among(const float* weights, const int64_t* ids, int64_t size, const RaceStream& stream,
                                int64_t count);

}  // namespace slip
