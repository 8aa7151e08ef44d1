// What Python sees. Arrays are checked here, so that no call from Python reads or writes what is not its own.
#include <nanobind/nanobind.h>
#include <nanobind/ndarray.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/pair.h>
#include <nanobind/stl/shared_ptr.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/tuple.h>
#include <nanobind/stl/vector.h>

#include <algorithm>
#include <cmath>
#include <cstdint>

#include "drawing.h"
#include "instructions.h"
#include "memory.h"
#include "network.h"
#include "tree.h"
#include "weights.h"

namespace nb = nanobind;
using namespace nb::literals;

namespace paceline {

namespace {

template <int Dimensions>
using Input = nb::ndarray<const float, nb::ndim<Dimensions>, nb::c_contig, nb::device::cpu>;
template <int Dimensions>
using Output = nb::ndarray<float, nb::ndim<Dimensions>, nb::c_contig, nb::device::cpu>;

template <int Dimensions>
using Ids = nb::ndarray<int64_t, nb::ndim<Dimensions>, nb::c_contig, nb::device::cpu>;

using GivenIds = nb::ndarray<const int64_t, nb::ndim<2>, nb::c_contig, nb::device::cpu>;

// Of a network's sizes, so that no product of them overflows.
constexpr long kMostSize = 1L << 24;

void demand(bool held, const char* told) {
    if (!held) throw nb::value_error(told);
}

// An argument that is what it has to be, or an error: nanobind would copy and convert others, and results with them.
auto given(const char* name) { return nb::arg(name).noconvert(); }

// The values of an array. Those of torch and numpy may begin at any byte; compiled loops rely on whole values.
template <class Array>
auto values(const Array& array) {
    const auto found = array.data();
    demand(reinterpret_cast<std::uintptr_t>(found) % sizeof(*found) == 0, "The values of an array are not aligned.");
    return found;
}

Matrix matrix(const Input<2>& weight, const std::optional<Input<1>>& bias, long columns, long depth, long group) {
    demand(long(weight.shape(0)) == columns && long(weight.shape(1)) == depth, "A weight does not have its shape.");
    demand(!bias || long(bias->shape(0)) == columns, "A bias does not have the size of its weight.");
    demand(group >= 0, "group is negative.");
    const float* end = values(weight) + columns * depth;
    demand(!group || std::all_of(values(weight), end, [](float w) { return std::isfinite(w); }),
           "A weight that is to be rounded is not finite.");
    return {values(weight), bias ? values(*bias) : nullptr, columns, depth, std::min(group, std::max(depth, 1L))};
}

class Linear {
  public:
    Linear(std::shared_ptr<Pool> pool, const std::string& set, const Input<2>& weight,
           const std::optional<Input<1>>& bias, long group)
        : pool_(std::move(pool)), depth_(weight.shape(1)) {
        const std::vector matrices{matrix(weight, bias, weight.shape(0), depth_, group)};
        const nb::gil_scoped_release release;
        weights_ = std::make_unique<Weights>(kernels_for(set), *pool_, matrices, 1);
        weights_->add(matrices);
    }

    void multiply(const Input<2>& x, const Output<2>& y) const {
        const long rows = x.shape(0), columns = weights_->columns(0);
        demand(long(x.shape(1)) == depth_, "x does not have as many columns as the weight.");
        demand(long(y.shape(0)) == rows && long(y.shape(1)) == columns, "y is not [rows of x, outputs].");
        const Rows from{const_cast<float*>(values(x)), depth_, rows}, to{values(y), columns, rows};
        const nb::gil_scoped_release release;
        pool_->run(Pool::turn(),
                   [&](int thread) { weights_->multiply(0, thread, from, to, columns, false); });
    }

    std::size_t bytes() const { return weights_->bytes(); }

  private:
    std::shared_ptr<Pool> pool_;
    long depth_;
    std::unique_ptr<Weights> weights_;
};

class CheckedDrawing {
  public:
    CheckedDrawing(std::shared_ptr<Pool> pool, const std::string& set) : drawing_(kernels_for(set), std::move(pool)) {}

    void choose(const Input<2>& scores, float noise, const std::vector<uint64_t>& keys, const Ids<1>& ids) {
        const Draws draws = checked(scores, 1, noise, keys);
        demand(long(ids.shape(0)) == draws.rows, "ids is not [rows of scores].");
        int64_t* chosen = values(ids);
        const nb::gil_scoped_release release;
        drawing_.choose(draws, chosen);
    }

    bool rank(const Input<2>& scores, float scale, float noise, const std::vector<uint64_t>& keys, const Ids<2>& ids,
              const Output<2>& log_probs) {
        const Draws draws = checked(scores, scale, noise, keys);
        demand(long(ids.shape(0)) == draws.rows && long(log_probs.shape(0)) == draws.rows &&
                   ids.shape(1) == log_probs.shape(1),
               "ids and log_probs are not both [rows of scores, width].");
        demand(ids.shape(1) > 0, "width is not positive.");
        int64_t* ranked = values(ids);
        float* of_ranked = values(log_probs);
        const nb::gil_scoped_release release;
        return drawing_.rank(draws, long(ids.shape(1)), ranked, of_ranked);
    }

