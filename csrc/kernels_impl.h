// Gathers one instruction set's functions into its table. Included once by each kernels_*.cpp.
#pragma once

#include "attention.h"
#include "convert.h"
#include "multiply.h"
#include "pointwise.h"
#include "rows.h"

namespace SLIP_NS {

static constexpr slip::Kernels table(const char* name) {
  return {name, kBf16Dot, multiply, convert, attend, rms_norm, rotate, add_into, scale_by, swiglu, store_cache,
          {maxima, maxima_double, exponentials, divide, overlap, excess, reach, runners,
           runners_double}};
}

}  // namespace SLIP_NS
