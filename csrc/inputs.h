// Activations with their memory: what the rows of a pass become before a product reads them.
#pragma once

#include "buffer.h"
#include "kernels.h"

namespace slip {

struct Inputs {
  Activations view;
  int64_t capacity = 0;

  // Room for `rows` rows of `cols` inputs (a multiple of 32), in the forms that weights stored as floats
  // or as codes need; keeps what is large enough.
  void shape(int64_t cols, int64_t rows, Mode mode, const Kernels& kernels, bool floats, bool codes);

 private:
  Buffer<float> values_, scales_, sums_;
  Buffer<uint32_t> pairs_, wide_;
  Buffer<int8_t> codes_;
  Buffer<int32_t> code_sums_;
};

}  // namespace slip