  private:
    static Draws checked(const Input<2>& scores, float scale, float noise, const std::vector<uint64_t>& keys) {
        demand(keys.size() == scores.shape(0), "There are not as many keys as rows of scores.");
        demand(scores.shape(1) > 0, "There are no scores.");
        demand(noise >= 0, "noise is not at least 0.");
        return {values(scores), long(scores.shape(0)), long(scores.shape(1)), scale, noise, keys};
    }

    Drawing drawing_;
};

auto checked_grow(const GivenIds& ids, const Input<2>& log_probs, long nodes, long candidates, double most) {
    demand(ids.shape(0) == log_probs.shape(0) && ids.shape(1) == log_probs.shape(1),
           "ids and log_probs are not both [slots, width].");
    Tree tree = grow({values(ids), values(log_probs), long(ids.shape(0)), long(ids.shape(1))}, nodes, candidates, most);
    return std::tuple{std::move(tree.tokens), std::move(tree.parents), std::move(tree.scores)};
}

// The tensors of a layer.
struct LayerTensors {
    Input<1> attention_norm, mlp_norm;
    std::optional<Input<1>> query_norm, key_norm;
    Input<2> qkv, out, gate_up, down;
    std::optional<Input<1>> qkv_bias, out_bias, gate_up_bias, down_bias;
};

const float* vector(const Input<1>& weight, long size) {
    demand(long(weight.shape(0)) == size, "The weight of a norm does not have its size.");
    return values(weight);
}

Layer checked(const LayerTensors& of, const Shape& shape, long group) {
    const long width = shape.heads * shape.dim, all = width + 2 * shape.kv_heads * shape.dim;
    demand(of.query_norm.has_value() == of.key_norm.has_value(), "query_norm and key_norm go together.");
    return {
        vector(of.attention_norm, shape.hidden),
        of.query_norm ? vector(*of.query_norm, shape.dim) : nullptr,
        of.key_norm ? vector(*of.key_norm, shape.dim) : nullptr,
        vector(of.mlp_norm, shape.hidden),
        matrix(of.qkv, of.qkv_bias, all, shape.hidden, group),
        matrix(of.out, of.out_bias, shape.hidden, width, group),
        matrix(of.gate_up, of.gate_up_bias, 2 * shape.intermediate, shape.hidden, group),
        matrix(of.down, of.down_bias, shape.hidden, shape.intermediate, group),
    };
}

// A segment as Python gives it: cache, rows in it, new rows, the row before each of them (none: a chain).
using SegmentTuple = std::tuple<Output<5>, long, long, std::optional<std::vector<int64_t>>>;

class CheckedNetwork {
  public:
    CheckedNetwork(std::shared_ptr<Pool> pool, const std::string& set, const std::tuple<long, long, long, long>& sizes,
                   float eps, const Input<1>& norm, long layers, long group)
        : group_(group) {
        const auto [intermediate, heads, kv_heads, dim] = sizes;
        const Shape shape{long(norm.shape(0)), intermediate, heads, kv_heads, dim, eps};
        demand(layers > 0, "There are no layers.");
        demand(heads > 0 && kv_heads > 0 && heads % kv_heads == 0, "heads is not a multiple of kv_heads.");
        demand(dim > 0 && dim % 2 == 0, "head_dim is not even.");
        demand(shape.hidden > 0 && intermediate > 0, "A matrix is empty.");
        demand(std::max({shape.hidden, intermediate, heads, dim, layers}) <= kMostSize && heads * dim <= kMostSize,
               "A size is larger than a model has.");
        const float* last = values(norm);
        const nb::gil_scoped_release release;
        network_ = std::make_unique<Network>(kernels_for(set), std::move(pool), shape, last, layers);
    }

    void add(const LayerTensors& tensors) {
        demand(!network_->complete(), "There are more layers than were announced.");
        const Layer layer = checked(tensors, network_->shape(), group_);
        const nb::gil_scoped_release release;
        network_->add(layer);
    }

    void run(const Input<2>& x, const Input<2>& cos, const Input<2>& sin, const std::vector<SegmentTuple>& tuples,
             const std::vector<bool>& causal, const std::vector<std::optional<int64_t>>& windows,
             const std::vector<long>& taps, const Output<2>& hidden, const std::optional<Output<2>>& features) {
        demand(network_->complete(), "Layers are missing.");
        const Shape& shape = network_->shape();
        const auto is = [rows = x.shape(0)](const auto& array, long columns) {
            return array.shape(0) == rows && long(array.shape(1)) == columns;
        };
        demand(is(x, shape.hidden) && is(hidden, shape.hidden), "x and hidden are not both [rows, hidden].");
        demand(is(cos, shape.dim) && is(sin, shape.dim), "cos and sin are not [rows of x, head_dim].");
        demand(features ? is(*features, long(taps.size()) * shape.hidden) : taps.empty(),
               "features is not [rows of x, taps * hidden].");
        for (long tap : taps) demand(tap >= 0 && tap < network_->layers(), "A tap is no layer.");
        const std::vector<Segment> segments = segments_of(tuples, x.shape(0));
        const std::vector<Reach> reach = reach_of(causal, windows);
        const Pass pass{values(x), values(cos), values(sin), segments, reach, taps, values(hidden),
                        features ? values(*features) : nullptr};
        const nb::gil_scoped_release release;
        network_->run(pass);
    }

