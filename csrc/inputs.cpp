// See inputs.h.
#include "inputs.h"

namespace slip {

void Inputs::shape(int64_t cols, int64_t rows, Mode mode, const Kernels& kernels) {
  if (rows <= capacity) return;
  const int64_t stride = cols + 32, group_stride = round_up(cols / kGroup + 1, 16);
  capacity = rows;
  view = {};
  view.cols = cols;
  view.stride = stride;
  view.group_stride = group_stride;
  sums_.resize(rows * group_stride);
  view.sums = sums_.data();
  if (mode == Mode::int8) {
    codes_.resize(rows * stride);
    scales_.resize(rows * group_stride);
    code_sums_.resize(rows * group_stride);
    view.codes = codes_.data();
    view.scales = scales_.data();
    view.code_sums = code_sums_.data();
    if (!kernels.bf16_dot) {
      wide_.resize(rows * stride / 2);
      view.wide = wide_.data();
    }
  } else if (mode == Mode::bf16 && kernels.bf16_dot) {
    pairs_.resize(rows * stride / 2);
    view.pairs = pairs_.data();
  } else {
    values_.resize(rows * stride);
    view.values = values_.data();
  }
}

}  // namespace slip
