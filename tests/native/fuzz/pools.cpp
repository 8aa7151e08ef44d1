// Pools whose calls come from several threads at once, begin late and end early.
#include "pool.h"

#include <vector>

#include "parts.h"

namespace fuzz {

using paceline::Pool;

namespace {

// Each thread adds its neighbour's number of the step before: wrong where one does not wait at a meeting.
long steps(Pool& pool, int count) {
    const int threads = pool.threads();
    std::vector<long> now(threads, 1), before(threads);
    pool.run(Pool::turn(), [&](int thread) {
        for (int step = 0; step < count; ++step) {
            before[thread] = now[thread];
            pool.meet();
            now[thread] += before[(thread + 1) % threads];
            pool.meet();
        }
    });
    for (long found : now) demand(found == 1L << count, "a thread did not wait for the others");
    return now[0];
}

}  // namespace

void pools(Random& random, const paceline::Kernels&) {
    Pool pool(random.from(0, 3)), other(random.from(1, 3));
    const int count = random.from(0, 20);
    std::vector<long> found(3, 1L << count);
    std::vector<std::thread> callers;
    for (int caller = 0; caller < 3; ++caller)
        callers.emplace_back([&, caller] {
            for (int call = 0; call < 5; ++call) found[caller] &= steps(caller < 2 ? pool : other, count);
        });
    for (std::thread& caller : callers) caller.join();
    for (long each : found) demand(each == 1L << count, "calls disturb each other");
}

}  // namespace fuzz
