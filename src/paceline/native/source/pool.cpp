#include "pool.h"

#include <pthread.h>

#include <cassert>
#include <new>

#if defined(__x86_64__)
#include <immintrin.h>
#endif

namespace paceline {

namespace {

// Some 50 µs. Within a call, who waits longer has lost its processor to another program, and gives up its own; between
// calls, the head follows the layers sooner than that, and to wake a thread takes as long.
constexpr int kSpins = 2500;

void pause_briefly() {
#if defined(__x86_64__)
    _mm_pause();
#endif
}

// What belongs to the whole process, since the handlers of a fork are given nothing.
struct Process {
    std::mutex turn;
    long forks = 0;  // from the first process down to this one

    Process();
};

Process& process() {
    static Process here;
    return here;
}

Process::Process() {
    const auto before = [] { process().turn.lock(); };
    const auto in_parent = [] { process().turn.unlock(); };
    const auto in_child = [] {
        ++process().forks;
        process().turn.unlock();
    };
    if (pthread_atfork(before, in_parent, in_child)) throw std::bad_alloc();
}

}  // namespace

Pool::Pool(int threads) : count_(threads < 1 ? 1 : threads) {}

Pool::~Pool() {
    if (started()) stop();
}

Turn Pool::turn() { return Turn(process().turn); }

void Pool::run([[maybe_unused]] const Turn& turn, const std::function<void(int)>& work) {
    assert(turn.owns_lock());
    if (!started()) start();
    call(work);
}

// Ends the program where `work` throws: the others would go on with what is no more.
void Pool::call(const std::function<void(int)>& work) noexcept {
    shared_->work = &work;
    shared_->call.fetch_add(1, std::memory_order_release);
    if (count_ > 1) shared_->call.notify_all();
    work(0);
    meet();
}

void Pool::meet() { meet(*shared_, count_); }

bool Pool::started() const { return started_ == process().forks; }

void Pool::start() {
    shared_ = new Shared;  // a parent's is leaked on purpose: destroying its threads would end the process
    started_ = process().forks;
    try {
        for (int thread = 1; thread < count_; ++thread) shared_->workers.emplace_back(serve, this, shared_, thread);
    } catch (...) {
        stop();
        throw;
    }
}

void Pool::stop() {
    shared_->stop = true;
    shared_->call.fetch_add(1, std::memory_order_release);
    shared_->call.notify_all();
    for (std::thread& worker : shared_->workers) worker.join();
    delete shared_;
    started_ = -1;
}

void Pool::serve(Pool* pool, Shared* shared, int thread) {
    for (uint32_t seen = 0;;) {
        for (int spins = 0; spins < kSpins && shared->call.load(std::memory_order_acquire) == seen; ++spins)
            pause_briefly();
        shared->call.wait(seen, std::memory_order_acquire);
        seen = shared->call.load(std::memory_order_acquire);
        if (shared->stop) return;
        (*shared->work)(thread);
        meet(*shared, pool->count_);
    }
}

void Pool::meet(Shared& shared, int count) {
    const uint32_t meeting = shared.meeting.load(std::memory_order_relaxed);
    if (shared.arrived.fetch_add(1, std::memory_order_acq_rel) + 1 == count) {
        shared.arrived.store(0, std::memory_order_relaxed);
        shared.meeting.store(meeting + 1, std::memory_order_release);
        return;
    }
    for (int spins = 0; shared.meeting.load(std::memory_order_acquire) == meeting;)
        spins < kSpins ? ++spins, pause_briefly() : std::this_thread::yield();
}

}  // namespace paceline
