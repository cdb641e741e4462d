// One sequence's keys and values, in pages of 64 slots that hold all layers and heads.
//
// Slot = logical position for the committed prefix; pending rows follow in the order they were fed.
// A page holds, for each layer and key-value head, 64 transposed keys (blocks of 16 slots) and then 64
// values. Growing never moves anything; a commit moves the accepted path down to the prefix.
#pragma once

#include <cstdint>
#include <vector>

#include "buffer.h"
#include "kernels.h"

namespace slip {

struct CacheShape {
  int64_t layers = 0, heads = 0, head_dim = 0;  // head_dim padded to 16
  bool wide = false;                            // float32, otherwise half precision

  int64_t number_bytes() const { return wide ? 4 : 2; }
  int64_t half_bytes() const { return kPage * head_dim * number_bytes(); }
  int64_t key_offset(int64_t layer, int64_t head) const { return (layer * heads + head) * 2 * half_bytes(); }
  int64_t value_offset(int64_t layer, int64_t head) const { return key_offset(layer, head) + half_bytes(); }
  int64_t page_bytes() const { return layers * heads * 2 * half_bytes(); }
};

class Sequence {
 public:
  explicit Sequence(const CacheShape& shape) : shape_(shape) {}

  int64_t committed() const { return committed_; }
  int64_t pending() const { return int64_t(parents_.size()); }

  // Makes room for `rows` more pending rows. The only call that allocates.
  void reserve(int64_t rows);
  // Appends a pending row (parent -1: the prefix); returns its slot among the pending ones.
  int64_t append(int64_t parent);
  // Pending slots from the prefix down to `slot`, itself included.
  void ancestors(int64_t slot, std::vector<int32_t>& out) const;
  void commit(const std::vector<int64_t>& path);
  void truncate(int64_t length);

  const uint8_t* const* pages() const { return pointers_.data(); }
  uint8_t* page(int64_t slot) { return pages_[size_t(slot / kPage)].data(); }

 private:
  void move(int64_t from, int64_t to);

  CacheShape shape_;
  int64_t committed_ = 0;
  std::vector<int64_t> parents_;
  std::vector<Buffer<uint8_t>> pages_;
  std::vector<const uint8_t*> pointers_;
};

}  // namespace slip
