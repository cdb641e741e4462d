// The extension module; see bindings.h.
#include "bindings.h"
#include "isa.h"

using namespace slip;

NB_MODULE(_native, m) {
  m.def("isas", [] {
    std::vector<std::string> names;
    for (const Kernels* kernels : usable_kernels()) names.push_back(kernels->name);
    return names;
  });
  m.def("resolve", [](const std::string& name) { return std::string(kernels_by_name(name).name); });
  bind_packing(m);
  bind_sampling(m);
  bind_stack(m);
}
