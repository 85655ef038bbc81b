#include "session.hpp"

#include "errors.hpp"
#include "scan.hpp"

#include <algorithm>
#include <chrono>
#include <string>

namespace dflash {

namespace {

// Adds the time of a scope to one or two counters, in seconds.
class Timer {
  public:
    explicit Timer(double & total) : total_(total), start_(clock::now()) {}
    Timer(double & total, double & other) : total_(total), other_(&other), start_(clock::now()) {}
    ~Timer() {
        const double spent = seconds();
        total_ += spent;
        if (other_ != nullptr) {
            *other_ += spent;
        }
    }
    Timer(const Timer &) = delete;
    Timer & operator=(const Timer &) = delete;

    double seconds() const { return std::chrono::duration<double>(clock::now() - start_).count(); }

  private:
    using clock = std::chrono::steady_clock;
    double &          total_;
    double *          other_ = nullptr;
    clock::time_point start_;
};

int32_t most_drafted(const Target & target, const Drafter * drafter, int32_t n_max) {
    return drafter == nullptr ? 0 : std::min({n_max, drafter->n_max(), target.n_outputs() - 1, target.n_batch() - 1});
}

} // namespace

Loop::Loop(Target & target, Drafter * drafter, DepthLimits limits, bool automatic, DraftRule rule)
    : target_(target), drafter_(drafter), n_max_(most_drafted(target, drafter, limits.n_max)), feed_(target, drafter),
      pace_({n_max_, limits.n_min, limits.p_min}, automatic && n_max_ > 0),
      sampler_(std::make_shared<Sampler>(target.n_vocab())), rule_(rule) {
    if (drafter_ != nullptr && n_max_ < 1) {
        throw core_error("a drafter that may draft " + std::to_string(n_max_) + " tokens a round is of no use");
    }
    if (drafter_ != nullptr && drafter_->n_features() != target_.n_features()) {
        throw core_error("the drafter reads feature rows of " + std::to_string(drafter_->n_features()) +
                         " floats, the target's have " + std::to_string(target_.n_features()));
    }
}

int32_t Loop::begin(int32_t keep, bool drafts) {
    keep    = std::clamp(keep, 0, n_past_);
    n_past_ = 0;  // until both stand at one position
    keep    = target_.rewind(keep);
    if (!feed_.rewind(keep)) {
        // Features are gone with the pass that left them: without the drafter's, the target starts over as well.
        keep = target_.rewind(0);
        feed_.rewind(0);
    }
    n_past_  = keep;
    drafts_  = drafts;
    last_    = -1;
    pending_ = false;
    stats_   = Stats{};
    stats_.drafted_at.assign(n_max_, 0);
    stats_.accepted_at.assign(n_max_, 0);
    n_given_ = feed_.n_given();
    if (drafts_) {
        pace_.begin();
    }
    choose_by(nullptr);
    report(-1);
    return n_past_;
}

void Loop::choose_by(std::shared_ptr<Sampler> sampler) {
    sampler_ = sampler != nullptr ? std::move(sampler) : std::make_shared<Sampler>(target_.n_vocab());
}

token Loop::prefill(std::span<const token> tokens, bool final) {
    const int32_t n = static_cast<int32_t>(tokens.size());
    if (pending_ || last_ != -1) {
        throw core_error("the prompt is over: begin() starts another");
    }
    if (n < 1 || n > target_.n_batch() || n > target_.n_ctx() - n_past_) {
        throw core_error("a prompt piece of " + std::to_string(n) + " tokens does not fit: a pass takes " +
                         std::to_string(target_.n_batch()) + ", the context has " +
                         std::to_string(target_.n_ctx() - n_past_) + " positions left");
    }
    for (const token id : tokens) {
        if (id < 0 || id >= target_.n_vocab()) {
            throw core_error("token " + std::to_string(id) + " is outside the vocabulary of " +
                             std::to_string(target_.n_vocab()));
        }
    }
    const Timer timer(stats_.t_prefill);
    target_.decode(tokens, n_past_, final ? 1 : 0);
    token first = -1;
    if (final) {
        first = sampler_->choose(target_.logits(n - 1), n_past_ + n);
        sampler_->accept(first);
        scores_.clear();
        scores_.add(target_.logits(n - 1), target_.n_vocab(), first);
    }
    feed_.keep(n, n_past_);
    stats_.n_injected = feed_.n_given() - n_given_;
    n_past_ += n;
    last_     = first;
    last_row_ = n - 1;
    stats_.n_prompt += n;
    return first;
}

const float * Loop::last_logits() {
    if (last_ == -1 || pending_) {
        throw core_error("there is no newest token: the prompt or a round is not over");
    }
    return target_.logits(last_row_);
}

// What fits: the drafter's block stands at n_past_ .. n_past_ + depth, inside both contexts.
int32_t Loop::depth(int32_t n_limit) const {
    if (drafter_ == nullptr || !drafts_) {
        return 0;
    }
    const int32_t n_ctx = std::min(target_.n_ctx(), drafter_->n_ctx());
    return std::max(0, std::min({n_limit, n_max_, n_ctx - n_past_ - 1}));
}

const std::vector<token> & Loop::round(int32_t n_limit) {
    if (pending_ || last_ == -1) {
        throw core_error(pending_ ? "the round before was not committed" : "there is no prompt to continue");
    }
    if (n_past_ >= target_.n_ctx()) {
        throw core_error("the context of " + std::to_string(target_.n_ctx()) + " positions is full");
    }
    if (sampler_->ended()) {
        throw core_error("the grammar is at its end");
    }
    draft_.clear();
    choices_.clear();
    spent_      = DepthRound{};
    n_verified_ = 0;
    if (const int32_t n = pace_.draft(depth(n_limit)); n > 0) {
        draft(n);
    }
    rows_.assign(1, last_);
    rows_.insert(rows_.end(), draft_.tokens.begin(), draft_.tokens.begin() + n_verified_);
    {
        const Timer timer(stats_.t_verify, spent_.t_verify);
        pending_ = true;
        target_.decode(rows_, n_past_, static_cast<int32_t>(rows_.size()));
        ++stats_.n_verify;
    }
    accept();
    return choices_;
}

void Loop::draft(int32_t n) {
    {
        const Timer timer(stats_.t_inject);
        feed_.flush();
    }
    {
        const Timer timer(stats_.t_draft, spent_.t_draft);
        const Picks picks(*sampler_, rule_.keyed(), rule_.both(), pace_.wants_confidence());
        drafter_->draft(last_, n_past_, n, picks, draft_);
        ++stats_.n_drafts;
    }
    spent_.n_drafted = n;
    n_verified_      = pace_.verify(draft_, n_past_ + 1);
}

// The target's own choice at each row, for as long as it equals the draft.
void Loop::accept() {
    const Timer timer(stats_.t_accept);
    std::vector<token> & choices = scratch_;
    choices.clear();
    scores_.clear();
    n_chosen_ = sampler_->n_accepted();
    if (drafts_ && pace_.control() != nullptr && spent_.n_drafted == 0) {
        spent_.lead = lead(target_.logits(0), target_.n_vocab());
    }
    for (size_t i = 0; i < rows_.size() && !sampler_->ended(); ++i) {
        const int32_t row    = static_cast<int32_t>(i);
        const token   choice = sampler_->choose(target_.logits(row), n_past_ + row + 1);
        sampler_->accept(choice);
        scores_.add(target_.logits(row), target_.n_vocab(), choice);
        choices.push_back(choice);
        if (row >= n_verified_ || choice != draft_.tokens[i]) {
            break;
        }
    }
    choices_.swap(choices);
    if (rule_.both() && spent_.n_drafted > 0) {
        const bool keyed = rule_.keyed();
        rule_.observe(choices_, keyed ? draft_.other : draft_.tokens, keyed ? draft_.tokens : draft_.other);
    }
}

// Of the verified tokens those count as accepted that were right and are kept.
void Loop::count(int32_t k) {
    int32_t accepted = 0;
    while (accepted < std::min(k, n_verified_) && choices_[accepted] == draft_.tokens[accepted]) {
        ++accepted;
    }
    stats_.draft_n += n_verified_;
    stats_.draft_n_accepted += accepted;
    for (int32_t i = 0; i < n_verified_; ++i) {
        ++stats_.drafted_at[i];
        stats_.accepted_at[i] += i < accepted ? 1 : 0;
    }
    stats_.n_injected  = feed_.n_given() - n_given_;
    spent_.n_verified  = n_verified_;
    spent_.n_accepted  = accepted;
    if (drafts_) {
        pace_.observe(spent_);
        pace_.written(choices_, k, n_past_ + 1);
    }
}

void Loop::commit(int32_t k) {
    const int32_t n = static_cast<int32_t>(choices_.size());
    if (!pending_ || k < 1 || k > n) {
        throw core_error("commit(" + std::to_string(k) + ") after a round of " + std::to_string(pending_ ? n : 0) +
                         " tokens");
    }
    const int32_t end = n_past_ + static_cast<int32_t>(rows_.size());
    {
        const Timer timer(stats_.t_inject);
        feed_.keep(k, n_past_);
        if (spent_.n_drafted > 0 || (drafts_ && pace_.control() == nullptr)) {
            feed_.flush();
        }
    }
    if (n_past_ + k < end) {
        target_.trim(n_past_ + k);
    }
    count(k);
    n_past_ += k;
    sampler_->truncate(n_chosen_ + static_cast<size_t>(k));
    last_     = choices_[k - 1];
    last_row_ = k - 1;
    pending_  = false;
}

void Loop::calibrate(double seconds) {
    if (pace_.control() == nullptr) {
        return;
    }
    // A pass of n + 1 rows and behind it a block that proposes n take 2 n + 2 positions, in both contexts.
    const int32_t most = std::min(n_max_, std::min(target_.n_ctx(), drafter_->n_ctx()) / 2 - 1);
    if (most < 1) {
        return;
    }
    double      spent = 0;
    const Timer timer(spent);
    time_pass(1);  // the first pass of all reads weights from disk
    for (int32_t turn = 0; turn < 3 && (turn == 0 || timer.seconds() < seconds); ++turn) {
        for (const int32_t width : {1, most + 1}) {
            time_pass(width);
        }
        for (int32_t width = 2; width <= most && timer.seconds() < seconds; ++width) {
            time_pass(width);
        }
    }
    begin(0);
}

// A pass of `width` rows through the target and, from 2 on, one that proposes width - 1 tokens, both shown to control.
void Loop::time_pass(int32_t width) {
    DepthControl & control = *pace_.control();
    target_.rewind(0);
    feed_.rewind(0);
    rows_.assign(static_cast<size_t>(width), 0);
    double seconds = 0;
    {
        const Timer timer(seconds);
        target_.decode(rows_, 0, width);
    }
    control.measured_verify(width, seconds);
    if (width < 2) {
        return;
    }
    feed_.keep(width, 0);
    feed_.flush();
    draft_.clear();
    seconds = 0;
    {
        const Timer timer(seconds);
        drafter_->draft(0, width, width - 1, Picks(*sampler_, false, rule_.both(), true), draft_);
    }
    control.measured_draft(width - 1, seconds);
}

} // namespace dflash
