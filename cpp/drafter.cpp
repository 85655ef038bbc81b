#include "drafter.hpp"

#include "errors.hpp"

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <cstring>
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
        if (!std::isfinite(scores[chosen]) || !(id >= 0.0f && id < static_cast<float>(n_vocab))) {
            throw core_error("drafter: its scores are not finite; convert it to BF16 or F32 rather than F16");
        }
        out.push_back(static_cast<token>(id));
    }
}

LlamaDrafter::LlamaDrafter(llama_context * ctx) : context_(ctx, "drafter") {
    const llama_model * model = context_.model();
    block_size_ = std::atoi(metadata(model, "dflash.block_size").c_str());
    n_ubatch_   = static_cast<int32_t>(llama_n_ubatch(ctx));
    n_vocab_    = llama_vocab_n_tokens(llama_model_get_vocab(model));
    mask_       = llama_vocab_mask(llama_model_get_vocab(model));
    n_features_ = static_cast<int32_t>(llama_model_target_layer_ids_n(model)) * llama_model_n_embd(model);
    if (llama_model_dflash_selector_top_k(model) <= 0) {
        throw core_error("drafter: it is no DFlash 2 model, and other kinds cannot be run yet");
    }
    if (block_size_ < 2 || block_size_ > n_ubatch_) {
        throw core_error("drafter: a block of " + std::to_string(block_size_) + " does not fit into one pass of " +
                         std::to_string(n_ubatch_));
    }
    if (mask_ < 0 || mask_ >= n_vocab_) {
        throw core_error("drafter: the file names no mask token of its vocabulary");
    }
    llama_set_embeddings_nextn(ctx, true, /*masked=*/false);
    llama_set_causal_attn(ctx, metadata(model, "dflash.attention.causal") == "true");
}

void LlamaDrafter::inject(const float * features, int32_t n, int32_t pos) {
    for (int32_t first = 0; first < n; first += n_ubatch_) {
        const int32_t end = std::min(n, first + n_ubatch_);
        for (int32_t i = first; i < end; ++i) {
            context_.add_features(features + static_cast<size_t>(i) * n_features_, n_features_, pos + i);
        }
        context_.run();
    }
}

Lattice LlamaDrafter::block(token last, int32_t pos, int32_t n) {
    for (int32_t i = 0; i <= n; ++i) {
        context_.add_token(i == 0 ? last : mask_, pos + i, false);
    }
    context_.run();
    const float * rows = llama_get_embeddings_nextn(context_.ctx());
    if (rows == nullptr) {
        throw core_error("drafter: the pass left no selector lattice");
    }
    context_.trim(pos);
    return {rows, llama_model_n_embd(context_.model()), llama_model_dflash_selector_top_k(context_.model())};
}

void LlamaDrafter::draft(token last, int32_t pos, int32_t n, std::vector<token> & out) {
    walk(block(last, pos, n), n, n_vocab_, out);
}

} // namespace dflash
