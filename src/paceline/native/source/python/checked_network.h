// The network, as Python sees it.
#pragma once

#include "arrays.h"

namespace paceline {

void bind_network(nb::module_& module);

}  // namespace paceline
