// Q2_K, Q4_K and Q5_K: blocks of 256 values in parts, each with a scale and an offset of few bits.
// Source: ggml/src/ggml-quants.c (0.5.0), quantize_row_q2_K_ref and _impl, and those of q4_K and q5_K.
#pragma once

#include "fit.hpp"
#include "group.hpp"

namespace dflash::kernels {

namespace {

// The scales and offsets of all parts, in the bytes that a block stores and as they are read back.
template <int Parts> struct Factors {
    I words[Parts == 16 ? 4 : 3];
    I scales[Parts];
    I offsets[Parts];
    I scale;
    I offset;
};

// The largest of `values` becomes `Top`, the others bytes in proportion; returns the bits of their common factor.
template <int N, int Top> DFLASH_INLINE I spread(const F (&values)[N], I (&quants)[N]) {
    F high{};
    for (int i = 0; i < N; ++i) {
        high = greater(values[i], high);
    }
    const F step = all(float(Top)) / high;
    for (int i = 0; i < N; ++i) {
        quants[i] = select(high > F{}, nearest(step * values[i]) & all(0xff), I{});
    }
    return to_half(high / all(float(Top)));
}

struct Q2K {
    static constexpr int kBlock = kSuper, kBytes = 84, kParts = 16, kPart = 16, kLevels = 3, kTop = 15;
    static constexpr int kEnergy = 1; // sigma2 is this times the mean square
    static constexpr bool kAbsolute = true;
    static constexpr int kFactors = 80, kScales = 0;
    template <bool> static constexpr bool kLimited = false;
    static constexpr Tries kTries = {-0.5f, 0.1f, 15};

    static DFLASH_INLINE void weigh(const F * x, F * w) {
        for (int i = 0; i < kPart; ++i) {
            w[i] = magnitude(x[i]);
        }
    }

    static DFLASH_INLINE void encode(Factors<kParts> & factors) {
        I packed[kParts];
        for (int i = 0; i < kParts; ++i) {
            packed[i] = (factors.scales[i] | factors.offsets[i] << 4) & all(0xff);
            factors.scales[i] = packed[i] & all(0xf);
            factors.offsets[i] = packed[i] >> 4;
        }
        for (int i = 0; i < 4; ++i) {
            factors.words[i] = bytes(packed[4 * i], packed[4 * i + 1], packed[4 * i + 2], packed[4 * i + 3]);
        }
    }

    static DFLASH_INLINE void put_quants(const Group & group) {
        I words[16];
        for (int i = 0; i < 16; ++i) {
            const int at = i / 8 * 128 + i % 8 * 4;
            words[i] = I{};
            for (int k = 0; k < 16; ++k) {
                words[i] |= quant(group, at + k / 4 + k % 4 * 32) << (k / 4 * 8 + k % 4 * 2);
            }
        }
        put(group, 16, words);
    }
};

// What Q4_K and Q5_K share: eight parts, factors of six bits.
struct Eight {
    static constexpr int kBlock = kSuper, kParts = 8, kPart = 32, kTop = 63;
    static constexpr int kEnergy = 2;
    static constexpr bool kAbsolute = false;
    static constexpr int kFactors = 0, kScales = 4;

    static DFLASH_INLINE void weigh(const F * x, F * w) {
        const F mean = root(sum_of_squares(x, kPart) / all(float(kPart)));
        for (int i = 0; i < kPart; ++i) {
            w[i] = mean + magnitude(x[i]);
        }
    }

    // The first four of each have six bits of a byte; of the others, four bits lie together and two above those.
    static DFLASH_INLINE void encode(Factors<kParts> & factors) {
        I * scales = factors.scales, * offsets = factors.offsets, packed[12];
        for (int i = 0; i < 4; ++i) {
            packed[i] = (scales[i] | (scales[i + 4] >> 4) << 6) & all(0xff);
            packed[i + 4] = (offsets[i] | (offsets[i + 4] >> 4) << 6) & all(0xff);
            packed[i + 8] = (scales[i + 4] & all(0xf)) | (offsets[i + 4] & all(0xf)) << 4;
        }
        for (int i = 0; i < 4; ++i) {
            scales[i] = packed[i] & all(63);
            offsets[i] = packed[i + 4] & all(63);
            scales[i + 4] = (packed[i + 8] & all(0xf)) | (packed[i] >> 6) << 4;
            offsets[i + 4] = (packed[i + 8] >> 4) | (packed[i + 4] >> 6) << 4;
        }
        for (int i = 0; i < 3; ++i) {
            factors.words[i] = bytes(packed[4 * i], packed[4 * i + 1], packed[4 * i + 2], packed[4 * i + 3]);
        }
    }

    // The lower four bits of every quant.
    static DFLASH_INLINE void put_nibbles(const Group & group, int offset) {
        I words[32];
        for (int i = 0; i < 32; ++i) {
            const int at = i / 8 * 64 + i % 8 * 4;
            words[i] = I{};
            for (int k = 0; k < 4; ++k) {
                const I low = quant(group, at + k) & all(0xf), high = quant(group, at + k + 32) & all(0xf);
                words[i] |= (low | high << 4) << (8 * k);
            }
        }
        put(group, offset, words);
    }
};

struct Q4K : Eight {
    static constexpr int kBytes = 144, kLevels = 15;
    template <bool Weighted> static constexpr bool kLimited = !Weighted;
    static constexpr Tries kTries = {-1.0f, 0.1f, 20};

