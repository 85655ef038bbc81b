#pragma once

// The choice from one row of logits.

#include "interfaces.hpp"

namespace dflash {

// Index of the largest of logits, float [n]; of equal ones the lowest. NaN never wins.
// Throws core_error when the row has no finite maximum.
token greedy(const float * logits, int32_t n);

} // namespace dflash
