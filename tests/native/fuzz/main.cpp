// Random calls of the kernels, of the network and of what surrounds it, on every instruction set of this machine: each
// compared with plain loops in double precision, and to the bit with itself under other company. Made to run under
// sanitizers (scripts/sanitize). Knows neither Python nor models.
//
//     fuzz SEED PART=CASES ...    exits with 1 at the first difference, and tells which case it was
#include <cstdio>
#include <exception>
#include <map>
#include <string>

#include "instructions.h"
#include "parts.h"

namespace {

using Part = void (*)(fuzz::Random&, const paceline::Kernels&);

const std::map<std::string, Part> kParts{
    {"attention", fuzz::attention},   {"contexts", fuzz::contexts}, {"draws", fuzz::draws},
    {"neighbours", fuzz::neighbours}, {"networks", fuzz::networks}, {"pools", fuzz::pools},
    {"products", fuzz::products},     {"rows", fuzz::rows},         {"trees", fuzz::trees},
};

void run(uint64_t seed, const std::string& name, Part part, long cases) {
    for (const std::string& set : paceline::instruction_sets())
        for (long number = 0; number < cases; ++number) try {
                fuzz::Random random(seed * 1'000'003 + number);
                part(random, paceline::kernels_for(set));
            } catch (const std::exception& wrong) {
                throw std::runtime_error(name + ", case " + std::to_string(number) + " of seed " +
                                         std::to_string(seed) + ", " + set + ": " + wrong.what());
            }
    std::printf("%ld cases of %s\n", cases, name.c_str());
}

}  // namespace

int main(int count, char** words) try {
    const uint64_t seed = std::stoull(count > 1 ? words[1] : "");
    for (int i = 2; i < count; ++i) {
        const std::string word = words[i], name = word.substr(0, word.find('='));
        run(seed, name, kParts.at(name), std::stol(word.substr(name.size() + 1)));
    }
    return 0;
} catch (const std::exception& wrong) {
    std::fprintf(stderr, "fuzz SEED PART=CASES ...: %s\n", wrong.what());
    return 1;
}
