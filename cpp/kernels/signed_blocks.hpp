// Q3_K and Q6_K: blocks of 256 values in sixteen parts, each with a signed scale.
// Source: ggml/src/ggml-quants.c (0.5.0), quantize_row_q3_K_ref and _impl, quantize_row_q6_K_ref and _impl.
#pragma once

#include "fit.hpp"
#include "group.hpp"

namespace dflash::kernels {

namespace {

constexpr int kParts = 16;
constexpr int kPart = 16;

DFLASH_INLINE void squares(const F * x, F (&w)[kPart]) {
    for (int i = 0; i < kPart; ++i) {
        w[i] = x[i] * x[i];
    }
}

// The scale of largest magnitude, the first of equals.
DFLASH_INLINE F first_largest(const F (&scales)[kParts]) {
    F value, size;
    extreme<kParts>(scales, value, size);
    return value;
}

// The quants of a part from 0 on, for the scale that is stored; where that is zero, those that `own` fills in.
template <int Levels, class Near, class Own> DFLASH_INLINE void
quantize_signed_part(Group & group, int part, F largest, F scale, Near & near, const Own & own) {
    const I zero = scale == F{};
    near.bound(largest / scale, ~zero);
    F levels[kPart] = {}, * x = group.x + part * kPart;
    if (any(zero)) {
        own(x, levels);
    }
    for (int i = 0; i < kPart; ++i) {
        const F level = Near::nearest(x[i] / scale, -Levels, Levels - 1) + all(float(Levels));
        keep(group, part * kPart + i, select(zero, levels[i], level));
    }
}

// The quants of the fit itself, from 0 on.
template <int N, int Levels, class Near> DFLASH_INLINE void
own_levels(const SignedFit<F> & fit, const F * x, F (&levels)[N]) {
    for (int i = 0; i < N; ++i) {
        const F level = Near::nearest(fit.step * x[i], -Levels, Levels - 1) + all(float(Levels));
        levels[i] = select(fit.flat, F{}, level);
    }
}

struct Q6K {
    static constexpr int kBlock = kSuper, kBytes = 210, kLevels = 32;
    static constexpr bool kWholeRows = false;

    template <bool Weighted, class Near> static void quantize(Group & group, Near & near) {
        SignedFit<F> fits[kParts];
        F scales[kParts], w[kPart];
        for (int i = 0; i < kParts; ++i) {
            if constexpr (Weighted) {
                load_importance(group, i * kPart, w);
            } else {
                squares(group.x + i * kPart, w);
            }
            fits[i] = fit_signed<F, kPart, kLevels, Near>(group.x + i * kPart, w);
            scales[i] = fits[i].scale;
        }
        const F most = first_largest(scales);
        const I empty = magnitude(most) < all(kNoScale);
        const F step = all(-128.0f) / most;
        const I common = select(empty, I{}, to_half(all(1.0f) / step));
        I stored[kParts], words[4];
        for (int i = 0; i < kParts; ++i) {
            stored[i] = select(empty, I{}, lesser(nearest(step * scales[i]), all(127)) << 24 >> 24);
            const F scale = from_half(common) * to_float(stored[i]);
            quantize_signed_part<kLevels>(group, i, fits[i].largest, scale, near, [&](const F * x, F (&levels)[kPart]) {
                fits[i].flat |= empty;
                own_levels<kPart, kLevels, Near>(fits[i], x, levels);
            });
            stored[i] &= all(0xff);
        }
        for (int i = 0; i < 4; ++i) {
            words[i] = bytes(stored[4 * i], stored[4 * i + 1], stored[4 * i + 2], stored[4 * i + 3]);
        }
        put_quants(group);
        put(group, 192, words);
        put_half(group, 208, common);
    }

    // In each half of a block, four bits of value l share a byte with those of l + 64; the upper two of l, l + 32, l + 64
    // and l + 96 share another.
    static DFLASH_INLINE void put_quants(const Group & group) {
        I low[32], high[16];
        for (int i = 0; i < 32; ++i) {
            low[i] = I{};
            for (int k = 0; k < 4; ++k) {
                const int at = i / 16 * 128 + i % 16 * 4 + k;
                low[i] |= ((quant(group, at) & all(0xf)) | (quant(group, at + 64) & all(0xf)) << 4) << (8 * k);
            }
        }
        for (int i = 0; i < 16; ++i) {
            high[i] = I{};
            for (int k = 0; k < 16; ++k) {
                const int at = i / 8 * 128 + i % 8 * 4 + k / 4 + k % 4 * 32;
                high[i] |= (quant(group, at) >> 4) << (k / 4 * 8 + k % 4 * 2);
            }
        }
        put(group, 0, low);
        put(group, 128, high);
    }
};

struct Q3K {
    static constexpr int kBlock = kSuper, kBytes = 110, kLevels = 4;
    static constexpr bool kWholeRows = false;

