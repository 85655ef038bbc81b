// Which kernel makes a type's blocks on this processor, if one does.
#pragma once

#include "work.hpp"

#include <vector>

namespace dflash::kernels {

// How many lanes kernels can have here, most first.
std::vector<int> widths();

// ggml's numbers of the types that have kernels.
std::vector<int> types();

// The kernel for a type, by ggml's number, with importance or without; null where there is none for it or for so many
// `lanes`, and where its blocks differ from ggml's. They are compared when the kernel is first asked for.
Kernel find(int type, bool weighted, int lanes);

} // namespace dflash::kernels
