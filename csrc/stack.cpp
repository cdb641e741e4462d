// See stack.h: building a stack, its sequences, and what a pass must satisfy. Passes are in forward.cpp.
#include "stack.h"

#include <algorithm>
#include <stdexcept>
#include <string>

namespace slip {
namespace {

[[noreturn]] void refuse(const std::string& message) { throw std::invalid_argument(message); }

std::vector<float> padded(std::vector<float> weight, int64_t size) {
  weight.resize(size_t(size), 0.0f);
  return weight;
}

}  // namespace

Stack::Stack(StackShape shape, const Kernels& kernels, int threads) : shape_(std::move(shape)), kernels_(kernels) {
  const StackShape& s = shape_;
  auto positive = [](int64_t value, const char* name, int64_t most = int64_t(1) << 20) {
    if (value >= 1 && value <= most) return;
    refuse(std::string(name) + " must be in [1, " + std::to_string(most) + "], not " + std::to_string(value));
  };
  positive(s.hidden, "hidden size");
  positive(s.intermediate, "intermediate size");
  positive(s.heads, "heads", 4096);
  positive(s.kv_heads, "key-value heads", 4096);
  positive(s.head_dim, "head width", 4096);
  positive(s.max_context, "context", int64_t(1) << 31);
  positive(s.max_rows, "rows of a pass", 65536);
  positive(threads, "threads", 1024);
  if (s.heads % s.kv_heads != 0) refuse("heads must be a multiple of key-value heads");
  if (s.head_dim % 2 != 0) refuse("head width must be even");
  if (int64_t(s.frequencies.size()) != s.head_dim / 2) refuse("rotary frequencies must be half a head wide");
  if (s.vocab < 0 || s.vocab > int64_t(1) << 31) refuse("vocabulary must be in [0, 2^31]");
  positive(s.heads * s.head_dim, "heads times head width");
  hidden_ = round_up(s.hidden, kGroup);
  inner_ = round_up(s.intermediate, kGroup);
  head_dim_ = round_up(s.head_dim, kPanel);
  query_columns_ = s.heads * head_dim_;
  qkv_columns_ = query_columns_ + 2 * s.kv_heads * head_dim_;
  team_ = Team::shared(threads);
  scores_.resize(size_t(threads));
  tiles_.resize(size_t(threads));
  lines_.resize(size_t(threads));
  share_index_.resize(size_t(threads));
  for (auto& line : lines_) line.resize(std::max(hidden_, query_columns_) + 64);
}

void Stack::check_matrix(const Matrix& m, int64_t rows, int64_t cols, const char* name) {
  if (m.rows != round_up(rows, kPanel) || m.cols != round_up(cols, kGroup) || m.data == nullptr) {
    refuse(std::string(name) + ": a packed matrix of " + std::to_string(m.rows) + " x " + std::to_string(m.cols) +
           " is not one of " + std::to_string(rows) + " x " + std::to_string(cols));
  }
  const bool integer = m.format == Format::q8 || m.format == Format::q4;
  if (shape_.mode == Mode::int8 && !integer) refuse(std::string(name) + ": int8 activations need int8 or 4-bit weights");
  if ((shape_.mode == Mode::f32) != (m.format == Format::f32)) {
    refuse(std::string(name) + ": float32 weights and float32 activations go together");
  }
  if ((integer && !codes_) || (!integer && !floats_)) {
    (integer ? codes_ : floats_) = true;
    for (Inputs* inputs : {&fusion_inputs_, &hidden_inputs_, &attended_inputs_, &inner_inputs_, &head_inputs_}) {
      inputs->capacity = 0;
    }
  }
}

void Stack::add_layer(Layer layer) {
  std::lock_guard<std::mutex> lock(mutex_);
  const StackShape& s = shape_;
  int64_t columns = 0;
  for (const Part& part : layer.qkv) {
    check_matrix(part.matrix, part.matrix.rows, s.hidden, "query, key and value");
    if (part.column != columns) refuse("query, key and value: columns must follow each other");
    columns += part.matrix.rows;
  }
  if (columns != qkv_columns_) refuse("query, key and value: wrong number of columns");
  check_matrix(layer.output, s.hidden, s.heads * s.head_dim, "attention output");
  check_matrix(layer.gate_up, 2 * inner_, s.hidden, "gate and up");
  check_matrix(layer.down, s.hidden, s.intermediate, "down");
  auto width = [](std::vector<float>& values, int64_t size, int64_t pad, const char* name, bool optional) {
    if (values.empty() && optional) return;
    if (int64_t(values.size()) != size) refuse(std::string(name) + ": wrong width");
    values = padded(std::move(values), pad);
  };
  width(layer.attention_norm, s.hidden, hidden_, "attention norm", false);
  width(layer.ffn_norm, s.hidden, hidden_, "feed-forward norm", false);
  width(layer.query_norm, s.head_dim, head_dim_, "query norm", true);
  width(layer.key_norm, s.head_dim, head_dim_, "key norm", true);
  width(layer.qkv_bias, qkv_columns_, qkv_columns_, "query, key and value bias", true);
  width(layer.output_bias, s.hidden, hidden_, "attention output bias", true);
  if (!sequences_.empty()) refuse("layers must be added before sequences are opened");
  layers_.push_back(std::move(layer));
}

void Stack::set_embedding(Matrix matrix) {
  if (matrix.rows != round_up(shape_.vocab, kPanel) || matrix.cols != hidden_ || !matrix.data) refuse("embedding: wrong shape");
  embedding_ = matrix;
}

void Stack::set_fusion(Matrix matrix, std::vector<float> bias) {
  std::lock_guard<std::mutex> lock(mutex_);
  check_matrix(matrix, shape_.hidden, 2 * shape_.hidden, "fusion");
  if (!bias.empty() && int64_t(bias.size()) != shape_.hidden) refuse("fusion bias: wrong width");
  if (!embedding_.data) refuse("a fusion needs an embedding");
  fusion_ = matrix;
  fusion_bias_ = bias.empty() ? std::move(bias) : padded(std::move(bias), hidden_);
  // Room for an embedding and, where it truly ends, the vector.
  for (auto& line : lines_) line.ensure(std::max(matrix.cols, 2 * hidden_) + 64);
}

void Stack::set_final_norm(std::vector<float> weight) {
  if (int64_t(weight.size()) != shape_.hidden) refuse("final norm: wrong width");
  final_norm_ = padded(std::move(weight), hidden_);
}

int64_t Stack::add_head(Matrix matrix, int64_t width) {
  std::lock_guard<std::mutex> lock(mutex_);
  check_matrix(matrix, width, shape_.hidden, "LM head");
  auto head = std::make_unique<Head>();
  head->matrix = matrix;
  head->width = width;
  heads_.push_back(std::move(head));
  return int64_t(heads_.size()) - 1;
}

int64_t Stack::trim_head(const std::vector<int64_t>& ids) {
  std::lock_guard<std::mutex> lock(mutex_);
  const Head& full = find_head(0);
  if (ids.empty()) refuse("a trimmed head needs at least one token");
  for (const int64_t id : ids) {
    if (id < 0 || id >= full.width) refuse("token " + std::to_string(id) + " is outside the vocabulary");
  }
  auto head = std::make_unique<Head>();
  head->width = int64_t(ids.size());
  head->matrix = full.matrix;
  head->matrix.rows = round_up(head->width, kPanel);
  head->own.resize(head->matrix.panels() * head->matrix.panel_stride());
  head->matrix.data = head->own.data();
  for (size_t i = 0; i < ids.size(); ++i) copy_row(full.matrix, ids[i], head->own.data(), int64_t(i));
  heads_.push_back(std::move(head));
  return int64_t(heads_.size()) - 1;
}

void Stack::drop_head(int64_t head) {
  std::lock_guard<std::mutex> lock(mutex_);
  find_head(head);
  if (head == 0) refuse("the model's own head stays");
  heads_[size_t(head)].reset();
}

const Stack::Head& Stack::find_head(int64_t head) const {
  if (head < 0 || head >= int64_t(heads_.size()) || !heads_[size_t(head)]) refuse("this stack has no such LM head");
  return *heads_[size_t(head)];
}

int64_t Stack::head_width(int64_t head) const { return find_head(head).width; }

Sequence& Stack::find(int64_t sequence) {
  const auto found = sequences_.find(sequence);
  if (found == sequences_.end()) refuse("no open sequence " + std::to_string(sequence));
  return *found->second;
}

int64_t Stack::open() {
  std::lock_guard<std::mutex> lock(mutex_);
  cache_ = {layers(), shape_.kv_heads, head_dim_, shape_.wide_cache};
  sequences_[next_sequence_] = std::make_unique<Sequence>(cache_);
  return next_sequence_++;
}

void Stack::close(int64_t sequence) {
  std::lock_guard<std::mutex> lock(mutex_);
  find(sequence);
  sequences_.erase(sequence);
}

int64_t Stack::committed(int64_t sequence) {
  std::lock_guard<std::mutex> lock(mutex_);
  return find(sequence).committed();
}

void Stack::commit(int64_t sequence, const std::vector<int64_t>& path) {
  std::lock_guard<std::mutex> lock(mutex_);
  find(sequence).commit(path);
}

void Stack::truncate(int64_t sequence, int64_t length) {
  std::lock_guard<std::mutex> lock(mutex_);
  find(sequence).truncate(length);
}

void Stack::check_rows(int64_t rows) const {
  if (rows >= 1 && rows <= shape_.max_rows) return;
  refuse("a pass takes 1 to " + std::to_string(shape_.max_rows) + " rows, not " + std::to_string(rows));
}

void Stack::check(const Pass& pass) {
  check_rows(pass.rows);
  if (fusion_.data && !(pass.tokens && pass.vectors)) refuse("a stack with a fusion takes tokens and vectors");
  if (!pass.vectors || fusion_.data) {
    if (!embedding_.data) refuse("a stack without an embedding takes vectors");
    for (int64_t r = 0; r < pass.rows; ++r) {
      if (pass.tokens[r] < 0 || pass.tokens[r] >= shape_.vocab) {
        refuse("token " + std::to_string(pass.tokens[r]) + " is outside the vocabulary [0, " + std::to_string(shape_.vocab) + ")");
      }
    }
  }
  if (!pass.logit_rows.empty()) find_head(pass.head);
  int64_t before = -1;
  for (const int64_t row : pass.logit_rows) {
    if (row <= before || row >= pass.rows) refuse("rows with logits must be ascending row indices");
    before = row;
  }
  for (const auto& [layer, out] : pass.layers) {
    if (layer < 0 || layer >= layers() || !out) refuse("no layer " + std::to_string(layer));
  }
  // Depths of the new rows, to know every position before anything changes.
  std::map<int64_t, std::vector<int64_t>> fresh;
  std::vector<int32_t> path;
  for (int64_t r = 0; r < pass.rows; ++r) {
    Sequence& sequence = find(pass.sequences[r]);
    std::vector<int64_t>& depths = fresh[pass.sequences[r]];
    const int64_t parent = pass.parents[r], old = sequence.pending();
    if (parent < -1 || parent >= old + int64_t(depths.size())) {
      refuse("row " + std::to_string(r) + ": parent " + std::to_string(parent) + " is not an earlier pending row");
    }
    int64_t depth = 0;
    if (parent >= old) {
      depth = depths[size_t(parent - old)] + 1;
    } else if (parent >= 0) {
      path.clear();
      sequence.ancestors(parent, path);
      depth = int64_t(path.size());
    }
    depths.push_back(depth);
    if (sequence.committed() + depth >= shape_.max_context) {
      refuse("position " + std::to_string(sequence.committed() + depth) + " is past the context of " +
             std::to_string(shape_.max_context));
    }
  }
  for (const auto& [handle, depths] : fresh) {
    Sequence& sequence = find(handle);
    // Pending rows can be many more than deep; a tree of this size is a mistake.
    if (sequence.pending() + int64_t(depths.size()) > (int64_t(1) << 20)) refuse("too many pending rows");
    sequence.reserve(int64_t(depths.size()));
  }
}

void Stack::place(const Pass& pass) {
  for (int64_t r = 0; r < pass.rows; ++r) {
    Sequence& sequence = find(pass.sequences[r]);
    Row& row = rows_[size_t(r)];
    row.sequence = &sequence;
    row.slot = sequence.append(pass.parents[r]);
    row.first_ancestor = int64_t(ancestors_.size());
    sequence.ancestors(row.slot, ancestors_);
    row.ancestors = int64_t(ancestors_.size()) - row.first_ancestor;
    row.position = sequence.committed() + row.ancestors - 1;
  }
}

void Stack::embed(const int64_t* tokens, int64_t rows, float* out) const {
  if (!embedding_.data) refuse("this stack has no embedding");
  std::vector<float> line(static_cast<size_t>(hidden_));
  for (int64_t r = 0; r < rows; ++r) {
    if (tokens[r] < 0 || tokens[r] >= shape_.vocab) refuse("token " + std::to_string(tokens[r]) + " is outside the vocabulary");
    unpack_row(embedding_, tokens[r], line.data());
    std::copy_n(line.data(), shape_.hidden, out + r * shape_.hidden);
  }
}

}  // namespace slip
