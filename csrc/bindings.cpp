// The extension module: numpy arrays in and out without copies, the GIL released while it computes.
//
// Says no to wrong shapes with ValueError; the Python side (kernels/, models/native.py) turns file formats
// into these calls.
#include <nanobind/nanobind.h>
#include <nanobind/ndarray.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/pair.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include <atomic>
#include <optional>
#include <stdexcept>

#include "isa.h"
#include "packing.h"
#include "sampling.h"
#include "stack.h"

namespace nb = nanobind;
using namespace slip;

namespace {

template <class T>
using Vector = nb::ndarray<T, nb::ndim<1>, nb::c_contig, nb::device::cpu>;
template <class T>
using Grid = nb::ndarray<T, nb::ndim<2>, nb::c_contig, nb::device::cpu>;

[[noreturn]] void refuse(const std::string& message) { throw std::invalid_argument(message); }

Format format_of(const std::string& name) {
  if (name == "f32") return Format::f32;
  if (name == "bf16") return Format::bf16;
  if (name == "q8") return Format::q8;
  if (name == "q4") return Format::q4;
  refuse("unknown packed format '" + name + "'; valid: bf16, f32, q4, q8");
}

Source source_of(const std::string& name) {
  if (name == "f32") return Source::f32;
  if (name == "f16") return Source::f16;
  if (name == "bf16") return Source::bf16;
  if (name == "q8_0") return Source::q8_0;
  if (name == "q4_0") return Source::q4_0;
  if (name == "q4_1") return Source::q4_1;
  refuse("unknown stored format '" + name + "'; valid: bf16, f16, f32, q4_0, q4_1, q8_0");
}

Mode mode_of(const std::string& name) {
  if (name == "f32") return Mode::f32;
  if (name == "bf16") return Mode::bf16;
  if (name == "int8") return Mode::int8;
  refuse("unknown activations '" + name + "'; valid: bf16, f32, int8");
}

void check_size(int64_t rows, int64_t cols) {
  const int64_t most = int64_t(1) << 31;
  if (rows < 1 || cols < 1 || rows > most || cols > most || rows * cols > int64_t(1) << 40) {
    refuse("a matrix of " + std::to_string(rows) + " x " + std::to_string(cols) + " can't be packed");
  }
}

// A packed matrix in somebody's memory, which it keeps alive.
struct Packed {
  Vector<const uint8_t> bytes;
  Matrix matrix;

  Packed(const std::string& format, int64_t rows, int64_t cols, Vector<const uint8_t> memory)
      : bytes(std::move(memory)) {
    check_size(rows, cols);
    matrix.format = format_of(format);
    matrix.rows = round_up(rows, kPanel);
    matrix.cols = round_up(cols, kGroup);
    matrix.data = bytes.data();
    if (int64_t(bytes.size()) != packed_bytes(matrix.format, rows, cols)) refuse("packed memory of the wrong size");
    if (reinterpret_cast<uintptr_t>(bytes.data()) % 64 != 0) refuse("packed memory must be aligned to 64 bytes");
  }
};

// Packs stored rows as the outputs `places` of a zeroed matrix; returns the first row with a number that
// is not finite, or -1.
int64_t pack(const std::string& source_name, Grid<const uint8_t> stored, int64_t cols, const std::string& format,
             int64_t rows, Vector<uint8_t> memory, Vector<const int64_t> places, int threads) {
  check_size(rows, cols);
  const Source source = source_of(source_name);
  Matrix matrix{format_of(format), round_up(rows, kPanel), round_up(cols, kGroup), memory.data()};
  const bool groups = source == Source::q8_0 || source == Source::q4_0 || source == Source::q4_1;
  if (groups && cols % kGroup != 0) refuse("quantised rows must be a multiple of 32 wide");
  if (int64_t(stored.shape(1)) != source_row_bytes(source, cols)) refuse("stored rows of the wrong width");
  if (int64_t(memory.size()) != packed_bytes(matrix.format, rows, cols)) refuse("packed memory of the wrong size");
  const int64_t count = int64_t(stored.shape(0));
  if (int64_t(places.size()) != count) refuse("one place per stored row");
  for (int64_t r = 0; r < count; ++r) {
    if (places.data()[r] < 0 || places.data()[r] >= matrix.rows) refuse("a place outside the matrix");
  }
  if (threads < 1 || threads > 1024) refuse("threads must be in [1, 1024]");
  std::atomic<int64_t> bad{count};
  {
    nb::gil_scoped_release release;
    Shares shares;
    Team::shared(threads)->run([&](int) {
      int64_t first = 0, last = 0;
      while (shares.take(count, 16, first, last)) {
        for (int64_t r = first; r < last; ++r) {
          const uint8_t* from = stored.data() + r * int64_t(stored.shape(1));
          if (pack_row(source, from, cols, matrix, memory.data(), places.data()[r])) continue;
          int64_t seen = bad.load();
          while (r < seen && !bad.compare_exchange_weak(seen, r)) {
          }
        }
      }
    });
  }
  return bad == count ? -1 : int64_t(bad);
}

// Rows of a packed matrix as float32, padding included.
void unpack(const Packed& packed, Grid<float> out) {
  const Matrix& m = packed.matrix;
  if (int64_t(out.shape(0)) != m.rows || int64_t(out.shape(1)) != m.cols) refuse("unpack: wrong shape");
  for (int64_t r = 0; r < m.rows; ++r) unpack_row(m, r, out.data() + r * m.cols);
}

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
  void set_final_norm(Vector<const float> weight) { stack_.set_final_norm(floats(weight)); }
  int64_t add_head(const Packed& packed, int64_t width) { return stack_.add_head(keep(packed), width); }
  int64_t trim_head(const std::vector<int64_t>& ids) { return stack_.trim_head(ids); }
  void drop_head(int64_t head) { stack_.drop_head(head); }

