// See stack.h: one pass. In each of its phases, threads take what is left of the work.
#include <algorithm>
#include <cmath>
#include <stdexcept>
#include <string>

#include "stack.h"

namespace slip {
namespace {

constexpr int64_t kTile = 4;  // panels that one thread computes before it uses them: 64 columns

// Panels a thread takes at a time: few enough for an even load, whole tiles if there are plenty.
int64_t chunk_of(int64_t panels, int threads) {
  return std::max<int64_t>(1, std::min<int64_t>(kTile, panels / (4 * threads)));
}

}  // namespace

void Stack::prepare(int64_t rows, int64_t slots) {
  const int64_t half = shape_.head_dim / 2;
  residual_.ensure(rows * hidden_);
  qkv_.ensure(rows * qkv_columns_);
  attended_.ensure(rows * query_columns_);
  cosine_.ensure(rows * half);
  sine_.ensure(rows * half);
  const int64_t capacity = round_up(rows, 16);
  if (fusion_.data) fusion_inputs_.shape(fusion_.cols, capacity, shape_.mode, kernels_, floats_, codes_);
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
  std::fill(out + shape_.hidden, out + hidden_, 0.0f);  // it shares a scale with the last real numbers
}

void Stack::run(const Pass& pass, int thread) {
  const int64_t rows = pass.rows, half = shape_.head_dim / 2;
  share(thread, rows, 1, [&](int64_t first, int64_t last) {
    for (int64_t r = first; r < last; ++r) {
      float* out = residual_.data() + r * hidden_;
      if (fusion_.data) prepare_fusion(pass, r, thread);
      else if (pass.vectors) std::copy_n(pass.vectors + r * shape_.hidden, shape_.hidden, out);
      else unpack_row(embedding_, pass.tokens[r], out);
      std::fill(out + shape_.hidden, out + hidden_, 0.0f);
      for (int64_t i = 0; i < half; ++i) {
        const double angle = double(rows_[size_t(r)].position) * shape_.frequencies[size_t(i)];
        cosine_.data()[r * half + i] = float(std::cos(angle));
        sine_.data()[r * half + i] = float(std::sin(angle));
      }
    }
  });
  if (fusion_.data) fuse(pass.rows, thread);
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

void Stack::prepare_fusion(const Pass& pass, int64_t row, int thread) {
  float* line = lines_[size_t(thread)].data();
  unpack_row(embedding_, pass.tokens[row], line);
  std::copy_n(pass.vectors + row * shape_.hidden, shape_.hidden, line + shape_.hidden);
  std::fill(line + 2 * shape_.hidden, line + fusion_.cols, 0.0f);
  kernels_.convert(fusion_inputs_.view, shape_.mode, row, line, 0, fusion_.cols);
}

// residual = fusion * [embedding, vector] + bias
void Stack::fuse(int64_t rows, int thread) {
  Activations x = fusion_inputs_.view;
  x.rows = rows;
  share(thread, fusion_.panels(), chunk_of(fusion_.panels(), team_->size()), [&](int64_t first, int64_t last) {
    const int64_t column = first * kPanel, width = (last - first) * kPanel;
    kernels_.multiply(fusion_, x, shape_.mode, first, last, residual_.data() + column, hidden_);
    if (fusion_bias_.empty()) return;
    for (int64_t r = 0; r < rows; ++r) {
      kernels_.add(residual_.data() + r * hidden_ + column, fusion_bias_.data() + column, width);
    }
  });
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
  check_rows(rows);
  if (normalised && final_norm_.empty()) throw std::invalid_argument("this stack has no final norm");
  prepare(rows, 0);
  team_->run([&](int thread) {
    float* line = lines_[size_t(thread)].data();
    share(thread, rows, 1, [&](int64_t first, int64_t last) {
      for (int64_t r = first; r < last; ++r) {
        float* x = residual_.data() + r * hidden_;
        std::copy_n(vectors + r * shape_.hidden, shape_.hidden, x);
        std::fill(x + shape_.hidden, x + hidden_, 0.0f);
        if (normalised) normalise(x, final_norm_, line);
        kernels_.convert(head_inputs_.view, shape_.mode, r, normalised ? line : x, 0, hidden_);
      }
    });
    multiply_head(head, rows, logits, thread);
  });
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
