// A stack of Llama blocks with its caches: one call, one forward pass.
//
// Embedding, final norm and LM head are optional, so that a drafter's single layer is a stack as well. A
// stack with a fusion (EAGLE, 2401.15077) starts from fusion * [embedding of the token, vector].
// Weights are packed elsewhere and only referred to. A call is checked completely before anything
// changes, and throws std::invalid_argument. Knows no tokens beyond their ids, no drafts, no sampling.
// Shape letters: R rows, L rows with logits, H hidden, V vocabulary.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <vector>

#include "buffer.h"
#include "inputs.h"
#include "kernels.h"
#include "kv_cache.h"
#include "packing.h"
#include "thread_pool.h"

namespace slip {

struct StackShape {
  int64_t hidden = 0, intermediate = 0, heads = 0, kv_heads = 0, head_dim = 0;
  int64_t vocab = 0;  // width of the logits; 0 without embedding and head
  int64_t max_context = 0, max_rows = 0;
  float eps = 0.0f;
  Mode mode = Mode::bf16;
  bool wide_cache = false;
  std::vector<double> frequencies;  // head_dim / 2 rotary frequencies, scaling included
};

// A matrix that writes columns [column, column + rows) of a fused product.
struct Part {
  Matrix matrix;
  int64_t column = 0;
};

// Empty vectors are absent: no bias, no norm.
struct Layer {
  std::vector<Part> qkv;  // heads padded to 16 columns each: queries, keys, values
  Matrix output, gate_up, down;
  std::vector<float> attention_norm, ffn_norm, query_norm, key_norm, qkv_bias, output_bias;
};

struct Pass {
  int64_t rows = 0;
  const int64_t* sequences = nullptr;  // (R,)
  const int64_t* tokens = nullptr;     // (R,), or
  const float* vectors = nullptr;      // (R, H); a fusion takes both
  const int64_t* parents = nullptr;    // (R,)
  std::vector<int64_t> logit_rows;     // L ascending row indices
  int64_t head = 0;                    // which head: 0 is the model's own
  float* logits = nullptr;             // (L, V)
  float* last = nullptr;               // (R, H) or null
  std::map<int64_t, float*> layers;    // layer -> (R, H)
};

class Stack {
 public:
  Stack(StackShape shape, const Kernels& kernels, int threads);

  void add_layer(Layer layer);
  void set_embedding(Matrix matrix);
  // (H, 2H) and an optional bias (H,).
  void set_fusion(Matrix matrix, std::vector<float> bias);
  void set_final_norm(std::vector<float> weight);
  // Adds an LM head of `width` outputs; the first one is the model's own. Returns its index.
  int64_t add_head(Matrix matrix, int64_t width);
  // Adds a head with only these outputs of head 0, in this order.
  int64_t trim_head(const std::vector<int64_t>& ids);
  void drop_head(int64_t head);
  int64_t head_width(int64_t head) const;

  int64_t open();
  void close(int64_t sequence);
  int64_t committed(int64_t sequence);
  void commit(int64_t sequence, const std::vector<int64_t>& path);
  void truncate(int64_t sequence, int64_t length);

  void forward(const Pass& pass);
  // Logits of given head inputs (rows, H); normalises them first if asked.
  void apply_head(int64_t head, int64_t rows, const float* vectors, bool normalise, float* logits);

  // Embeddings of tokens as float32 (rows, H).
  void embed(const int64_t* tokens, int64_t rows, float* out) const;

  const StackShape& shape() const { return shape_; }
  int64_t layers() const { return int64_t(layers_.size()); }

 private:
  struct Row {
    Sequence* sequence;
    int64_t slot, position, first_ancestor, ancestors;
  };
  struct Head {
    Matrix matrix;
    int64_t width = 0;
    Buffer<uint8_t> own;
  };

  Sequence& find(int64_t sequence);
  const Head& find_head(int64_t head) const;
  void check_rows(int64_t rows) const;
  void check(const Pass& pass);
  void place(const Pass& pass);
  void prepare(int64_t rows, int64_t slots);
  void run(const Pass& pass, int thread);
  void prepare_fusion(const Pass& pass, int64_t row, int thread);
  void fuse(int64_t rows, int thread);
  void run_layer(int64_t layer, int thread, const Pass& pass);
  void multiply_head(const Head& head, int64_t rows, float* logits, int thread);
  void normalise(const float* x, const std::vector<float>& weight, float* out) const;
  void check_matrix(const Matrix& matrix, int64_t rows, int64_t cols, const char* name);
  Shares& next_shares(int thread);
  template <class Work>
  void share(int thread, int64_t count, int64_t chunk, Work work);

  StackShape shape_;
  const Kernels& kernels_;
  std::shared_ptr<Team> team_;
  std::mutex mutex_;
  CacheShape cache_;
  int64_t hidden_ = 0, head_dim_ = 0, inner_ = 0;  // padded widths
  int64_t query_columns_ = 0, qkv_columns_ = 0;
  std::vector<Layer> layers_;
  Matrix embedding_, fusion_;
  std::vector<float> fusion_bias_;
  std::vector<float> final_norm_;
  std::vector<std::unique_ptr<Head>> heads_;
  std::map<int64_t, std::unique_ptr<Sequence>> sequences_;
  int64_t next_sequence_ = 0;

  // The pass in progress.
  std::vector<Row> rows_;
  std::vector<int32_t> ancestors_;
  int64_t score_stride_ = 0, tile_stride_ = 0;
  Buffer<float> residual_, qkv_, attended_, cosine_, sine_;
  std::vector<Buffer<float>> scores_, tiles_, lines_;  // one a thread
  bool floats_ = false, codes_ = false;  // how weights are stored, of any matrix
  Inputs fusion_inputs_, hidden_inputs_, attended_inputs_, inner_inputs_, head_inputs_;
  std::vector<Shares> shares_;
  std::vector<size_t> share_index_;  // one a thread
};

}  // namespace slip
