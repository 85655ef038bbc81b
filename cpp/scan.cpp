#include "scan.hpp"

#include "arithmetic.hpp"
#include "errors.hpp"

#include <algorithm>
#include <array>
#include <cmath>

namespace dflash {

namespace {

constexpr int32_t kLanes = 16;  // running values side by side, so that the compiler keeps them in vector registers
constexpr int32_t kBlock = 64;
constexpr float   kNone  = -std::numeric_limits<float>::infinity();

DFLASH_WIDEST float row_max(const float * x, int32_t n) {
    std::array<float, kLanes> best;
    best.fill(kNone);
    int32_t i = 0;
    for (; i + kLanes <= n; i += kLanes) {
        for (int32_t j = 0; j < kLanes; ++j) {
            best[j] = x[i + j] > best[j] ? x[i + j] : best[j];
        }
    }
    float top = kNone;
    for (const float b : best) {
        top = b > top ? b : top;
    }
    for (; i < n; ++i) {
        top = x[i] > top ? x[i] : top;
    }
    return top;
}

} // namespace

float largest(const float * logits, int32_t n) {
    const float top = row_max(logits, n);
    if (!std::isfinite(top)) {
        throw core_error("the logits hold no finite maximum: weights or context are damaged, or F16 overflowed");
    }
    return top;
}

token greedy(const float * logits, int32_t n) {
    const float top = largest(logits, n);
    return static_cast<token>(std::find(logits, logits + n, top) - logits);
}

DFLASH_WIDEST float lead(const float * logits, int32_t n) {
    std::array<float, kLanes> best, next;
    best.fill(kNone);
    next.fill(kNone);
    const auto see = [&](int32_t lane, float x) {
        const float lower = x < best[lane] ? x : best[lane];
        next[lane] = lower > next[lane] ? lower : next[lane];
        best[lane] = x > best[lane] ? x : best[lane];
    };
    int32_t i = 0;
    for (; i + kLanes <= n; i += kLanes) {
        for (int32_t j = 0; j < kLanes; ++j) {
            see(j, logits[i + j]);
        }
    }
    for (; i < n; ++i) {
        see(0, logits[i]);
    }
    for (int32_t j = 1; j < kLanes; ++j) {
        const float second = next[j];
        see(0, best[j]);
        see(0, second);
    }
    return best[0] - next[0];
}

// As many blocks as there are candidates wanted hold one that is at least the smallest of their maxima.
void best_of(const float * logits, int32_t n, int32_t k, float least, std::vector<float> & room,
             std::vector<Candidate> & out) {
    const int32_t n_blocks = (n + kBlock - 1) / kBlock;
    room.resize(2 * static_cast<size_t>(n_blocks));
    float * const maxima = room.data();
    for (int32_t b = 0; b < n_blocks; ++b) {
        maxima[b] = row_max(logits + b * kBlock, std::min(kBlock, n - b * kBlock));
    }
    if (k <= n_blocks) {
        float * const sorted = maxima + n_blocks;
        std::copy(maxima, maxima + n_blocks, sorted);
        std::nth_element(sorted, sorted + k - 1, sorted + n_blocks, std::greater<>());
        least = std::max(least, sorted[k - 1]);
    }
    out.clear();
    for (int32_t b = 0; b < n_blocks; ++b) {
        for (int32_t i = b * kBlock; maxima[b] >= least && i < std::min(n, (b + 1) * kBlock); ++i) {
            if (logits[i] >= least) {
                out.push_back({i, logits[i]});
            }
        }
    }
    const auto end = out.begin() + std::min<std::ptrdiff_t>(k, static_cast<std::ptrdiff_t>(out.size()));
    std::partial_sort(out.begin(), end, out.end(), better);
    out.erase(end, out.end());
}

void gather(const float * logits, int32_t n, float least, std::vector<Candidate> & out) {
    out.clear();
    for (int32_t i = 0; i < n; ++i) {
        if (logits[i] >= least) {
            out.push_back({i, logits[i]});
        }
    }
}

DFLASH_WIDEST double mass(const float * logits, int32_t n, float best, float least) {
    std::array<double, kLanes> sums{};
    int32_t                    i = 0;
    for (; i + kLanes <= n; i += kLanes) {
        for (int32_t j = 0; j < kLanes; ++j) {
            const double part = exp_of(static_cast<double>(logits[i + j]) - best);
            sums[j] += logits[i + j] >= least ? part : 0.0;
        }
    }
    for (; i < n; ++i) {
        sums[0] += logits[i] >= least ? exp_of(static_cast<double>(logits[i]) - best) : 0.0;
    }
    double sum = 0;
    for (const double part : sums) {
        sum += part;
    }
    return sum;
}

double deviation(const float * logits, int32_t n) {
    double  sum = 0, squares = 0;
    int32_t count = 0;
    for (int32_t i = 0; i < n; ++i) {
        if (logits[i] >= kLeast) {
            sum += logits[i];
            ++count;
        }
    }
    const double mean = sum / count;
    for (int32_t i = 0; i < n; ++i) {
        if (logits[i] >= kLeast) {
            squares += (logits[i] - mean) * (logits[i] - mean);
        }
    }
    return std::sqrt(squares / count);
}

} // namespace dflash
