// Which instruction sets this build and this processor have in common.
#pragma once

#include <string>
#include <vector>

#include "kernels.h"

namespace slip {

// Usable instruction sets, best first; the last is always "portable".
const std::vector<const Kernels*>& usable_kernels();

// The named one, or the best for an empty name. Throws std::invalid_argument listing the valid ones.
const Kernels& kernels_by_name(const std::string& name);

}  // namespace slip
