// See kv_cache.h.
#include "kv_cache.h"

#include <algorithm>
#include <stdexcept>

namespace slip {

void Sequence::reserve(int64_t rows) {
  const int64_t slots = committed_ + pending() + rows;
  parents_.reserve(size_t(pending() + rows));
  while (int64_t(pages_.size()) * kPage < slots) {
    pointers_.reserve(pages_.size() + 1);
    pages_.emplace_back(shape_.page_bytes());
    pointers_.push_back(pages_.back().data());
  }
}

int64_t Sequence::append(int64_t parent) {
  parents_.push_back(parent);
  return pending() - 1;
}

void Sequence::ancestors(int64_t slot, std::vector<int32_t>& out) const {
  const size_t start = out.size();
  for (; slot >= 0; slot = parents_[size_t(slot)]) out.push_back(int32_t(slot));
  std::reverse(out.begin() + std::ptrdiff_t(start), out.end());
}

void Sequence::commit(const std::vector<int64_t>& path) {
  int64_t parent = -1;
  for (const int64_t slot : path) {
    if (slot < 0 || slot >= pending() || parents_[size_t(slot)] != parent) {
      throw std::invalid_argument("the path to commit is not a path of pending rows");
    }
    parent = slot;
  }
  // Targets never overtake sources: path[i] >= i.
  for (size_t i = 0; i < path.size(); ++i) {
    if (path[i] != int64_t(i)) move(committed_ + path[i], committed_ + int64_t(i));
  }
  committed_ += int64_t(path.size());
  parents_.clear();
}

void Sequence::truncate(int64_t length) {
  if (length < 0 || length > committed_) throw std::invalid_argument("can't truncate to this length");
  committed_ = length;
  parents_.clear();
  const size_t keep = size_t((length + kPage - 1) / kPage);
  pages_.resize(std::min(pages_.size(), keep));
  pointers_.resize(pages_.size());
}

void Sequence::move(int64_t from, int64_t to) {
  const int64_t size = shape_.number_bytes(), d = shape_.head_dim;
  const int64_t a = from % kPage, b = to % kPage;
  for (int64_t block = 0; block < shape_.layers * shape_.heads; ++block) {
    const uint8_t* source = page(from) + block * 2 * shape_.half_bytes();
    uint8_t* target = page(to) + block * 2 * shape_.half_bytes();
    for (int64_t i = 0; i < d; ++i) {
      std::memcpy(target + (b / 16 * 16 * d + i * 16 + b % 16) * size,
                  source + (a / 16 * 16 * d + i * 16 + a % 16) * size, size_t(size));
    }
    std::memcpy(target + shape_.half_bytes() + b * d * size, source + shape_.half_bytes() + a * d * size,
                size_t(d * size));
  }
}

}  // namespace slip
