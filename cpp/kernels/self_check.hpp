// Does a kernel make ggml's bytes, with this ggml and this processor?
#pragma once

#include "work.hpp"

namespace dflash::kernels {

// Compares them over a fixed set of rows, plain ones and awkward ones. A few milliseconds.
bool equals_ggml(Kernel kernel, int type, bool weighted);

} // namespace dflash::kernels
