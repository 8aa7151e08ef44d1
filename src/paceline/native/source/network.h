// The forward pass of one Transformer for a flat batch of rows, in one call.
//
// Pre-norm layers with RMSNorm, rotary positions, grouped-query attention and SwiGLU, as models/transformer.py has them in
// torch, which is the oracle; around their parts convolutions, as models/convolution.py has them; and the head, where that
// is asked. Does not know embeddings, nor where weights come from.
#pragma once

#include <vector>

#include "convolutions.h"
#include "kernels.h"
#include "scoring.h"
#include "visibility.h"
#include "weights.h"

namespace paceline {

struct Shape {
    long hidden, intermediate, heads, kv_heads, dim;
    float eps;
    long kernel_size = 0, kernel_groups = 0;  // of convolutions, see convolutions.h; 0: no layer has any
};

// The convolutions around a part of a layer. No base: there are none.
struct Pair {
    const float* base = nullptr;  // [2, kernel_size, hidden]
    Matrix projection{};          // [2 * kernel_size * kernel_groups, hidden], of the normed rows
};

// Matrices as torch keeps them; `gate_up` has gates above ups. Null: the layer does not have it.
struct Layer {
    const float *attention_norm, *query_norm, *key_norm, *mlp_norm;
    Matrix qkv, out, gate_up, down;
    Pair attention{}, mlp{};
};

// The rows of one sequence. `cache` is [layers, 2, kv_heads, capacity, dim]: the new keys and values are written behind
// the past ones.
struct Segment {
    Chain chain;
    float* cache;
    long capacity;
};

struct Pass {
    const float* x;                  // [rows, hidden]
    const float *cos, *sin;          // [rows, dim], sin negated in the first half
    const std::vector<Segment>& segments;
    const std::vector<Reach>& reach;  // of every layer
    const std::vector<long>& taps;    // layers whose output is wanted; the last layer's after the final norm
    float* hidden;                   // [rows, hidden], or null
    float* features;                 // [rows, taps * hidden]
    Scored scored;
};

class Network {
  public:
    // Everything is copied. Has no layers yet, and room for so many.
    Network(const Kernels& kernels, std::shared_ptr<Pool> pool, const Shape& shape, const float* norm, long layers);

    // Packs the next layer.
    void add(const Layer& layer);

    const Shape& shape() const { return shape_; }
    long layers() const { return layers_; }
    bool complete() const { return long(rowwise_.size()) == layers_; }
    std::size_t bytes() const { return weights_.bytes(); }

    // The value of a row depends on nothing but itself and what it sees: see kernels.h.
    void run(const Pass& pass);

  private:
    struct Item {
        long segment, head, query, count;
    };
    struct Seen {
        std::vector<int64_t> places;
        std::vector<Visibility> kinds;  // of every kind of layer
        long start;                     // the segment's first row in the batch
    };
    struct Rowwise {
        std::vector<float> attention_norm, mlp_norm, query_norm, key_norm;  // empty: the layer does not have it
        std::vector<float> attention_base, mlp_base;                        // of convolutions; likewise
    };
    struct Batch;

    void layer(const Pass& pass, const Batch& batch, long index, int thread);
    void enter(const Batch& batch, long matrix, const std::vector<float>& base, int thread);
    void leave(const Batch& batch, long matrix, const std::vector<float>& base, const Rows& from, int thread);
    void turn(const Pass& pass, const Batch& batch, long index, int thread);
    void attend(const Pass& pass, const Batch& batch, long index, int thread);
    void tap(const Pass& pass, const Batch& batch, long index, int thread);
    void finish(const Pass& pass, const Batch& batch, int thread);
    Batch batch_of(const Pass& pass) const;
    void reserve(long rows, long longest);
    void norm_rows(const std::vector<float>& weight, long rows, int thread);

    const Kernels& kernels_;
    std::shared_ptr<Pool> pool_;
    const Shape shape_;
    const long layers_;
    Weights weights_;
    std::vector<float> norm_;
    std::vector<Rowwise> rowwise_;  // of every layer
    Convolutions convolutions_;
    Scoring scoring_;
    long rows_ = 0, longest_ = 0;  // of the scratch memory, which whoever has the turn uses
    Block<float> x_, qkv_, attended_, gates_, ups_, inner_;
    std::vector<Block<float>> normed_, scores_, head_;  // of every thread
};

}  // namespace paceline
