// Rounding and 16-bit floats, a lane each. Source: ggml/src/ggml-quants.c, ggml-impl.h (0.5.0).
#pragma once

#include "lanes.hpp"

namespace dflash::kernels {

namespace {

constexpr float kNoScale = 1e-15f; // GROUP_MAX_EPS: a group of smaller values is zero
constexpr float kMagic = 12582912.0f;
constexpr float kLargest = 4194303.0f;
constexpr int32_t kInfinity = 0x7f800000;

// ggml's nearest_int: to even by way of a large number's lowest bits. Out of `kLargest` these bits wrap, as ggml's do.
DFLASH_INLINE I nearest(F value) { return (as_bits(value + all(kMagic)) & all(0x007fffff)) - all(0x00400000); }

DFLASH_INLINE I clamp(I value, int32_t low, int32_t high) { return lesser(greater(value, all(low)), all(high)); }

// Two ways to the whole number nearest to a value, between two limits. The quick one is right only up to `kLargest` and
// remembers the lanes that may lie beyond; the exact one then does the group again.
struct Quick {
    I doubt{};

    // Both ends of the values that `nearest` will be given, in the lanes of `mask`.
    DFLASH_INLINE void bound(F value, I mask) { doubt |= mask & ~(magnitude(value) <= all(kLargest)); }

    static DFLASH_INLINE F nearest(F value, float low, float high) {
        return lesser(greater((value + all(kMagic)) - all(kMagic), all(low)), all(high));
    }
};

struct Exact {
    DFLASH_INLINE void bound(F, I) {}

    static DFLASH_INLINE F nearest(F value, float low, float high) {
        return to_float(clamp(kernels::nearest(value), static_cast<int32_t>(low), static_cast<int32_t>(high)));
    }
};

// roundf as a whole number: halves away from zero.
DFLASH_INLINE I rounded(F value) {
    const F half = as_float(as_bits(all(0.49999997f)) | (as_bits(value) & all(INT32_MIN)));
    return truncate(value + half);
}

// The bits of the nearest 16-bit float, ties to even.
DFLASH_INLINE I to_half(F value) {
    const I bits = as_bits(value), size = bits & all(0x7fffffff), sign = (bits >> 16) & all(0x8000);
    const I normal = (size - all(0x38000000) + all(0xfff) + ((size >> 13) & all(1))) >> 13;
    const I small = as_bits(as_float(size) + all(0.5f)) - as_bits(all(0.5f));
    const I finite = select(size < all(0x38800000), small, normal);
    const I large = select(size > all(kInfinity), all(0x7e00), all(0x7c00));
    return sign | select(size >= all(0x47800000), large, finite);
}

DFLASH_INLINE F from_half(I half) {
    const I size = half & all(0x7fff), sign = (half & all(0x8000)) << 16;
    const I shift = select(size >= all(0x7c00), all(0x70000000), all(0x38000000));
    const I small = as_bits(to_float(size) * all(5.9604644775390625e-8f));
    return as_float(sign | select(size < all(0x0400), small, (size << 13) + shift));
}

DFLASH_INLINE I half_is_finite(I half) { return (half & all(0x7c00)) != all(0x7c00); }

} // namespace

} // namespace dflash::kernels
