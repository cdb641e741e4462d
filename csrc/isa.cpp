// CPUID, read once; GCC, Clang and MSVC agree on nothing else here.
#include "isa.h"

#include <stdexcept>

#if SLIP_X86
#if defined(_MSC_VER)
#include <intrin.h>
#else
#include <cpuid.h>
#endif
#endif

namespace slip {
namespace {

#if SLIP_X86

struct Leaf {
  uint32_t a, b, c, d;
};

Leaf cpuid(uint32_t leaf, uint32_t subleaf) {
  Leaf r{};
#if defined(_MSC_VER)
  int out[4];
  __cpuidex(out, int(leaf), int(subleaf));
  r = {uint32_t(out[0]), uint32_t(out[1]), uint32_t(out[2]), uint32_t(out[3])};
#else
  __cpuid_count(leaf, subleaf, r.a, r.b, r.c, r.d);
#endif
  return r;
}

// Register states that the operating system saves.
uint64_t saved_states() {
#if defined(_MSC_VER)
  return _xgetbv(0);
#else
  uint32_t low, high;
  __asm__ volatile("xgetbv" : "=a"(low), "=d"(high) : "c"(0));
  return uint64_t(high) << 32 | low;
#endif
}

bool bit(uint32_t word, int n) { return (word >> n & 1) != 0; }

std::vector<const Kernels*> detect() {
  std::vector<const Kernels*> found{&portable_kernels()};
  auto best_first = [&](const Kernels& kernels) { found.insert(found.begin(), &kernels); };
  if (cpuid(0, 0).a < 7) return found;
  const Leaf one = cpuid(1, 0), seven = cpuid(7, 0);
  if (!bit(one.c, 27)) return found;  // OSXSAVE
  const uint64_t states = saved_states();
  const bool avx2 = (states & 6) == 6 && bit(one.c, 12) && bit(one.c, 28) && bit(one.c, 29) && bit(seven.b, 5);
  if (!avx2) return found;
  best_first(avx2_kernels());
#if SLIP_SIMDE
  best_first(avx512_kernels());  // emulated: for tests
  best_first(avx512_bf16_kernels());
  return found;
#endif
  const bool avx512 = (states & 0xe6) == 0xe6 && bit(seven.b, 16) && bit(seven.b, 17) && bit(seven.b, 30) &&
                      bit(seven.b, 31);
  if (!avx512) return found;
  best_first(avx512_kernels());
  if (bit(seven.c, 11) && seven.a >= 1 && bit(cpuid(7, 1).a, 5)) best_first(avx512_bf16_kernels());
  return found;
}

#else

std::vector<const Kernels*> detect() { return {&portable_kernels()}; }

#endif

}  // namespace

const std::vector<const Kernels*>& usable_kernels() {
  static const std::vector<const Kernels*> found = detect();
  return found;
}

const Kernels& kernels_by_name(const std::string& name) {
  if (name.empty()) return *usable_kernels().front();
  std::string valid;
  for (const Kernels* kernels : usable_kernels()) {
    if (name == kernels->name) return *kernels;
    valid += (valid.empty() ? "" : ", ") + std::string(kernels->name);
  }
  throw std::invalid_argument("instruction set '" + name + "' is unknown or not available here; valid: " + valid);
}

}  // namespace slip
