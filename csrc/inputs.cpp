// See inputs.h.
#include "inputs.h"

namespace slip {

void Inputs::shape(int64_t cols, int64_t rows, Mode mode, const Kernels& kernels, bool floats, bool codes) {
  if (rows <= capacity) return;
  const int64_t stride = cols + 32, group_stride = round_up(cols / kGroup + 1, 16);
  capacity = rows;
  view = {};
  view.cols = cols;
  view.stride = stride;
  view.group_stride = group_stride;
  auto give = [](auto& buffer, auto*& pointer, int64_t count) {
    buffer.resize(count);
    pointer = buffer.data();
  };
  if (floats && mode == Mode::bf16 && kernels.bf16_dot) give(pairs_, view.pairs, rows * stride / 2);
  else if (floats && mode != Mode::int8) give(values_, view.values, rows * stride);
  if (mode == Mode::f32 || !codes) return;
  give(sums_, view.sums, rows * group_stride);
  give(scales_, view.scales, rows * group_stride);
  give(code_sums_, view.code_sums, rows * group_stride);
  if (mode == Mode::int8) give(codes_, view.codes, rows * stride);
  if (mode == Mode::bf16 || !kernels.bf16_dot) give(wide_, view.wide, rows * stride / 2);
}

}  // namespace slip
