// The searches for a group's scale, each lane in ggml's own order of operations.
// Source: ggml/src/ggml-quants.c (0.5.0), make_qkx2_quants, make_qkx3_quants, make_qx_quants, make_q3_quants,
// make_qp_quants.
#pragma once

#include "side_by_side.hpp"

namespace dflash::kernels {

namespace {

// The scales to try: (first + i * step + levels) / (highest - minimum), i = 0 .. n.
struct Tries {
    float first;
    float step;
    int n;
};

// What ggml tries wherever a value has its importance.
constexpr Tries kWeightedTries = {-0.9f, 0.05f, 36};

// x ~ scale * quant - offset. `step` and `origin` give the quants of this fit, round(step * (x - origin)), all zero
// where `flat`.
template <typename V> struct OffsetFit {
    V scale;
    V offset;
    V step;
    V origin;
    V lowest;
    V highest;
    V sum_w;
    Mask<V> flat;
};

template <bool Absolute, typename V> DFLASH_INLINE V cost(V difference) {
    if constexpr (Absolute) {
        return magnitude(difference);
    } else {
        return difference * difference;
    }
}

// The steps between quants of one try and, for quants by it, the sums from which ggml solves for scale and offset.
template <typename V> struct Moments {
    V l{};
    V l2{};
    V xl{};
};

template <int N, int Levels, class Near, typename V> DFLASH_INLINE Moments<V>
moments(const F * x, const F * w, V step, V origin, V (&levels)[N]) {
    Moments<V> sums;
    for (int i = 0; i < N; ++i) {
        const V value = gather<V>(x, i, N);
        levels[i] = nearest<Near>(step * (value - origin), 0, Levels);
        const V wl = gather<V>(w, i, N) * levels[i];
        sums.l += wl;
        sums.l2 += wl * levels[i];
        sums.xl += wl * value;
    }
    return sums;
}

template <int N, bool Absolute, typename V> DFLASH_INLINE V
error_of(const F * x, const F * w, V scale, V shift, const V (&levels)[N]) {
    V error{};
    for (int i = 0; i < N; ++i) {
        error += gather<V>(w, i, N) * cost<Absolute>(scale * levels[i] + shift - gather<V>(x, i, N));
    }
    return error;
}

// Lowest and highest value and the sums of weights and of weighted values; the minimum is what quants start from.
template <int N, typename V> DFLASH_INLINE OffsetFit<V> survey(const F * x, const F * w, V & sum_x) {
    OffsetFit<V> fit;
    fit.lowest = fit.highest = gather<V>(x, 0, N);
    fit.sum_w = gather<V>(w, 0, N);
    sum_x = fit.sum_w * fit.lowest;
    for (int i = 1; i < N; ++i) {
        const V value = gather<V>(x, i, N), weight = gather<V>(w, i, N);
        fit.lowest = lesser(value, fit.lowest);
        fit.highest = greater(value, fit.highest);
        fit.sum_w += weight;
        sum_x += weight * value;
    }
    fit.origin = select(fit.lowest > V{}, V{}, fit.lowest);
    fit.flat = fit.highest <= fit.origin;
    return fit;
}

// Each N values that may all be shifted by an offset, quants 0 .. Levels. A better fit moves the minimum, from which the
// next try is measured: in its step and in its origin.
template <typename V, int N, int Levels, bool Absolute, class Near>
OffsetFit<V> fit_offset(const F * x, const F * w, const Tries & tries, Near & near) {
    V sum_x, levels[N];
    OffsetFit<V> best = survey<N>(x, w, sum_x);
    const V lifted = best.origin, low = best.lowest, high = best.highest, sum_w = best.sum_w;
    const auto try_step = [&](float top, V origin) {
        const V step = select(best.flat, V{}, splat<V>(top) / (high - origin));
        bound(near, (low - origin) * step, ~best.flat);
        bound(near, (high - origin) * step, ~best.flat);
        return step;
    };
    V minimum = lifted;
    best.step = try_step(Levels, minimum);
    best.scale = splat<V>(1.0f) / best.step;
    moments<N, Levels, Near>(x, w, best.step, minimum, levels);
    V least = error_of<N, Absolute>(x, w, best.scale, minimum, levels);
    for (int i = 0; i <= tries.n; ++i) {
        const V step = try_step(tries.first + tries.step * float(i) + float(Levels), minimum);
        const Moments<V> sums = moments<N, Levels, Near>(x, w, step, minimum, levels);
        const V determinant = sum_w * sums.l2 - sums.l * sums.l;
        V scale = (sum_w * sums.xl - sum_x * sums.l) / determinant;
        V shift = (sums.l2 * sum_x - sums.l * sums.xl) / determinant;
        const auto positive = shift > V{};
        scale = select(positive, sums.xl / sums.l2, scale);
        shift = select(positive, V{}, shift);
        const V error = error_of<N, Absolute>(x, w, scale, shift, levels);
        const auto better = (determinant > V{}) & (error < least);
        least = select(better, error, least);
        best.scale = select(better, scale, best.scale);
        best.step = select(better, step, best.step);
        best.origin = select(better, minimum, best.origin);
        minimum = select(better, shift, minimum);
    }
    best.scale = select(best.flat, V{}, best.scale);
    best.offset = -select(best.flat, lifted, minimum);
    return best;
}

// x ~ scale * quant, quants -Levels .. Levels - 1; of this fit they are round(step * x), and lowest where `flat`.
template <typename V> struct SignedFit {
    V scale;
    V step;
    V largest;
    Mask<V> flat;
};

// By halves, which wait for each other less than one value after the other. What is not a number counts as zero.
template <int N, typename V> DFLASH_INLINE void larger_half(const F * x, int stride, V & value, V & size) {
    if constexpr (N == 1) {
        value = gather<V>(x, 0, stride);
        size = greater(magnitude(value), V{});
    } else {
        V later, later_size;
        larger_half<N / 2>(x, stride, value, size);
        larger_half<N / 2>(x + N / 2, stride, later, later_size);
        value = select(later_size > size, later, value);
        size = greater(later_size, size);
    }
}

// The value of largest magnitude among N, the first of equals, and that magnitude.
template <int N, typename V> DFLASH_INLINE void extreme(const F * x, int stride, V & value, V & size) {
    larger_half<N>(x, stride, value, size);
    value = select(size > V{}, value, V{});
}

template <int N> DFLASH_INLINE void extreme(const F * x, F & value, F & size) { extreme<N>(x, 0, value, size); }

template <int N, int Levels, class Near, typename V> DFLASH_INLINE void
signed_sums(const F * x, const F * w, const V (&wx)[N], V step, V & sum_xl, V & sum_l2) {
    sum_xl = sum_l2 = V{};
    for (int i = 0; i < N; ++i) {
        const V level = nearest<Near>(step * gather<V>(x, i, N), -Levels, Levels - 1);
        sum_xl += wx[i] * level;
        sum_l2 += gather<V>(w, i, N) * level * level;
    }
}

template <typename V, int N, int Levels, class Near> SignedFit<V> fit_signed(const F * x, const F * w) {
    V value, size, wx[N], sum_xl, sum_l2;
    extreme<N>(x, N, value, size);
    for (int i = 0; i < N; ++i) {
        wx[i] = gather<V>(w, i, N) * gather<V>(x, i, N);
    }
    const auto flat = size < splat<V>(kNoScale);
    value = select(flat, splat<V>(1.0f), value);
    SignedFit<V> best{V{}, splat<V>(-float(Levels)) / value, size, flat};
    signed_sums<N, Levels, Near>(x, w, wx, best.step, sum_xl, sum_l2);
    best.scale = select(sum_l2 != V{}, sum_xl / sum_l2, V{});
    V most = best.scale * sum_xl;
    for (int i = -9; i <= 9; ++i) {
        if (i == 0) {
            continue;
        }
        const V step = splat<V>(-(float(Levels) + 0.1f * float(i))) / value;
        signed_sums<N, Levels, Near>(x, w, wx, step, sum_xl, sum_l2);
        const auto better = (sum_l2 > V{}) & (sum_xl * sum_xl > most * sum_l2);
        best.scale = select(better, sum_xl / sum_l2, best.scale);
        best.step = select(better, step, best.step);
        most = select(better, best.scale * sum_xl, most);
    }
    best.scale = select(flat, V{}, best.scale);
    return best;
}

// One round in which each quant in turn is moved to where the others would have it, if that helps; returns the lanes in
// which one was.
template <typename V, int N, int Levels> DFLASH_INLINE Mask<V>
move_in_turn(const F * x, const V (&w)[N], const V (&wx)[N], V (&levels)[N], V & sum_xl, V & sum_l2) {
    Mask<V> changed{};
    for (int i = 0; i < N; ++i) {
        V other_xl = sum_xl - wx[i] * levels[i];
        V other_l2 = sum_l2 - w[i] * levels[i] * levels[i];
        const V level = nearest<Exact>(gather<V>(x, i, N) * other_l2 / other_xl, -Levels, Levels - 1);
        auto better = (other_xl > V{}) & (level != levels[i]);
        other_xl += wx[i] * level;
        other_l2 += w[i] * level * level;
        better &= (other_l2 > V{}) & (other_xl * other_xl * sum_l2 > sum_xl * sum_xl * other_l2);
        levels[i] = select(better, level, levels[i]);
        sum_xl = select(better, other_xl, sum_xl);
        sum_l2 = select(better, other_l2, sum_l2);
        changed |= better;
    }
    return changed;
}

constexpr int kRounds = 5;

// As `fit_signed`, with squares for weights, but from the first step on the quants themselves are moved. `levels` are the
// quants from 0 on. A lane that has settled stays as it is while others go on.
template <typename V, int N, int Levels> SignedFit<V> fit_signed_in_turn(const F * x, V (&levels)[N]) {
    V value, size, w[N], wx[N], sum_xl{}, sum_l2{};
    extreme<N>(x, N, value, size);
    const auto flat = size < splat<V>(kNoScale);
    const V step = splat<V>(-float(Levels)) / select(flat, splat<V>(1.0f), value);
    for (int i = 0; i < N; ++i) {
        const V x_i = gather<V>(x, i, N);
        w[i] = x_i * x_i;
        wx[i] = w[i] * x_i;
        levels[i] = nearest<Exact>(step * x_i, -Levels, Levels - 1);
        sum_xl += wx[i] * levels[i];
        sum_l2 += w[i] * levels[i] * levels[i];
    }
    for (int round = 0; round < kRounds; ++round) {
        if (!any(move_in_turn<V, N, Levels>(x, w, wx, levels, sum_xl, sum_l2) & ~flat)) {
            break;
        }
    }
    for (int i = 0; i < N; ++i) {
        levels[i] = select(flat, V{}, levels[i] + splat<V>(float(Levels)));
    }
    const V scale = select(~flat & (sum_l2 > V{}), sum_xl / sum_l2, V{});
    return {scale, step, size, flat};
}

// The steps of `fit_bytes`, the first of which is not limited to Levels when its error is found.
template <int N, int Levels> DFLASH_INLINE F best_byte_step(const F * x, const F * w, F high) {
    F best = all(float(Levels)) / high, least{};
    for (int k = -5; k <= 4; ++k) {
        const bool first = k == -5;
        if (k == 0) {
            continue;
        }
        const F step = first ? best : all(0.1f * float(k) + float(Levels)) / high, scale = all(1.0f) / step;
        F error{};
        for (int i = 0; i < N; ++i) {
            const I level = nearest(step * x[i]);
            const F difference = x[i] - scale * to_float(first ? level & all(0xff) : lesser(level, all(Levels)));
            error += w[i] * difference * difference;
        }
        const I better = first ? all(-1) : error < least;
        least = select(better, error, least);
        best = select(better, step, best);
    }
    return best;
}

template <int N, int Levels> DFLASH_INLINE I
move_bytes_in_turn(const F * x, const F * w, I (&quants)[N], F & sum_xl, F & sum_l2) {
    I changed{};
    for (int i = 0; i < N; ++i) {
        const F old = to_float(quants[i]), wx = w[i] * x[i];
        F other_xl = sum_xl - wx * old;
        F other_l2 = sum_l2 - w[i] * old * old;
        const I level = lesser(nearest(x[i] * other_l2 / other_xl), all(Levels));
        I better = (other_xl > F{}) & (other_l2 > F{}) & (level != quants[i]);
        other_xl += wx * to_float(level);
        other_l2 += w[i] * to_float(level) * to_float(level);
        better &= other_xl * other_xl * sum_l2 > sum_xl * sum_xl * other_l2;
        quants[i] = select(better, level & all(0xff), quants[i]);
        sum_xl = select(better, other_xl, sum_xl);
        sum_l2 = select(better, other_l2, sum_l2);
        changed |= better;
    }
    return changed;
}

// Scales of groups, none of them negative, as bytes 0 .. Levels; returns their common factor. ggml keeps a byte of what
// it rounds, so a negative one wraps. In the end the bytes are moved in turn, as above.
template <int N, int Levels> F fit_bytes(const F * x, const F * w, I (&quants)[N]) {
    F high{}, sum_xl{}, sum_l2{};
    for (int i = 0; i < N; ++i) {
        high = greater(high, x[i]);
    }
    const I flat = high < all(kNoScale);
    const F step = best_byte_step<N, Levels>(x, w, high);
    for (int i = 0; i < N; ++i) {
        const I level = lesser(nearest(step * x[i]), all(Levels));
        quants[i] = level & all(0xff);
        sum_xl += w[i] * x[i] * to_float(level);
        sum_l2 += w[i] * to_float(level) * to_float(level);
    }
    for (int round = 0; round < kRounds; ++round) {
        if (!any(move_bytes_in_turn<N, Levels>(x, w, quants, sum_xl, sum_l2) & ~flat)) {
            break;
        }
    }
    for (int i = 0; i < N; ++i) {
        quants[i] = select(flat, I{}, quants[i]);
    }
    return select(~flat & (sum_l2 > F{}), sum_xl / sum_l2, F{});
}

} // namespace

} // namespace dflash::kernels
