// See shortlist.h.
#include "shortlist.h"

#include <algorithm>
#include <cmath>

namespace slip {
namespace {

// The 32 random bits of one id: Philox4x32-10, as philox.h has it for 64 at a time.
uint32_t bits_of(uint32_t id, const RaceStream& stream) {
  uint32_t c[4] = {id >> 2, stream.words[0], stream.words[1], stream.words[2]};
  uint32_t k0 = stream.key[0], k1 = stream.key[1];
  for (int round = 0; round < 10; ++round, k0 += 0x9E3779B9u, k1 += 0xBB67AE85u) {
    const uint64_t low = uint64_t(c[0]) * 0xD2511F53u, high = uint64_t(c[2]) * 0xCD9E8D57u;
    const uint32_t next[4] = {uint32_t(high >> 32) ^ c[1] ^ k0, uint32_t(high), uint32_t(low >> 32) ^ c[3] ^ k1,
                              uint32_t(low)};
    std::copy_n(next, 4, c);
  }
  return c[id & 3];
}

}  // namespace

int64_t shortlist(const RowKernels& rows, const float* logits, int64_t size, const Filters& filters, float light,
                  double most, float* probs, int64_t* places, float& best) {
  best = distribution(rows, logits, size, filters, probs);
  if (!std::isfinite(best)) return size;
  std::vector<float> peaks(size_t(chunks_of(size)));
  const float edge = light * rows.maxima(probs, size, peaks.data());
  double mass = 0.0;
  int64_t count = 0;
  for (int64_t chunk = 0; chunk < int64_t(peaks.size()); ++chunk) {
    if (!(peaks[size_t(chunk)] >= edge)) continue;
    const int64_t first = chunk * kChunk, last = std::min(first + kChunk, size);
    for (int64_t i = first; i < last; ++i) {
      if (!(probs[i] >= edge)) continue;
      mass += double(probs[i]);
      places[count++] = i;
    }
  }
  if (!(mass >= most)) return size;
  for (int64_t i = 0; i < count; ++i) probs[i] = float(double(probs[places[i]]) / mass);  // places[i] >= i
  return count;
}

std::vector<Arrival> race_among(const float* weights, const int64_t* ids, int64_t size, const RaceStream& stream,
                                int64_t count) {
  std::vector<Arrival> arrivals;
  for (int64_t i = 0; i < size; ++i) {
    const double weight = double(weights[i]);
    if (!(weight > 0.0)) continue;
    const double uniform = (double(bits_of(uint32_t(ids[i]), stream)) + 0.5) * (1.0 / 4294967296.0);
    arrivals.push_back({-std::log(uniform) / weight, i});
  }
  const auto earlier = [](const Arrival& a, const Arrival& b) {
    return a.time < b.time || (a.time == b.time && a.place < b.place);
  };
  const auto end = arrivals.begin() + std::ptrdiff_t(std::min<int64_t>(count, int64_t(arrivals.size())));
  std::partial_sort(arrivals.begin(), end, arrivals.end(), earlier);
  arrivals.erase(end, arrivals.end());
  return arrivals;
}

}  // namespace slip
