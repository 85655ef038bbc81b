#include "sampler.hpp"

#include "errors.hpp"
#include "noise.hpp"

#include <algorithm>
#include <limits>
#include <string>

namespace dflash {

namespace {

constexpr int32_t kTried = 64;  // best tokens that a grammar is asked about before it is asked about all

// The first of by_noise(), without a sort.
token noisiest(const Filters & filters, uint64_t seed, int32_t pos) {
    const double temperature = filters.temperature();
    Candidate    best        = filters.survivors().front();
    double       score       = -std::numeric_limits<double>::infinity();
    for (const Candidate & candidate : filters.survivors()) {
        const double own = candidate.logit / temperature;
        if (temperature <= 0 || own + kGumbelMost < score) {
            break;
        }
        const double noisy = own + gumbel(seed, pos, candidate.id);
        if (noisy > score || (noisy == score && candidate.id < best.id)) {
            score = noisy;
            best  = candidate;
        }
    }
    return best.id;
}

} // namespace

void by_noise(const Filters & filters, uint64_t seed, int32_t pos, std::vector<Candidate> & out) {
    const double temperature = filters.temperature();
    out.assign(filters.survivors().begin(), filters.survivors().end());
    if (temperature <= 0) {
        return;
    }
    std::vector<std::pair<double, size_t>> scores;
    for (size_t i = 0; i < out.size(); ++i) {
        scores.emplace_back(out[i].logit / temperature + gumbel(seed, pos, out[i].id), i);
    }
    std::sort(scores.begin(), scores.end(), [&](const auto & a, const auto & b) {
        return a.first > b.first || (a.first == b.first && out[a.second].id < out[b.second].id);
    });
    std::vector<Candidate> sorted;
    for (const auto & [score, i] : scores) {
        sorted.push_back(out[i]);
    }
    out.swap(sorted);
}

Sampler::Sampler(int32_t n_vocab, SamplerSettings settings, std::unique_ptr<History> history,
                 std::unique_ptr<Grammar> grammar)
    : n_vocab_(n_vocab), settings_(std::move(settings)), history_(std::move(history)), grammar_(std::move(grammar)),
      filters_(settings_.filters) {
    for (const auto & [id, bias] : settings_.logit_bias) {
        if (id < 0 || id >= n_vocab_) {
            throw core_error("a bias for token " + std::to_string(id) + ", of a vocabulary of " +
                             std::to_string(n_vocab_));
        }
    }
}

token Sampler::choose(const float * logits, int32_t pos) {
    const float * row = adjusted(logits);
    if (grammar_ == nullptr) {
        return free_choice(row, pos);
    }
    const token allowed = allowed_choice(row, pos);
    if (allowed >= 0) {
        return allowed;
    }
    if (row == logits) {
        row_.assign(logits, logits + n_vocab_);
    }
    if (!grammar_->mask(row_.data(), n_vocab_)) {
        throw core_error("the grammar allows no token of the vocabulary here");
    }
    return free_choice(row_.data(), pos);
}

// The row with biases and penalties, which is the row itself when there are none.
const float * Sampler::adjusted(const float * logits) {
    const bool penalized = history_ != nullptr && history_->active();
    if (settings_.logit_bias.empty() && !penalized) {
        return logits;
    }
    row_.assign(logits, logits + n_vocab_);
    for (const auto & [id, bias] : settings_.logit_bias) {
        row_[static_cast<size_t>(id)] += bias;
    }
    if (penalized) {
        history_->penalize(row_.data());
    }
    return row_.data();
}

token Sampler::free_choice(const float * row, int32_t pos) {
    const FilterSettings & s = settings_.filters;
    if (s.greedy()) {
        return greedy(row, n_vocab_);
    }
    if (s.keeps_all()) {
        largest(row, n_vocab_);
        return noisy_argmax(row, n_vocab_, s.temperature, settings_.seed, pos);
    }
    filters_.apply(row, n_vocab_, draw(pos));
    return noisiest(filters_, settings_.seed, pos);
}

// The best of the survivors that the grammar allows; -1: none, or not to be told without asking it about all tokens.
token Sampler::allowed_choice(const float * row, int32_t pos) {
    const FilterSettings & s = settings_.filters;
    if (s.greedy()) {
        largest(row, n_vocab_);
        best_of(row, n_vocab_, kTried, kLeast, room_, best_);
    } else if (s.keeps_all()) {
        best_.assign(1, {free_choice(row, pos), 0.0f});
    } else {
        filters_.apply(row, n_vocab_, draw(pos));
        by_noise(filters_, settings_.seed, pos, best_);
    }
    for (const Candidate & candidate : best_) {
        if (grammar_->allows(candidate.id)) {
            return candidate.id;
        }
    }
    return -1;
}

double Sampler::draw(int32_t pos) const {
    return settings_.filters.draws() ? uniform(settings_.seed, pos, 0, Draw::xtc) : 0.0;
}

void Sampler::accept(token id) {
    if (grammar_ != nullptr) {
        grammar_->accept(id);
    }
    if (history_ != nullptr) {
        history_->push(id);
    }
    accepted_.push_back(id);
}

void Sampler::truncate(size_t n) {
    if (n >= accepted_.size()) {
        return;
    }
    if (history_ != nullptr) {
        history_->truncate(history_->size() - (accepted_.size() - n));
    }
    accepted_.resize(n);
    if (grammar_ != nullptr) {
        grammar_->reset();
        for (const token id : accepted_) {
            grammar_->accept(id);
        }
    }
}

} // namespace dflash
