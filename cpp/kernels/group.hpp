// A block in each lane: values in from rows of floats, quants out into ggml's blocks.
#pragma once

#include "numbers.hpp"
#include "work.hpp"

namespace dflash::kernels {

namespace {

constexpr int kSuper = 256; // values in a block of the K-quants

using Places = const unsigned char * [kLanes];

// `x`: value i of every lane's block, later its quant as a whole number's bits. `sigma2`: the mean square of each lane's
// row, for the types that ask for it.
struct Group {
    F x[kSuper];
    F sigma2;
    Places src;
    Places importance;
    unsigned char * dst[kLanes];
    I flawed{}; // lanes with a factor that is not finite
};

template <Source> I widened(const unsigned char * at);

template <> DFLASH_INLINE I widened<Source::f32>(const unsigned char * at) {
    I bits;
    std::memcpy(&bits, at, sizeof(bits));
    return bits;
}

template <> DFLASH_INLINE I widened<Source::bf16>(const unsigned char * at) {
    Halves bits;
    std::memcpy(&bits, at, sizeof(bits));
    return __builtin_convertvector(bits, I) << 16;
}

template <> DFLASH_INLINE I widened<Source::f16>(const unsigned char * at) {
    Halves bits;
    std::memcpy(&bits, at, sizeof(bits));
    return as_bits(from_half(__builtin_convertvector(bits, I)));
}

constexpr int64_t item_bytes(Source source) { return source == Source::f32 ? 4 : 2; }

// Values `first` to `first + n` from each place, one lane a place; `peak` keeps the largest magnitudes' bits.
template <Source S> void load(const Places & at, int64_t first, int n, F * values, I & peak) {
    for (int i = 0; i < n; i += kLanes) {
        I rows[kLanes];
        for (int lane = 0; lane < kLanes; ++lane) {
            rows[lane] = widened<S>(at[lane] + (first + i) * item_bytes(S));
            peak = greater(peak, rows[lane] & all(0x7fffffff));
        }
        transpose(rows);
        for (int k = 0; k < kLanes; ++k) {
            values[i + k] = as_float(rows[k]);
        }
    }
}

inline void load(Source source, const Places & at, int64_t first, int n, F * values, I & peak) {
    switch (source) {
        case Source::f32:  load<Source::f32>(at, first, n, values, peak); break;
        case Source::f16:  load<Source::f16>(at, first, n, values, peak); break;
        case Source::bf16: load<Source::bf16>(at, first, n, values, peak); break;
    }
}

// The importance of values `first` to `first + N` of every lane's block.
template <int N> void load_importance(const Group & group, int first, F (&weights)[N]) {
    I unused{};
    load<Source::f32>(group.importance, first, N, weights, unused);
}

DFLASH_INLINE F sum_of_squares(const F * x, int n) {
    F sum{};
    for (int i = 0; i < n; ++i) {
        sum += x[i] * x[i];
    }
    return sum;
}

// ggml's weights: importance times the size of a value among those around it.
template <int N> DFLASH_INLINE void weigh(const Group & group, int first, F sigma2, F (&weights)[N]) {
    load_importance(group, first, weights);
    for (int i = 0; i < N; ++i) {
        const F x = group.x[first + i];
        weights[i] = weights[i] * root(sigma2 + x * x);
    }
}

DFLASH_INLINE I quant(const Group & group, int i) { return as_bits(group.x[i]); }

// A quant in the place of its value.
DFLASH_INLINE void keep(Group & group, int i, F quant) { group.x[i] = as_float(truncate(quant)); }

DFLASH_INLINE I bytes(I a, I b, I c, I d) { return a | b << 8 | c << 16 | d << 24; }

// N words of 4 bytes at `offset` of every lane's block.
template <int N> DFLASH_INLINE void put(const Group & group, int offset, const I (&words)[N]) {
    for (int first = 0; first < N; first += kLanes) {
        I rows[kLanes];
        for (int i = 0; i < kLanes; ++i) {
            rows[i] = first + i < N ? words[first + i] : I{};
        }
        transpose(rows);
        const size_t n = N - first < kLanes ? N - first : kLanes;
        for (int lane = 0; lane < kLanes; ++lane) {
            std::memcpy(group.dst[lane] + offset + first * 4, &rows[lane], n * 4);
        }
    }
}

// A factor of every block as a 16-bit float.
DFLASH_INLINE void put_half(Group & group, int offset, I half) {
    group.flawed |= ~half_is_finite(half);
    const Halves halves = __builtin_convertvector(half, Halves);
    for (int lane = 0; lane < kLanes; ++lane) {
        const uint16_t bits = halves[lane];
        std::memcpy(group.dst[lane] + offset, &bits, sizeof(bits));
    }
}

} // namespace

} // namespace dflash::kernels
