#pragma once

// Passes over one row of logits, float [n]. NaN is never found by any of them.

#include "interfaces.hpp"

#include <limits>
#include <vector>

namespace dflash {

struct Candidate {
    token id;
    float logit;
};

// By logit, the largest first; of equal ones the lower id first.
inline bool better(const Candidate & a, const Candidate & b) {
    return a.logit > b.logit || (a.logit == b.logit && a.id < b.id);
}

constexpr float kLeast = std::numeric_limits<float>::lowest();  // all logits but minus infinity reach it

// The largest logit. Throws core_error when that is not finite.
float largest(const float * logits, int32_t n);

// The token of the largest logit; of equal ones the lowest. Throws as `largest`.
token greedy(const float * logits, int32_t n);

// By how much the largest logit is larger than the next one.
float lead(const float * logits, int32_t n);

// The k best that are at least `least`, the best first: a scan for a threshold, and of the few that reach it a sort.
// `room` is memory for the work.
void best_of(const float * logits, int32_t n, int32_t k, float least, std::vector<float> & room,
             std::vector<Candidate> & out);

// All that are at least `least`, by id.
void gather(const float * logits, int32_t n, float least, std::vector<Candidate> & out);

// The sum of exp(logit - best) over those that are at least `least`.
double mass(const float * logits, int32_t n, float best, float least);

// The standard deviation of those that are not minus infinity.
double deviation(const float * logits, int32_t n);

} // namespace dflash
