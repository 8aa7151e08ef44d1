// Threads of our own: they spin within a call, where a barrier takes 0.1 µs, and sleep between calls.
#pragma once

#include <sys/types.h>

#include <atomic>
#include <functional>
#include <memory>
#include <mutex>
#include <thread>
#include <vector>

namespace paceline {

class Pool {
  public:
    // `threads`: with the caller's own; at least 1.
    explicit Pool(int threads);
    ~Pool();
    Pool(const Pool&) = delete;
    Pool& operator=(const Pool&) = delete;

    int threads() const { return count_; }

    // Calls work(thread) on every thread, and returns when all are done. One call at a time: others wait.
    void run(const std::function<void(int)>& work);

    // Within run: returns when every thread has come here.
    void meet();

  private:
    // What threads share; left alone in the child of a fork, where its threads do not exist.
    struct Shared {
        std::atomic<uint32_t> call{0};
        std::atomic<int> arrived{0};
        std::atomic<uint32_t> meeting{0};
        bool stop = false;
        const std::function<void(int)>* work = nullptr;
        std::vector<std::thread> workers;
    };

    void start();
    static void serve(Pool* pool, Shared* shared, int thread);
    static void meet(Shared& shared, int count);

    const int count_;
    std::mutex mutex_;
    pid_t owner_ = 0;
    Shared* shared_ = nullptr;
};

}  // namespace paceline
