// A small team of threads that runs one job together and meets at barriers inside it.
//
// A pass has hundreds of short phases, so waiting threads spin first, then yield, and go to sleep only
// between jobs. Work is shared out in chunks, first come first served: who computes what changes no
// result. One team per size and process, shared by all models; jobs run one after the other.
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

class Team {
 public:
  explicit Team(int size);
  ~Team();
  Team(const Team&) = delete;
  Team& operator=(const Team&) = delete;

  // The process's team of this size.
  static std::shared_ptr<Team> shared(int size);

  int size() const { return size_; }

  // Runs job(thread) on every thread, the caller being thread 0; returns when all are done. The job
  // must not throw.
  void run(const std::function<void(int)>& job);

  // Inside a job: waits until every thread is here.
  void barrier();

 private:
  void work(int thread);

  const int size_;
  std::mutex jobs_;  // one job at a time
  std::mutex sleep_;
  std::condition_variable wake_;
  const std::function<void(int)>* job_ = nullptr;
  std::atomic<uint64_t> generation_{0};
  std::atomic<bool> stop_{false};
  alignas(64) std::atomic<int> arrived_{0};
  alignas(64) std::atomic<uint32_t> phase_{0};
  std::vector<std::thread> threads_;
};

// Hands out [0, count) in chunks to whoever asks.
class alignas(64) Shares {
 public:
  void reset() { next_.store(0, std::memory_order_relaxed); }
  bool take(int64_t count, int64_t chunk, int64_t& first, int64_t& last) {
    first = next_.fetch_add(chunk, std::memory_order_relaxed);
    if (first >= count) return false;
    last = first + chunk < count ? first + chunk : count;
    return true;
  }

 private:
  std::atomic<int64_t> next_{0};
};

}  // namespace slip
