// See sampling.h.
#include "sampling.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <functional>
#include <utility>

namespace slip {
namespace {

constexpr double kScale = 1.0 / 4294967296.0;  // 2^-32
constexpr double kColdest = 1e-20;             // as in processors.py
constexpr uint32_t kOne = 0x3f800000;          // the bits of 1.0f

struct Candidate {
  float weight;
  int64_t id;
};

bool ahead_of(const Candidate& a, const Candidate& b) {
  return a.weight > b.weight || (a.weight == b.weight && a.id < b.id);
}

double sum_of(std::vector<Candidate>::const_iterator first, std::vector<Candidate>::const_iterator last) {
  double sum = 0.0;
  for (; first != last; ++first) sum += double(first->weight);
  return sum;
}

// Calls visit(first + i) for each bit i that is set.
template <class Visit>
void each(uint64_t mask, int64_t first, Visit visit) {
  for (; mask != 0; mask >>= 1, ++first) {
    while ((mask & 0xff) == 0) {
      mask >>= 8;
      first += 8;
    }
    if (mask & 1) visit(first);
  }
}

// The smallest float32 that is not below x.
float round_up_to_float(double x) {
  const float near = float(x);
  return double(near) < x ? std::nextafter(near, HUGE_VALF) : near;
}

// The first of the logits that are `top`, their highest, by the chunks' peaks.
int64_t first_best(const float* logits, int64_t size, float top, const std::vector<float>& peaks) {
  const auto peak = std::find(peaks.begin(), peaks.end(), top);
  return std::find(logits + (peak - peaks.begin()) * kChunk, logits + size, top) - logits;
}

// One row on its way to a distribution.
class Row {
 public:
  Row(const RowKernels& rows, const float* logits, int64_t size, float* out)
      : rows_(rows), logits_(logits), size_(size), out_(out), peaks_(size_t(chunks_of(size))) {
    top_ = rows.maxima(logits, size, peaks_.data());
  }

  float top() const { return top_; }

  void one_hot() {
    std::fill(out_, out_ + size_, 0.0f);
    out_[first_best(logits_, size_, top_, peaks_)] = 1.0f;
  }

  void softmax(float temperature) {
    const double total = rows_.exponentials(logits_, size_, top_, temperature, out_);
    rows_.divide(out_, size_, float(total));
  }

  void filtered(float temperature, const Filters& filters) {
    if (filters.top_k > 0 && filters.top_k < size_) {
      top_k(temperature, filters.top_k);
      if (filters.top_p < 1.0) top_p(sum_of(field_.begin(), field_.end()), filters.top_p);
    } else {
      const double total = rows_.exponentials(logits_, size_, top_, temperature, out_);
      std::vector<float> peaks(peaks_.size());
      rows_.exponentials(peaks_.data(), int64_t(peaks_.size()), top_, temperature, peaks.data());
      peaks_.swap(peaks);
      if (filters.top_p < 1.0) {
        gather_share(total, filters.top_p);
        top_p(total, filters.top_p);
      } else {
        gather(double(float(filters.min_p)));
      }
    }
    // The heaviest weighs exactly 1.
    const auto light = [&](const Candidate& c) { return c.weight < float(filters.min_p); };
    field_.erase(std::remove_if(field_.begin(), field_.end(), light), field_.end());
    const float total = float(sum_of(field_.begin(), field_.end()));
    std::fill(out_, out_ + size_, 0.0f);
    for (const Candidate& c : field_) out_[c.id] = c.weight / total;
  }

 private:
  // The k highest logits with all ties of the last, judged after the division as the reference does.
  void top_k(float temperature, int64_t k) {
    const auto by_height = std::greater<float>();
    float bound = -HUGE_VALF;  // at least k chunks reach it, so at least k logits do
    std::vector<float> high = peaks_;
    if (k <= int64_t(high.size())) {
      std::nth_element(high.begin(), high.begin() + std::ptrdiff_t(k - 1), high.end(), by_height);
      bound = high[size_t(k - 1)];
    }
    high.clear();
    walk(logits_, bound, bound, [&](int64_t id) { high.push_back(logits_[id]); });
    std::nth_element(high.begin(), high.begin() + std::ptrdiff_t(k - 1), high.end(), by_height);

    const float last = high[size_t(k - 1)];
    const auto cooled = [&](float logit) { return (logit - top_) / temperature; };
    // Logits that the subtraction makes equal lie within its rounding.
    const float near = last - 1e-6f * (std::fabs(last) + std::fabs(top_));
    high.clear();
    walk(logits_, near, near, [&](int64_t id) {
      if (!(cooled(logits_[id]) >= cooled(last))) return;
      field_.push_back({0.0f, id});
      high.push_back(logits_[id]);
    });
    rows_.exponentials(high.data(), int64_t(high.size()), top_, temperature, high.data());
    for (size_t i = 0; i < field_.size(); ++i) field_[i].weight = high[i];
  }

  // Those that weigh at least `edge`.
  void gather(double edge) {
    field_.clear();
    // A computed weight may exceed that of a higher logit, by rounding.
    walk(out_, float(edge * (1.0 - 1e-5)), round_up_to_float(edge),
         [&](int64_t id) { field_.push_back({out_[id], id}); });
  }

  // Calls visit(id) for the numbers >= edge in chunks whose peaks reach `peak`, ascending.
  template <class Visit>
  void walk(const float* numbers, float peak, float edge, Visit visit) {
    for (size_t group = 0; group < peaks_.size(); group += kChunk) {
      const int64_t many = std::min(kChunk, int64_t(peaks_.size() - group));
      each(rows_.reach(peaks_.data() + group, many, peak), int64_t(group), [&](int64_t chunk) {
        const int64_t first = chunk * kChunk;
        each(rows_.reach(numbers + first, std::min(kChunk, size_ - first), edge), first, visit);
      });
    }
  }

