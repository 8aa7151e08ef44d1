// Which table of kernels this processor runs.
#pragma once

#include <string>
#include <vector>

#include "kernels.h"

namespace paceline {

// Names of the sets that were built and that this processor has, the best first; "baseline" is always there.
std::vector<std::string> instruction_sets();

// Throws std::invalid_argument if it is not among them.
const Kernels& kernels_for(const std::string& set);

}  // namespace paceline
