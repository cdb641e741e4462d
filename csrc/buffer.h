// Zeroed memory on a cache line boundary.
#pragma once

#include <cstdint>
#include <cstring>
#include <memory>
#include <new>

namespace slip {

template <class T>
class Buffer {
 public:
  Buffer() = default;
  explicit Buffer(int64_t count) { resize(count); }

  // Zeroed; what was there is gone.
  void resize(int64_t count) {
    const size_t bytes = size_t(count) * sizeof(T);
    memory_.reset(static_cast<T*>(::operator new(bytes + 64, std::align_val_t(64))));
    std::memset(static_cast<void*>(memory_.get()), 0, bytes + 64);
    count_ = count;
  }
  // Keeps what is large enough already.
  void ensure(int64_t count) {
    if (count > count_) resize(count);
  }

  T* data() { return memory_.get(); }
  const T* data() const { return memory_.get(); }
  int64_t count() const { return count_; }

 private:
  struct Free {
    void operator()(T* p) const { ::operator delete(static_cast<void*>(p), std::align_val_t(64)); }
  };
  std::unique_ptr<T, Free> memory_;
  int64_t count_ = 0;
};

}  // namespace slip
