#pragma once

// How likely the target found the tokens that it wrote: log softmax of the row as the target left it, before biases,
// penalties, filters and the grammar. Only where somebody asks.

#include "scan.hpp"

#include <utility>
#include <vector>

namespace dflash {

struct Score {
    double                                logprob = 0;
    std::vector<std::pair<token, double>> best;  // the likeliest tokens of the row, the best first
};

class Scores {
  public:
    // n_best: how many of the likeliest to name; below 0: nothing is scored.
    void ask(int32_t n_best);

    // Forgets those of the pass before.
    void clear() { found_.clear(); }

    // The next token, from its row of logits, float [n].
    void add(const float * logits, int32_t n, token id);

    // One for each token, in order; none when nobody asked.
    const std::vector<Score> & found() const { return found_; }

  private:
    int32_t                n_best_ = -1;
    std::vector<Score>     found_;
    std::vector<float>     room_;
    std::vector<Candidate> candidates_;
};

} // namespace dflash
