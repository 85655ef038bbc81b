#include "pace.hpp"

#include <algorithm>

namespace dflash {

Pace::Pace(const DepthLimits & limits, bool automatic) : limits_(limits) {
    if (automatic) {
        control_.emplace(limits, 0);
    }
}

int32_t Pace::draft(int32_t n) {
    return control_ ? control_->draft(n) : n < limits_.n_min ? 0 : n;
}

int32_t Pace::verify(const Proposal & proposal, int32_t pos) {
    const int32_t n = static_cast<int32_t>(proposal.tokens.size());
    if (!control_) {
        const auto & p   = proposal.confidence;
        const auto   low = std::find_if(p.begin(), p.end(), [&](float one) { return one < limits_.p_min; });
        const auto   m   = low == p.end() ? n : static_cast<int32_t>(low - p.begin());
        return m < limits_.n_min ? 0 : m;
    }
    judge();
    last_    = proposal;
    pos_     = pos;
    agreed_  = 0;
    judged_  = 0;
    waiting_ = n > 0;
    return control_->verify(proposal.confidence, n);
}

void Pace::written(const std::vector<token> & tokens, int32_t n, int32_t pos) {
    const int32_t drafted = static_cast<int32_t>(last_.tokens.size());
    for (int32_t i = 0; i < n && waiting_; ++i) {
        if (pos + i != pos_ + judged_) {
            continue;
        }
        const bool right = tokens[i] == last_.tokens[judged_];
        ++judged_;
        agreed_ += right ? 1 : 0;
        if (!right || judged_ == drafted) {
            judge();
        }
    }
}

// Tells control what is known of the draft.
void Pace::judge() {
    if (waiting_ && judged_ > 0) {
        control_->judge(last_.confidence, agreed_, judged_);
    }
    waiting_ = false;
}

void Pace::observe(const DepthRound & round) {
    if (control_) {
        control_->observe(round);
    }
}

void Pace::begin() {
    if (control_) {
        judge();
        control_->begin();
    }
}

} // namespace dflash
