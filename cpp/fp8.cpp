#include "fp8.hpp"

#include "errors.hpp"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstring>
#include <limits>

namespace dflash {

namespace {

using Table = std::array<float, 256>;

// E4M3 has no infinity and one pattern that is no number; E5M2 keeps its largest exponent for both.
Table values_of(int mantissa_bits) {
    const int bias = (1 << (6 - mantissa_bits)) - 1, steps = 1 << mantissa_bits;
    const int first_bad = mantissa_bits == 3 ? 0x7f : 0x7c;
    Table table{};
    for (int byte = 0; byte < 128; ++byte) {
        const int exponent = byte >> mantissa_bits, mantissa = byte % steps;
        const int whole = exponent == 0 ? mantissa : steps + mantissa;
        float value = std::ldexp(static_cast<float>(whole), std::max(exponent, 1) - bias - mantissa_bits);
        if (byte >= first_bad) {
            value = std::numeric_limits<float>::quiet_NaN();
        }
        table[byte] = value;
        table[byte + 128] = -value;
    }
    return table;
}

} // namespace

void widen_fp8(const uint8_t * src, size_t n_src, int mantissa_bits, const float * factors, size_t n_factors,
               int64_t n_across, unsigned char * dst, size_t n_dst_bytes, int64_t n_per_row) {
    static const Table tables[] = {values_of(2), values_of(3)};
    if (mantissa_bits != 2 && mantissa_bits != 3) {
        throw quantize_error("FP8 with " + std::to_string(mantissa_bits) + " mantissa bits, expected 2 or 3");
    }
    if (n_per_row < 1 || n_across < 1 || n_src % n_per_row != 0) {
        throw quantize_error("FP8 values that are not made of whole rows");
    }
    const int64_t n_rows = n_src / n_per_row, n_groups = (n_per_row + n_across - 1) / n_across;
    if (n_factors != static_cast<size_t>(n_rows * n_groups) || n_dst_bytes != n_src * sizeof(float)) {
        throw quantize_error("FP8 values, their factors and the destination differ in size");
    }
    const Table & table = tables[mantissa_bits - 2];
    for (int64_t row = 0; row < n_rows; ++row) {
        for (int64_t column = 0; column < n_per_row; column += n_across) {
            const float factor = *factors++;
            const int64_t end = std::min(n_across, n_per_row - column);
            for (int64_t i = 0; i < end; ++i) {
                const float value = table[*src++] * factor;
                std::memcpy(dst, &value, sizeof(value));
                dst += sizeof(value);
            }
        }
    }
}

} // namespace dflash
