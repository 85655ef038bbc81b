#include "picks.hpp"

#include <algorithm>
#include <cmath>

namespace dflash {

namespace {

constexpr double kForget = 0.98;  // weight of a round in the next one

// How many leading tokens of a proposal the target wrote, too.
size_t agreed(const std::vector<token> & written, const std::vector<token> & proposed) {
    const auto pair = std::mismatch(proposed.begin(), proposed.end(), written.begin(), written.end());
    return static_cast<size_t>(pair.first - proposed.begin());
}

} // namespace

Picker::Picker(const Sampler & sampler, bool keyed)
    : sampler_(sampler), keyed_(keyed && !sampler.settings().filters.greedy()), filters_(sampler.settings().filters) {
    if (sampler.grammar() != nullptr) {
        grammar_.emplace(sampler.grammar()->clone());
    }
}

int32_t Picker::pick(std::span<const Candidate> candidates, int32_t pos) {
    order_.assign(candidates.begin(), candidates.end());
    if (keyed_) {
        const uint64_t seed = sampler_.settings().seed;
        filters_.apply(order_, sampler_.draw(pos));
        by_noise(filters_, seed, pos, noisy_);
    } else {
        std::sort(order_.begin(), order_.end(), better);
        noisy_.swap(order_);
    }
    const auto found = std::find_if(noisy_.begin(), noisy_.end(), [&](const Candidate & c) { return allowed(c.id); });
    if (found == noisy_.end()) {
        return -1;
    }
    const auto same = [&](const Candidate & c) { return c.id == found->id; };
    return static_cast<int32_t>(std::find_if(candidates.begin(), candidates.end(), same) - candidates.begin());
}

void Picker::accept(token id) {
    if (grammar_ && !grammar_->ended()) {
        grammar_->accept(id);
    }
}

// Of a proposal that agrees with all that was written, more might have been accepted: as much as the running rate says.
void RuleChoice::observe(const std::vector<token> & written, const std::vector<token> & argmax,
                         const std::vector<token> & keyed) {
    const double rate = accepted_ / judged_;
    const auto   worth = [&](const std::vector<token> & proposed) {
        const size_t n    = agreed(written, proposed);
        const double more = n == written.size() ? static_cast<double>(proposed.size() - n) : 0.0;
        return static_cast<double>(n) + rate * (1 - std::pow(rate, more)) / (1 - rate);
    };
    lead_     = kForget * lead_ + worth(keyed) - worth(argmax);
    accepted_ = kForget * accepted_ + static_cast<double>(written.size()) - 1;
    judged_   = kForget * judged_ + static_cast<double>(written.size());
}

} // namespace dflash
