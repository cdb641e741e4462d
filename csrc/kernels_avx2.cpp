// The kernels in AVX2, FMA and F16C.
#define SLIP_NS slip::avx2

#include "kernels.h"

namespace SLIP_NS {
using namespace slip;
}

#include "simd_avx2.h"
// (the lanes come first)
#include "kernels_impl.h"

const slip::Kernels& slip::avx2_kernels() {
  static constexpr Kernels kernels = avx2::table("avx2");
  return kernels;
}
