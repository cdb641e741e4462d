// See thread_pool.h.
#include "thread_pool.h"

#include <chrono>
#include <map>

#if SLIP_X86
#include <immintrin.h>
#endif

namespace slip {

void relax() {
#if SLIP_X86
  _mm_pause();
#endif
}

Team::Team(int size) : size_(size) {
  for (int thread = 1; thread < size; ++thread) threads_.emplace_back([this, thread] { work(thread); });
}

Team::~Team() {
  {
    std::lock_guard<std::mutex> lock(sleep_);
    stop_ = true;
  }
  wake_.notify_all();
  for (std::thread& thread : threads_) thread.join();
}

std::shared_ptr<Team> Team::shared(int size) {
  static std::mutex mutex;
  static std::map<int, std::weak_ptr<Team>> teams;
  std::lock_guard<std::mutex> lock(mutex);
  std::shared_ptr<Team> team = teams[size].lock();
  if (!team) teams[size] = team = std::make_shared<Team>(size);
  return team;
}

void Team::run(const std::function<void(int)>& job) {
  std::lock_guard<std::mutex> one(jobs_);
  if (size_ == 1) return job(0);
  {
    std::lock_guard<std::mutex> lock(sleep_);
    job_ = &job;
    generation_.fetch_add(1, std::memory_order_release);
  }
  wake_.notify_all();
  job(0);
  {
    std::lock_guard<std::mutex> lock(sleep_);
    job_ = nullptr;
  }
  wait([&] { return inside_.load() == 0; });
}

void Team::announce() {
  if (sleepers_.load() == 0) return;
  { std::lock_guard<std::mutex> lock(waiting_); }  // nobody is between looking and sleeping
  news_.notify_all();
}

void Team::work(int thread) {
  // Longer than what lies between two passes of one text: to be woken costs a good part of a pass.
  constexpr auto kPatience = std::chrono::microseconds(3000);
  uint64_t seen = 0;
  while (true) {
    const auto start = std::chrono::steady_clock::now();
    const auto called = [&] { return generation_.load(std::memory_order_acquire) != seen || stop_; };
    while (!called() && std::chrono::steady_clock::now() - start < kPatience) {
      for (int spin = 0; spin < 100; ++spin) relax();
    }
    const std::function<void(int)>* job = nullptr;
    {
      std::unique_lock<std::mutex> lock(sleep_);
      wake_.wait(lock, called);
      if (stop_) return;
      seen = generation_.load(std::memory_order_acquire);
      job = job_;
      if (job) inside_.fetch_add(1);
    }
    if (!job) continue;
    (*job)(thread);
    if (inside_.fetch_sub(1) == 1) announce();
  }
}

}  // namespace slip
