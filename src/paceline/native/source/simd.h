// Vectors of one instruction set: GCC's and Clang's vector extension at the width of the set, and fused multiply-add.
//
// Only for kernels.cpp, which defines SET, the namespace, and LANES.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <utility>

#if defined(__SSE2__)
#include <immintrin.h>
#elif defined(__ARM_NEON)
#include <arm_neon.h>
#endif

#define INLINE inline __attribute__((always_inline))

// For loops over arrays of vectors: unrolled late, GCC keeps them in memory.
#if defined(__clang__)
#define UNROLL _Pragma("clang loop unroll(full)")
#else
#define UNROLL _Pragma("GCC unroll 32")
#endif

namespace paceline::SET {

constexpr int W = LANES;

typedef float Vector __attribute__((vector_size(4 * W)));
typedef int32_t Integers __attribute__((vector_size(4 * W)));
typedef uint32_t Words __attribute__((vector_size(4 * W)));
typedef int16_t Shorts __attribute__((vector_size(4 * W)));

// memcpy, since a pointer to a vector would promise alignment and the type of what it points to.
template <class V = Vector>
INLINE V load(const void* from) {
    V v;
    std::memcpy(&v, from, sizeof v);
    return v;
}

template <class V>
INLINE void store(void* to, V v) {
    std::memcpy(to, &v, sizeof v);
}

// The first `count` lanes from memory, zeros behind: reads nothing else.
INLINE Vector load_some(const float* from, long count) {
    float lanes[W] = {};
    std::memcpy(lanes, from, count * sizeof(float));
    return load(lanes);
}

INLINE void store_some(float* to, Vector v, long count) {
    float lanes[W];
    store(lanes, v);
    std::memcpy(to, lanes, count * sizeof(float));
}

INLINE Vector spread(float value) { return value - Vector{}; }

// Always fused where the set can: left to the compiler, two tiles of one product might round differently.
INLINE Vector fma(Vector a, Vector b, Vector c) {
#if defined(__AVX512F__)
    return _mm512_fmadd_ps(a, b, c);
#elif defined(__FMA__)
    return _mm256_fmadd_ps(a, b, c);
#elif defined(__ARM_NEON)
    return vfmaq_f32(c, a, b);
#else
    return a * b + c;
#endif
}

// W int8 as numbers. The compiler's own conversion goes one by one. (maskz, as GCC warns of what the plain forms leave
// undefined on purpose.)
INLINE Vector widen(const std::byte* codes) {
#if defined(__AVX512F__)
    const __m128i bytes = _mm_loadu_si128(reinterpret_cast<const __m128i*>(codes));
    return _mm512_maskz_cvtepi32_ps(0xffff, _mm512_maskz_cvtepi8_epi32(0xffff, bytes));
#elif defined(__AVX2__)
    return _mm256_cvtepi32_ps(_mm256_cvtepi8_epi32(_mm_loadl_epi64(reinterpret_cast<const __m128i*>(codes))));
#else
    typedef int8_t Bytes __attribute__((vector_size(W)));
    return __builtin_convertvector(load<Bytes>(codes), Vector);
#endif
}

// W numbers of 8 bits, with or without sign, from wider ones.
INLINE void narrow(Integers codes, std::byte* to) {
#if defined(__AVX512F__)
    store(to, _mm512_maskz_cvtepi32_epi8(0xffff, (__m512i)codes));
#else
    for (int i = 0; i < W; ++i) to[i] = std::byte(codes[i]);
#endif
}

// In each lane the sum of two products of 16 bits.
INLINE Integers products(Integers a, Integers b) {
#if defined(__AVX512BW__)
    return (Integers)_mm512_madd_epi16((__m512i)a, (__m512i)b);
#elif defined(__AVX2__)
    return (Integers)_mm256_madd_epi16((__m256i)a, (__m256i)b);
#elif defined(__SSE2__)
    return (Integers)_mm_madd_epi16((__m128i)a, (__m128i)b);
#else
    return (a << 16 >> 16) * (b << 16 >> 16) + (a >> 16) * (b >> 16);
#endif
}

template <int Half, std::size_t... I>
INLINE Vector fold_pair(Vector a, Vector b, std::index_sequence<I...>) {
    // Within each run of 2 * Half lanes: the first half holds a's, the second b's.
    constexpr auto lane = [](int i, int side) {
        const int run = i / (2 * Half) * (2 * Half), from = i % (2 * Half);
        return run + from % Half + side * Half + (from < Half ? 0 : W);
    };
    return __builtin_shufflevector(a, b, lane(I, 0)...) + __builtin_shufflevector(a, b, lane(I, 1)...);
}

// W vectors to one, whose lane i is the sum of all lanes of vector i: the same tree of additions for each.
template <int Half = W / 2>
INLINE Vector fold(Vector* v) {
    UNROLL for (int i = 0; i < Half; ++i) v[i] = fold_pair<Half>(v[i], v[i + Half], std::make_index_sequence<W>{});
    if constexpr (Half > 1) return fold<Half / 2>(v);
    return v[0];
}

// Sum of the lanes, by halves.
INLINE float sum(Vector v) {
    float lanes[W];
    store(lanes, v);
    for (int half = W / 2; half > 0; half /= 2)
        for (int i = 0; i < half; ++i) lanes[i] += lanes[i + half];
    return lanes[0];
}

// e^x within 2 ulp; 0 below -87.3, where masked scores are.
INLINE Vector exponential(Vector x) {
    const Vector lowest = spread(-87.3f), highest = spread(88.3f);
    const Integers under = x < lowest;
    x = under ? lowest : x;
    x = x > highest ? highest : x;
    // x = n ln 2 + r, |r| <= ln 2 / 2; adding 1.5 * 2^23 rounds to an integer.
    const Vector magic = spread(12582912.0f);
    const Vector shifted = fma(x, spread(1.44269504f), magic);
    const Vector n = shifted - magic;
    Vector r = fma(n, spread(-0.693359375f), x);
    r = fma(n, spread(2.12194440e-4f), r);
    Vector p = spread(1.9875691500e-4f);
    for (float c : {1.3981999507e-3f, 8.3334519073e-3f, 4.1665795894e-2f, 1.6666665459e-1f, 5.0000001201e-1f})
        p = fma(p, r, spread(c));
    p = fma(p * r, r, r) + 1.0f;
    const Integers power = ((Integers)shifted - (Integers)magic + 127) << 23;
    const Vector result = p * (Vector)power;
    return under ? Vector{} : result;
}

}  // namespace paceline::SET
