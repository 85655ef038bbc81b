#pragma once

#include "context.hpp"

#include <vector>

namespace dflash {

// The largest of each row's top_k x top_k scores, walked from row to row; see walk().
struct Lattice {
    const float * rows;   // float [n_rows, stride]: top_k candidate ids, then top_k scores for each predecessor
    int32_t       stride;
    int32_t       top_k;
};

// Follows the lattice from row 1: at each row the best candidate given the one chosen before it (row 1: the anchor).
// Appends n token ids to out. Throws core_error when a score or an id is not a number of the vocabulary.
// Source: llama.cpp 0.5.0 src/models/dflash.cpp, build_dflash2_selector.
void walk(const Lattice & lattice, int32_t n, int32_t n_vocab, std::vector<token> & out);

// A DFlash 2 drafter in libllama.
class LlamaDrafter final : public Drafter {
  public:
    // Throws core_error when the model is no DFlash 2 drafter, or its context cannot hold a block.
    explicit LlamaDrafter(llama_context * ctx);

    int32_t n_max() const override { return block_size_ - 1; }
    int32_t n_features() const override { return n_features_; }

    void inject(const float * features, int32_t n, int32_t pos) override;
    void draft(token last, int32_t pos, int32_t n, std::vector<token> & out) override;
    void trim(int32_t pos) override { context_.trim(pos); }

    // One block pass; the lattice stays valid until the next pass. The cache ends before pos again afterwards.
    Lattice block(token last, int32_t pos, int32_t n);

  private:
    Context context_;
    int32_t block_size_;
    int32_t n_ubatch_;
    int32_t n_features_;
    int32_t n_vocab_;
    token   mask_;
};

} // namespace dflash
