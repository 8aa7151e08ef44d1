// Threads of our own: they spin within a call, where a barrier takes 0.1 µs, and sleep between calls.
#pragma once

#include <atomic>
#include <functional>
#include <memory>
#include <mutex>
#include <thread>
#include <vector>

namespace paceline {

// The right to compute. One call at a time in a process: two would spin for the same processors. Others wait, and so does
// a fork, so that its child finds no call half done, and may begin one.
using Turn = std::unique_lock<std::mutex>;

class Pool {
  public:
    // `threads`: with the caller's own; at least 1.
    explicit Pool(int threads);
    ~Pool();
    Pool(const Pool&) = delete;
    Pool& operator=(const Pool&) = delete;

    int threads() const { return count_; }

    [[nodiscard]] static Turn turn();

    // Calls work(thread) on every thread, and returns when all are done. `work` throws nothing.
    // Throws std::system_error where the system has no threads left.
    void run(const Turn& turn, const std::function<void(int)>& work);

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

    bool started() const;
    void start();
    void stop();
    void call(const std::function<void(int)>& work) noexcept;
    static void serve(Pool* pool, Shared* shared, int thread);
    static void meet(Shared& shared, int count);

    const int count_;
    long started_ = -1;  // after how many forks; -1: there are no threads
    Shared* shared_ = nullptr;
};

}  // namespace paceline
