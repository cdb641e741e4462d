// The kernels in AVX-512 F, BW, DQ and VL.
#define SLIP_NS slip::avx512

#include "kernels.h"

namespace SLIP_NS {
using namespace slip;
}

#include "simd_avx512.h"
// (the lanes come first)
#include "kernels_impl.h"

const slip::Kernels& slip::avx512_kernels() {
  static constexpr Kernels kernels = avx512::table("avx512");
  return kernels;
}
