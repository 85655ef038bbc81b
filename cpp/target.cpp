#include "target.hpp"

#include "errors.hpp"

#include <algorithm>
#include <cstring>
#include <string>

namespace dflash {

LlamaTarget::LlamaTarget(llama_context * ctx, int32_t n_ctx, std::vector<int32_t> layers, int32_t n_outputs)
    : context_(ctx, "target"), layers_(std::move(layers)), n_outputs_(n_outputs) {
    if (llama_get_memory(ctx) == nullptr || llama_model_has_encoder(context_.model())) {
        throw core_error("target: it is no model that generates text");
    }
    n_ctx_   = std::min(n_ctx, static_cast<int32_t>(llama_n_ctx(ctx)));
    n_vocab_ = llama_vocab_n_tokens(llama_model_get_vocab(context_.model()));
    n_embd_  = llama_model_n_embd(context_.model());
    const int32_t n_layer = llama_model_n_layer(context_.model());
    for (const int32_t layer : layers_) {
        if (layer < 0 || layer > n_layer) {
            throw core_error("target: layer input " + std::to_string(layer) + " does not exist, it has " +
                             std::to_string(n_layer) + " layers");
        }
        llama_set_embeddings_layer_inp(ctx, static_cast<uint32_t>(layer), true);
    }
}

int32_t LlamaTarget::n_batch() const { return static_cast<int32_t>(llama_n_batch(context_.ctx())); }

void LlamaTarget::decode(std::span<const token> tokens, int32_t pos, int32_t n_logits) {
    const int32_t n = static_cast<int32_t>(tokens.size());
    if (n_logits > 1 && context_.one_way()) {
        context_.hold();
        pass_.assign(tokens.begin(), tokens.end());
        pass_pos_ = pos;
    }
    for (int32_t i = 0; i < n; ++i) {
        context_.add_token(tokens[i], pos + i, i >= n - n_logits);
    }
    context_.run();
}

// A target that goes one way goes back to before the pass, and reads again what is kept of it.
void LlamaTarget::trim(int32_t pos) {
    if (!context_.one_way()) {
        context_.trim(pos);
        return;
    }
    context_.release(pass_pos_);
    for (int32_t i = pass_pos_; i < pos; ++i) {
        context_.add_token(pass_[static_cast<size_t>(i - pass_pos_)], i, i == pos - 1);
    }
    context_.run();
}

const float * LlamaTarget::logits(int32_t row) {
    const float * p = llama_get_logits_ith(context_.ctx(), row);
    if (p == nullptr) {
        throw core_error("target: row " + std::to_string(row) + " has no logits");
    }
    return p;
}

void LlamaTarget::features(int32_t first, int32_t n, float * out) {
    const size_t width = static_cast<size_t>(n_features());
    for (size_t k = 0; k < layers_.size(); ++k) {
        const float * rows = llama_get_embeddings_layer_inp(context_.ctx(), static_cast<uint32_t>(layers_[k]));
        for (int32_t i = 0; i < n; ++i) {
            std::memcpy(out + i * width + k * n_embd_, rows + static_cast<size_t>(first + i) * n_embd_,
                        n_embd_ * sizeof(float));
        }
    }
}

} // namespace dflash
