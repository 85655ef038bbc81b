#pragma once

// The tokens of a sequence, and what they take from or add to the logits of the next: repetition penalties and DRY, by
// libllama's own samplers.

#include "interfaces.hpp"
#include "llama_abi.hpp"

#include <memory>
#include <string>
#include <vector>

namespace dflash {

// By llama.cpp's names. As they stand here, nothing is penalized.
struct PenaltySettings {
    int32_t                  last_n             = 64;
    float                    repeat             = 1.0f;
    float                    frequency          = 0.0f;
    float                    presence           = 0.0f;
    float                    dry_multiplier     = 0.0f;
    float                    dry_base           = 1.75f;
    int32_t                  dry_allowed_length = 2;
    int32_t                  dry_last_n         = 64;
    std::vector<std::string> dry_breakers;

    bool repeats() const { return last_n > 0 && (repeat != 1.0f || frequency != 0.0f || presence != 0.0f); }
    bool dries() const { return dry_multiplier != 0.0f && dry_base >= 1.0f && dry_last_n > 0; }
};

class History {
  public:
    // `vocab` is needed for DRY alone, whose breakers are text; `tokens` are those of the prompt.
    History(const llama_vocab * vocab, int32_t n_vocab, const PenaltySettings & settings, std::vector<token> tokens);

    void   push(token id) { tokens_.push_back(id); }
    void   truncate(size_t n) { tokens_.resize(n); }
    size_t size() const { return tokens_.size(); }

    // Whether penalize() may change a row.
    bool active() const { return repeat_ != nullptr || dry_ != nullptr; }

    // Changes the logits of tokens that occurred.
    void penalize(float * logits);

  private:
    struct free_sampler {
        void operator()(llama_sampler * sampler) const { llama_sampler_free(sampler); }
    };
    using sampler_ptr = std::unique_ptr<llama_sampler, free_sampler>;

    void apply(llama_sampler * sampler, int32_t last_n, llama_token_data_array & seen);

    PenaltySettings               settings_;
    std::vector<token>            tokens_;
    sampler_ptr                   repeat_;
    sampler_ptr                   dry_;
    std::vector<token>            ids_;
    std::vector<llama_token_data> seen_;
};

} // namespace dflash
