#include "scores.hpp"

#include <algorithm>
#include <cmath>

namespace dflash {

void Scores::ask(int32_t n_best) {
    n_best_ = n_best;
    clear();
}

void Scores::add(const float * logits, int32_t n, token id) {
    if (n_best_ < 0) {
        return;
    }
    const double best = largest(logits, n);
    const double log_sum = best + std::log(mass(logits, n, static_cast<float>(best), kLeast));
    Score        score{logits[id] - log_sum, {}};
    if (n_best_ > 0) {
        best_of(logits, n, std::min(n_best_, n), kLeast, room_, candidates_);
        for (const Candidate & candidate : candidates_) {
            score.best.emplace_back(candidate.id, candidate.logit - log_sum);
        }
    }
    found_.push_back(std::move(score));
}

} // namespace dflash
