#include "grammar.hpp"

#include "errors.hpp"
#include "spoken.hpp"

#include <algorithm>
#include <cctype>
#include <cmath>
#include <limits>

namespace dflash {

namespace {

constexpr size_t kShown  = 60;   // bytes of a text in a message
constexpr size_t kReason = 160;  // and of a reason

// Whole characters of UTF-8.
std::string beginning(const std::string & text, size_t most) {
    size_t n = std::min(text.size(), most);
    while (n < text.size() && (static_cast<unsigned char>(text[n]) & 0xC0) == 0x80) {
        --n;
    }
    return text.substr(0, n) + (n < text.size() ? "..." : "");
}

// Whether there is a rule of this name, or what looks like one in a text or a comment.
bool has_rule(const std::string & text, const std::string & name) {
    for (size_t at = text.find(name); at != std::string::npos; at = text.find(name, at + 1)) {
        const size_t next = text.find_first_not_of(" \t", at + name.size());
        const bool   word = at > 0 && (std::isalnum(static_cast<unsigned char>(text[at - 1])) || text[at - 1] == '-');
        if (!word && next != std::string::npos && text.compare(next, 3, "::=") == 0) {
            return true;
        }
    }
    return false;
}

// Why there is no sampler: what libllama's parser printed, without the grammar that it repeats behind it; what it does not
// print but logs, told by what is left.
std::string reason_of(const std::string & printed, const std::string & text) {
    static const std::string sign = "error parsing grammar: ";
    const size_t             at   = printed.find(sign);
    if (at == std::string::npos) {
        return has_rule(text, "root") ? "a rule begins with itself, or repeats what may be empty"
                                      : "it has no rule named root";
    }
    const size_t first = at + sign.size();
    const size_t end   = printed.rfind("\n\n" + text);
    std::string  said  = printed.substr(first, end == std::string::npos || end < first ? end : end - first);
    if (said == "stoull") {
        return "a number in it is too large";
    }
    std::replace_if(said.begin(), said.end(), [](unsigned char c) { return c < ' '; }, ' ');
    return said.ends_with(" at ") ? said + "its end" : beginning(said, kReason);
}

} // namespace

Grammar::Grammar(const llama_vocab * vocab, const std::string & text) : vocab_(vocab) {
    std::string printed;
    if (vocab != nullptr) {
        printed = spoken([&] { sampler_.reset(llama_sampler_init_grammar(vocab, text.c_str(), "root")); });
    }
    if (sampler_ == nullptr) {
        throw core_error("libllama refuses the `grammar`: " + reason_of(printed, text) + "; got '" +
                         beginning(text, kShown) + "', expected GBNF with a rule `root`");
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
