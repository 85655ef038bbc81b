// Vectors of `DFLASH_LANES` floats or whole numbers, on which every kernel works; compiled once for each width.
//
// A lane holds one block; apart from `transpose` no operation crosses lanes, and each rounds as the scalar one does, so
// that a lane's result is what ggml's scalar code makes of that block. Nothing of the standard library that has a body
// may be used in these files: the linker keeps one copy of it, perhaps the one compiled for AVX-512.
#pragma once

#include <cstdint>
#include <cstring>
#include <utility>

#if defined(__SSE2__)
#include <immintrin.h>
#endif

namespace dflash::kernels {

namespace {

#define DFLASH_INLINE inline __attribute__((always_inline))

constexpr int kLanes = DFLASH_LANES;

typedef float F __attribute__((vector_size(kLanes * 4)));
typedef int32_t I __attribute__((vector_size(kLanes * 4)));
typedef uint64_t Pairs __attribute__((vector_size(kLanes * 4)));
typedef uint16_t Halves __attribute__((vector_size(kLanes * 2)));

DFLASH_INLINE F all(float value) { return value - F{}; }
DFLASH_INLINE I all(int32_t value) { return value - I{}; }
DFLASH_INLINE F as_float(I bits) { return reinterpret_cast<F>(bits); }
DFLASH_INLINE I as_bits(F value) { return reinterpret_cast<I>(value); }
DFLASH_INLINE F to_float(I value) { return __builtin_convertvector(value, F); }
DFLASH_INLINE I truncate(F value) { return __builtin_convertvector(value, I); }
DFLASH_INLINE F magnitude(F value) { return as_float(as_bits(value) & all(0x7fffffff)); }

template <typename V> DFLASH_INLINE V select(I mask, V yes, V no) { return mask ? yes : no; }
// `b` where the two are equal, or not to be compared: as x86's instructions have it, which not every compiler finds.
DFLASH_INLINE I lesser(I a, I b) { return a < b ? a : b; }
DFLASH_INLINE I greater(I a, I b) { return a > b ? a : b; }
#if DFLASH_LANES == 16
DFLASH_INLINE F lesser(F a, F b) { return F(_mm512_min_ps(__m512(a), __m512(b))); }
DFLASH_INLINE F greater(F a, F b) { return F(_mm512_max_ps(__m512(a), __m512(b))); }
#elif DFLASH_LANES == 8
DFLASH_INLINE F lesser(F a, F b) { return F(_mm256_min_ps(__m256(a), __m256(b))); }
DFLASH_INLINE F greater(F a, F b) { return F(_mm256_max_ps(__m256(a), __m256(b))); }
#elif defined(__SSE2__)
DFLASH_INLINE F lesser(F a, F b) { return F(_mm_min_ps(__m128(a), __m128(b))); }
DFLASH_INLINE F greater(F a, F b) { return F(_mm_max_ps(__m128(a), __m128(b))); }
#else
DFLASH_INLINE F lesser(F a, F b) { return a < b ? a : b; }
DFLASH_INLINE F greater(F a, F b) { return a > b ? a : b; }
#endif

DFLASH_INLINE F root(F value) {
    F roots;
    for (int i = 0; i < kLanes; ++i) {
        roots[i] = __builtin_sqrtf(value[i]);
    }
    return roots;
}

DFLASH_INLINE bool any(I mask) {
    int32_t found = 0;
    for (int i = 0; i < kLanes; ++i) {
        found |= mask[i];
    }
    return found != 0;
}

// Lane k of the result is lane K of `a`, and of `b` from kLanes on.
template <int... K> DFLASH_INLINE I pick(I a, I b) {
#if defined(__clang__)
    return __builtin_shufflevector(a, b, K...);
#else
    return __builtin_shuffle(a, b, I{K...}); // GCC has the other one from version 12 on
#endif
}

// Of two rows, `Side` apart, whose lanes are taken `Side` at a time: the odd ones of `a` change places with the even ones
// of `b`.
template <int Side, int... K> DFLASH_INLINE void swap_squares(I & a, I & b, std::integer_sequence<int, K...>) {
    if constexpr (Side == 1) {
        // By shifts: few compilers find good shuffles for this.
        const Pairs low = reinterpret_cast<Pairs>(a), high = reinterpret_cast<Pairs>(b);
        a = reinterpret_cast<I>((low & 0xffffffffu) | (high << 32));
        b = reinterpret_cast<I>((low >> 32) | (high & ~uint64_t{0xffffffffu}));
    } else {
        const I upper = pick<((K & Side) != 0 ? kLanes + K - Side : K)...>(a, b);
        b = pick<((K & Side) != 0 ? kLanes + K : K + Side)...>(a, b);
        a = upper;
    }
}

// rows[i][k] -> rows[k][i].
template <int Side = kLanes / 2> DFLASH_INLINE void transpose(I (&rows)[kLanes]) {
    for (int i = 0; i < kLanes; ++i) {
        if ((i & Side) == 0) {
            swap_squares<Side>(rows[i], rows[i + Side], std::make_integer_sequence<int, kLanes>());
        }
    }
    if constexpr (Side > 1) {
        transpose<Side / 2>(rows);
    }
}

} // namespace

} // namespace dflash::kernels
