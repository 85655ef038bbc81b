#pragma once

#include "context.hpp"

#include <vector>

namespace dflash {

// A target in libllama. `n_ctx` of its context's positions are used; `layers` are the layer inputs to capture, in the drafter's order (dflash.target_layers).
class LlamaTarget final : public Target {
  public:
    LlamaTarget(llama_context * ctx, int32_t n_ctx, std::vector<int32_t> layers, int32_t n_outputs);

    int32_t n_vocab() const override { return n_vocab_; }
    int32_t n_ctx() const override { return n_ctx_; }
    int32_t n_batch() const override;
    int32_t n_outputs() const override { return n_outputs_; }
    int32_t n_features() const override { return static_cast<int32_t>(layers_.size()) * n_embd_; }

    void decode(std::span<const token> tokens, int32_t pos, int32_t n_logits) override;
    const float * logits(int32_t row) override;
    void features(int32_t first, int32_t n, float * out) override;
    void trim(int32_t pos) override;
    int32_t rewind(int32_t pos) override { return context_.rewind(pos); }
    bool recurrent() const override { return context_.recurrent(); }
    void mark(int32_t pos) override { context_.mark(pos); }

  private:
    Context              context_;
    std::vector<int32_t> layers_;
    int32_t              n_ctx_;
    int32_t              n_vocab_;
    int32_t              n_embd_;
    int32_t              n_outputs_;
    std::vector<token>   pass_;  // of a target that goes one way: the last pass that may be taken back
    int32_t              pass_pos_ = 0;
};

} // namespace dflash
