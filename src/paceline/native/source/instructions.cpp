#include "instructions.h"

#include <stdexcept>

#if defined(PACELINE_AMX)
#include <cpuid.h>
#include <sys/syscall.h>
#include <unistd.h>
#endif

namespace paceline {

namespace {

#if defined(PACELINE_AVX512)
bool has_avx512() {
    return __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") && __builtin_cpu_supports("avx512dq") &&
           __builtin_cpu_supports("avx512vl") && __builtin_cpu_supports("avx512bf16") && __builtin_cpu_supports("avx512vnni");
}
#endif

#if defined(PACELINE_AMX)
// Tile registers are there where the processor has them and the system lets this process use them, once it has asked
// (Intel SDM 2A, leaf 7; x86/xstate of the Linux manual).
bool has_amx() {
    unsigned eax, ebx, ecx, edx;
    if (!__get_cpuid_count(7, 0, &eax, &ebx, &ecx, &edx)) return false;
    constexpr unsigned needed = 1u << 22 | 1u << 24 | 1u << 25;  // bfloat16, tiles, int8
    constexpr long request_permission = 0x1023, tile_data = 18;
    return (edx & needed) == needed && syscall(SYS_arch_prctl, request_permission, tile_data) == 0;
}
#endif

std::vector<const Kernels*> usable() {
    std::vector<const Kernels*> found;
#if defined(PACELINE_AMX)
    static const bool amx = has_amx();
    if (amx && has_avx512()) found.push_back(&amx::kernels());
#endif
#if defined(PACELINE_AVX512)
    if (has_avx512()) found.push_back(&avx512::kernels());
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