    template <bool Weighted, class Near> static void quantize(Group & group, Near & near) {
        SignedFit<F> fits[kParts];
        F scales[kParts], sums[kParts];
        if constexpr (Weighted) {
            fit_by_weight<Near>(group, fits, sums);
        } else {
            fit_in_turn(group, fits);
        }
        for (int i = 0; i < kParts; ++i) {
            scales[i] = fits[i].scale;
        }
        I stored[kParts];
        const I common = to_half(Weighted ? factors_by_weight(scales, sums, stored) : factors(scales, stored));
        for (int i = 0; i < kParts; ++i) {
            const F scale = from_half(common) * to_float(stored[i] - all(32));
            quantize_signed_part<kLevels>(group, i, fits[i].largest, scale, near, [&](const F * x, F (&levels)[kPart]) {
                if constexpr (Weighted) {
                    own_levels<kPart, kLevels, Near>(fits[i], x, levels);
                } else {
                    fit_signed_in_turn<F, kPart, kLevels>(x, levels);
                }
            });
        }
        put_scales(group, stored);
        put_half(group, 108, common);
        put_quants(group);
    }

    static DFLASH_INLINE void fit_in_turn(const Group & group, SignedFit<F> (&fits)[kParts]) {
        using Four = Two<Two<F>>;
        for (int i = 0; i < kParts; i += kCount<Four>) {
            Four levels[kPart];
            const SignedFit<Four> four = fit_signed_in_turn<Four, kPart, kLevels>(group.x + i * kPart, levels);
            for (int k = 0; k < kCount<Four>; ++k) {
                fits[i + k].scale = part(four.scale, k);
                fits[i + k].largest = part(four.largest, k);
            }
        }
    }

    template <class Near>
    static DFLASH_INLINE void fit_by_weight(const Group & group, SignedFit<F> (&fits)[kParts], F (&sums)[kParts]) {
        const F sigma2 = all(2.0f) * sum_of_squares(group.x, kSuper) / all(float(kSuper));
        for (int i = 0; i < kParts; ++i) {
            F w[kPart];
            weigh(group, i * kPart, sigma2, w);
            sums[i] = F{};
            for (int k = 0; k < kPart; ++k) {
                sums[i] += w[k];
            }
            fits[i] = fit_signed<F, kPart, kLevels, Near>(group.x + i * kPart, w);
        }
    }

    // Six bits for each part's scale, and their common factor.
    static DFLASH_INLINE F factors(const F (&scales)[kParts], I (&stored)[kParts]) {
        const F most = first_largest(scales);
        const I none = most == F{};
        const F step = all(-32.0f) / most;
        for (int i = 0; i < kParts; ++i) {
            // ggml keeps a byte of the number before it limits it.
            const I level = nearest(step * scales[i]) << 24 >> 24;
            stored[i] = select(none, I{}, clamp(level, -32, 31) + all(32));
        }
        return select(none, F{}, all(1.0f) / step);
    }

    static DFLASH_INLINE F factors_by_weight(const F (&scales)[kParts], const F (&w)[kParts], I (&stored)[kParts]) {
        const SignedFit<F> fit = fit_signed<F, kParts, 32, Exact>(scales, w);
        F levels[kParts];
        own_levels<kParts, 32, Exact>(fit, scales, levels);
        for (int i = 0; i < kParts; ++i) {
            stored[i] = truncate(levels[i]);
        }
        return fit.scale;
    }

    // Four bits of scale i beside those of i + 8; the upper two of i, i + 4, i + 8 and i + 12 share a byte.
    static DFLASH_INLINE void put_scales(const Group & group, const I (&stored)[kParts]) {
        I packed[12], words[3];
        for (int i = 0; i < 8; ++i) {
            packed[i] = (stored[i] & all(0xf)) | (stored[i + 8] & all(0xf)) << 4;
        }
        for (int i = 0; i < 4; ++i) {
            packed[i + 8] = stored[i] >> 4 | stored[i + 4] >> 4 << 2 | stored[i + 8] >> 4 << 4 | stored[i + 12] >> 4 << 6;
        }
        for (int i = 0; i < 3; ++i) {
            words[i] = bytes(packed[4 * i], packed[4 * i + 1], packed[4 * i + 2], packed[4 * i + 3]);
        }
        put(group, 96, words);
    }

    // The third bit of every quant, then the lower two as in Q2_K.
    static DFLASH_INLINE void put_quants(const Group & group) {
        I high[8], low[16];
        for (int i = 0; i < 8; ++i) {
            high[i] = I{};
            for (int k = 0; k < 32; ++k) {
                high[i] |= (quant(group, 4 * i + k / 8 + k % 8 * 32) >> 2) << k;
            }
        }
        for (int i = 0; i < 16; ++i) {
            low[i] = I{};
            for (int k = 0; k < 16; ++k) {
                const int at = i / 8 * 128 + i % 8 * 4 + k / 4 + k % 4 * 32;
                low[i] |= (quant(group, at) & all(3)) << (k / 4 * 8 + k % 4 * 2);
            }
        }
        put(group, 0, high);
        put(group, 32, low);
    }
};

} // namespace

} // namespace dflash::kernels
