#include "checked_network.h"

#include <nanobind/stl/variant.h>

#include <numeric>

#include "checked_batch.h"
#include "checked_layer.h"
#include "embedding.h"
#include "instructions.h"
#include "linear.h"
#include "network.h"

namespace paceline {

using namespace nb::literals;

namespace {

// How tokens are drawn, for each scored row: scales, noises, keys; and ids that are never drawn.
using DrawsTuple =
    std::tuple<std::vector<float>, std::vector<float>, std::vector<uint64_t>, std::vector<int64_t>>;

// What of a network's shape stands in no array: intermediate, heads, kv_heads, head_dim, kernel_size, kernel_groups.
using Sizes = std::tuple<long, long, long, long, long, long>;

class CheckedNetwork {
  public:
    CheckedNetwork(std::shared_ptr<Pool> pool, const std::string& set, const Sizes& sizes, float eps,
                   const Input<1>& norm, long layers, const ArithmeticTuple& arithmetic,
                   std::variant<Input<2>, HalfTable> embedding, float scale)
        : pool_(pool), arithmetic_(arithmetic_of(arithmetic)), embedding_(std::move(embedding), scale) {
        const auto [intermediate, heads, kv_heads, dim, kernel_size, kernel_groups] = sizes;
        const Shape shape{long(norm.shape(0)), intermediate, heads, kv_heads, dim, eps, kernel_size, kernel_groups};
        demand(layers > 0, "There are no layers.");
        demand(heads > 0 && kv_heads > 0 && heads % kv_heads == 0, "heads is not a multiple of kv_heads.");
        demand(dim > 0 && dim % 2 == 0, "head_dim is not even.");
        demand(shape.hidden > 0 && intermediate > 0, "A matrix is empty.");
        demand(std::max({shape.hidden, intermediate, heads, dim, layers}) <= kMostSize && heads * dim <= kMostSize,
               "A size is larger than a model has.");
        check_kernels(shape);
        demand(embedding_.size() == shape.hidden, "embedding is not [tokens, hidden].");
        const float* last = values(norm);
        const nb::gil_scoped_release release;
        network_ = std::make_unique<Network>(kernels_for(set), std::move(pool), shape, last, layers);
    }

    void add(const LayerTensors& tensors) {
        demand(!network_->complete(), "There are more layers than were announced.");
        const Layer layer = paceline::checked(tensors, network_->shape(), arithmetic_);
        const nb::gil_scoped_release release;
        network_->add(layer);
    }

    void states(const BatchTuple& batch, const Output<2>& hidden) {
        demand(is(hidden, std::get<0>(batch).shape(0), network_->shape().hidden), "hidden is not [rows, hidden].");
        run(batch, values(hidden), {nullptr, {}, nullptr, nullptr});
    }

    void score(const BatchTuple& batch, const Linear& head, const std::vector<long>& rows, const Output<2>& scores,
               const std::optional<Output<2>>& hidden) {
        check(batch, head, rows);
        demand(!hidden || is(*hidden, rows.size(), network_->shape().hidden), "hidden is not [scored rows, hidden].");
        demand(is(scores, rows.size(), head.columns()), "scores is not [scored rows, outputs of the head].");
        run(batch, nullptr, {&head.weights(), rows, values(scores), nullptr, hidden ? values(*hidden) : nullptr});
    }

    std::vector<int64_t> choose(const BatchTuple& batch, const Linear& head, const std::vector<long>& rows,
                                const DrawsTuple& draws) {
        check(batch, head, rows);
        std::vector<int64_t> ids(rows.size());
        const Drawn drawn = drawn_of(draws, head, rows.size(), 0, ids.data(), nullptr);
        run(batch, nullptr, {&head.weights(), rows, nullptr, &drawn});
        return ids;
    }

    // One pass after the other: what is drawn after the row of a sequence is its next row. As many passes as there are draws
    // for all rows, but none after every sequence has drawn one of `ends`, or something has no sound scores.
    std::vector<int64_t> go_on(const BatchTuple& batch, const Linear& head, const DrawsTuple& draws,
                               const std::vector<int64_t>& ends) {
        const long rows = std::get<0>(batch).shape(0), all = std::get<2>(draws).size();
        demand(rows > 0 && all > 0 && all % rows == 0, "There are not as many draws as rows in every pass.");
        std::vector<long> scored(rows);
        std::iota(scored.begin(), scored.end(), 0);
        check(batch, head, scored);
        std::vector<int64_t> ids(all);
        const Drawn whole = drawn_of(draws, head, all, 0, ids.data(), nullptr);
        demand(head.columns() <= embedding_.tokens(), "The head has outputs that are no tokens.");
        CheckedBatch asked = checked(batch, all / rows);
        for (const Segment& segment : asked.segments) demand(segment.chain.rows == 1, "A sequence does not have one row.");
        const nb::gil_scoped_release release;
        std::vector<bool> ended(rows);
        for (long done = 0; done < all; done += rows) {
            int64_t* drawn = ids.data() + done;
            const auto first = whole.draws.begin() + done;
            const Drawn own{{first, first + rows}, whole.banned, 0, drawn, nullptr};
            pass(asked, nullptr, {&head.weights(), scored, nullptr, &own});
            for (long row = 0; row < rows; ++row)
                if (std::find(ends.begin(), ends.end(), drawn[row]) != ends.end()) ended[row] = true;
            const bool unsound = std::any_of(drawn, drawn + rows, [](int64_t id) { return id < 0; });
            if (unsound || std::find(ended.begin(), ended.end(), false) == ended.end())
                return {ids.begin(), ids.begin() + done + rows};
            asked.advance(drawn, network_->shape().hidden);
        }
        return ids;
    }

