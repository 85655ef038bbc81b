#pragma once

// The drafter's share of what the target computes: feature rows of positions that were kept, given to it at once or, while
// nothing is drafted, a batch at a time.

#include "interfaces.hpp"

#include <vector>

namespace dflash {

class Feed {
  public:
    // drafter may be null: then nothing is kept.
    Feed(Target & target, Drafter * drafter) : target_(target), drafter_(drafter) {}

    // Keeps the first n_rows of the target's last pass, which stand at pos, pos+1, ...; gives a batch away when it is full.
    void keep(int32_t n_rows, int32_t pos);

    // Gives away what is left.
    void flush();

    // Goes back to pos, or forgets all that the drafter has; false: it could not go back there.
    bool rewind(int32_t pos);

    int64_t n_given() const { return n_given_; }  // rows, since the drafter was made

  private:
    Target &           target_;
    Drafter *          drafter_;
    int32_t            pos_ = 0;  // where the drafter's cache ends
    int32_t            n_   = 0;  // rows that wait
    std::vector<float> rows_;
    int64_t            n_given_ = 0;
};

} // namespace dflash
