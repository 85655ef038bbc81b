#pragma once

// A grammar of libllama's, and the checks without which it ends the process: it takes no token that it does not allow.

#include "interfaces.hpp"
#include "llama_abi.hpp"

#include <memory>
#include <string>
#include <vector>

namespace dflash {

class Grammar {
  public:
    // `text` in GBNF with a rule `root`. Throws core_error when libllama refuses it; its parser says why on stderr.
    Grammar(const llama_vocab * vocab, const std::string & text);

    // Another one in the same state.
    Grammar clone() const;

    // Whether the text may go on with this token, or end when it is an end token.
    bool allows(token id) const;

    // Makes minus infinity of what is not allowed in a row of n logits; false when that is all of it.
    bool mask(float * logits, int32_t n) const;

    // Goes on with a token that is allowed.
    void accept(token id);

    // Back to the beginning.
    void reset();

    // Whether an end token was accepted.
    bool ended() const { return ended_; }

  private:
    struct free_sampler {
        void operator()(llama_sampler * sampler) const { llama_sampler_free(sampler); }
    };

    using Handle = std::unique_ptr<llama_sampler, free_sampler>;

    Grammar(const llama_vocab * vocab, std::shared_ptr<const llama_sampler> first, Handle sampler, bool ended);

    const llama_vocab *                  vocab_;
    std::shared_ptr<const llama_sampler> first_;  // at the beginning: to reset one, libllama parses its text again
    Handle                               sampler_;
    bool                                 ended_ = false;
    mutable std::vector<llama_token_data>        row_;
};

} // namespace dflash
