// What the code under test is given: numbers from a seed, and arrays that end where their memory does.
#pragma once

#include <bit>
#include <cmath>
#include <cstdint>
#include <limits>
#include <memory>
#include <stdexcept>
#include <string>

namespace fuzz {

constexpr float kInfinity = std::numeric_limits<float>::infinity();
constexpr float kNan = std::numeric_limits<float>::quiet_NaN();

// splitmix64 (Steele, Lea, Flood, 2014): the same numbers with every compiler.
class Random {
  public:
    explicit Random(uint64_t seed) : state_(seed) {}

    uint64_t bits() {
        uint64_t z = state_ += 0x9E3779B97F4A7C15u;
        z = (z ^ z >> 30) * 0xBF58476D1CE4E5B9u;
        z = (z ^ z >> 27) * 0x94D049BB133111EBu;
        return z ^ z >> 31;
    }
    long from(long first, long last) { return first + long(bits() % uint64_t(last - first + 1)); }
    bool coin() { return bits() & 1; }
    // Of variance 1, between -3.5 and 3.5.
    float normal() {
        double sum = -2;
        for (int i = 0; i < 4; ++i) sum += double(bits() >> 11) * 0x1p-53;
        return float(sum * std::sqrt(3.0));
    }

  private:
    uint64_t state_;
};

// `count` values that begin at any float's place, and behind which no memory is: a sanitizer sees what is read there.
template <class T>
class Array {
  public:
    Array(Random& random, long count, T value = T{}) : count_(count), shift_(random.from(0, 15)) {
        memory_ = std::make_unique<T[]>(shift_ + count);
        for (long i = 0; i < count; ++i) at()[i] = value;
    }
    T* at() const { return memory_.get() + shift_; }
    T& operator[](long i) const { return at()[i]; }
    long count() const { return count_; }

  private:
    long count_, shift_;
    std::unique_ptr<T[]> memory_;
};

using Floats = Array<float>;

// Normal numbers times `scale`; `short_ones` are held by bfloat16.
inline Floats normals(Random& random, long count, float scale = 1, bool short_ones = false) {
    Floats found(random, count);
    for (long i = 0; i < count; ++i) {
        found[i] = random.normal() * scale;
        if (short_ones) found[i] = std::bit_cast<float>(std::bit_cast<uint32_t>(found[i]) & 0xffff0000u);
    }
    return found;
}

// What differs, in a word.
inline void demand(bool held, const std::string& what) {
    if (!held) throw std::runtime_error(what);
}

inline void near(float found, double expected, double bound, const std::string& what) {
    if (std::fabs(found - expected) <= bound) return;
    throw std::runtime_error(what + " is " + std::to_string(found) + ", and not " + std::to_string(expected) +
                             " up to " + std::to_string(bound));
}

inline void same(const float* found, const float* expected, long count, const std::string& what) {
    for (long i = 0; i < count; ++i)
        demand(std::bit_cast<uint32_t>(found[i]) == std::bit_cast<uint32_t>(expected[i]), what);
}

}  // namespace fuzz
