// Memory for weights and scratch: aligned to cache lines, in huge pages where the system has them.
#pragma once

#include <sys/mman.h>

#include <cstddef>
#include <cstdlib>
#ifdef __GLIBC__
#include <malloc.h>
#endif
#include <memory>
#include <new>

namespace paceline {

struct Free {
    void operator()(void* memory) const { std::free(memory); }
};

template <class T>
using Block = std::unique_ptr<T[], Free>;

constexpr std::size_t kHugePage = std::size_t{1} << 21;

// `count` values, not set. Weights are read once in a pass, a page table entry for every 4 KB is then much to read.
template <class T>
Block<T> allocate(std::size_t count) {
    const std::size_t bytes = count * sizeof(T), page = bytes >= kHugePage ? kHugePage : 64;
    const std::size_t whole = (bytes + page - 1) / page * page;
    void* memory = std::aligned_alloc(page, whole ? whole : page);
    if (!memory) throw std::bad_alloc();
#ifdef MADV_HUGEPAGE
    if (page == kHugePage) madvise(memory, whole, MADV_HUGEPAGE);
#endif
    return Block<T>(static_cast<T*>(memory));
}

// Gives back to the system what has been freed, which the C library keeps for itself where pieces of it are still in use.
inline void trim() {
#ifdef __GLIBC__
    malloc_trim(0);
#endif
}

}  // namespace paceline
