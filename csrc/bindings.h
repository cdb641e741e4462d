// What the files of the extension module share: array types, refusal, packed matrices.
//
// numpy arrays go in and out without copies. Wrong shapes raise ValueError; the Python side (kernels/,
// models/native.py) turns file formats into these calls. One bind_*.cpp a subject.
#pragma once

#include <nanobind/nanobind.h>
#include <nanobind/ndarray.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/pair.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include <stdexcept>
#include <string>

#include "kernels.h"
#include "layout.h"

namespace nb = nanobind;

template <class T>
using Vector = nb::ndarray<T, nb::ndim<1>, nb::c_contig, nb::device::cpu>;
template <class T>
using Grid = nb::ndarray<T, nb::ndim<2>, nb::c_contig, nb::device::cpu>;

[[noreturn]] inline void refuse(const std::string& message) { throw std::invalid_argument(message); }

// A packed matrix in somebody's memory, which it keeps alive.
struct Packed {
  Vector<const uint8_t> bytes;
  slip::Matrix matrix;

  Packed(const std::string& format, int64_t rows, int64_t cols, Vector<const uint8_t> memory);
};

// How activations enter a product, by name: bf16, f32 or int8.
slip::Mode mode_of(const std::string& name);

void bind_packing(nb::module_& m);
void bind_sampling(nb::module_& m);
void bind_stack(nb::module_& m);
