#include "context.hpp"

#include "errors.hpp"

#include <string>

namespace dflash {

namespace {

constexpr llama_seq_id kSequence = 0;

std::string reason(int32_t rc) {
    switch (rc) {
        case 1:  return "its context is full";
        case 2:  return "it was aborted";
        case -1: return "the batch is invalid";
        default: return "libllama failed with code " + std::to_string(rc);
    }
}

} // namespace

Context::Context(llama_context * ctx, const char * role) : ctx_(ctx), role_(role) {
    if (ctx_ == nullptr) {
        throw core_error(std::string(role_) + ": no context was given");
    }
    batch_.reset(llama_batch_ext_init(ctx_));
}

// M-RoPE models take a position per section for an embedding row; text has the same one in the first three, and
// other models read the first alone.
void Context::place(int32_t index, int32_t pos) {
    if (index < 0) {
        llama_batch_ext_clear(batch_.get());
        throw core_error(std::string(role_) + ": the batch is full");
    }
    const llama_pos sections[4] = {pos, pos, pos, 0};
    llama_batch_ext_set_pos(batch_.get(), index, sections);
}

void Context::add_token(token id, int32_t pos, bool output) {
    const int32_t index = llama_batch_ext_add_token(batch_.get(), kSequence, id);
    place(index, pos);
    llama_batch_ext_set_output_logits(batch_.get(), index, output);
}

void Context::add_features(const float * row, int32_t width, int32_t pos) {
    const int32_t index = llama_batch_ext_add_embd(batch_.get(), kSequence, {row, 1, static_cast<size_t>(width)});
    place(index, pos);
    llama_batch_ext_set_output_logits(batch_.get(), index, false);
}

void Context::run() {
    const int32_t rc = llama_process(ctx_, LLAMA_PROCESS_TYPE_DECODE, batch_.get());
    llama_batch_ext_clear(batch_.get());
    if (rc != 0) {
        throw core_error(std::string(role_) + ": a pass failed, " + reason(rc));
    }
    llama_synchronize(ctx_);
}

void Context::trim(int32_t pos) {
    if (!llama_memory_seq_rm(llama_get_memory(ctx_), kSequence, pos, -1)) {
        throw core_error(std::string(role_) + ": its memory cannot be wound back to position " + std::to_string(pos) +
                         "; run it without a drafter, with --no-draft");
    }
}

} // namespace dflash
