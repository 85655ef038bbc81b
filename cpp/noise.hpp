#pragma once

// Noise that is a function of (seed, position, token) alone.

#include "interfaces.hpp"

#include <array>
#include <cstdint>
#include <limits>

namespace dflash {

// Philox4x32 with 10 rounds: four words for a counter and a key.
// Source: Salmon, Moraes, Dror, Shaw, "Parallel random numbers: as easy as 1, 2, 3", SC 2011.
std::array<uint32_t, 4> philox(std::array<uint32_t, 4> counter, std::array<uint32_t, 2> key);

// What a draw is for: the third word of the counter.
enum class Draw : uint32_t {
    token = 0,  // the noise of a candidate
    xtc   = 1,  // whether XTC applies at a position
};

// A uniform number in (0, 1) of 53 bits.
double uniform(uint64_t seed, int32_t pos, token id, Draw draw = Draw::token);

// Standard Gumbel noise, -log(-log(u)): at most kGumbelMost.
double gumbel(uint64_t seed, int32_t pos, token id);
constexpr double kGumbelMost = 36.75;

// The token whose logit / temperature + gumbel is largest of n logits; of equal ones the lowest. Logits below `least` and
// those that are no number are left out. -1: all are.
token noisy_argmax(const float * logits, int32_t n, double temperature, uint64_t seed, int32_t pos,
                   float least = std::numeric_limits<float>::lowest());

} // namespace dflash
