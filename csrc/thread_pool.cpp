// See thread_pool.h.
#include "thread_pool.h"

#include <chrono>
#include <map>

#if SLIP_X86
#include <immintrin.h>
#endif

namespace slip {
namespace {

constexpr int kSpins = 4000;  // about 50 microseconds
constexpr auto kPatience = std::chrono::microseconds(300);  // then an idle worker sleeps

void pause() {
#if SLIP_X86
  _mm_pause();
#endif
}

// Spins, then yields, until `done`.
template <class Done>
void wait_for(Done done) {
  for (int spin = 0; !done(); ++spin) {
    if (spin < kSpins) pause();
    else std::this_thread::yield();
  }
}

}  // namespace

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
  barrier();
}

void Team::barrier() {
  if (size_ == 1) return;
  const uint32_t phase = phase_.load(std::memory_order_acquire);
  if (arrived_.fetch_add(1, std::memory_order_acq_rel) == size_ - 1) {
    arrived_.store(0, std::memory_order_relaxed);
    phase_.store(phase + 1, std::memory_order_release);
    return;
  }
  wait_for([&] { return phase_.load(std::memory_order_acquire) != phase; });
}

void Team::work(int thread) {
  uint64_t seen = 0;
  while (true) {
    const auto start = std::chrono::steady_clock::now();
    auto news = [&] { return generation_.load(std::memory_order_acquire) != seen || stop_; };
    while (!news() && std::chrono::steady_clock::now() - start < kPatience) {
      for (int spin = 0; spin < 100; ++spin) pause();
    }
    {
      std::unique_lock<std::mutex> lock(sleep_);
      wake_.wait(lock, news);
    }
    if (stop_) return;
    seen = generation_.load(std::memory_order_acquire);
    (*job_)(thread);
    barrier();
  }
}

}  // namespace slip
