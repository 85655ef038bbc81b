#pragma once

// The seam of the loop: what it needs of a target and of a drafter, and nothing else.
// libllama implements both (target.hpp, drafter.hpp); Python objects do in tests (scripted.hpp).

#include <cstdint>
#include <span>
#include <vector>

namespace dflash {

using token = int32_t;

// A model that decodes rows into its cache. A cache that ends before position p holds positions 0 .. p-1.
class Target {
  public:
    virtual ~Target() = default;

    virtual int32_t n_vocab() const = 0;
    virtual int32_t n_ctx() const = 0;       // positions that fit
    virtual int32_t n_batch() const = 0;     // rows of one pass at the most
    virtual int32_t n_outputs() const = 0;   // rows of one pass that may ask for logits
    virtual int32_t n_features() const = 0;  // floats of one feature row; 0: none are captured

    // One pass over tokens at positions pos, pos+1, ...; the last n_logits rows keep their logits.
    virtual void decode(std::span<const token> tokens, int32_t pos, int32_t n_logits) = 0;

    // Logits of a row of the last pass, float [n_vocab]; valid until the next pass.
    virtual const float * logits(int32_t row) = 0;

    // Layer inputs of rows first .. first+n-1 of the last pass, taps side by side: float [n, n_features].
    virtual void features(int32_t first, int32_t n, float * out) = 0;

    // Forgets the end of the last pass, from pos on, but not all of it: a recurrent state can be taken back that far.
    virtual void trim(int32_t pos) = 0;

    // Goes back to pos for another prompt, or as near before it as the memory allows; returns where it stands.
    virtual int32_t rewind(int32_t pos) = 0;

    // Whether it can go back only to where it was marked.
    virtual bool recurrent() const = 0;

    // Remembers the state at pos, where the cache ends. For a recurrent target; no other needs it.
    virtual void mark(int32_t pos) = 0;
};

class Picks;

// What a drafter's pass proposes.
struct Proposal {
    std::vector<token> tokens;
    std::vector<float> confidence;  // that each is right, given those before it; empty where nobody asked
    std::vector<token> other;       // by the draft rule that was not used, where both are tried

    void clear() {
        tokens.clear();
        confidence.clear();
        other.clear();
    }
};

// A model that proposes a block of tokens from the target's features.
class Drafter {
  public:
    virtual ~Drafter() = default;

    virtual int32_t n_max() const = 0;       // tokens that one pass can propose
    virtual int32_t n_ctx() const = 0;       // positions that fit; behind them nothing is drafted
    virtual int32_t n_batch() const = 0;     // feature rows of one inject() at the most
    virtual int32_t n_features() const = 0;  // floats of one feature row

    // Adds at most n_batch feature rows, float [n, n_features], at positions pos, pos+1, ...
    virtual void inject(const float * features, int32_t n, int32_t pos) = 0;

    // Proposes at most n tokens to follow `last`, which stands at pos; the cache ends before pos again afterwards.
    virtual void draft(token last, int32_t pos, int32_t n, const Picks & picks, Proposal & out) = 0;

    // As the target's.
    virtual int32_t rewind(int32_t pos) = 0;
};

} // namespace dflash
