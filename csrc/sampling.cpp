// See sampling.h.
#include "sampling.h"

#include <algorithm>
#include <cmath>
#include <utility>

namespace slip {
namespace {

constexpr double kScale = 1.0 / 4294967296.0;  // 2^-32

// A tournament of the `count` earliest arrivals.
class Arrivals {
 public:
  explicit Arrivals(int64_t count) : count_(size_t(count)) {}

  // No runner that arrives later than this can matter.
  double slowest() const { return heap_.size() < count_ ? HUGE_VAL : heap_.front().first; }

  void add(double arrival, int64_t id) {
    const std::pair<double, int64_t> runner(arrival, id);
    if (heap_.size() == count_) {
      if (!(runner < heap_.front())) return;
      std::pop_heap(heap_.begin(), heap_.end());
      heap_.pop_back();
    }
    heap_.push_back(runner);
    std::push_heap(heap_.begin(), heap_.end());
  }

  std::vector<int64_t> order() {
    std::sort(heap_.begin(), heap_.end());
    std::vector<int64_t> ids;
    for (const auto& runner : heap_) ids.push_back(runner.second);
    return ids;
  }

 private:
  size_t count_;
  std::vector<std::pair<double, int64_t>> heap_;  // the slowest on top
};

// Lets the ids of one block of four run whose weight is in (above, up_to].
template <class Weight>
void run_block(const Weight* weights, int64_t size, int64_t block, const RaceStream& stream, double above,
               double up_to, Arrivals& arrivals) {
  const auto bits = philox({uint32_t(block), stream.words[0], stream.words[1], stream.words[2]}, stream.key);
  const int64_t end = std::min<int64_t>(size, 4 * block + 4);
  for (int64_t id = 4 * block; id < end; ++id) {
    const double weight = double(weights[id]);
    if (!(weight > above && weight <= up_to)) continue;
    // -log u >= 1 - u, so most runners are out without a logarithm.
    const double u = (double(bits[size_t(id & 3)]) + 0.5) * kScale;
    if ((1.0 - u) * (1.0 - 1e-12) > arrivals.slowest() * weight) continue;
    arrivals.add(-std::log(u) / weight, id);
  }
}

}  // namespace

std::array<uint32_t, 4> philox(std::array<uint32_t, 4> c, std::array<uint32_t, 2> k) {
  for (int round = 0; round < 10; ++round) {
    const uint64_t low = uint64_t(c[0]) * 0xD2511F53u, high = uint64_t(c[2]) * 0xCD9E8D57u;
    c = {uint32_t(high >> 32) ^ c[1] ^ k[0], uint32_t(high), uint32_t(low >> 32) ^ c[3] ^ k[1], uint32_t(low)};
    k = {k[0] + 0x9E3779B9u, k[1] + 0xBB67AE85u};
  }
  return c;
}

template <class Weight>
std::vector<int64_t> race(const Weight* weights, int64_t size, const RaceStream& stream, int64_t count) {
  Arrivals arrivals(count);
  const int64_t blocks = (size + 3) / 4;
  const auto heaviest_of = [&](int64_t block) {
    const int64_t end = std::min<int64_t>(size, 4 * block + 4);
    Weight most = 0;
    for (int64_t id = 4 * block; id < end; ++id) most = weights[id] > most ? weights[id] : most;
    return double(most);
  };
  double heaviest = 0.0;
  for (int64_t block = 0; block < blocks; ++block) heaviest = std::max(heaviest, heaviest_of(block));
  // The heavy ones first: after them hardly anybody can still win.
  const double look = heaviest / 64;
  for (int64_t block = 0; block < blocks; ++block) {
    if (heaviest_of(block) > look) run_block(weights, size, block, stream, look, HUGE_VAL, arrivals);
  }
  const double least = -std::log((4294967296.0 - 0.5) * kScale) * (1.0 - 1e-6);
  for (int64_t block = 0; block < blocks; ++block) {
    const double needed = least / arrivals.slowest();  // 0 while there are too few
    if (heaviest_of(block) > needed) run_block(weights, size, block, stream, needed, look, arrivals);
  }
  return arrivals.order();
}

template std::vector<int64_t> race<float>(const float*, int64_t, const RaceStream&, int64_t);
template std::vector<int64_t> race<double>(const double*, int64_t, const RaceStream&, int64_t);

void top_p(const float* weights, int64_t size, double mass, float* out) {
  // Eight running sums: one would wait for its own latency.
  double sums[8] = {};
  for (int64_t i = 0; i < size; ++i) sums[i & 7] += double(weights[i]);
  const double total = ((sums[0] + sums[1]) + (sums[2] + sums[3])) + ((sums[4] + sums[5]) + (sums[6] + sums[7]));
  const double may_go = 1.0 - mass;
  // What is lighter than the average share of what may go goes, all of it.
  const double least = may_go * total / double(size);
  std::vector<std::pair<float, int64_t>> heavy;  // (-weight, id): ascending is heaviest first
  for (int64_t i = 0; i < size; ++i) {
    if (double(weights[i]) >= least) heavy.emplace_back(-weights[i], i);
  }
  std::fill(out, out + size, 0.0f);
  double kept = 0.0;
  size_t sorted = 0;
  for (size_t i = 0; i < heavy.size(); ++i) {
    if (i == sorted) {  // sort a little further, as far as it is needed
      const size_t more = std::min(heavy.size(), std::max<size_t>(256, sorted * 4));
      if (more < heavy.size()) {
        std::nth_element(heavy.begin() + std::ptrdiff_t(sorted), heavy.begin() + std::ptrdiff_t(more), heavy.end());
      }
      std::sort(heavy.begin() + std::ptrdiff_t(sorted), heavy.begin() + std::ptrdiff_t(more));
      sorted = more;
    }
    // The share of this token and all behind it, compared in float32 as the reference does.
    if (i > 0 && !(float(1.0 - kept / total) > float(may_go))) break;
    out[heavy[i].second] = -heavy[i].first;
    kept += double(-heavy[i].first);
  }
}

}  // namespace slip
