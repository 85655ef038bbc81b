#pragma once

// How many tokens to draft and how many of them to verify: those that bring the most tokens a second by what was seen
// so far, and none when that is plain decoding.
//
// A pure function of what it is shown: no clock, no model. A round is draft(), the drafter's pass, verify(), the
// target's pass, observe(); judge() follows once the text tells how right the draft was, before the next verify().

#include "depth_estimates.hpp"

#include <cstdint>
#include <deque>
#include <span>
#include <vector>

namespace dflash {

// As llama.cpp's --spec-draft-*: a draft shorter than n_min is not verified; it ends before the first token whose
// confidence is below p_min. Source: llama.cpp common/speculative.cpp.
struct DepthLimits {
    int32_t n_max;
    int32_t n_min = 0;
    float   p_min = 0.0f;
};

// What a round did, and its seconds. n_drafted 0: the target's pass alone, and `lead` is by how many logits the best
// token was ahead of the next one.
struct DepthRound {
    int32_t n_drafted  = 0;
    int32_t n_verified = 0;
    int32_t n_accepted = 0;
    double  t_draft    = 0.0;
    double  t_verify   = 0.0;
    float   lead       = 0.0f;
};

class DepthControl {
  public:
    // Throws core_error unless 1 <= n_max <= 4096.
    DepthControl(const DepthLimits & limits, uint64_t seed);

    // A pass of that many rows (verify) or proposals (draft) was timed, outside of a round.
    void measured_verify(int32_t width, double seconds) { verify_.seen(width, seconds); }
    void measured_draft(int32_t width, double seconds) { draft_.seen(width, seconds); }

    // Another request: another kind of text, perhaps.
    void begin();

    // How many tokens to draft in the next round, at most n_limit; 0: a plain pass.
    int32_t draft(int32_t n_limit);

    // How many of them to verify, at most n_limit, 0 among them. confidence: 0..1 for each drafted token; not a number
    // where none is known.
    int32_t verify(std::span<const float> confidence, int32_t n_limit);

    void observe(const DepthRound & round);

    // Of the last draft: `judged` leading tokens were compared with the text, `agreed` leading ones were right.
    void judge(std::span<const float> confidence, int32_t agreed, int32_t judged);

    // For -v. cost_*: seconds; chance: that proposal i is right when those before it were; gain: expected tokens per
    // second over plain decoding's, at the best depth; balance: seconds that drafting may lose before it stops;
    // interval: plain passes between two probes.
    double  cost_verify(int32_t width) const { return verify_.at(width); }
    double  cost_draft(int32_t width) const { return draft_.at(width); }
    double  chance(int32_t i) const;
    double  gain() const { return gain_; }
    double  balance() const { return balance_; }
    int32_t interval() const { return interval_; }

  private:
    struct Choice {
        int32_t n    = 0;
        double  rate = 0.0;  // tokens a second
    };

    double  plain() const { return verify_.at(1); }
    bool    pays() const;
    std::vector<double> chain(std::span<const float> confidence, int32_t n) const;
    Choice  best_width(int32_t n_limit) const;
    double  rate(int32_t n, const std::vector<std::vector<double>> & chains) const;
    int32_t probe_width(int32_t n_limit) const;
    int32_t best_depth(std::span<const double> chances, int32_t n, double rate) const;
    void    account(int32_t n, int32_t m, int32_t accepted);
    void    keep(double most);
    double  promise(std::span<const float> confidence) const;
    void    schedule(int32_t n, double promise);
    void    pass(float lead);
    bool    one_in(uint64_t n);

    DepthLimits limits_;
    uint64_t    random_;
    PassTimes   verify_, draft_;
    Odds        odds_;

    std::deque<std::vector<float>> recent_;  // confidences of the last drafts, the newest first
    size_t  misses_   = 0;    // drafts in a row of which nothing was worth verifying
    double  rate_     = 0.0;  // tokens a second that drafting is expected to bring
    double  gain_     = 0.0;
    double  balance_  = 0.0;  // seconds
    double  reserve_  = 0.0;  // likewise
    bool    started_  = false;
    int32_t interval_ = 0;
    double  passed_   = 0.0;  // plain passes since the last draft, those of sure tokens counting more
    int32_t sure_     = 0;    // tokens in a row of which the target was sure
    double  usual_    = 1.0;  // what a plain pass counts, on the mean
};

} // namespace dflash
