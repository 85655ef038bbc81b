// IQ4_NL and IQ4_XS: groups of 32 values, each the nearest of sixteen numbers times the group's scale.
// Source: ggml/src/ggml-quants.c (0.5.0), quantize_row_iq4_nl_impl, best_index_int8.
#pragma once

#include "fit.hpp"
#include "group.hpp"

namespace dflash::kernels {

namespace {

constexpr int kCodes = 16;
constexpr int kCodeGroup = 32;
constexpr int kCodeTries = 7;
constexpr float kCodebook[kCodes] = {-127, -104, -83, -65, -49, -35, -22, -10, 1, 13, 25, 38, 53, 69, 89, 113};

// How many of the codebook's midpoints a value is not below. ggml compares the value's distances to two neighbours; near
// their midpoint, itself a float, both differences are exact.
DFLASH_INLINE I code_of(F value) {
    I code{};
    for (int i = 1; i < kCodes; ++i) {
        code -= ~(value < all(0.5f * (kCodebook[i - 1] + kCodebook[i])));
    }
    return code;
}

DFLASH_INLINE F nearest_code(F value) {
    F code = all(kCodebook[0]);
    for (int i = 1; i < kCodes; ++i) {
        code = select(value < all(0.5f * (kCodebook[i - 1] + kCodebook[i])), code, all(kCodebook[i]));
    }
    return code;
}

DFLASH_INLINE void code_sums(const F * x, const F * w, F step, F & sum_qx, F & sum_q2) {
    sum_qx = sum_q2 = F{};
    for (int i = 0; i < kCodeGroup; ++i) {
        const F code = nearest_code(step * x[i]);
        sum_qx += w[i] * code * x[i];
        sum_q2 += w[i] * code * code;
    }
}

// The scale of 32 values; 0 where all are tiny.
DFLASH_INLINE F fit_codes(const F * x, const F * w) {
    F value, size, sum_qx, sum_q2;
    extreme<kCodeGroup>(x, value, size);
    const I flat = size < all(kNoScale);
    code_sums(x, w, all(1.0f) / (-value / all(kCodebook[0])), sum_qx, sum_q2);
    F scale = select(sum_q2 > F{}, sum_qx / sum_q2, F{});
    F most = scale * sum_qx;
    for (int i = -kCodeTries; i <= kCodeTries; ++i) {
        code_sums(x, w, all(float(i) + kCodebook[0]) / value, sum_qx, sum_q2);
        const I better = (sum_q2 > F{}) & (sum_qx * sum_qx > most * sum_q2);
        scale = select(better, sum_qx / sum_q2, scale);
        most = select(better, scale * sum_qx, most);
    }
    return select(flat, F{}, scale);
}

template <bool Weighted> DFLASH_INLINE F fit_code_group(const Group & group, int first, F sigma2) {
    F w[kCodeGroup];
    if constexpr (Weighted) {
        weigh(group, first, sigma2, w);
    } else {
        for (int i = 0; i < kCodeGroup; ++i) {
            w[i] = group.x[first + i] * group.x[first + i];
        }
    }
    return fit_codes(group.x + first, w);
}

template <int N> DFLASH_INLINE F code_sigma2(const Group & group) {
    return sum_of_squares(group.x, N) * all(2.0f / N);
}

DFLASH_INLINE void put_codes(const Group & group, int first, F step, int offset) {
    I words[4];
    for (int i = 0; i < 4; ++i) {
        words[i] = I{};
        for (int k = 0; k < 4; ++k) {
            const int at = first + 4 * i + k;
            words[i] |= (code_of(step * group.x[at]) | code_of(step * group.x[at + 16]) << 4) << (8 * k);
        }
    }
    put(group, offset, words);
}

struct IQ4NL {
    static constexpr int kBlock = kCodeGroup, kBytes = 18;
    static constexpr bool kWholeRows = false;

    template <bool Weighted, class Near> static void quantize(Group & group, Near &) {
        const F scale = fit_code_group<Weighted>(group, 0, Weighted ? code_sigma2<kCodeGroup>(group) : F{});
        put_half(group, 0, to_half(scale));
        put_codes(group, 0, select(scale != F{}, all(1.0f) / scale, F{}), 2);
    }
};

struct IQ4XS {
    static constexpr int kBlock = kSuper, kBytes = 136, kGroups = kSuper / kCodeGroup;
    static constexpr bool kWholeRows = false;

    template <bool Weighted, class Near> static void quantize(Group & group, Near &) {
        const F sigma2 = Weighted ? code_sigma2<kSuper>(group) : F{};
        F scales[kGroups], most, size;
        for (int i = 0; i < kGroups; ++i) {
            scales[i] = fit_code_group<Weighted>(group, i * kCodeGroup, sigma2);
        }
        extreme<kGroups>(scales, most, size);
        const F common = -most / all(32.0f), step = select(common != F{}, all(1.0f) / common, F{});
        I low{}, high{};
        for (int i = 0; i < kGroups; ++i) {
            const I level = clamp(nearest(step * scales[i]), -32, 31);
            const F scale = common * to_float(level);
            put_codes(group, i * kCodeGroup, select(scale != F{}, all(1.0f) / scale, F{}), 8 + 16 * i);
            low |= ((level + all(32)) & all(0xf)) << (4 * i);
            high |= ((level + all(32)) >> 4) << (2 * i);
        }
        // The factor and the upper two bits of each scale, then the lower four.
        const I half = to_half(common);
        group.flawed |= ~half_is_finite(half);
        const I words[2] = {half | high << 16, low};
        put(group, 0, words);
    }
};

} // namespace

} // namespace dflash::kernels
