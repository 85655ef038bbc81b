#pragma once

#include <cstddef>
#include <cstdint>

namespace dflash {

// Bytes of E4M3 (3 mantissa bits) or E5M2 (2), times the factor of their row and group of `n_across` columns: float32.
// `factors` has one for each row and group. Sizes are numbers of items. Throws quantize_error when they do not fit.
void widen_fp8(const uint8_t * src, size_t n_src, int mantissa_bits, const float * factors, size_t n_factors,
               int64_t n_across, unsigned char * dst, size_t n_dst_bytes, int64_t n_per_row);

} // namespace dflash
