#pragma once

// How deep the loop drafts: always as deep as allowed, or as depth control says. Keeps the last draft beside the text
// until that tells how right it was.

#include "depth.hpp"
#include "interfaces.hpp"

#include <optional>
#include <vector>

namespace dflash {

class Pace {
  public:
    Pace(const DepthLimits & limits, bool automatic);

    // Whether the drafter's confidence matters.
    bool wants_confidence() const { return control_.has_value() || limits_.p_min > 0; }

    // How many tokens to draft in a round, at most n; 0: none.
    int32_t draft(int32_t n);

    // How many of the drafted tokens to verify. `pos` is the first one's.
    int32_t verify(const Proposal & proposal, int32_t pos);

    // Tokens that were written at positions pos, pos+1, ...
    void written(const std::vector<token> & tokens, int32_t n, int32_t pos);

    void observe(const DepthRound & round);

    // Another request.
    void begin();

    // Null at a fixed depth.
    DepthControl *       control() { return control_ ? &*control_ : nullptr; }
    const DepthControl * control() const { return control_ ? &*control_ : nullptr; }

  private:
    void judge();

    DepthLimits                 limits_;
    std::optional<DepthControl> control_;

    Proposal last_;          // the draft that is judged
    int32_t  pos_     = 0;   // of its first token
    int32_t  agreed_  = 0;
    int32_t  judged_  = 0;
    bool     waiting_ = false;
};

} // namespace dflash
