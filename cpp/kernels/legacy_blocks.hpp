// Q4_0, Q4_1, Q5_0, Q5_1 and Q8_0: blocks of 32 values with one scale, and one minimum perhaps.
// Source: ggml/src/ggml-quants.c (0.5.0), quantize_row_q4_0_ref and _impl, and those of the others.
#pragma once

#include "fit.hpp"
#include "group.hpp"

namespace dflash::kernels {

namespace {

constexpr int kLegacy = 32; // values in a block

// ggml turns floats into bytes by way of whole numbers, of which it keeps the lowest eight bits.
DFLASH_INLINE I signed_byte(F value) { return truncate(value) << 24 >> 24; }

DFLASH_INLINE F inverse(F scale) { return select(scale != F{}, all(1.0f) / scale, F{}); }

// Value l shares a byte with value l + 16. Of four bits ggml takes the lower one as it is, so that one which is out of
// bounds shows in both.
template <int Bits> DFLASH_INLINE void put_nibbles(const Group & group, int offset) {
    const I low_bits = all(Bits == 4 ? 0xff : 0x0f);
    I words[4];
    for (int i = 0; i < 4; ++i) {
        words[i] = I{};
        for (int k = 0; k < 4; ++k) {
            const I low = quant(group, 4 * i + k) & low_bits, high = quant(group, 4 * i + k + 16) << 4 & all(0xf0);
            words[i] |= (low | high) << (8 * k);
        }
    }
    put(group, offset, words);
}

// The fifth bit of every quant.
DFLASH_INLINE void put_fifth_bits(const Group & group, int offset) {
    I words[1] = {};
    for (int i = 0; i < kLegacy; ++i) {
        words[0] |= (quant(group, i) >> 4 & all(1)) << i;
    }
    put(group, offset, words);
}

template <int Bits> DFLASH_INLINE void put_quants(const Group & group, int offset) {
    if constexpr (Bits == 5) {
        put_fifth_bits(group, offset);
    }
    put_nibbles<Bits>(group, Bits == 5 ? offset + 4 : offset);
}

// Q4_0 and Q5_0: the value of largest magnitude becomes the lowest quant.
template <int Bits> struct Signed {
    static constexpr int kBlock = kLegacy, kBytes = Bits == 4 ? 18 : 22, kHalf = 1 << (Bits - 1);
    static constexpr bool kWholeRows = true;

    template <bool Weighted, class Near> static void quantize(Group & group, Near &) {
        const F scale = Weighted ? by_weight<Near>(group) : plain(group);
        put_half(group, 0, to_half(scale));
        put_quants<Bits>(group, 2);
    }

    static DFLASH_INLINE F plain(Group & group) {
        F value, size;
        extreme<kLegacy>(group.x, value, size);
        const F scale = value / all(-float(kHalf)), step = inverse(scale);
        for (int i = 0; i < kLegacy; ++i) {
            const I level = signed_byte(group.x[i] * step + all(float(kHalf) + 0.5f));
            group.x[i] = as_float(lesser(level, all(2 * kHalf - 1)));
        }
        return scale;
    }

    template <class Near> static DFLASH_INLINE F by_weight(Group & group) {
        F w[kLegacy];
        weigh(group, 0, group.sigma2, w);
        const SignedFit<F> fit = fit_signed<F, kLegacy, kHalf, Near>(group.x, w);
        for (int i = 0; i < kLegacy; ++i) {
            const F level = Near::nearest(fit.step * group.x[i], -kHalf, kHalf - 1) + all(float(kHalf));
            keep(group, i, select(fit.flat, F{}, level));
        }
        return fit.scale;
    }
};

// Q4_1 and Q5_1: the lowest value becomes the lowest quant.
template <int Bits> struct Offset {
    static constexpr int kBlock = kLegacy, kBytes = Bits == 4 ? 20 : 24, kLevels = (1 << Bits) - 1;
    static constexpr bool kWholeRows = true;

    template <bool Weighted, class Near> static void quantize(Group & group, Near & near) {
        F scale, minimum;
        if constexpr (Weighted) {
            by_weight(group, scale, minimum, near);
        } else {
            plain(group, scale, minimum);
        }
        put_half(group, 0, to_half(scale));
        put_half(group, 2, to_half(minimum));
        put_quants<Bits>(group, 4);
    }

    static DFLASH_INLINE void plain(Group & group, F & scale, F & minimum) {
        F high = group.x[0];
        minimum = group.x[0];
        for (int i = 1; i < kLegacy; ++i) {
            minimum = lesser(group.x[i], minimum);
            high = greater(group.x[i], high);
        }
        scale = (high - minimum) / all(float(kLevels));
        const F step = inverse(scale);
        for (int i = 0; i < kLegacy; ++i) {
            const F level = (group.x[i] - minimum) * step + all(0.5f);
            // Only of four bits does ggml check the limit.
            group.x[i] = as_float(Bits == 4 ? lesser(signed_byte(level), all(kLevels)) : truncate(level));
        }
    }

    template <class Near> static DFLASH_INLINE void by_weight(Group & group, F & scale, F & minimum, Near & near) {
        F w[kLegacy];
        weigh(group, 0, group.sigma2, w);
        const OffsetFit<F> fit = fit_offset<F, kLegacy, kLevels, false>(group.x, w, kWeightedTries, near);
        for (int i = 0; i < kLegacy; ++i) {
            const F level = Near::nearest(fit.step * (group.x[i] - fit.origin), 0, kLevels);
            keep(group, i, select(fit.flat, F{}, level));
        }
        scale = fit.scale;
        minimum = -fit.offset;
    }
};

// The value of largest magnitude becomes 127; importance changes nothing.
struct Q8_0 {
    static constexpr int kBlock = kLegacy, kBytes = 34;
    static constexpr bool kWholeRows = false;

    template <bool, class Near> static void quantize(Group & group, Near &) {
        F size{};
        for (int i = 0; i < kLegacy; ++i) {
            size = greater(size, magnitude(group.x[i]));
        }
        const F scale = size / all(127.0f), step = inverse(scale);
        I words[8];
        for (int i = 0; i < 8; ++i) {
            words[i] = I{};
            for (int k = 0; k < 4; ++k) {
                words[i] |= (rounded(group.x[4 * i + k] * step) & all(0xff)) << (8 * k);
            }
        }
        put_half(group, 0, to_half(scale));
        put(group, 2, words);
    }
};

} // namespace

} // namespace dflash::kernels
