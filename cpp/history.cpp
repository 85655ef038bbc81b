#include "history.hpp"

#include "errors.hpp"

#include <algorithm>
#include <string>

namespace dflash {

History::History(const llama_vocab * vocab, int32_t n_vocab, const PenaltySettings & settings, std::vector<token> tokens)
    : settings_(settings), tokens_(std::move(tokens)) {
    for (const token id : tokens_) {
        if (id < 0 || id >= n_vocab) {
            throw core_error("token " + std::to_string(id) + " is outside the vocabulary of " + std::to_string(n_vocab));
        }
    }
    const PenaltySettings & s = settings_;
    if (s.repeats()) {
        repeat_.reset(llama_sampler_init_penalties(n_vocab, s.last_n, s.repeat, s.frequency, s.presence));
    }
    if (s.dries()) {
        if (vocab == nullptr) {
            throw core_error("DRY needs a vocabulary");
        }
        std::vector<const char *> breakers;
        for (const std::string & breaker : s.dry_breakers) {
            breakers.push_back(breaker.c_str());
        }
        dry_.reset(llama_sampler_init_dry(vocab, s.dry_multiplier, s.dry_base, s.dry_allowed_length, s.dry_last_n,
                                          breakers.data(), breakers.size()));
    }
}

// Both samplers change only tokens that they were told of.
void History::penalize(float * logits) {
    const int32_t last_n = std::max(repeat_ ? settings_.last_n : 0, dry_ ? settings_.dry_last_n : 0);
    const size_t  start  = tokens_.size() - std::min(tokens_.size(), static_cast<size_t>(last_n));
    ids_.assign(tokens_.begin() + static_cast<std::ptrdiff_t>(start), tokens_.end());
    std::sort(ids_.begin(), ids_.end());
    ids_.erase(std::unique(ids_.begin(), ids_.end()), ids_.end());
    seen_.clear();
    for (const token id : ids_) {
        seen_.push_back({id, logits[id], 0.0f});
    }
    llama_token_data_array seen = {seen_.data(), seen_.size(), -1, false};
    apply(repeat_.get(), settings_.last_n, seen);
    apply(dry_.get(), settings_.dry_last_n, seen);
    for (const llama_token_data & one : seen_) {
        logits[one.id] = one.logit;
    }
}

// A sampler keeps no way back from a token that it was told: it is told all of them again.
void History::apply(llama_sampler * sampler, int32_t last_n, llama_token_data_array & seen) {
    if (sampler == nullptr) {
        return;
    }
    llama_sampler_reset(sampler);
    const size_t start = tokens_.size() - std::min(tokens_.size(), static_cast<size_t>(last_n));
    for (size_t i = start; i < tokens_.size(); ++i) {
        llama_sampler_accept(sampler, tokens_[i]);
    }
    llama_sampler_apply(sampler, &seen);
}

} // namespace dflash