    std::size_t bytes() const { return network_->bytes(); }

  private:
    std::vector<Segment> segments_of(const std::vector<SegmentTuple>& tuples, std::size_t rows) const {
        const Shape& shape = network_->shape();
        std::vector<Segment> segments;
        std::size_t found = 0;
        for (const auto& [cache, past, own, tree] : tuples) {
            demand(long(cache.shape(0)) == network_->layers() && cache.shape(1) == 2 &&
                       long(cache.shape(2)) == shape.kv_heads && long(cache.shape(4)) == shape.dim,
                   "A cache is not [layers, 2, kv_heads, capacity, head_dim].");
            demand(past >= 0 && own >= 0 && past <= long(cache.shape(3)) - own, "A cache has no room for its rows.");
            if (tree) check_tree(*tree, own);
            const Chain chain{past, own, tree.value_or(std::vector<int64_t>{})};
            segments.push_back({chain, values(cache), long(cache.shape(3))});
            found += own;
        }
        demand(found == rows, "The rows of the segments are not those of x.");
        return segments;
    }

    static void check_tree(const std::vector<int64_t>& tree, long rows) {
        demand(long(tree.size()) == rows, "A tree does not name as many rows as its segment has.");
        for (long row = 0; row < rows; ++row)
            demand(tree[row] >= -1 && tree[row] < row, "A row of a tree does not stand behind the row before it.");
    }

    std::vector<Reach> reach_of(const std::vector<bool>& causal,
                                const std::vector<std::optional<int64_t>>& windows) const {
        demand(long(causal.size()) == network_->layers() && long(windows.size()) == network_->layers(),
               "causal and windows do not name every layer once.");
        std::vector<Reach> reach;
        for (std::size_t layer = 0; layer < causal.size(); ++layer) {
            demand(!windows[layer] || *windows[layer] > 0, "A window is not positive.");
            reach.push_back({causal[layer], windows[layer]});
        }
        return reach;
    }

    const long group_;
    std::unique_ptr<Network> network_;
};

}  // namespace

NB_MODULE(_native, module) {
    module.def("instruction_sets", instruction_sets);
    module.def("trim", trim, nb::call_guard<nb::gil_scoped_release>());
    nb::class_<Pool>(module, "Pool")
        .def(nb::init<int>(), "threads"_a)
        .def_prop_ro("threads", &Pool::threads);
    nb::class_<Linear>(module, "Linear")
        .def(nb::init<std::shared_ptr<Pool>, const std::string&, const Input<2>&, const std::optional<Input<1>>&,
                      long>(),
             "pool"_a, "instructions"_a, given("weight"), given("bias").none(), "group"_a)
        .def("multiply", &Linear::multiply, given("x"), given("y"))
        .def_prop_ro("nbytes", &Linear::bytes);
    nb::class_<CheckedDrawing>(module, "Drawing")
        .def(nb::init<std::shared_ptr<Pool>, const std::string&>(), "pool"_a, "instructions"_a)
        .def("choose", &CheckedDrawing::choose, given("scores"), "noise"_a, "keys"_a, given("ids"))
        .def("rank", &CheckedDrawing::rank, given("scores"), "scale"_a, "noise"_a, "keys"_a, given("ids"),
             given("log_probs"));
    module.def("grow", checked_grow, given("ids"), given("log_probs"), "nodes"_a, "candidates"_a, "most"_a);
    using Bias = std::optional<Input<1>>;
    nb::class_<LayerTensors>(module, "Layer")
        .def(nb::init<Input<1>, Input<1>, Bias, Bias, Input<2>, Input<2>, Input<2>, Input<2>, Bias, Bias, Bias, Bias>(),
             given("attention_norm"), given("mlp_norm"), given("query_norm").none(), given("key_norm").none(),
             given("qkv"), given("out"), given("gate_up"), given("down"), given("qkv_bias").none(),
             given("out_bias").none(), given("gate_up_bias").none(), given("down_bias").none());
    nb::class_<CheckedNetwork>(module, "Network")
        .def(nb::init<std::shared_ptr<Pool>, const std::string&, const std::tuple<long, long, long, long>&, float,
                      const Input<1>&, long, long>(),
             "pool"_a, "instructions"_a, "sizes"_a, "eps"_a, given("norm"), "layers"_a, "group"_a)
        .def("add", &CheckedNetwork::add, "layer"_a)
        .def("run", &CheckedNetwork::run, given("x"), given("cos"), given("sin"), given("segments"), "causal"_a,
             "windows"_a, "taps"_a, given("hidden"), given("features").none())
        .def_prop_ro("nbytes", &CheckedNetwork::bytes);
}

}  // namespace paceline
