// The loops of a forward pass, as a table of functions: one table for each instruction set, chosen at run time.
//
// kernels.cpp is compiled once for each set. Everything else sees only this file, so that no function compiled for a
// newer processor can be taken by the linker for one that runs everywhere.
//
// What every kernel promises: the value of a row depends neither on the other rows of the call nor on how work is cut
// between threads. Each output element of a product is one accumulator that sums in the order of its depth.
#pragma once

#include <cstddef>
#include <cstdint>

namespace paceline {

// How weights are kept. bfloat16 only where it holds the float32 weights exactly; int8 rounds them, so many of an output
// sharing a scale. Where factors are rounded, the rows are as well: to bfloat16, or to int8 with a scale for each output
// and each row. Sums are float32; those of int8 factors are exact.
enum class Storage : uint8_t { float32, bfloat16, int8, bfloat16_factors, int8_factors };

// All rows in memory are this many floats apart, or a multiple: two vectors of the widest set.
constexpr long kPad = 32;

constexpr long padded(long size) { return (size + kPad - 1) / kPad * kPad; }

// A matrix of `rows` rows that begin `stride` floats apart.
struct Rows {
    float* at;
    long stride;
    long rows;
};

// Panels first … last - 1 of a weight matrix, packed: a panel is `Kernels::columns` outputs wide and `depth` lines long.
struct Part {
    const std::byte* lines;
    const float* bias;  // of every output of these panels, zeros behind the last; null: none
    long depth, group;   // inputs that share a scale, all where there is none
    long first, last;
    Storage storage;
};

struct Source {
    const float* weight;  // [columns, depth], as torch keeps it
    long depth, group, columns;
    Storage storage;
};

// y = x W^T + bias, or y += that, for the outputs of one part.
struct Product {
    Part part;
    Rows x;
    Rows y;
    long columns;  // of y: what lies behind is not written
    bool add;
    std::byte* scratch;  // this thread's: room for `Kernels::scratch_bytes`, a cache line at least where it begins
};

// Channels first … last - 1 of a row, weighted with the rows to its left: the sum over o of (base[o] + added[o]) * x_(t - o).
struct Convolution {
    const float* base;   // [seen, channels], its rows `stride` apart
    const float* added;  // [seen, channels / group]: a number for all channels of a group
    const float* x;      // the row; the one o places to its left begins o * stride before it
    long stride;         // a multiple of kPad
    long seen;           // rows: itself and those to its left
    long channels, group;
    long first, last;    // first is a multiple of a vector; up to the end of the last one numbers may be written
    float* y;            // may be x
    bool add;
};

// Some queries that share a key head, over the rows of one sequence.
struct Attention {
    static constexpr int kQueries = 6;
    struct Query {
        const float* at;       // [dim]
        float* output;         // [dim]
        const uint64_t* own;   // bit i: sees row i of those behind `past`
        long first;            // the first of the past rows it sees
    };
    Query queries[kQueries];
    int count;
    const float *keys, *values;  // [past + own, dim]
    const int64_t* places;       // of the own rows: the position of each
    long past, own, dim;
    float scale;
    float* scores;  // room for kQueries * padded(past + own + kPad)
};

// What a token is drawn from: the greatest of scale * score + noise * gumbel(key).
struct Draw {
    const float* scores;  // [size]
    long size;
    float scale, noise;   // noise 0: none is drawn
    uint64_t key;         // of the position: see noise.h
};

struct Kernels {
    const char* name;
    long columns;  // of a panel
    std::size_t (*panel_bytes)(Storage, long depth, long group);
    std::size_t (*scratch_bytes)(Storage, long depth);  // that a product needs
    void (*pack)(const Source&, long first, long last, std::byte* to);
    void (*multiply)(const Product&);
    void (*norm)(const float* x, const float* weight, long size, float eps, float* y);
    void (*rotate)(const float* x, const float* cos, const float* sin, long size, float* y);
    void (*gate)(const float* gate, const float* up, long size, float* y);
    void (*convolve)(const Convolution&);
    void (*attend)(const Attention&);
    int64_t (*choose)(const Draw&, float* scratch);
    bool (*rank)(const Draw&, long width, int64_t* ids, float* log_probs, float* scratch);
    long (*scratch_of)(long size);  // floats that both need
};

namespace baseline {
const Kernels& kernels();
}
namespace avx2 {
const Kernels& kernels();
}
namespace avx512 {
const Kernels& kernels();
}
namespace amx {
const Kernels& kernels();
}

}  // namespace paceline
