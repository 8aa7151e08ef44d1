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
#include "packing.h"
#include "product.h"

namespace paceline::SET {

namespace {

template <class Call>
auto with_format(Storage storage, const Call& call) {
    switch (storage) {
        case Storage::float32: return call(Float32{});
        case Storage::bfloat16: return call(Bfloat16{});
        case Storage::int8: return call(Int8{});
        case Storage::bfloat16_factors: return call(Bfloat16Factors{});
        default: return call(Int8Factors{});
    }
}

std::size_t bytes_of_panel(Storage storage, long depth, long group) {
    return with_format(storage, [&]<class S>(S) { return panel_bytes<S>(depth, group); });
}

std::size_t bytes_of_scratch(Storage storage, long depth) {
    return with_format(storage, [&]<class S>(S) { return scratch_bytes<S>(depth); });
}

void pack(const Source& source, long first, long last, std::byte* to) {
    with_format(source.storage, [&]<class S>(S) { pack_as<S>(source, first, last, to); });
}

void multiply(const Product& product) {
    with_format(product.part.storage, [&]<class S>(S) { multiply_as<S>(product); });
}

}  // namespace

#define TEXT_OF(name) #name
#define TEXT(name) TEXT_OF(name)

const Kernels& kernels() {
    static constexpr Kernels table{TEXT(SET), kColumns, bytes_of_panel, bytes_of_scratch, pack, multiply, norm, rotate, gate,
                                   convolve, attend, choose, rank, scratch_of};
    return table;
}

}  // namespace paceline::SET
