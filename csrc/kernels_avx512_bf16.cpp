// The kernels in AVX-512 with BF16 and VNNI.
#define SLIP_BF16 1
#define SLIP_NS slip::avx512_bf16

#include "kernels.h"

namespace SLIP_NS {
using namespace slip;
}

#include "simd_avx512.h"
// (the lanes come first)
#include "kernels_impl.h"

const slip::Kernels& slip::avx512_bf16_kernels() {
  static constexpr Kernels kernels = avx512_bf16::table("avx512_bf16");
  return kernels;
}
