#pragma once

// The loop of one request: prefill -> [ draft -> verify -> accept -> commit ]*.
//
// Between rounds the state is: `last`, the newest token, chosen but not yet through the target; the target's cache and
// the drafter's, both ending just before it. A round is two calls, so that whoever knows about text decides where to
// stop before anything is trimmed: round() drafts and verifies, commit(k) keeps the first k of its tokens.

#include "feed.hpp"
#include "interfaces.hpp"
#include "pace.hpp"
#include "picks.hpp"
#include "scores.hpp"

#include <memory>
#include <vector>

namespace dflash {

// Counts and seconds since the last begin(). t_prefill is all that the prompt took; the others are of the rounds.
struct Stats {
    int64_t              n_prompt   = 0;  // prompt tokens through the target
    int64_t              n_injected = 0;  // feature rows given to the drafter
    int64_t              n_drafts   = 0;  // drafter passes
    int64_t              n_verify   = 0;  // target passes after the prompt
    int64_t              draft_n    = 0;  // tokens proposed and verified
    int64_t              draft_n_accepted = 0;
    std::vector<int64_t> drafted_at;      // [i]: how often position i was proposed
    std::vector<int64_t> accepted_at;     // [i]: how often it was accepted
    double               t_prefill = 0, t_draft = 0, t_verify = 0, t_accept = 0, t_inject = 0;
};

class Loop {
  public:
    // drafter may be null: plain decoding. limits.n_max caps the tokens drafted a round; `automatic`: depth control decides.
    Loop(Target & target, Drafter * drafter, DepthLimits limits, bool automatic, DraftRule rule);

    // Forgets the counts, and the sequence but for its first `keep` positions, which another prompt shares; returns how
    // many could be kept. Never more than `keep`, nor than there are. Without `drafts` the request that comes is decoded
    // plainly: the drafter is given what it needs for the next one, a batch at a time, and depth control learns nothing.
    int32_t begin(int32_t keep, bool drafts = true);

    // Chooses the answer of the prompt that comes; null: greedily. Its history holds the whole prompt.
    void choose_by(std::shared_ptr<Sampler> sampler);

    // Between begin() and the prompt: scores the tokens of the answer, and names n_best others at each place; below 0: not.
    void report(int32_t n_best) { scores_.ask(n_best); }

    // Of the tokens that the last prefill() or round() returned.
    const std::vector<Score> & scores() const { return scores_.found(); }

    // The next tokens of the prompt, at most n_batch of them; with `final`, returns the first chosen token, else -1.
    token prefill(std::span<const token> tokens, bool final);

    // The logits that `last` was chosen from, float [n_vocab]; valid until the next pass.
    const float * last_logits();
    int32_t       n_vocab() const { return target_.n_vocab(); }

    // Drafts at most n_limit tokens, verifies them, and returns what the target wrote: the accepted ones and one more.
    const std::vector<token> & round(int32_t n_limit);

    // Keeps the first k tokens of the round, 1 <= k <= its length. A round that is not to be kept at all is dropped by
    // begin().
    void commit(int32_t k);

    // Between pieces of the prompt: remembers a recurrent target's state here.
    void mark() { target_.mark(n_past_); }
    bool recurrent() const { return target_.recurrent(); }

    int32_t       n_ctx() const { return target_.n_ctx(); }
    int32_t       n_batch() const { return target_.n_batch(); }
    int32_t       n_past() const { return n_past_; }
    token         last() const { return last_; }
    bool          pending() const { return pending_; }
    int32_t       n_max() const { return n_max_; }
    int32_t       n_drafted() const { return n_verified_; }
    const Stats & stats() const { return stats_; }

    // Times passes of every width on tokens of no meaning, for about so many seconds, and shows them to depth control.
    // Forgets the sequence. Nothing at a fixed depth.
    void calibrate(double seconds);

    // Null at a fixed depth.
    const DepthControl * control() const { return pace_.control(); }

  private:
    int32_t depth(int32_t n_limit) const;
    void    draft(int32_t n);
    void    accept();
    void    count(int32_t k);
    void    time_pass(int32_t width);

    Target &  target_;
    Drafter * drafter_;
    int32_t   n_max_;
    Feed      feed_;
    Pace      pace_;

    int32_t last_row_ = 0;  // of the last pass: the row that `last` was chosen from
    int32_t n_past_  = 0;
    token   last_    = -1;
    bool    drafts_  = true;   // in this request
    bool    pending_ = false;  // a verify pass waits for commit()

    std::shared_ptr<Sampler> sampler_;
    RuleChoice               rule_;
    size_t                   n_chosen_ = 0;  // tokens of the answer before this round
    int64_t                  n_given_  = 0;  // feature rows given before begin()

    Proposal           draft_;    // of this round
    int32_t            n_verified_ = 0;  // of its tokens
    DepthRound         spent_;           // seconds of this round
    std::vector<token> rows_;     // last, then the proposed ones: the verify pass
    std::vector<token> choices_;  // what the target wrote this round; empty until all of it is known
    std::vector<token> scratch_;
    Scores             scores_;
    Stats              stats_;
};

} // namespace dflash
