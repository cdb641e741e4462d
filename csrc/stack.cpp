// See stack.h. In each phase of a pass, threads take what is left of its work.
#include "stack.h"

#include <algorithm>
#include <cmath>
#include <set>
#include <stdexcept>
#include <string>

namespace slip {
namespace {

constexpr int64_t kTile = 4;  // panels that one thread computes before it uses them: 64 columns

[[noreturn]] void refuse(const std::string& message) { throw std::invalid_argument(message); }

std::vector<float> padded(std::vector<float> weight, int64_t size) {
  weight.resize(size_t(size), 0.0f);
  return weight;
}

// Panels a thread takes at a time: few enough for an even load, whole tiles if there are plenty.
int64_t chunk_of(int64_t panels, int threads) {
  return std::max<int64_t>(1, std::min<int64_t>(kTile, panels / (4 * threads)));
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
    for (Inputs* inputs : {&hidden_inputs_, &attended_inputs_, &inner_inputs_, &head_inputs_}) inputs->capacity = 0;
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

void Stack::check(const Pass& pass) {
  if (pass.rows < 1 || pass.rows > shape_.max_rows) {
    refuse("a pass takes 1 to " + std::to_string(shape_.max_rows) + " rows, not " + std::to_string(pass.rows));
  }
  if (!pass.vectors) {
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

void Stack::prepare(int64_t rows, int64_t slots) {
  const int64_t half = shape_.head_dim / 2;
  residual_.ensure(rows * hidden_);
  qkv_.ensure(rows * qkv_columns_);
  attended_.ensure(rows * query_columns_);
  cosine_.ensure(rows * half);
  sine_.ensure(rows * half);
  const int64_t capacity = round_up(rows, 16);
  hidden_inputs_.shape(hidden_, capacity, shape_.mode, kernels_, floats_, codes_);
  attended_inputs_.shape(round_up(shape_.heads * shape_.head_dim, kGroup), capacity, shape_.mode, kernels_, floats_, codes_);
  inner_inputs_.shape(inner_, capacity, shape_.mode, kernels_, floats_, codes_);
  head_inputs_.shape(hidden_, capacity, shape_.mode, kernels_, floats_, codes_);
  score_stride_ = round_up(slots, 16) + 16;
  for (auto& scores : scores_) scores.ensure(shape_.heads / shape_.kv_heads * score_stride_);
  tile_stride_ = kTile * kPanel + 16;
  for (auto& tile : tiles_) tile.ensure(rows * tile_stride_);
  const size_t phases = size_t(layers()) * 16 + 16;
  if (shares_.size() < phases) shares_ = std::vector<Shares>(phases);
  for (Shares& shares : shares_) shares.reset();
  std::fill(share_index_.begin(), share_index_.end(), size_t(0));
}

void Stack::forward(const Pass& pass) {
  std::lock_guard<std::mutex> lock(mutex_);
  check(pass);
  // Everything that may run out of memory comes before the first change.
  int64_t slots = 0, most = 0;
  for (int64_t r = 0; r < pass.rows; ++r) {
    const Sequence& sequence = find(pass.sequences[r]);
    slots = std::max(slots, sequence.committed() + sequence.pending() + pass.rows);
    most += sequence.pending() + pass.rows;
  }
  rows_.resize(size_t(pass.rows));
  ancestors_.clear();
  ancestors_.reserve(size_t(most));
  prepare(pass.rows, slots);
  place(pass);
  team_->run([&](int thread) { run(pass, thread); });
}

Shares& Stack::next_shares(int thread) { return shares_[share_index_[size_t(thread)]++]; }

template <class Work>
void Stack::share(int thread, int64_t count, int64_t chunk, Work work) {
  team_->phase(next_shares(thread), count, chunk, work);
}

void Stack::normalise(const float* x, const std::vector<float>& weight, float* out) const {
  kernels_.rms_norm(x, weight.data(), shape_.eps, shape_.hidden, out);
}

void Stack::run(const Pass& pass, int thread) {
  const int64_t rows = pass.rows, half = shape_.head_dim / 2;
  share(thread, rows, 1, [&](int64_t first, int64_t last) {
    for (int64_t r = first; r < last; ++r) {
      float* out = residual_.data() + r * hidden_;
      if (pass.vectors) std::copy_n(pass.vectors + r * shape_.hidden, shape_.hidden, out);
      else unpack_row(embedding_, pass.tokens[r], out);
      for (int64_t i = 0; i < half; ++i) {
        const double angle = double(rows_[size_t(r)].position) * shape_.frequencies[size_t(i)];
        cosine_.data()[r * half + i] = float(std::cos(angle));
        sine_.data()[r * half + i] = float(std::sin(angle));
      }
    }
  });
  for (int64_t layer = 0; layer < layers(); ++layer) run_layer(layer, thread, pass);

  const int64_t count = int64_t(pass.logit_rows.size());
  float* line = lines_[size_t(thread)].data();
  const auto after = pass.layers.find(layers() - 1);
  share(thread, rows, 1, [&](int64_t first, int64_t last) {
    for (int64_t r = first; r < last; ++r) {
      const float* x = residual_.data() + r * hidden_;
      if (after != pass.layers.end()) std::copy_n(x, shape_.hidden, after->second + r * shape_.hidden);
      const auto at = std::lower_bound(pass.logit_rows.begin(), pass.logit_rows.end(), r);
      const bool wanted = at != pass.logit_rows.end() && *at == r;
      if (!wanted && !pass.last) continue;
      if (!final_norm_.empty()) {
        normalise(x, final_norm_, line);
        x = line;
      }
      if (pass.last) std::copy_n(x, shape_.hidden, pass.last + r * shape_.hidden);
      if (wanted) kernels_.convert(head_inputs_.view, shape_.mode, at - pass.logit_rows.begin(), x, 0, hidden_);
    }
  });
  if (count) multiply_head(find_head(pass.head), count, pass.logits, thread);
}

void Stack::multiply_head(const Head& head, int64_t rows, float* logits, int thread) {
  const int64_t width = head.width;
  Activations x = head_inputs_.view;
  x.rows = rows;
  const int64_t chunk = std::max<int64_t>(kTile, std::min<int64_t>(32, head.matrix.panels() / (8 * team_->size()) / kTile * kTile));
  share(thread, head.matrix.panels(), chunk, [&](int64_t first, int64_t last) {
    const int64_t whole = std::min(last, width / kPanel);
    if (first < whole) kernels_.multiply(head.matrix, x, shape_.mode, first, whole, logits + first * kPanel, width);
    if (whole == last) return;
    float* tile = tiles_[size_t(thread)].data();  // the last, incomplete panel
    kernels_.multiply(head.matrix, x, shape_.mode, whole, last, tile, tile_stride_);
    for (int64_t r = 0; r < rows; ++r) {
      std::copy_n(tile + r * tile_stride_, width - whole * kPanel, logits + r * width + whole * kPanel);
    }
  });
}

void Stack::apply_head(int64_t index, int64_t rows, const float* vectors, bool normalised, float* logits) {
  std::lock_guard<std::mutex> lock(mutex_);
  const Head& head = find_head(index);
  if (rows < 1 || rows > shape_.max_rows) refuse("a pass takes 1 to " + std::to_string(shape_.max_rows) + " rows, not " + std::to_string(rows));
  if (normalised && final_norm_.empty()) refuse("this stack has no final norm");
  prepare(rows, 0);
  team_->run([&](int thread) {
    float* line = lines_[size_t(thread)].data();
    share(thread, rows, 1, [&](int64_t first, int64_t last) {
      for (int64_t r = first; r < last; ++r) {
        float* x = residual_.data() + r * hidden_;
        std::copy_n(vectors + r * shape_.hidden, shape_.hidden, x);
        if (normalised) normalise(x, final_norm_, line);
        kernels_.convert(head_inputs_.view, shape_.mode, r, normalised ? line : x, 0, hidden_);
      }
    });
    multiply_head(head, rows, logits, thread);
  });
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

void Stack::run_layer(int64_t index, int thread, const Pass& pass) {
  const Layer& layer = layers_[size_t(index)];
  const int64_t rows = pass.rows, half = shape_.head_dim / 2, group = shape_.heads / shape_.kv_heads;
  float* line = lines_[size_t(thread)].data();
  float* tile = tiles_[size_t(thread)].data();
  const auto inputs = [rows](const Inputs& in) {
    Activations view = in.view;
    view.rows = rows;
    return view;
  };
  const Activations hidden = inputs(hidden_inputs_), attended = inputs(attended_inputs_), inner = inputs(inner_inputs_);
  const auto normalise_rows = [&](const std::vector<float>& weight) {
    share(thread, rows, 1, [&](int64_t first, int64_t last) {
      for (int64_t r = first; r < last; ++r) {
        normalise(residual_.data() + r * hidden_, weight, line);
        kernels_.convert(hidden, shape_.mode, r, line, 0, hidden_);
      }
    });
  };
  // residual += matrix * x (+ bias)
  const auto add_product = [&](const Matrix& matrix, const Activations& x, const std::vector<float>& bias) {
    share(thread, matrix.panels(), chunk_of(matrix.panels(), team_->size()), [&](int64_t first, int64_t last) {
      const int64_t column = first * kPanel, width = (last - first) * kPanel;
      kernels_.multiply(matrix, x, shape_.mode, first, last, tile, tile_stride_);
      for (int64_t r = 0; r < rows; ++r) {
        if (!bias.empty()) kernels_.add(tile + r * tile_stride_, bias.data() + column, width);
        kernels_.add(residual_.data() + r * hidden_ + column, tile + r * tile_stride_, width);
      }
    });
  };

  if (const auto before = pass.layers.find(index - 1); before != pass.layers.end()) {
    share(thread, rows, 1, [&](int64_t first, int64_t last) {
      for (int64_t r = first; r < last; ++r) {
        std::copy_n(residual_.data() + r * hidden_, shape_.hidden, before->second + r * shape_.hidden);
      }
    });
  }

  normalise_rows(layer.attention_norm);
  for (const Part& part : layer.qkv) {
    const int64_t panels = part.matrix.panels();
    share(thread, panels, chunk_of(panels, team_->size()), [&](int64_t first, int64_t last) {
      kernels_.multiply(part.matrix, hidden, shape_.mode, first, last, qkv_.data() + part.column + first * kPanel,
                        qkv_columns_);
    });
  }

  const float factor = 1.0f / std::sqrt(float(shape_.head_dim));
  share(thread, rows, 1, [&](int64_t first, int64_t last) {
    for (int64_t r = first; r < last; ++r) {
      float* columns = qkv_.data() + r * qkv_columns_;
      if (!layer.qkv_bias.empty()) kernels_.add(columns, layer.qkv_bias.data(), qkv_columns_);
      const float* c = cosine_.data() + r * half;
      const float* s = sine_.data() + r * half;
      for (int64_t h = 0; h < shape_.heads + shape_.kv_heads; ++h) {
        float* head = columns + h * head_dim_;
        const std::vector<float>& norm = h < shape_.heads ? layer.query_norm : layer.key_norm;
        if (!norm.empty()) kernels_.rms_norm(head, norm.data(), shape_.eps, shape_.head_dim, head);
        kernels_.rotate(head, c, s, shape_.head_dim);
        if (h < shape_.heads) kernels_.scale(head, factor, head_dim_);
      }
      Sequence& sequence = *rows_[size_t(r)].sequence;
      const int64_t slot = sequence.committed() + rows_[size_t(r)].slot;
      for (int64_t h = 0; h < shape_.kv_heads; ++h) {
        const float* key = columns + query_columns_ + h * head_dim_;
        const float* value = key + shape_.kv_heads * head_dim_;
        uint8_t* page = sequence.page(slot);
        kernels_.store_cache(key, page + cache_.key_offset(index, h), slot, cache_.wide, false, head_dim_);
        kernels_.store_cache(value, page + cache_.value_offset(index, h), slot, cache_.wide, true, head_dim_);
      }
    }
  });

  share(thread, rows * shape_.kv_heads, 1, [&](int64_t first, int64_t last) {
    for (int64_t unit = first; unit < last; ++unit) {
      const int64_t r = unit / shape_.kv_heads, h = unit % shape_.kv_heads;
      const Row& row = rows_[size_t(r)];
      AttentionTask task{};
      task.pages = row.sequence->pages();
      task.key_offset = cache_.key_offset(index, h);
      task.value_offset = cache_.value_offset(index, h);
      task.committed = row.sequence->committed();
      task.pending = row.ancestors;
      task.ancestors = ancestors_.data() + row.first_ancestor;
      task.wide = cache_.wide;
      task.head_dim = head_dim_;
      task.heads = group;
      task.queries = qkv_.data() + r * qkv_columns_ + h * group * head_dim_;
      task.scores = scores_[size_t(thread)].data();
      task.score_stride = score_stride_;
      task.out = attended_.data() + r * query_columns_ + h * group * head_dim_;
      task.out_stride = head_dim_;
      kernels_.attend(task);
    }
  });

  share(thread, rows, 1, [&](int64_t first, int64_t last) {
    for (int64_t r = first; r < last; ++r) {
      const float* x = attended_.data() + r * query_columns_;
      if (head_dim_ != shape_.head_dim || attended.cols != query_columns_) {
        for (int64_t h = 0; h < shape_.heads; ++h) {
          std::copy_n(x + h * head_dim_, shape_.head_dim, line + h * shape_.head_dim);
        }
        std::fill(line + shape_.heads * shape_.head_dim, line + attended.cols, 0.0f);
        x = line;
      }
      kernels_.convert(attended, shape_.mode, r, x, 0, attended.cols);
    }
  });
  add_product(layer.output, attended, layer.output_bias);

  normalise_rows(layer.ffn_norm);
  // Gate and up alternate in panels of 16, so that a tile of 64 columns is 32 inner activations.
  share(thread, layer.gate_up.panels() / kTile, 1, [&](int64_t first, int64_t last) {
    for (int64_t unit = first; unit < last; ++unit) {
      const int64_t panel = unit * kTile, column = unit * kGroup;
      kernels_.multiply(layer.gate_up, hidden, shape_.mode, panel, panel + kTile, tile, tile_stride_);
      for (int64_t r = 0; r < rows; ++r) {
        float out[kGroup];
        kernels_.swiglu(tile + r * tile_stride_, out, 2);
        kernels_.convert(inner, shape_.mode, r, out, column, column + kGroup);
      }
    }
  });
  add_product(layer.down, inner, {});
}

}  // namespace slip
