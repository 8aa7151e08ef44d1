// A drafter's context, as Python sees it.
#pragma once

#include "arrays.h"

namespace paceline {

void bind_context(nb::module_& module);

}  // namespace paceline
