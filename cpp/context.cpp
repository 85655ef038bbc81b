#include "context.hpp"

#include "errors.hpp"

#include <algorithm>
#include <string>
#include <utility>

namespace dflash {

namespace {

constexpr llama_seq_id kSequence = 0;
constexpr size_t       kMarks    = 4;  // states that are kept; one of a large hybrid model is some 100 MB

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
    recurrent_ = llama_model_is_recurrent(model()) || llama_model_is_hybrid(model());
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
                         "; run it without a drafter");
    }
}

int32_t Context::forget() {
    llama_memory_seq_rm(llama_get_memory(ctx_), kSequence, 0, -1);
    marks_.clear();
    return 0;
}

// The marked state nearest before pos, which becomes its position.
bool Context::restore(int32_t & pos) {
    while (!marks_.empty() && marks_.back().pos > pos) {
        marks_.pop_back();
    }
    if (marks_.empty()) {
        return false;
    }
    const Mark & mark = marks_.back();
    pos = mark.pos;
    return llama_state_seq_set_data_ext(ctx_, mark.state.data(), mark.state.size(), kSequence,
                                        LLAMA_STATE_SEQ_FLAGS_PARTIAL_ONLY) != 0;
}

int32_t Context::rewind(int32_t pos) {
    const llama_memory_t memory = llama_get_memory(ctx_);
    const int32_t        end    = llama_memory_seq_pos_max(memory, kSequence) + 1;
    if (pos <= 0 || pos > end) {
        return forget();
    }
    if (recurrent_ && pos < end && !restore(pos)) {
        return forget();
    }
    if (pos < end && !llama_memory_seq_rm(memory, kSequence, pos, -1)) {
        return forget();
    }
    // A marked state holds its window. Else it must reach back from pos; -1: its cells are all gone.
    const int32_t window = recurrent_ ? 0 : llama_model_n_swa(model());
    const int32_t first  = llama_memory_seq_pos_min(memory, kSequence);
    if (window > 0 && (first < 0 || first > std::max(0, pos - window))) {
        return forget();
    }
    return pos;
}

void Context::mark(int32_t pos) {
    if (!recurrent_ || (!marks_.empty() && marks_.back().pos == pos)) {
        return;
    }
    std::vector<uint8_t> state;
    if (marks_.size() == kMarks) {
        state = std::move(marks_.front().state);
        marks_.erase(marks_.begin());
    }
    if (save(state)) {
        marks_.push_back({pos, std::move(state)});
    }
}

// What cannot be wound back of the memory: the recurrent state.
bool Context::save(std::vector<uint8_t> & state) const {
    constexpr llama_state_seq_flags flags = LLAMA_STATE_SEQ_FLAGS_PARTIAL_ONLY;
    state.resize(llama_state_seq_get_size_ext(ctx_, kSequence, flags));
    return llama_state_seq_get_data_ext(ctx_, state.data(), state.size(), kSequence, flags) == state.size();
}

void Context::hold() {
    if (!save(held_)) {
        throw core_error(std::string(role_) + ": its state could not be saved");
    }
}

void Context::release(int32_t pos) {
    if (llama_state_seq_set_data_ext(ctx_, held_.data(), held_.size(), kSequence, LLAMA_STATE_SEQ_FLAGS_PARTIAL_ONLY) ==
        0) {
        throw core_error(std::string(role_) + ": its state could not be restored");
    }
    trim(pos);
}

} // namespace dflash
