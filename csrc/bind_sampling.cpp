// Sampling over one row: distributions, races, and what verification rules sum up.
#include <cmath>
#include <optional>

#include "bindings.h"
#include "isa.h"
#include "sampling.h"
#include "shortlist.h"

using namespace slip;

namespace {

RaceStream stream_of(std::pair<uint32_t, uint32_t> key, const std::vector<uint32_t>& words) {
  if (words.size() != 3) refuse("a stream has three counter words");
  return {{key.first, key.second}, {words[0], words[1], words[2]}};
}

Filters filters_of(double temperature, int64_t top_k, double top_p, double min_p) {
  if (!(temperature >= 0.0)) refuse("distribution: temperature must be >= 0");
  if (top_k < 0) refuse("distribution: top_k must be >= 0");
  if (!(top_p > 0.0 && top_p <= 1.0)) refuse("distribution: top_p must be in (0, 1]");
  if (!(min_p >= 0.0 && min_p <= 1.0)) refuse("distribution: min_p must be in [0, 1]");
  return {temperature, top_k, top_p, min_p};
}

float run_distribution(const std::string& isa, Vector<const float> logits, double temperature, int64_t top_k,
                       double top_p, double min_p, Vector<float> out) {
  if (logits.size() == 0 || logits.size() != out.size()) refuse("distribution: wrong shape");
  const Filters filters = filters_of(temperature, top_k, top_p, min_p);
  return distribution(kernels_by_name(isa).rows, logits.data(), int64_t(logits.size()), filters, out.data());
}

// A distribution and the winner of the race over it; token 0 where the highest logit is not finite.
std::pair<float, int64_t> run_draw(const std::string& isa, Vector<const float> logits, double temperature,
                                   int64_t top_k, double top_p, double min_p, Vector<float> out,
                                   std::pair<uint32_t, uint32_t> key, const std::vector<uint32_t>& words) {
  const RaceStream stream = stream_of(key, words);
  const float top = run_distribution(isa, logits, temperature, top_k, top_p, min_p, out);
  if (!std::isfinite(top)) return {top, 0};
  const std::vector<int64_t> winner = race(kernels_by_name(isa).rows, out.data(), int64_t(out.size()), stream, 1);
  if (winner.empty()) refuse("draw: no token has a positive probability");
  return {top, winner.front()};
}

float largest(const std::string& isa, Vector<const float> x) {
  if (x.size() == 0) refuse("largest: nothing there");
  std::vector<float> peaks(size_t(chunks_of(int64_t(x.size()))));
  const RowKernels& rows = kernels_by_name(isa).rows;
  std::optional<nb::gil_scoped_release> release;
  if (x.size() > size_t(1) << 20) release.emplace();  // for a row of logits it would cost more than it saves
  return rows.maxima(x.data(), int64_t(x.size()), peaks.data());
}

std::pair<int64_t, float> run_best(const std::string& isa, Vector<const float> x) {
  if (x.size() == 0) refuse("best: nothing there");
  return best(kernels_by_name(isa).rows, x.data(), int64_t(x.size()));
}

// (how many tokens are left, the highest logit)
std::pair<int64_t, float> run_shortlist(const std::string& isa, Vector<const float> logits, double temperature,
                                        int64_t top_k, double top_p, double min_p, float light, double most,
                                        Vector<float> probs, Vector<int64_t> places) {
  if (logits.size() == 0 || logits.size() != probs.size() || logits.size() != places.size()) {
    refuse("shortlist: wrong shape");
  }
  const Filters filters = filters_of(temperature, top_k, top_p, min_p);
  float best = 0.0f;
  const int64_t count = shortlist(kernels_by_name(isa).rows, logits.data(), int64_t(logits.size()), filters, light,
                                  most, probs.data(), places.data(), best);
  return {count, best};
}

// (time, place) of the winners
std::vector<std::pair<double, int64_t>> run_race_among(Vector<const float> weights, Vector<const int64_t> ids,
                                                       std::pair<uint32_t, uint32_t> key,
                                                       const std::vector<uint32_t>& words, int64_t count) {
  if (weights.size() != ids.size()) refuse("one id per weight");
  if (count < 1) refuse("a race needs at least one winner");
  const RaceStream stream = stream_of(key, words);
  std::vector<std::pair<double, int64_t>> out;
  for (const Arrival& arrival : race_among(weights.data(), ids.data(), int64_t(ids.size()), stream, count)) {
    out.emplace_back(arrival.time, arrival.place);
  }
  return out;
}

std::vector<int64_t> run_race(const std::string& isa, nb::ndarray<nb::ndim<1>, nb::c_contig, nb::device::cpu> weights,
                              std::pair<uint32_t, uint32_t> key, const std::vector<uint32_t>& words, int64_t count) {
  if (weights.shape(0) == 0) refuse("a race needs runners");
  if (count < 1) refuse("a race needs at least one winner");
  const RaceStream stream = stream_of(key, words);
  const RowKernels& rows = kernels_by_name(isa).rows;
  const int64_t size = int64_t(weights.shape(0));
  if (weights.dtype() == nb::dtype<float>()) {
    return race(rows, static_cast<const float*>(weights.data()), size, stream, count);
  }
  if (weights.dtype() == nb::dtype<double>()) {
    return race(rows, static_cast<const double*>(weights.data()), size, stream, count);
  }
  refuse("weights must be float32 or float64");
}

double overlap(const std::string& isa, Vector<const float> p, Vector<const float> q) {
  if (p.size() != q.size()) refuse("overlap: p and q are of different sizes");
  return kernels_by_name(isa).rows.overlap(p.data(), q.data(), int64_t(p.size()));
}

void excess(const std::string& isa, Vector<const float> p, Vector<const float> q, double scale, Vector<double> out) {
  if (p.size() != q.size() || p.size() != out.size()) refuse("excess: p, q and out are of different sizes");
  kernels_by_name(isa).rows.excess(p.data(), q.data(), scale, int64_t(p.size()), out.data());
}

}  // namespace

void bind_sampling(nb::module_& m) {
  m.def("distribution", &run_distribution);
  m.def("draw", &run_draw);
  m.def("largest", &largest);
  m.def("best", &run_best);
  m.def("race", &run_race);
  m.def("shortlist", &run_shortlist);
  m.def("race_among", &run_race_among);
  m.def("overlap", &overlap);
  m.def("excess", &excess);
}