    void rank(const BatchTuple& batch, const Linear& head, const std::vector<long>& rows, const DrawsTuple& draws,
              const OutputIds<2>& ids, const Output<2>& log_probs) {
        check(batch, head, rows);
        const long width = ids.shape(1);
        demand(width > 0, "width is not positive.");
        demand(is(ids, rows.size(), width) && is(log_probs, rows.size(), width),
               "ids and log_probs are not both [scored rows, width].");
        const Drawn drawn = drawn_of(draws, head, rows.size(), width, values(ids), values(log_probs));
        run(batch, nullptr, {&head.weights(), rows, nullptr, &drawn});
    }

    std::size_t bytes() const { return network_->bytes(); }

  private:
    void check(const BatchTuple& batch, const Linear& head, const std::vector<long>& rows) const {
        demand(head.pool() == pool_.get() && head.depth() == network_->shape().hidden,
               "The head is another network's.");
        for (long row : rows) demand(row >= 0 && row < long(std::get<0>(batch).shape(0)), "A row to score is not there.");
    }

    static void check_kernels(const Shape& shape) {
        const long size = shape.kernel_size, groups = shape.kernel_groups;
        demand((size == 0 && groups == 0) || (size > 0 && groups > 0), "kernel_size and kernel_groups go together.");
        demand(!groups || shape.hidden % groups == 0, "hidden is not a multiple of kernel_groups.");
        demand(size <= kMostSize && 2 * size * groups <= kMostSize, "A size is larger than a model has.");
    }

    static Drawn drawn_of(const DrawsTuple& tuple, const Linear& head, long rows, long width, int64_t* ids,
                          float* log_probs) {
        const auto& [scales, noises, keys, banned] = tuple;
        demand(long(scales.size()) == rows && long(noises.size()) == rows && long(keys.size()) == rows,
               "There are not as many scales, noises and keys as rows to score.");
        for (int64_t id : banned) demand(id >= 0 && id < head.columns(), "A banned id is not there.");
        Drawn drawn{{}, banned, width, ids, log_probs};
        for (long row = 0; row < rows; ++row) {
            demand(noises[row] >= 0, "noise is not at least 0.");
            drawn.draws.push_back({nullptr, 0, scales[row], noises[row], keys[row]});
        }
        return drawn;
    }

    void run(const BatchTuple& batch, float* hidden, const Scored& scored) {
        const CheckedBatch asked = checked(batch, 1);
        const nb::gil_scoped_release release;
        pass(asked, hidden, scored);
    }

    CheckedBatch checked(const BatchTuple& batch, long passes) const {
        demand(network_->complete(), "Layers are missing.");
        embedding_.check(values(std::get<0>(batch)), std::get<0>(batch).shape(0));
        return checked_batch(batch, *network_, passes);
    }

    void pass(const CheckedBatch& asked, float* hidden, const Scored& scored) {
        const long rows = asked.ids.size();
        const Block<float> x = allocate<float>(rows * network_->shape().hidden);
        embedding_.look_up(asked.ids.data(), rows, x.get());
        const Block<float> cos = asked.turned(asked.cos), sin = asked.turned(asked.sin);
        network_->run({x.get(), cos.get(), sin.get(), asked.segments, asked.reach, asked.taps, hidden, asked.features, scored});
    }

    const std::shared_ptr<Pool> pool_;
    const Arithmetic arithmetic_;
    const Embedding embedding_;
    std::unique_ptr<Network> network_;
};

}  // namespace

void bind_network(nb::module_& module) {
    bind_layer(module);
    nb::class_<CheckedNetwork>(module, "Network")
        .def(nb::init<std::shared_ptr<Pool>, const std::string&, const Sizes&, float, const Input<1>&, long,
                      const ArithmeticTuple&, std::variant<Input<2>, HalfTable>, float>(),
             "pool"_a, "instructions"_a, "sizes"_a, "eps"_a, given("norm"), "layers"_a, "arithmetic"_a, given("embedding"),
             "scale"_a)
        .def("add", &CheckedNetwork::add, "layer"_a)
        .def("states", &CheckedNetwork::states, given("batch"), given("hidden"))
        .def("score", &CheckedNetwork::score, given("batch"), "head"_a, "rows"_a, given("scores"),
             given("hidden").none())
        .def("choose", &CheckedNetwork::choose, given("batch"), "head"_a, "rows"_a, "draws"_a)
        .def("go_on", &CheckedNetwork::go_on, given("batch"), "head"_a, "draws"_a, "ends"_a)
        .def("rank", &CheckedNetwork::rank, given("batch"), "head"_a, "rows"_a, "draws"_a, given("ids"),
             given("log_probs"))
        .def_prop_ro("nbytes", &CheckedNetwork::bytes);
}

}  // namespace paceline
