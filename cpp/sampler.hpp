#pragma once

// The target's choice at a position: argmax of logit / temperature + noise over the filtered candidates, where the noise
// is a function of (seed, position, token). So the choice depends on no draft, and equals a draw from the filtered
// softmax. With a grammar: the best that it allows.

#include "filters.hpp"
#include "grammar.hpp"
#include "history.hpp"

#include <cstdint>
#include <memory>
#include <utility>
#include <vector>

namespace dflash {

struct SamplerSettings {
    FilterSettings                       filters;
    uint64_t                             seed = 0;
    std::vector<std::pair<token, float>> logit_bias;
};

class Sampler {
  public:
    // As it stands, the best token is chosen. history and grammar may be null.
    explicit Sampler(int32_t n_vocab, SamplerSettings settings = {}, std::unique_ptr<History> history = nullptr,
                     std::unique_ptr<Grammar> grammar = nullptr);

    // The token for position `pos`, from a row of logits, float [n_vocab]. Throws core_error when the row has no finite
    // maximum, or the grammar allows no token.
    token choose(const float * logits, int32_t pos);

    // Goes on with a token that was chosen.
    void accept(token id);

    // Takes back all but the first n accepted tokens.
    void truncate(size_t n);

    int32_t n_vocab() const { return n_vocab_; }
    size_t  n_accepted() const { return accepted_.size(); }

    // Whether the grammar is at its end: behind it there is nothing to choose.
    bool ended() const { return grammar_ != nullptr && grammar_->ended(); }

    // The uniform number of XTC at a position; 0 when that is off.
    double draw(int32_t pos) const;

    const SamplerSettings & settings() const { return settings_; }
    const Grammar *         grammar() const { return grammar_.get(); }

  private:
    const float * adjusted(const float * logits);
    token         free_choice(const float * row, int32_t pos);
    token         allowed_choice(const float * row, int32_t pos);

    int32_t                  n_vocab_;
    SamplerSettings          settings_;
    std::unique_ptr<History> history_;
    std::unique_ptr<Grammar> grammar_;
    Filters                  filters_;
    std::vector<token>       accepted_;
    std::vector<float>       row_;
    std::vector<float>       room_;
    std::vector<Candidate>   best_;
};

// What the filters left, by logit / temperature + noise, the best first; with a temperature of 0 by logit.
void by_noise(const Filters & filters, uint64_t seed, int32_t pos, std::vector<Candidate> & out);

} // namespace dflash