  // The heaviest, among them all that top_p keeps.
  void gather_share(double total, double mass) {
    // What is lighter than the average share of what may go goes, all of it.
    const double least = (1.0 - mass) * total / double(size_);
    for (double edge = 1.0 / 64;; edge /= 16) {
      gather(std::max(edge, least));
      if (edge <= least || !stays(sum_of(field_.begin(), field_.end()), total, mass)) return;
    }
  }

  // Whether a token stays if those ahead of it weigh this; in float32, as the reference compares.
  static bool stays(double ahead, double total, double mass) {
    return float(1.0 - ahead / total) > float(1.0 - mass);
  }

  // Keeps the smallest set of the heaviest with a share `mass` of the total. Weights that agree in their
  // leading bits are added up together; only those among which the edge lies are looked at one by one.
  void top_p(double total, double mass) {
    const auto drawer = [](const Candidate& c) {
      uint32_t bits;
      std::memcpy(&bits, &c.weight, 4);
      return bits < kOne ? size_t((kOne - bits) >> 19) : 0;  // 0 for the weight 1, the heaviest
    };
    std::vector<double> sums((kOne >> 19) + 1);
    for (const Candidate& c : field_) sums[drawer(c)] += double(c.weight);
    double ahead = 0.0;
    size_t edge = 0;
    while (edge < sums.size() && stays(ahead + sums[edge], total, mass)) ahead += sums[edge++];

    auto first = std::partition(field_.begin(), field_.end(), [&](const Candidate& c) { return drawer(c) < edge; });
    auto last = std::partition(first, field_.end(), [&](const Candidate& c) { return drawer(c) == edge; });
    while (last - first > 1) {  // all before `first` stay, none from `last` on
      const auto middle = first + (last - first) / 2;
      std::nth_element(first, middle, last, ahead_of);
      const double sum = sum_of(first, middle);
      if (stays(ahead + sum, total, mass)) {
        first = middle;
        ahead += sum;
      } else {
        last = middle;
      }
    }
    field_.erase(last, field_.end());
  }

  const RowKernels& rows_;
  const float* logits_;
  int64_t size_;
  float* out_;
  float top_;
  std::vector<float> peaks_;       // of the chunks' logits, then of their weights
  std::vector<Candidate> field_;  // who is left
};

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

template <class Weight, class FindRunners>
std::vector<int64_t> run(const Weight* weights, int64_t size, const std::vector<Weight>& peaks,
                         FindRunners find_runners, const RaceStream& stream, int64_t count) {
  Arrivals arrivals(count);
  const auto start = [&](int64_t chunk) {
    Runners runners;
    find_runners(weights, size, chunk, stream, arrivals.slowest(), runners);
    each(runners.mask, 0, [&](int64_t i) {
      const int64_t id = chunk * kChunk + i;
      const double weight = id < size ? double(weights[id]) : 0.0;
      if (!(weight > 0.0)) return;
      arrivals.add(-std::log((double(runners.bits[i]) + 0.5) * kScale) / weight, id);
    });
  };
  // The heaviest first, then the heavy: after them hardly anybody can still win.
  const int64_t heaviest = std::max_element(peaks.begin(), peaks.end()) - peaks.begin();
  const double look = double(peaks[size_t(heaviest)]) / 64;
  start(heaviest);
  for (int64_t chunk = 0; chunk < int64_t(peaks.size()); ++chunk) {
    if (chunk != heaviest && double(peaks[size_t(chunk)]) > look) start(chunk);
  }
  const double least = -std::log((4294967296.0 - 0.5) * kScale) * (1.0 - 1e-6);
  for (int64_t chunk = 0; chunk < int64_t(peaks.size()); ++chunk) {
    const double peak = double(peaks[size_t(chunk)]);
    const double needed = least / arrivals.slowest();  // 0 while there are too few
    if (chunk != heaviest && peak <= look && peak > needed) start(chunk);
  }
  return arrivals.order();
}

}  // namespace

float distribution(const RowKernels& rows, const float* logits, int64_t size, const Filters& filters, float* out) {
  Row row(rows, logits, size, out);
  if (!std::isfinite(row.top())) return row.top();
  const float temperature = float(std::max(filters.temperature, kColdest));
  if (filters.temperature == 0.0) {
    row.one_hot();
  } else if (filters.top_k == 0 && filters.top_p >= 1.0 && filters.min_p == 0.0) {
    row.softmax(temperature);
  } else {
    row.filtered(temperature, filters);
  }
  return row.top();
}

std::pair<int64_t, float> best(const RowKernels& rows, const float* logits, int64_t size) {
  std::vector<float> peaks(size_t(chunks_of(size)));
  const float top = rows.maxima(logits, size, peaks.data());
  return {std::isfinite(top) ? first_best(logits, size, top, peaks) : 0, top};
}

std::vector<int64_t> race(const RowKernels& rows, const float* weights, int64_t size, const RaceStream& stream,
                          int64_t count) {
  std::vector<float> peaks(size_t(chunks_of(size)));
  rows.maxima(weights, size, peaks.data());
  return run(weights, size, peaks, rows.runners, stream, count);
}

std::vector<int64_t> race(const RowKernels& rows, const double* weights, int64_t size, const RaceStream& stream,
                          int64_t count) {
  std::vector<double> peaks(size_t(chunks_of(size)));
  rows.maxima_double(weights, size, peaks.data());
  return run(weights, size, peaks, rows.runners_double, stream, count);
}

}  // namespace slip
