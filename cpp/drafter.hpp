#pragma once

#include "context.hpp"
#include "picks.hpp"

#include <vector>

namespace dflash {

// What a drafter's pass leaves to read.
enum class Kind {
    dflash,   // a row of logits for each position behind the anchor
    dflash2,  // a lattice of candidates and pairwise scores
    dspark,   // rows of logits, each already conditioned on the best token of the row before
};

// DFlash 2's rows: top_k candidate ids, then top_k scores for each predecessor.
struct Lattice {
    const float * rows;    // float [n_rows, stride]
    int32_t       stride;
    int32_t       top_k;
};

// Follows the lattice from row 1, whose predecessor is the anchor: at each row a candidate given the one picked before it.
// Appends n token ids to out, for positions pos+1, ..., or fewer where the grammar allows no candidate, and to confidence,
// unless that is null, the share of each in the softmax of its row. Throws core_error when a score or an id is not a
// number of the vocabulary.
// Source: llama.cpp 0.5.0 src/models/dflash.cpp, build_dflash2_selector.
void walk(const Lattice & lattice, int32_t n, int32_t n_vocab, int32_t pos, Picker picker, std::vector<token> & out,
          std::vector<float> * confidence = nullptr);

// A drafter in libllama. `anchor_first`: the anchor's own row is the first proposal, so that a block of n rows proposes
// n tokens; otherwise its row is read by nobody, and n rows propose n - 1.
class LlamaDrafter final : public Drafter {
  public:
    // `n_ctx` of its context's positions are used, 0: all. Throws core_error when the model is of another kind, or its
    // context cannot hold a block.
    // `confidence_head`: a DSpark drafter's rows say how likely they are right.
    LlamaDrafter(llama_context * ctx, Kind kind, bool anchor_first, bool confidence_head, int32_t n_ctx);

    int32_t n_max() const override { return block_size_ - first_row(); }
    int32_t n_ctx() const override { return n_ctx_; }
    int32_t n_batch() const override { return n_ubatch_; }
    int32_t n_features() const override { return n_features_; }
    int32_t n_vocab() const { return n_vocab_; }

    void inject(const float * features, int32_t n, int32_t pos) override;
    void draft(token last, int32_t pos, int32_t n, const Picks & picks, Proposal & out) override;
    int32_t rewind(int32_t pos) override { return context_.rewind(pos); }

    // One pass over the block that proposes n tokens. What it leaves stays valid until the next pass; the cache ends
    // before pos again.
    void block(token last, int32_t pos, int32_t n);

    // Of the last block(): the lattice of a DFlash 2 drafter, or the logits, float [n_vocab], of proposal i otherwise.
    Lattice       lattice();
    const float * logits(int32_t i);

    Kind kind() const { return kind_; }

  private:
    int32_t first_row() const { return anchor_first_ ? 0 : 1; }
    void    read_rows(int32_t n, int32_t pos, const Picks & picks, Proposal & out);
    float   confidence(int32_t i, token picked);

    Context context_;
    Kind    kind_;
    bool    anchor_first_;
    bool    confidence_head_;
    int32_t n_ctx_;
    int32_t block_size_;
    int32_t n_ubatch_;
    int32_t n_features_;
    int32_t n_vocab_;
    token   mask_;

    std::vector<Candidate> candidates_;
    std::vector<float>     room_;
};

} // namespace dflash
