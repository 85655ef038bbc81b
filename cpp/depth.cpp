#include "depth.hpp"

#include "errors.hpp"

#include <algorithm>
#include <cmath>
#include <numeric>
#include <string>

namespace dflash {

namespace {

constexpr size_t  MEMORY  = 24;    // drafts that say what the next one will look like
constexpr double  AGE     = 0.85;  // weight of a draft beside the one after it
constexpr size_t  CARRIED = 4;     // of them that the next request begins with
constexpr size_t  MISSES  = 2;     // as many drafts in a row not worth verifying: what was before is forgotten
constexpr uint64_t LOOK_EVERY = 16;  // one draft in so many is as wide as allowed

// Plain passes between probes: at first, at the most; and the share of the time that their drafts may take at last,
// twice that while the gain is above NEARLY.
constexpr int32_t SHORT_INTERVAL = 8;
constexpr int32_t LONG_INTERVAL  = 128;
constexpr double  PROBING        = 0.0065;
constexpr double  NEARLY         = 0.85;
constexpr int32_t PROBE          = 3;  // tokens, at the least
constexpr float   SURE           = 3.0f;  // logits that the best token is ahead
constexpr int32_t MOST_SURE      = 5;
constexpr double  USUAL_STEP     = 0.005;

// What drafting may lose: a share of plain decoding's time; plain passes at first, which is also what a request hands
// on to the next one; and, inside a request, of what it has won. What is won beyond that is kept in reserve: from it a
// request that would begin with less than ANEW gets that much.
constexpr double INCOME  = 0.01;
constexpr double START   = 4.0;
constexpr double SAVED   = 24.0;
constexpr double RESERVE = 128.0;
constexpr double ANEW    = 0.5;

constexpr double  DOUBT      = 0.03;  // for each START that may be lost
constexpr double  MOST_DOUBT = 0.06;
constexpr int32_t WIDEST     = 1 << 12;

int32_t widths(int32_t n_max) { return std::clamp(n_max, 1, WIDEST); }

} // namespace

DepthControl::DepthControl(const DepthLimits & limits, uint64_t seed)
    : limits_(limits), random_(seed), verify_(widths(limits.n_max) + 1), draft_(widths(limits.n_max)),
      odds_(widths(limits.n_max)) {
    if (limits.n_max != widths(limits.n_max)) {
        throw core_error("depth control over " + std::to_string(limits.n_max) + " drafted tokens is of no use");
    }
}

void DepthControl::begin() {
    odds_.loosen();
    recent_.resize(std::min(recent_.size(), CARRIED));
    interval_ = std::min(interval_ / 2, SHORT_INTERVAL);
    keep(START * plain());
    const double given = std::clamp(ANEW * plain() - balance_, 0.0, reserve_);
    balance_ += given;
    reserve_ -= given;
}

// What the balance holds beyond `most` goes into the reserve.
void DepthControl::keep(double most) {
    const double beyond = std::max(0.0, balance_ - most);
    balance_ -= beyond;
    reserve_ = std::min(reserve_ + beyond, RESERVE * plain());
}

double DepthControl::chance(int32_t i) const {
    return i < 0 || i >= limits_.n_max ? 0.0 : odds_.right(i, std::nanf(""));
}

int32_t DepthControl::draft(int32_t n_limit) {
    n_limit = std::min(n_limit, limits_.n_max);
    if (!started_ && plain() > 0.0) {
        started_ = true;
        balance_ = START * plain();
    }
    if (!started_ || n_limit < std::max(1, limits_.n_min)) {
        return 0;
    }
    const Choice best = best_width(n_limit);
    gain_ = best.rate * plain();
    rate_ = std::max(best.rate, 1.0 / plain());
    if (balance_ <= 0.0) {
        return 0;
    }
    if (pays()) {
        return one_in(LOOK_EVERY) ? n_limit : best.n;
    }
    return passed_ >= interval_ ? probe_width(n_limit) : 0;
}

// A little short of plain decoding it still drafts, the more so the more it has won: drafts teach.
bool DepthControl::pays() const {
    return gain_ > 1.0 - std::clamp(DOUBT * balance_ / (START * plain()), 0.0, MOST_DOUBT);
}

// Chances that the first n proposals, each in turn, are right with all before them; none from p_min's end on.
std::vector<double> DepthControl::chain(std::span<const float> confidence, int32_t n) const {
    std::vector<double> chances(static_cast<size_t>(n));
    odds_.chain(confidence, chances);
    const auto cut = std::find_if(confidence.begin(), confidence.end(), [this](float c) { return c < limits_.p_min; });
    if (cut != confidence.end()) {
        chances.resize(std::min(chances.size(), static_cast<size_t>(cut - confidence.begin())));
    }
    return chances;
}

DepthControl::Choice DepthControl::best_width(int32_t n_limit) const {
    std::vector<std::vector<double>> chains;
    for (const std::vector<float> & confidence : recent_) {
        chains.push_back(chain(confidence, n_limit));
    }
    Choice best;
    for (int32_t n = std::max(1, limits_.n_min); n <= n_limit && !chains.empty(); ++n) {
        if (const double found = rate(n, chains); found > best.rate) {
            best = {n, found};
        }
    }
    return best;
}

// Tokens a second when drafts of width n go on to look as the recent ones did, each verified as far as is best. The
// best depth depends on the rate itself: a few rounds of Dinkelbach's method.
double DepthControl::rate(int32_t n, const std::vector<std::vector<double>> & chains) const {
    double found = 1.0 / plain();
    for (int32_t pass = 0; pass < 4; ++pass) {
        double tokens = 0.0, seconds = 0.0, weight = 1.0;
        for (const std::vector<double> & chances : chains) {
            const int32_t m        = best_depth(chances, n, found);
            const double  expected = std::accumulate(chances.begin(), chances.begin() + m, 1.0);
            tokens += weight * expected;
            seconds += weight * (draft_.at(n) + verify_.at(m + 1));
            weight *= AGE;
        }
        found = tokens / seconds;
    }
    return found;
}

// Of the widths that show what would pay, that of which the text judges most proposals a second of drafting: it judges
// those up to the first wrong one.
int32_t DepthControl::probe_width(int32_t n_limit) const {
    const std::vector<double> chances = chain({}, n_limit);
    const int32_t least = std::min(n_limit, std::max(PROBE, limits_.n_min));
    int32_t best = least;
    double  most = 0.0, judged = 1.0;
    for (int32_t n = 1; n <= n_limit; ++n) {
        if (const double value = judged / draft_.at(n); n >= least && value > most) {
            most = value;
            best = n;
        }
        judged += chances[static_cast<size_t>(n - 1)];
    }
    return best;
}

// The depth, 0 or n_min..n, that brings most beyond `rate` tokens a second; of equals the least.
int32_t DepthControl::best_depth(std::span<const double> chances, int32_t n, double rate) const {
    int32_t best = 0;
    double  most = -rate * verify_.at(1), tokens = 0.0;
    for (int32_t m = 1; m <= std::min(n, static_cast<int32_t>(chances.size())); ++m) {
        tokens += chances[static_cast<size_t>(m - 1)];
        const double value = tokens - rate * verify_.at(m + 1);
        if (m >= limits_.n_min && value > most) {
            most = value;
            best = m;
        }
    }
    return best;
}

int32_t DepthControl::verify(std::span<const float> confidence, int32_t n_limit) {
    const int32_t n = std::min(static_cast<int32_t>(confidence.size()), limits_.n_max);
    if (!started_) {
        return 0;
    }
    if (n < 1) {
        recent_.clear();
        schedule(1, 0.0);
        return 0;
    }
    confidence = confidence.first(static_cast<size_t>(n));
    const std::vector<double> chances = chain(confidence, std::clamp(n_limit, 0, n));
    const int32_t m = best_depth(chances, n, rate_);
    recent_.emplace_front(confidence.begin(), confidence.end());
    misses_ = m > 0 ? 0 : misses_ + 1;
    recent_.resize(std::min(recent_.size(), misses_ < MISSES ? MEMORY : size_t{MISSES}));
    schedule(n, promise(confidence));
    return m;
}

// Tokens that drafts like this one, at the best width and depth, bring beyond plain decoding.
double DepthControl::promise(std::span<const float> confidence) const {
    const std::vector<double> chances = chain(confidence, limits_.n_max);
    double most = 0.0, tokens = 1.0;
    for (int32_t m = 1; m <= static_cast<int32_t>(chances.size()); ++m) {
        tokens += chances[static_cast<size_t>(m - 1)];
        most = std::max(most, tokens - (draft_.at(m) + verify_.at(m + 1)) / plain());
    }
    return most;
}

// After a draft that promised to pay the next round drafts again; else it waits, longer each time.
void DepthControl::schedule(int32_t n, double promise) {
    passed_ = 0;
    const double share = (gain_ > NEARLY ? 2.0 : 1.0) * PROBING * plain();
    const double most  = std::clamp(draft_.at(n) / share, 1.0 * SHORT_INTERVAL, 1.0 * LONG_INTERVAL);
    interval_ = promise > 0.0 || pays() ? 0 : std::clamp(2 * interval_, SHORT_INTERVAL, static_cast<int32_t>(most));
}

void DepthControl::observe(const DepthRound & round) {
    const int32_t m = std::clamp(round.n_verified, 0, limits_.n_max);
    const int32_t n = std::clamp(round.n_drafted, 0, limits_.n_max);
    verify_.seen(m + 1, round.t_verify);
    if (n > 0) {
        draft_.seen(n, round.t_draft);
    } else {
        pass(round.lead);
    }
    if (started_) {
        account(n, m, std::clamp(round.n_accepted, 0, m));
    }
}

// Where the target is sure of token after token a drafter may foresee them: such passes bring the next probe nearer, by
// as much as they are more than usual.
void DepthControl::pass(float lead) {
    sure_ = lead >= SURE ? std::min(sure_ + 1, MOST_SURE) : 0;
    const double count = 1.0 + sure_ * sure_;
    usual_ += USUAL_STEP * (count - usual_);
    passed_ = std::min(passed_ + count / usual_, 1.0 * LONG_INTERVAL);
}

// Gains and losses against plain decoding, at the usual costs: what a busy machine adds is nobody's fault. Injecting is
// left out: that is paid while nothing is drafted, too.
void DepthControl::account(int32_t n, int32_t m, int32_t accepted) {
    const int32_t tokens = accepted + 1;
    const double  won    = n > 0 ? tokens * plain() - draft_.at(n) - verify_.at(m + 1) : 0.0;
    const double  most   = SAVED * plain();
    balance_ = std::max(balance_ + won + INCOME * tokens * plain(), -most);
    keep(most);
}

void DepthControl::judge(std::span<const float> confidence, int32_t agreed, int32_t judged) {
    const int32_t n = std::min({judged, static_cast<int32_t>(confidence.size()), limits_.n_max});
    agreed = std::clamp(agreed, 0, limits_.n_max);
    for (int32_t i = 0; i < n && i <= agreed; ++i) {
        odds_.learn(i, confidence[static_cast<size_t>(i)], i < agreed);
    }
}

// splitmix64. Source: https://prng.di.unimi.it/splitmix64.c, public domain.
bool DepthControl::one_in(uint64_t n) {
    uint64_t z = random_ += 0x9e3779b97f4a7c15ULL;
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9ULL;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebULL;
    return (z ^ (z >> 31)) % n == 0;
}

} // namespace dflash
