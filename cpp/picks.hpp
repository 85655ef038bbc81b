#pragma once

// How a drafter picks one token at a position from its candidates. The text does not depend on it: a pick is only ever
// compared with the target's own choice.

#include "sampler.hpp"

#include <optional>
#include <vector>

namespace dflash {

enum class DraftRule {
    argmax,     // the candidate with the best score
    keyed,      // the best with the target's own filters, temperature and noise
    automatic,  // the one of the two of which more is accepted
};

// One walk along the positions of a block. A grammar is followed by a clone of the target's.
class Picker {
  public:
    Picker(const Sampler & sampler, bool keyed);

    // Index of the pick among candidates for position pos; -1: the grammar allows none of them.
    int32_t pick(std::span<const Candidate> candidates, int32_t pos);

    // Goes on with the token that was picked.
    void accept(token id);

    // Whether the best score alone decides.
    bool plain() const { return !keyed_ && !grammar_; }

  private:
    bool allowed(token id) const { return !grammar_ || grammar_->allows(id); }

    const Sampler &        sampler_;
    bool                   keyed_;
    std::optional<Grammar> grammar_;
    Filters                filters_;
    std::vector<Candidate> order_;
    std::vector<Candidate> noisy_;
};

// What a drafter is told of a round: whose choice it is to foresee, and by which rule.
class Picks {
  public:
    Picks(const Sampler & sampler, bool keyed, bool both, bool confidence)
        : sampler_(sampler), keyed_(keyed), both_(both), confidence_(confidence) {}

    Picker picker() const { return Picker(sampler_, keyed_); }
    Picker other() const { return Picker(sampler_, !keyed_); }
    bool   both() const { return both_; }              // whether the other rule's walk is wanted, too
    bool   confidence() const { return confidence_; }  // whether it matters how likely a pick is right

  private:
    const Sampler & sampler_;
    bool            keyed_;
    bool            both_;
    bool            confidence_;
};

// Which rule to draft by. For `automatic` both walks are made of the same pass, and compared with what the target wrote.
class RuleChoice {
  public:
    explicit RuleChoice(DraftRule rule) : rule_(rule) {}

    bool keyed() const { return rule_ == DraftRule::keyed || (rule_ == DraftRule::automatic && lead_ > 0); }
    bool both() const { return rule_ == DraftRule::automatic; }

    // What the target wrote in a round, and what either rule proposed for it.
    void observe(const std::vector<token> & written, const std::vector<token> & argmax, const std::vector<token> & keyed);

  private:
    DraftRule rule_;
    double    lead_     = 0;  // accepted tokens by which the keyed rule leads, older rounds counting less
    double    accepted_ = 1;  // of single tokens, likewise
    double    judged_   = 2;
};

} // namespace dflash
