#include "instructions.h"

#include <stdexcept>

namespace paceline {

namespace {

std::vector<const Kernels*> usable() {
    std::vector<const Kernels*> found;
#if defined(PACELINE_AVX512)
    if (__builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") && __builtin_cpu_supports("avx512dq") &&
        __builtin_cpu_supports("avx512vl") && __builtin_cpu_supports("avx512bf16") &&
        __builtin_cpu_supports("avx512vnni"))
        found.push_back(&avx512::kernels());
#endif
#if defined(PACELINE_AVX2)
    if (__builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma")) found.push_back(&avx2::kernels());
#endif
    found.push_back(&baseline::kernels());
    return found;
}

}  // namespace

std::vector<std::string> instruction_sets() {
    std::vector<std::string> names;
    for (const Kernels* kernels : usable()) names.push_back(kernels->name);
    return names;
}

const Kernels& kernels_for(const std::string& set) {
    for (const Kernels* kernels : usable())
        if (set == kernels->name) return *kernels;
    throw std::invalid_argument("This processor, or this build, does not have the instruction set " + set + ".");
}

}  // namespace paceline