  int64_t open() { return stack_.open(); }
  void close(int64_t sequence) { stack_.close(sequence); }
  int64_t committed(int64_t sequence) { return stack_.committed(sequence); }
  void commit(int64_t sequence, const std::vector<int64_t>& path) { stack_.commit(sequence, path); }
  void truncate(int64_t sequence, int64_t length) { stack_.truncate(sequence, length); }

  void forward(Vector<const int64_t> sequences, Vector<const int64_t> parents,
               std::optional<Vector<const int64_t>> tokens, std::optional<Grid<const float>> vectors,
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
    } else {
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

// One product, for tests: y = x @ matrix.T on one thread.
void multiply(const Packed& packed, const std::string& isa, const std::string& activations, Grid<const float> x,
              Grid<float> y) {
  const Kernels& kernels = kernels_by_name(isa);
  const Mode mode = mode_of(activations);
  const Matrix& m = packed.matrix;
  const int64_t rows = int64_t(x.shape(0));
  if (rows < 1 || int64_t(x.shape(1)) != m.cols || int64_t(y.shape(0)) != rows || int64_t(y.shape(1)) != m.rows) {
    refuse("multiply: wrong shapes");
  }
  const bool integer = m.format == Format::q8 || m.format == Format::q4;
  if ((mode == Mode::int8 && !integer) || (mode == Mode::f32) != (m.format == Format::f32)) {
    refuse("multiply: these activations don't go with these weights");
  }
  Inputs inputs;
  inputs.shape(m.cols, rows, mode, kernels, !integer, integer);
  inputs.view.rows = rows;
  nb::gil_scoped_release release;
  for (int64_t r = 0; r < rows; ++r) kernels.convert(inputs.view, mode, r, x.data() + r * m.cols, 0, m.cols);
  kernels.multiply(m, inputs.view, mode, 0, m.panels(), y.data(), m.rows);
}

std::vector<int64_t> run_race(nb::ndarray<nb::ndim<1>, nb::c_contig, nb::device::cpu> weights,
                              std::pair<uint32_t, uint32_t> key, const std::vector<uint32_t>& words, int64_t count) {
  if (words.size() != 3) refuse("a stream has three counter words");
  if (count < 1) refuse("a race needs at least one winner");
  const RaceStream stream{{key.first, key.second}, {words[0], words[1], words[2]}};
  const int64_t size = int64_t(weights.shape(0));
  if (weights.dtype() == nb::dtype<float>()) return race(static_cast<const float*>(weights.data()), size, stream, count);
  if (weights.dtype() == nb::dtype<double>()) return race(static_cast<const double*>(weights.data()), size, stream, count);
  refuse("weights must be float32 or float64");
}

void run_top_p(Vector<const float> weights, double mass, Vector<float> out) {
  if (weights.size() != out.size()) refuse("top_p: wrong shape");
  if (!(mass > 0.0 && mass <= 1.0)) refuse("top_p: mass must be in (0, 1]");
  top_p(weights.data(), int64_t(weights.size()), mass, out.data());
}

float run_largest(const std::string& isa, Vector<const float> x) {
  const Kernels& kernels = kernels_by_name(isa);
  nb::gil_scoped_release release;
  return kernels.largest(x.data(), int64_t(x.size()));
}

void run_exponentials(const std::string& isa, Vector<const float> x, float top, float temperature, Vector<float> out) {
  if (x.size() != out.size()) refuse("exponentials: wrong shape");
  kernels_by_name(isa).exponentials(x.data(), int64_t(x.size()), top, temperature, out.data());
}

}  // namespace

NB_MODULE(_native, m) {
  m.def("isas", [] {
    std::vector<std::string> names;
    for (const Kernels* kernels : usable_kernels()) names.push_back(kernels->name);
    return names;
  });
  m.def("resolve", [](const std::string& name) { return std::string(kernels_by_name(name).name); });
  m.def("packed_bytes", [](const std::string& format, int64_t rows, int64_t cols) {
    check_size(rows, cols);
    return packed_bytes(format_of(format), rows, cols);
  });
  m.def("pack", &pack);
  m.def("unpack", &unpack);
  m.def("multiply", &multiply);
  m.def("race", &run_race);
  m.def("top_p", &run_top_p);
  m.def("largest", &run_largest);
  m.def("exponentials", &run_exponentials);

  nb::class_<Packed>(m, "Packed")
      .def(nb::init<const std::string&, int64_t, int64_t, Vector<const uint8_t>>())
      .def_prop_ro("rows", [](const Packed& p) { return p.matrix.rows; })
      .def_prop_ro("cols", [](const Packed& p) { return p.matrix.cols; });

  nb::class_<PyStack>(m, "Stack")
      .def(nb::init<const nb::dict&, const std::string&, int>())
      .def("add_layer", &PyStack::add_layer)
      .def("set_embedding", &PyStack::set_embedding)
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
