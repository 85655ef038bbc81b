// Vectors taken several at a time: an operation does not wait for the one before it in another vector, and a search is
// mostly such waiting. `Two<Two<F>>` is four of them.
#pragma once

#include "numbers.hpp"

namespace dflash::kernels {

namespace {

template <typename V> struct Two {
    V a;
    V b;
};

template <typename V> struct Beside {
    static constexpr int kCount = 1;
    using Mask = I;
};
template <typename V> struct Beside<Two<V>> {
    static constexpr int kCount = 2 * Beside<V>::kCount;
    using Mask = Two<typename Beside<V>::Mask>;
};
template <> struct Beside<Two<I>> {
    static constexpr int kCount = 2;
};
template <typename V> using Mask = typename Beside<V>::Mask;
template <typename V> constexpr int kCount = Beside<V>::kCount;

// The float in every lane.
template <typename V> DFLASH_INLINE V splat(float value) {
    if constexpr (kCount<V> == 1) {
        return all(value);
    } else {
        using Half = decltype(V::a);
        return {splat<Half>(value), splat<Half>(value)};
    }
}

// x[i], x[i + stride] and so on, a vector each.
template <typename V> DFLASH_INLINE V gather(const F * x, int i, int stride) {
    if constexpr (kCount<V> == 1) {
        return x[i];
    } else {
        using Half = decltype(V::a);
        return {gather<Half>(x, i, stride), gather<Half>(x, i + stride * kCount<Half>, stride)};
    }
}

// Vector `i` of several.
template <typename V> DFLASH_INLINE auto part(const V & values, int i) {
    if constexpr (kCount<V> == 2) {
        return i == 0 ? values.a : values.b;
    } else {
        constexpr int kHalf = kCount<V> / 2;
        return i < kHalf ? part(values.a, i) : part(values.b, i - kHalf);
    }
}

#define DFLASH_EACH(op) \
    template <typename V> DFLASH_INLINE auto operator op(Two<V> x, Two<V> y) { \
        return Two<decltype(x.a op y.a)>{x.a op y.a, x.b op y.b}; \
    }
DFLASH_EACH(+)
DFLASH_EACH(-)
DFLASH_EACH(*)
DFLASH_EACH(/)
DFLASH_EACH(<)
DFLASH_EACH(>)
DFLASH_EACH(<=)
DFLASH_EACH(!=)
DFLASH_EACH(&)
DFLASH_EACH(|)
#undef DFLASH_EACH

template <typename V> DFLASH_INLINE Two<V> operator-(Two<V> x) { return {-x.a, -x.b}; }
template <typename V> DFLASH_INLINE Two<V> operator~(Two<V> x) { return {~x.a, ~x.b}; }
template <typename V> DFLASH_INLINE Two<V> & operator+=(Two<V> & x, Two<V> y) { return x = x + y; }
template <typename V> DFLASH_INLINE Two<V> & operator&=(Two<V> & x, Two<V> y) { return x = x & y; }
template <typename V> DFLASH_INLINE Two<V> & operator|=(Two<V> & x, Two<V> y) { return x = x | y; }

template <typename M, typename V> DFLASH_INLINE Two<V> select(Two<M> mask, Two<V> yes, Two<V> no) {
    return {select(mask.a, yes.a, no.a), select(mask.b, yes.b, no.b)};
}
template <typename V> DFLASH_INLINE Two<V> lesser(Two<V> x, Two<V> y) { return {lesser(x.a, y.a), lesser(x.b, y.b)}; }
template <typename V> DFLASH_INLINE Two<V> greater(Two<V> x, Two<V> y) { return {greater(x.a, y.a), greater(x.b, y.b)}; }
template <typename V> DFLASH_INLINE Two<V> magnitude(Two<V> x) { return {magnitude(x.a), magnitude(x.b)}; }
template <typename M> DFLASH_INLINE bool any(Two<M> mask) { return any(mask.a | mask.b); }

// `Near`'s functions for several vectors.
template <class Near, typename V> DFLASH_INLINE V nearest(V value, float low, float high) {
    if constexpr (kCount<V> == 1) {
        return Near::nearest(value, low, high);
    } else {
        return {nearest<Near>(value.a, low, high), nearest<Near>(value.b, low, high)};
    }
}

template <class Near, typename V, typename M> DFLASH_INLINE void bound(Near & near, V value, M mask) {
    if constexpr (kCount<V> == 1) {
        near.bound(value, mask);
    } else {
        bound(near, value.a, mask.a);
        bound(near, value.b, mask.b);
    }
}

} // namespace

} // namespace dflash::kernels
