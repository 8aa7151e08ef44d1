// What Python sees.
#include <nanobind/stl/pair.h>

#include "arrays.h"
#include "checked_context.h"
#include "checked_network.h"
#include "drawing.h"
#include "instructions.h"
#include "linear.h"
#include "memory.h"
#include "tree.h"

using namespace nanobind::literals;

namespace paceline {

namespace {

class CheckedDrawing {
  public:
    CheckedDrawing(std::shared_ptr<Pool> pool, const std::string& set) : drawing_(kernels_for(set), std::move(pool)) {}

    void choose(const Input<2>& scores, float noise, const std::vector<uint64_t>& keys, const OutputIds<1>& ids) {
        const Draws draws = checked(scores, 1, noise, keys);
        demand(long(ids.shape(0)) == draws.rows, "ids is not [rows of scores].");
        int64_t* chosen = values(ids);
        const nb::gil_scoped_release release;
        drawing_.choose(draws, chosen);
    }

    bool rank(const Input<2>& scores, float scale, float noise, const std::vector<uint64_t>& keys, const OutputIds<2>& ids,
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

auto checked_grow(const InputIds<2>& ids, const Input<2>& log_probs, long nodes, long candidates, double most) {
    demand(ids.shape(0) == log_probs.shape(0) && ids.shape(1) == log_probs.shape(1),
           "ids and log_probs are not both [slots, width].");
    Tree tree = grow({values(ids), values(log_probs), long(ids.shape(0)), long(ids.shape(1))}, nodes, candidates, most);
    return std::tuple{std::move(tree.tokens), std::move(tree.parents), std::move(tree.scores)};
}

}  // namespace

NB_MODULE(_native, module) {
    module.def("instruction_sets", instruction_sets);
    module.def("trim", trim, nb::call_guard<nb::gil_scoped_release>());
    nb::class_<Pool>(module, "Pool")
        .def(nb::init<int>(), "threads"_a)
        .def_prop_ro("threads", &Pool::threads);
    Linear::bind(module);
    nb::class_<CheckedDrawing>(module, "Drawing")
        .def(nb::init<std::shared_ptr<Pool>, const std::string&>(), "pool"_a, "instructions"_a)
        .def("choose", &CheckedDrawing::choose, given("scores"), "noise"_a, "keys"_a, given("ids"))
        .def("rank", &CheckedDrawing::rank, given("scores"), "scale"_a, "noise"_a, "keys"_a, given("ids"),
             given("log_probs"));
    module.def("grow", checked_grow, given("ids"), given("log_probs"), "nodes"_a, "candidates"_a, "most"_a);
    bind_network(module);
    bind_context(module);
}

}  // namespace paceline
