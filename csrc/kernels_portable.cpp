// The kernels in plain C++.
#define SLIP_NS slip::portable

#include "kernels.h"

namespace SLIP_NS {
using namespace slip;
}

#include "simd_portable.h"
// (the lanes come first)
#include "kernels_impl.h"

const slip::Kernels& slip::portable_kernels() {
  static constexpr Kernels kernels = portable::table("portable");
  return kernels;
}
