// The parts of the driver: each tries one random case, and throws what is wrong.
#pragma once

#include "kernels.h"
#include "given.h"

namespace fuzz {

void products(Random& random, const paceline::Kernels& kernels);
void rows(Random& random, const paceline::Kernels& kernels);
void attention(Random& random, const paceline::Kernels& kernels);
void convolutions(Random& random, const paceline::Kernels& kernels);
void draws(Random& random, const paceline::Kernels& kernels);
void trees(Random& random, const paceline::Kernels& kernels);
void contexts(Random& random, const paceline::Kernels& kernels);
void neighbours(Random& random, const paceline::Kernels& kernels);
void networks(Random& random, const paceline::Kernels& kernels);
void pools(Random& random, const paceline::Kernels& kernels);

}  // namespace fuzz
