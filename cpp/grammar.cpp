#include "grammar.hpp"

#include "errors.hpp"

#include <algorithm>
#include <cmath>
#include <limits>

namespace dflash {

namespace {

constexpr size_t kShown = 60;  // bytes of a text in a message

// Whole characters of UTF-8.
std::string beginning(const std::string & text) {
    size_t n = std::min(text.size(), kShown);
    while (n < text.size() && (static_cast<unsigned char>(text[n]) & 0xC0) == 0x80) {
        --n;
    }
    return text.substr(0, n) + (n < text.size() ? "..." : "");
}

} // namespace

Grammar::Grammar(const llama_vocab * vocab, const std::string & text) : vocab_(vocab) {
    if (vocab != nullptr) {
        sampler_.reset(llama_sampler_init_grammar(vocab, text.c_str(), "root"));
    }
    if (sampler_ == nullptr) {
        throw core_error("libllama refuses the `grammar`: got '" + beginning(text) +
                         "', expected GBNF with a rule `root`, every rule that is named, no rule that begins with itself or "
                         "repeats what may be empty, and few repetitions");
    }
    first_.reset(llama_sampler_clone(sampler_.get()), free_sampler());
}

Grammar::Grammar(const llama_vocab * vocab, std::shared_ptr<const llama_sampler> first, Handle sampler, bool ended)
    : vocab_(vocab), first_(std::move(first)), sampler_(std::move(sampler)), ended_(ended) {}

Grammar Grammar::clone() const { return Grammar(vocab_, first_, Handle(llama_sampler_clone(sampler_.get())), ended_); }

bool Grammar::allows(token id) const {
    if (ended_) {
        return false;
    }
    llama_token_data       one   = {id, 0.0f, 0.0f};
    llama_token_data_array array = {&one, 1, -1, false};
    llama_sampler_apply(sampler_.get(), &array);
    return std::isfinite(one.logit);
}

bool Grammar::mask(float * logits, int32_t n) const {
    if (ended_) {
        return false;
    }
    row_.resize(static_cast<size_t>(n));
    for (int32_t i = 0; i < n; ++i) {
        row_[i] = {i, logits[i], 0.0f};
    }
    llama_token_data_array array = {row_.data(), row_.size(), -1, false};
    llama_sampler_apply(sampler_.get(), &array);
    bool any = false;
    for (int32_t i = 0; i < n; ++i) {
        logits[i] = row_[i].logit;
        any       = any || std::isfinite(logits[i]);
    }
    return any;
}

void Grammar::accept(token id) {
    if (!allows(id)) {
        throw core_error("the grammar does not allow token " + std::to_string(id) + " here");
    }
    try {
        llama_sampler_accept(sampler_.get(), id);
    } catch (const std::exception & error) {
        throw core_error(std::string("the grammar fails: ") + error.what());
    }
    ended_ = llama_vocab_is_eog(vocab_, id);
}

void Grammar::reset() {
    sampler_.reset(llama_sampler_clone(first_.get()));
    ended_ = false;
}

} // namespace dflash
