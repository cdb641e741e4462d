// Packing of weights, and one product for tests.
#include <atomic>
#include <vector>

#include "bindings.h"
#include "inputs.h"
#include "isa.h"
#include "packing.h"
#include "thread_pool.h"

using namespace slip;

namespace {

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

void check_size(int64_t rows, int64_t cols) {
  const int64_t most = int64_t(1) << 31;
  if (rows < 1 || cols < 1 || rows > most || cols > most || rows * cols > int64_t(1) << 40) {
    refuse("a matrix of " + std::to_string(rows) + " x " + std::to_string(cols) + " can't be packed");
  }
}

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

// Packs some rows of a packed matrix anew, as a matrix of these rows in zeroed memory: copied where the
// format stays, rounded where it doesn't.
void repack(const Packed& packed, Vector<const int64_t> ids, const std::string& format, Vector<uint8_t> memory,
            int threads) {
  const Matrix& from = packed.matrix;
  const int64_t rows = int64_t(ids.size());
  check_size(rows, from.cols);
  const Matrix to{format_of(format), round_up(rows, kPanel), from.cols, memory.data()};
  if (int64_t(memory.size()) != packed_bytes(to.format, rows, from.cols)) refuse("packed memory of the wrong size");
  for (int64_t r = 0; r < rows; ++r) {
    if (ids.data()[r] < 0 || ids.data()[r] >= from.rows) refuse("repack: no such row");
  }
  if (threads < 1 || threads > 1024) refuse("threads must be in [1, 1024]");
  nb::gil_scoped_release release;
  Shares shares;
  Team::shared(threads)->run([&](int) {
    std::vector<float> line(static_cast<size_t>(from.cols));
    int64_t first = 0, last = 0;
    while (shares.take(rows, kPanel, first, last)) {
      for (int64_t r = first; r < last; ++r) {
        if (to.format == from.format) {
          copy_row(from, ids.data()[r], memory.data(), r);
          continue;
        }
        unpack_row(from, ids.data()[r], line.data());
        pack_row(Source::f32, reinterpret_cast<const uint8_t*>(line.data()), from.cols, to, memory.data(), r);
      }
    }
  });
}

// Rows of a packed matrix as float32, padding included.
void unpack(const Packed& packed, Grid<float> out) {
  const Matrix& m = packed.matrix;
  if (int64_t(out.shape(0)) != m.rows || int64_t(out.shape(1)) != m.cols) refuse("unpack: wrong shape");
  for (int64_t r = 0; r < m.rows; ++r) unpack_row(m, r, out.data() + r * m.cols);
}

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

}  // namespace

Mode mode_of(const std::string& name) {
  if (name == "f32") return Mode::f32;
  if (name == "bf16") return Mode::bf16;
  if (name == "int8") return Mode::int8;
  refuse("unknown activations '" + name + "'; valid: bf16, f32, int8");
}

Packed::Packed(const std::string& format, int64_t rows, int64_t cols, Vector<const uint8_t> memory)
    : bytes(std::move(memory)) {
  check_size(rows, cols);
  matrix.format = format_of(format);
  matrix.rows = round_up(rows, kPanel);
  matrix.cols = round_up(cols, kGroup);
  matrix.data = bytes.data();
  if (int64_t(bytes.size()) != packed_bytes(matrix.format, rows, cols)) refuse("packed memory of the wrong size");
  if (reinterpret_cast<uintptr_t>(bytes.data()) % 64 != 0) refuse("packed memory must be aligned to 64 bytes");
}

void bind_packing(nb::module_& m) {
  m.def("packed_bytes", [](const std::string& format, int64_t rows, int64_t cols) {
    check_size(rows, cols);
    return packed_bytes(format_of(format), rows, cols);
  });
  m.def("pack", &pack);
  m.def("repack", &repack);
  m.def("unpack", &unpack);
  m.def("multiply", &multiply);
  nb::class_<Packed>(m, "Packed")
      .def(nb::init<const std::string&, int64_t, int64_t, Vector<const uint8_t>>())
      .def_prop_ro("rows", [](const Packed& p) { return p.matrix.rows; })
      .def_prop_ro("cols", [](const Packed& p) { return p.matrix.cols; });
}
