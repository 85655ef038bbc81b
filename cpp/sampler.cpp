#include "sampler.hpp"

#include "errors.hpp"

#include <array>
#include <cmath>
#include <limits>

namespace dflash {

namespace {

// Sixteen running maxima, so that the compiler keeps them in vector registers.
float row_max(const float * x, int32_t n) {
    constexpr int32_t lanes = 16;
    std::array<float, lanes> best;
    best.fill(-std::numeric_limits<float>::infinity());
    int32_t i = 0;
    for (; i + lanes <= n; i += lanes) {
        for (int32_t j = 0; j < lanes; ++j) {
            best[j] = x[i + j] > best[j] ? x[i + j] : best[j];
        }
    }
    float top = -std::numeric_limits<float>::infinity();
    for (const float b : best) {
        top = b > top ? b : top;
    }
    for (; i < n; ++i) {
        top = x[i] > top ? x[i] : top;
    }
    return top;
}

} // namespace

token greedy(const float * logits, int32_t n) {
    const float top = row_max(logits, n);
    if (!std::isfinite(top)) {
        throw core_error("the logits hold no finite maximum: weights or context are damaged, or F16 overflowed");
    }
    int32_t i = 0;
    while (logits[i] != top) {
        ++i;
    }
    return i;
}

} // namespace dflash
