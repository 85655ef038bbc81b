#pragma once

// A logarithm and an exponential that are the same bits on every machine: integer and IEEE double operations in a fixed
// order, which -ffp-contract=off keeps from being fused.

#include <bit>
#include <cstdint>

// One function for each width of vector registers, chosen when the module is loaded. For loops whose result does not
// depend on the width.
#if defined(__x86_64__) && defined(__ELF__) && __has_attribute(target_clones)
#define DFLASH_WIDEST __attribute__((target_clones("avx512f", "avx2", "default")))
#else
#define DFLASH_WIDEST
#endif

namespace dflash {

// ln 2 in two parts: a small whole number times the first is exact.
constexpr double kLn2High = 6.93147180369123816490e-01;
constexpr double kLn2Low  = 1.90821492927058770002e-10;
constexpr double kLog2E   = 1.44269504088896340736;

// Natural logarithm of a positive normal number, to within 2 units in the last place.
// x = 2^k m with m around 1; log m = 2 atanh((m - 1) / (m + 1)).
inline double log_of(double x) {
    const uint64_t bits = std::bit_cast<uint64_t>(x);
    int            k    = static_cast<int>(bits >> 52) - 1023;
    double         m    = std::bit_cast<double>((bits & 0x000FFFFFFFFFFFFF) | 0x3FF0000000000000);
    if (m > 1.41421356237309504880) {
        m *= 0.5;
        ++k;
    }
    const double s   = (m - 1) / (m + 1);
    const double z   = s * s;
    double       sum = 0;
    for (int n = 21; n >= 3; n -= 2) {
        sum = (sum + 1.0 / n) * z;
    }
    return k * kLn2High + (2 * s + (2 * s * sum + k * kLn2Low));
}

// The exponential of a number of at most 0, to within 2 units in the last place; 0 below -700.
// x = k ln 2 + r with |r| around 0.35; e^r by its series.
inline double exp_of(double x) {
    constexpr double terms[] = {1.0 / 6227020800, 1.0 / 479001600, 1.0 / 39916800, 1.0 / 3628800, 1.0 / 362880,
                                1.0 / 40320,      1.0 / 5040,      1.0 / 720,      1.0 / 120,     1.0 / 24,
                                1.0 / 6,          0.5,             1.0,            1.0};
    const double  bounded = x > -700 ? x : -700;
    const int32_t k       = static_cast<int32_t>(bounded * kLog2E - 0.5);
    const double  r       = (bounded - k * kLn2High) - k * kLn2Low;
    double        sum     = 0;
    for (const double term : terms) {
        sum = sum * r + term;
    }
    const double power = std::bit_cast<double>(static_cast<uint64_t>(static_cast<int64_t>(k) + 1023) << 52);
    return x > -700 ? sum * power : 0;
}

} // namespace dflash
