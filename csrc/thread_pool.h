// A small team of threads that runs one job together, phase by phase.
//
// The work of a phase is shared out in chunks, first come first served: who computes what changes no
// result. A phase is over when its work is done, not when everybody has come: a thread that lost its
// core to another process holds the others up only if it holds a chunk, and finds the phases that it
// missed finished. A pass has hundreds of short phases, so waiting threads spin first and sleep only
// where that takes long. One team per size and process, shared by all models; jobs run one after the
// other.
#pragma once

#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <thread>
#include <vector>

namespace slip {

void relax();  // lets a spinning core breathe

// Spins until `done`, for about 50 microseconds at most, less after spinning was in vain: on a busy
// machine it only keeps others from finishing. Whether `done` came true.
template <class Done>
bool spin_until(Done done) {
  constexpr int kMost = 4000, kLeast = 50;
  static thread_local int patience = kMost;
  for (int spin = 0; spin < patience; ++spin) {
    if (done()) {
      if (spin > 0) patience = patience * 2 < kMost ? patience * 2 : kMost;
      return true;
    }
    relax();
  }
  patience = patience / 2 > kLeast ? patience / 2 : kLeast;
  return done();
}

// The work of one phase, [0, count), handed out in chunks to whoever asks.
class alignas(64) Shares {
 public:
  void reset() {
    next_.store(0, std::memory_order_relaxed);
    done_.store(0, std::memory_order_relaxed);
  }
  bool take(int64_t count, int64_t chunk, int64_t& first, int64_t& last) {
    first = next_.fetch_add(chunk, std::memory_order_relaxed);
    if (first >= count) return false;
    last = first + chunk < count ? first + chunk : count;
    return true;
  }
  // Counts work as done; how much is done now.
  int64_t finish(int64_t work) { return done_.fetch_add(work) + work; }
  int64_t done() const { return done_.load(); }

 private:
  std::atomic<int64_t> next_{0};
  std::atomic<int64_t> done_{0};
};

class Team {
 public:
  explicit Team(int size);
  ~Team();
  Team(const Team&) = delete;
  Team& operator=(const Team&) = delete;

  // The process's team of this size.
  static std::shared_ptr<Team> shared(int size);

  int size() const { return size_; }

  // Runs job(thread) on the caller, as thread 0, and on every thread that comes before the caller is
  // through; returns when nobody is in it any more. All of the job's work must be in phases, and it
  // must not throw.
  void run(const std::function<void(int)>& job);

  // Inside a job: one phase. Takes chunks as long as there are any, returns when all are done.
  template <class Work>
  void phase(Shares& shares, int64_t count, int64_t chunk, Work work) {
    int64_t first = 0, last = 0;
    while (shares.take(count, chunk, first, last)) {
      work(first, last);
      if (shares.finish(last - first) == count) announce();
    }
    wait([&] { return shares.done() == count; });
  }

 private:
  void work(int thread);
  void announce();
  template <class Done>
  void wait(Done done);

  const int size_;
  std::mutex jobs_;  // one job at a time
  std::mutex sleep_;
  std::condition_variable wake_;
  const std::function<void(int)>* job_ = nullptr;  // null once the caller is through
  std::atomic<uint64_t> generation_{0};
  std::atomic<bool> stop_{false};
  alignas(64) std::atomic<int> inside_{0};  // workers in the job
  alignas(64) std::atomic<int> sleepers_{0};
  std::mutex waiting_;
  std::condition_variable news_;
  std::vector<std::thread> threads_;
};

template <class Done>
void Team::wait(Done done) {
  if (spin_until(done)) return;
  std::unique_lock<std::mutex> lock(waiting_);
  sleepers_.fetch_add(1);
  news_.wait(lock, done);
  sleepers_.fetch_sub(1);
}

}  // namespace slip