    static DFLASH_INLINE void put_quants(const Group & group) { put_nibbles(group, 16); }
};

struct Q5K : Eight {
    static constexpr int kBytes = 176, kLevels = 31;
    template <bool> static constexpr bool kLimited = true;
    static constexpr Tries kTries = {-0.5f, 0.1f, 15};

    static DFLASH_INLINE void put_quants(const Group & group) {
        I words[8];
        for (int i = 0; i < 8; ++i) {
            words[i] = I{};
            for (int k = 0; k < 32; ++k) {
                words[i] |= (quant(group, 4 * i + k / 8 + k % 8 * 32) >> 4) << k;
            }
        }
        put(group, 16, words);
        put_nibbles(group, 48);
    }
};

// Two parts, from `first` on.
template <class Shape, bool Weighted, class Near>
OffsetFit<Two<F>> fit_parts(const Group & group, int first, F sigma2, Near & near) {
    constexpr int kPart = Shape::kPart;
    const F * x = group.x + first * kPart;
    F w[2 * kPart];
    if constexpr (Weighted) {
        weigh(group, first * kPart, sigma2, w);
        return fit_offset<Two<F>, kPart, Shape::kLevels, false>(x, w, kWeightedTries, near);
    } else {
        Shape::weigh(x, w);
        Shape::weigh(x + kPart, w + kPart);
        return fit_offset<Two<F>, kPart, Shape::kLevels, Shape::kAbsolute>(x, w, Shape::kTries, near);
    }
}

// The quants of a part for the factors that are stored; where those make its scale zero, the quants of its own fit.
template <class Shape, class Near> void
quantize_part(Group & group, int part, const OffsetFit<F> & fit, F scale, F offset, Near & near) {
    const I zero = scale == F{};
    const bool some = any(zero);
    near.bound((fit.lowest + offset) / scale, ~zero);
    near.bound((fit.highest + offset) / scale, ~zero);
    for (int i = part * Shape::kPart; i < (part + 1) * Shape::kPart; ++i) {
        const F x = group.x[i];
        F level = Near::nearest((x + offset) / scale, 0, Shape::kLevels);
        if (some) {
            const F own = Near::nearest(fit.step * (x - fit.origin), 0, Shape::kLevels);
            level = select(zero, select(fit.flat, F{}, own), level);
        }
        keep(group, i, level);
    }
}

template <class Shape> struct OffsetBlocks : Shape {
    static constexpr bool kWholeRows = false;
    static constexpr int kParts = Shape::kParts;

    template <bool Weighted, class Near> static void quantize(Group & group, Near & near) {
        OffsetFit<F> fits[kParts];
        const F sigma2 = Weighted ? all(float(Shape::kEnergy)) * sum_of_squares(group.x, kSuper) / all(float(kSuper)) : F{};
        for (int i = 0; i < kParts; i += 2) {
            const OffsetFit<Two<F>> two = fit_parts<Shape, Weighted>(group, i, sigma2, near);
            for (int k = 0; k < 2; ++k) {
                fits[i + k] = {part(two.scale, k),  part(two.offset, k),  part(two.step, k),  part(two.origin, k),
                               part(two.lowest, k), part(two.highest, k), part(two.sum_w, k), part(two.flat, k)};
            }
        }
        const Factors<kParts> factors = fit_factors<Weighted>(fits);
        const F scale = from_half(factors.scale), offset = from_half(factors.offset);
        for (int i = 0; i < kParts; ++i) {
            const F part_scale = scale * to_float(factors.scales[i]), part_offset = offset * to_float(factors.offsets[i]);
            quantize_part<Shape>(group, i, fits[i], part_scale, part_offset, near);
        }
        put_half(group, Shape::kFactors, factors.scale);
        put_half(group, Shape::kFactors + 2, factors.offset);
        put(group, Shape::kScales, factors.words);
        Shape::put_quants(group);
    }

    template <bool Weighted> static Factors<kParts> fit_factors(const OffsetFit<F> (&fits)[kParts]) {
        Factors<kParts> factors;
        F scales[kParts], offsets[kParts], sums[kParts];
        for (int i = 0; i < kParts; ++i) {
            scales[i] = fits[i].scale;
            offsets[i] = fits[i].offset;
            sums[i] = fits[i].sum_w + F{};
        }
        if constexpr (Weighted) {
            factors.scale = to_half(fit_bytes<kParts, Shape::kTop>(scales, sums, factors.scales));
            factors.offset = to_half(fit_bytes<kParts, Shape::kTop>(offsets, sums, factors.offsets));
        } else {
            factors.scale = spread<kParts, Shape::kTop>(scales, factors.scales);
            factors.offset = spread<kParts, Shape::kTop>(offsets, factors.offsets);
        }
        if constexpr (Shape::template kLimited<Weighted>) {
            for (int i = 0; i < kParts; ++i) {
                factors.scales[i] = lesser(factors.scales[i], all(Shape::kTop));
                factors.offsets[i] = lesser(factors.offsets[i], all(Shape::kTop));
            }
        }
        Shape::encode(factors);
        return factors;
    }
};

} // namespace

} // namespace dflash::kernels
