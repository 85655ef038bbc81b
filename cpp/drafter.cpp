#include "drafter.hpp"

#include "errors.hpp"
#include "sampler.hpp"

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <string>

namespace dflash {

namespace {

std::string metadata(const llama_model * model, const char * key) {
    char text[64] = {};
    return llama_model_meta_val_str(model, key, text, sizeof(text)) < 0 ? std::string() : std::string(text);
}

} // namespace

void walk(const Lattice & lattice, int32_t n, int32_t n_vocab, std::vector<token> & out) {
    int32_t chosen = 0;
    for (int32_t i = 1; i <= n; ++i) {
        const float * row    = lattice.rows + static_cast<size_t>(i) * lattice.stride;
        const float * scores = row + lattice.top_k + static_cast<size_t>(chosen) * lattice.top_k;
        chosen = static_cast<int32_t>(std::max_element(scores, scores + lattice.top_k) - scores);
        const float id = row[chosen];
        if (!std::isfinite(scores[chosen])) {
            throw core_error("drafter: its scores are not finite; convert it to BF16 or F32 rather than F16");
        }
        if (!(id >= 0.0f && id < static_cast<float>(n_vocab))) {
            throw core_error("drafter: it proposes an id outside the vocabulary of " + std::to_string(n_vocab));
        }
        out.push_back(static_cast<token>(id));
    }
}

LlamaDrafter::LlamaDrafter(llama_context * ctx, Kind kind, bool anchor_first, int32_t n_ctx)
    : context_(ctx, "drafter"), kind_(kind), anchor_first_(anchor_first) {
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
    if (kind_ == Kind::dflash2) {
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

void LlamaDrafter::draft(token last, int32_t pos, int32_t n, std::vector<token> & out) {
    block(last, pos, n);
    if (kind_ == Kind::dflash2) {
        walk(lattice(), n, n_vocab_, out);
        return;
    }
    for (int32_t i = 0; i < n; ++i) {
        out.push_back(greedy(logits(i), n_vocab_));
    }
}

} // namespace dflash
