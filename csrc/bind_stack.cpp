// The stack of blocks: one forward pass, and the caches of its sequences.
#include <optional>

#include "bindings.h"
#include "isa.h"
#include "stack.h"

using namespace slip;

namespace {

StackShape shape_of(const nb::dict& values) {
  StackShape shape;
  auto number = [&](const char* name) { return nb::cast<int64_t>(values[name]); };
  shape.hidden = number("hidden");
  shape.intermediate = number("intermediate");
  shape.heads = number("heads");
  shape.kv_heads = number("kv_heads");
  shape.head_dim = number("head_dim");
  shape.vocab = number("vocab");
  shape.max_context = number("max_context");
  shape.max_rows = number("max_rows");
  shape.eps = nb::cast<float>(values["eps"]);
  shape.mode = mode_of(nb::cast<std::string>(values["activations"]));
  shape.wide_cache = nb::cast<bool>(values["wide_cache"]);
  shape.frequencies = nb::cast<std::vector<double>>(values["frequencies"]);
  return shape;
}

// A Stack that keeps the memory of its matrices alive.
class PyStack {
 public:
  PyStack(const nb::dict& shape, const std::string& isa, int threads)
      : stack_(shape_of(shape), kernels_by_name(isa), threads) {}

  void add_layer(const std::vector<std::pair<const Packed*, int64_t>>& qkv, const Packed& output,
                 const Packed& gate_up, const Packed& down, const nb::dict& vectors) {
    Layer layer;
    for (const auto& [packed, column] : qkv) layer.qkv.push_back({keep(*packed), column});
    layer.output = keep(output);
    layer.gate_up = keep(gate_up);
    layer.down = keep(down);
    auto take = [&](const char* name) {
      std::vector<float> out;
      if (values_has(vectors, name)) out = floats(nb::cast<Vector<const float>>(vectors[name]));
      return out;
    };
    layer.attention_norm = take("attention_norm");
    layer.ffn_norm = take("ffn_norm");
    layer.query_norm = take("query_norm");
    layer.key_norm = take("key_norm");
    layer.qkv_bias = take("qkv_bias");
    layer.output_bias = take("output_bias");
    stack_.add_layer(std::move(layer));
  }

  void set_embedding(const Packed& packed) { stack_.set_embedding(keep(packed)); }
  void set_fusion(const Packed& packed, std::optional<Vector<const float>> bias) {
    stack_.set_fusion(keep(packed), bias ? floats(*bias) : std::vector<float>());
  }
  void set_final_norm(Vector<const float> weight) { stack_.set_final_norm(floats(weight)); }
  int64_t add_head(const Packed& packed, int64_t width) { return stack_.add_head(keep(packed), width); }
  int64_t trim_head(const std::vector<int64_t>& ids) { return stack_.trim_head(ids); }
  void drop_head(int64_t head) { stack_.drop_head(head); }

  int64_t open() { return stack_.open(); }
  void close(int64_t sequence) { stack_.close(sequence); }
  int64_t committed(int64_t sequence) { return stack_.committed(sequence); }
  void commit(int64_t sequence, const std::vector<int64_t>& path) { stack_.commit(sequence, path); }
  void truncate(int64_t sequence, int64_t length) { stack_.truncate(sequence, length); }

  // Row by row in lists: for the few rows of a cycle they are taken over sooner than arrays.
  void forward(const std::vector<int64_t>& sequences, const std::vector<int64_t>& parents,
               const std::optional<std::vector<int64_t>>& tokens, std::optional<Grid<const float>> vectors,
               const std::vector<int64_t>& logit_rows, int64_t head, std::optional<Grid<float>> logits,
               std::optional<Grid<float>> last, const std::vector<std::pair<int64_t, Grid<float>>>& layers) {
    Pass pass;
    pass.rows = int64_t(sequences.size());
    pass.sequences = sequences.data();
    pass.parents = parents.data();
    if (int64_t(parents.size()) != pass.rows) refuse("parents must have one entry per row");
    if (vectors) {
      grid(*vectors, pass.rows, stack_.shape().hidden, "vectors");
      pass.vectors = vectors->data();
    }
    if (tokens || !vectors) {
      if (!tokens || int64_t(tokens->size()) != pass.rows) refuse("tokens must have one entry per row");
      pass.tokens = tokens->data();
    }
    pass.logit_rows = logit_rows;
    pass.head = head;
    if (!logit_rows.empty()) {
      if (!logits) refuse("no room for logits");
      grid(*logits, int64_t(logit_rows.size()), stack_.head_width(head), "logits");
      pass.logits = logits->data();
    }
    if (last) {
      grid(*last, pass.rows, stack_.shape().hidden, "last");
      pass.last = last->data();
    }
    for (const auto& [layer, out] : layers) {
      grid(out, pass.rows, stack_.shape().hidden, "layer features");
      pass.layers[layer] = out.data();
    }
    nb::gil_scoped_release release;
    stack_.forward(pass);
  }

  void apply_head(int64_t head, Grid<const float> vectors, bool normalise, Grid<float> logits) {
    const int64_t rows = int64_t(vectors.shape(0));
    grid(vectors, rows, stack_.shape().hidden, "vectors");
    grid(logits, rows, stack_.head_width(head), "logits");
    nb::gil_scoped_release release;
    stack_.apply_head(head, rows, vectors.data(), normalise, logits.data());
  }

  void embed(Vector<const int64_t> tokens, Grid<float> out) {
    grid(out, int64_t(tokens.size()), stack_.shape().hidden, "embeddings");
    stack_.embed(tokens.data(), int64_t(tokens.size()), out.data());
  }

 private:
  Matrix keep(const Packed& packed) {
    memory_.push_back(packed.bytes);
    return packed.matrix;
  }
  static bool values_has(const nb::dict& values, const char* name) {
    return values.contains(name) && !values[name].is_none();
  }
  static std::vector<float> floats(const Vector<const float>& values) {
    return std::vector<float>(values.data(), values.data() + values.size());
  }
  template <class T>
  static void grid(const Grid<T>& values, int64_t rows, int64_t cols, const char* name) {
    if (int64_t(values.shape(0)) == rows && int64_t(values.shape(1)) == cols) return;
    refuse(std::string(name) + " must be of shape (" + std::to_string(rows) + ", " + std::to_string(cols) + ")");
  }

  std::vector<Vector<const uint8_t>> memory_;
  Stack stack_;
};

}  // namespace

void bind_stack(nb::module_& m) {
  nb::class_<PyStack>(m, "Stack")
      .def(nb::init<const nb::dict&, const std::string&, int>())
      .def("add_layer", &PyStack::add_layer)
      .def("set_embedding", &PyStack::set_embedding)
      .def("set_fusion", &PyStack::set_fusion, nb::arg("matrix"), nb::arg("bias").none())
      .def("set_final_norm", &PyStack::set_final_norm)
      .def("add_head", &PyStack::add_head)
      .def("trim_head", &PyStack::trim_head)
      .def("drop_head", &PyStack::drop_head)
      .def("open", &PyStack::open)
      .def("close", &PyStack::close)
      .def("committed", &PyStack::committed)
      .def("commit", &PyStack::commit)
      .def("truncate", &PyStack::truncate)
      .def("forward", &PyStack::forward, nb::arg("sequences"), nb::arg("parents"), nb::arg("tokens").none(),
           nb::arg("vectors").none(), nb::arg("logit_rows"), nb::arg("head"), nb::arg("logits").none(),
           nb::arg("last").none(), nb::arg("layers"))
      .def("apply_head", &PyStack::apply_head)
      .def("embed", &PyStack::embed);
}
