#include "drafter.hpp"

#include "arithmetic.hpp"
#include "errors.hpp"

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <string>

namespace dflash {

namespace {

constexpr int32_t kTried = 16;  // best tokens of a row that a grammar is asked about

std::string metadata(const llama_model * model, const char * key) {
    char text[64] = {};
    return llama_model_meta_val_str(model, key, text, sizeof(text)) < 0 ? std::string() : std::string(text);
}

} // namespace

void walk(const Lattice & lattice, int32_t n, int32_t n_vocab, int32_t pos, Picker picker, std::vector<token> & out,
          std::vector<float> * confidence) {
    std::vector<Candidate> candidates(static_cast<size_t>(lattice.top_k));
    int32_t                chosen = 0;
    for (int32_t i = 1; i <= n; ++i) {
        const float * row    = lattice.rows + static_cast<size_t>(i) * lattice.stride;
        const float * scores = row + lattice.top_k + static_cast<size_t>(chosen) * lattice.top_k;
        for (int32_t k = 0; k < lattice.top_k; ++k) {
            if (!(row[k] >= 0.0f && row[k] < static_cast<float>(n_vocab))) {
                throw core_error("drafter: it proposes an id outside the vocabulary of " + std::to_string(n_vocab));
            }
            if (!std::isfinite(scores[k])) {
                throw core_error("drafter: its scores are not finite; convert it to BF16 or F32 rather than F16");
            }
            candidates[k] = {static_cast<token>(row[k]), scores[k]};
        }
        chosen = picker.pick(candidates, pos + i);
        if (chosen < 0) {
            return;
        }
        picker.accept(candidates[chosen].id);
        out.push_back(candidates[chosen].id);
        if (confidence != nullptr) {
            const float best = *std::max_element(scores, scores + lattice.top_k);
            const double own = exp_of(static_cast<double>(scores[chosen]) - best);
            confidence->push_back(static_cast<float>(own / mass(scores, lattice.top_k, best, kLeast)));
        }
    }
}

LlamaDrafter::LlamaDrafter(llama_context * ctx, Kind kind, bool anchor_first, bool confidence_head, int32_t n_ctx)
    : context_(ctx, "drafter"), kind_(kind), anchor_first_(anchor_first),
      confidence_head_(confidence_head && kind == Kind::dspark) {
    const llama_model * model = context_.model();
    block_size_ = std::atoi(metadata(model, "dflash.block_size").c_str());
    n_ubatch_   = static_cast<int32_t>(llama_n_ubatch(ctx));
    n_ctx_      = static_cast<int32_t>(llama_n_ctx(ctx));
    n_ctx_      = n_ctx > 0 ? std::min(n_ctx, n_ctx_) : n_ctx_;
    n_vocab_    = llama_vocab_n_tokens(llama_model_get_vocab(model));
    mask_       = llama_vocab_mask(llama_model_get_vocab(model));
    n_features_ = static_cast<int32_t>(llama_model_target_layer_ids_n(model)) * llama_model_n_embd(model);
    if ((llama_model_dflash_selector_top_k(model) > 0) != (kind_ == Kind::dflash2)) {
        throw core_error("drafter: libllama sees a drafter of another kind in this file");
    }
    if (kind_ == Kind::dflash2 && anchor_first_) {
        throw core_error("drafter: the anchor's row of a DFlash 2 block proposes nothing");
    }
    if (block_size_ < 2 || block_size_ > n_ubatch_) {
        throw core_error("drafter: a block of " + std::to_string(block_size_) + " does not fit into one pass of " +
                         std::to_string(n_ubatch_));
    }
    if (mask_ < 0 || mask_ >= n_vocab_) {
        throw core_error("drafter: the file names no mask token of its vocabulary");
    }
    if (kind_ == Kind::dflash2 || confidence_head_) {
        llama_set_embeddings_nextn(ctx, true, /*masked=*/false);
    }
    llama_set_causal_attn(ctx, metadata(model, "dflash.attention.causal") == "true");
}

void LlamaDrafter::inject(const float * features, int32_t n, int32_t pos) {
    for (int32_t i = 0; i < n; ++i) {
        context_.add_features(features + static_cast<size_t>(i) * n_features_, n_features_, pos + i);
    }
    context_.run();
}

void LlamaDrafter::block(token last, int32_t pos, int32_t n) {
    if (n < 1 || n > n_max()) {
        throw core_error("drafter: a block proposes 1 to " + std::to_string(n_max()) + " tokens, not " +
                         std::to_string(n));
    }
    // libllama's graph computes every row and copies the first ones out: all rows ask for logits, or none.
    for (int32_t i = 0; i < n + first_row(); ++i) {
        context_.add_token(i == 0 ? last : mask_, pos + i, kind_ != Kind::dflash2);
    }
    context_.run();
    context_.trim(pos);
}

Lattice LlamaDrafter::lattice() {
    const float * rows = llama_get_embeddings_nextn(context_.ctx());
    if (rows == nullptr) {
        throw core_error("drafter: the pass left no selector lattice");
    }
    return {rows, llama_model_n_embd(context_.model()), llama_model_dflash_selector_top_k(context_.model())};
}

const float * LlamaDrafter::logits(int32_t i) {
    const float * row = llama_get_logits_ith(context_.ctx(), i + first_row());
    if (row == nullptr) {
        throw core_error("drafter: proposal " + std::to_string(i) + " has no logits");
    }
    return row;
}

void LlamaDrafter::draft(token last, int32_t pos, int32_t n, const Picks & picks, Proposal & out) {
    block(last, pos, n);
    if (kind_ != Kind::dflash2) {
        read_rows(n, pos, picks, out);
        return;
    }
    walk(lattice(), n, n_vocab_, pos, picks.picker(), out.tokens, picks.confidence() ? &out.confidence : nullptr);
    if (picks.both()) {
        walk(lattice(), n, n_vocab_, pos, picks.other(), out.other);
    }
}

// A row is a marginal, or conditioned on the best token of the row before: the best is picked, with a grammar the best of
// a few that it allows.
void LlamaDrafter::read_rows(int32_t n, int32_t pos, const Picks & picks, Proposal & out) {
    Picker picker = picks.picker();
    for (int32_t i = 0; i < n; ++i) {
        token picked = -1;
        if (picker.plain()) {
            picked = greedy(logits(i), n_vocab_);
        } else {
            best_of(logits(i), n_vocab_, kTried, kLeast, room_, candidates_);
            const int32_t chosen = picker.pick(candidates_, pos + i + 1);
            if (chosen < 0) {
                return;
            }
            picked = candidates_[chosen].id;
            picker.accept(picked);
        }
        out.tokens.push_back(picked);
        if (picks.confidence()) {
            out.confidence.push_back(confidence(i, picked));
        }
    }
}

// What the confidence head says of proposal i, or else the share of the pick in the softmax of its row.
float LlamaDrafter::confidence(int32_t i, token picked) {
    if (confidence_head_) {
        const float * rows = llama_get_embeddings_nextn(context_.ctx());
        if (rows == nullptr) {
            throw core_error("drafter: the pass left no confidences");
        }
        return rows[static_cast<size_t>(i + first_row()) * llama_model_n_embd(context_.model())];
    }
    const float * row  = logits(i);
    const float   best = largest(row, n_vocab_);
    return static_cast<float>(exp_of(static_cast<double>(row[picked]) - best) / mass(row, n_vocab_, best, kLeast));
}

} // namespace dflash
