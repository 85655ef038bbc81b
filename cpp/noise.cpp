#include "noise.hpp"

#include "arithmetic.hpp"

#include <algorithm>
#include <bit>
#include <cmath>

namespace dflash {

namespace {

constexpr uint32_t kMultipliers[2] = {0xD2511F53, 0xCD9E8D57};
constexpr uint32_t kWeyl[2]        = {0x9E3779B9, 0xBB67AE85};
constexpr int      kRounds         = 10;

constexpr int32_t kStrip = 256;  // tokens whose words are made side by side

std::array<uint32_t, 2> key_of(uint64_t seed) { return {static_cast<uint32_t>(seed), static_cast<uint32_t>(seed >> 32)}; }

// 53 of 64 bits as a number in (0, 1); all zeros become half of the smallest step.
double uniform_of(uint32_t low, uint32_t high) {
    const uint64_t bits = ((static_cast<uint64_t>(high) << 32) | low) >> 11;
    return bits == 0 ? 0x1p-54 : static_cast<double>(bits) * 0x1p-53;
}

double gumbel_of(uint32_t low, uint32_t high) { return -log_of(-log_of(uniform_of(low, high))); }

// The first two words of tokens first .. first+kStrip-1. A few at a time go through all rounds side by side, so that the
// compiler keeps them in vector registers.
DFLASH_WIDEST void strip(uint64_t seed, int32_t pos, token first, uint32_t * __restrict low, uint32_t * __restrict high) {
    constexpr int32_t lanes = 16;
    for (int32_t start = 0; start < kStrip; start += lanes) {
        uint32_t                c0[lanes], c1[lanes], c2[lanes], c3[lanes];
        std::array<uint32_t, 2> key = key_of(seed);
        for (int32_t i = 0; i < lanes; ++i) {
            c0[i] = static_cast<uint32_t>(pos);
            c1[i] = static_cast<uint32_t>(first + start + i);
            c2[i] = static_cast<uint32_t>(Draw::token);
            c3[i] = 0;
        }
        for (int round = 0; round < kRounds; ++round) {
            for (int32_t i = 0; i < lanes; ++i) {
                const uint64_t p0 = static_cast<uint64_t>(kMultipliers[0]) * c0[i];
                const uint64_t p1 = static_cast<uint64_t>(kMultipliers[1]) * c2[i];
                c0[i] = static_cast<uint32_t>(p1 >> 32) ^ c1[i] ^ key[0];
                c1[i] = static_cast<uint32_t>(p1);
                c2[i] = static_cast<uint32_t>(p0 >> 32) ^ c3[i] ^ key[1];
                c3[i] = static_cast<uint32_t>(p0);
            }
            key[0] += kWeyl[0];
            key[1] += kWeyl[1];
        }
        for (int32_t i = 0; i < lanes; ++i) {
            low[start + i]  = static_cast<uint32_t>(c0[i]);
            high[start + i] = static_cast<uint32_t>(c1[i]);
        }
    }
}

// Which of a strip's tokens may yet win against `score`. One that lies `gap` below it needs u > exp(-exp(-gap)), and so
// 1 - u < 2^-k with k = floor(gap / ln 2). In single precision, with room for what that rounds away.
DFLASH_WIDEST void may_win(const float * logits, int32_t n, float temperature, float score,
                           const uint32_t * __restrict high, uint32_t * __restrict flags) {
    const float inverse = 1 / temperature;
    for (int32_t i = 0; i < n; ++i) {
        const float    own  = logits[i] * inverse;
        const float    room = 0.01f + 1e-6f * (std::fabs(own) + std::fabs(score));
        const float    gap  = std::min(std::max(0.0f, score - own - room), 40.0f);  // 0 for NaN
        const uint32_t k    = static_cast<uint32_t>(static_cast<int32_t>(gap * 1.4426950f));
        const float    rest = static_cast<float>(static_cast<int32_t>(~high[i] >> 1)) * 0x1p-31f;
        flags[i] = rest * std::bit_cast<float>((127 + k) << 23) < 1.001f;
    }
}

} // namespace

std::array<uint32_t, 4> philox(std::array<uint32_t, 4> c, std::array<uint32_t, 2> key) {
    for (int round = 0; round < kRounds; ++round) {
        const uint64_t p0 = static_cast<uint64_t>(kMultipliers[0]) * c[0];
        const uint64_t p1 = static_cast<uint64_t>(kMultipliers[1]) * c[2];
        c = {static_cast<uint32_t>(p1 >> 32) ^ c[1] ^ key[0], static_cast<uint32_t>(p1),
             static_cast<uint32_t>(p0 >> 32) ^ c[3] ^ key[1], static_cast<uint32_t>(p0)};
        key[0] += kWeyl[0];
        key[1] += kWeyl[1];
    }
    return c;
}

double uniform(uint64_t seed, int32_t pos, token id, Draw draw) {
    const auto words = philox({static_cast<uint32_t>(pos), static_cast<uint32_t>(id), static_cast<uint32_t>(draw), 0},
                              key_of(seed));
    return uniform_of(words[0], words[1]);
}

double gumbel(uint64_t seed, int32_t pos, token id) { return -log_of(-log_of(uniform(seed, pos, id))); }

token noisy_argmax(const float * logits, int32_t n, double temperature, uint64_t seed, int32_t pos, float least) {
    uint32_t low[kStrip], high[kStrip], flags[kStrip];
    token    best  = -1;
    double   score = -std::numeric_limits<double>::infinity();
    for (int32_t first = 0; first < n; first += kStrip) {
        const float * const row = logits + first;
        const int32_t       m   = std::min(kStrip, n - first);
        strip(seed, pos, first, low, high);
        may_win(row, m, static_cast<float>(temperature), static_cast<float>(score), high, flags);
        for (int32_t i = 0; i < m; ++i) {
            if (flags[i] == 0 || !(row[i] >= least)) {
                continue;
            }
            const double noisy = row[i] / temperature + gumbel_of(low[i], high[i]);
            if (noisy > score) {
                score = noisy;
                best  = first + i;
            }
        }
    }
    return best;
}

} // namespace dflash
