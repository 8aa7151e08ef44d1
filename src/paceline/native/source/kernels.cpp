// One table of kernels; CMakeLists.txt compiles this file once for each instruction set.
#include "kernels.h"

#if defined(__AVX512F__)
#define SET avx512
#define LANES 16
#elif defined(__AVX2__)
#define SET avx2
#define LANES 8
#else
#define SET baseline
#define LANES 4
#endif

#include "attention.h"
#include "draw.h"
#include "elementwise.h"
#include "product.h"

namespace paceline::SET {

namespace {

std::size_t line_bytes(Storage storage) { return storage == Storage::bfloat16 ? Bfloat16::bytes : Float32::bytes; }

void pack(const Source& source, long first, long last, std::byte* to) {
    const auto write = source.storage == Storage::bfloat16 ? pack_as<Bfloat16> : pack_as<Float32>;
    write(source, first, last, to);
}

void multiply(const Product& product) {
    const auto run = product.part.storage == Storage::bfloat16 ? multiply_as<Bfloat16> : multiply_as<Float32>;
    run(product);
}

}  // namespace

#define TEXT_OF(name) #name
#define TEXT(name) TEXT_OF(name)

const Kernels& kernels() {
    static constexpr Kernels table{TEXT(SET), kColumns, line_bytes, pack, multiply, norm, rotate, gate, attend,
                                   choose, rank, scratch_of};
    return table;
}

}  // namespace paceline::SET
