#include "filters.hpp"

#include "arithmetic.hpp"

#include <algorithm>
#include <cmath>
#include <numeric>

namespace dflash {

namespace {

constexpr float kStep = 6.0f;  // logits by which a threshold is lowered until enough weight is above it

double entropy_of(const std::vector<double> & weights, double sum) {
    double entropy = 0;
    for (const double weight : weights) {
        const double p = weight / sum;
        entropy -= p > 0 ? p * log_of(std::max(p, 1e-300)) : 0;
    }
    return entropy;
}

} // namespace

std::span<const Candidate> Filters::apply(const float * logits, int32_t n, double draw) {
    collect(logits, n);
    narrow(draw);
    return kept_;
}

std::span<const Candidate> Filters::apply(std::vector<Candidate> & candidates, double draw) {
    std::sort(candidates.begin(), candidates.end(), better);
    kept_ = candidates;
    if (settings_.top_k > 0) {
        kept_.resize(std::min(kept_.size(), static_cast<size_t>(settings_.top_k)));
    }
    total_ = 0;
    narrow(draw);
    return kept_;
}

// Up to top_k; and no more of the row than the filters behind it can keep.
void Filters::collect(const float * logits, int32_t n) {
    const FilterSettings & s    = settings_;
    const float            best = largest(logits, n);
    float                  least = kLeast;
    if (s.top_n_sigma > 0) {
        least = std::max(kLeast, static_cast<float>(best - s.top_n_sigma * deviation(logits, n)));
    }
    total_ = 0;
    if (s.top_k > 0) {
        best_of(logits, n, std::min(s.top_k, n), least, room_, kept_);
        return;
    }
    if (s.typical_p >= 1 && s.top_p < 1) {
        collect_top_p(logits, n, best, least);
        return;
    }
    if (s.typical_p >= 1 && s.min_p > 0 && s.min_keep <= 1) {
        least = std::max(least, static_cast<float>(best + log_of(std::min(s.min_p, 1.0))));
    }
    gather(logits, n, least, kept_);
    std::sort(kept_.begin(), kept_.end(), better);
}

// Lowers a threshold until what is above it weighs enough.
void Filters::collect_top_p(const float * logits, int32_t n, float best, float least) {
    total_ = mass(logits, n, best, least);
    for (float step = kStep;; step += kStep) {
        const float threshold = std::max(best - step, least);
        gather(logits, n, threshold, kept_);
        const bool enough = weigh() >= settings_.top_p * total_ && kept_.size() >= static_cast<size_t>(settings_.min_keep);
        if (enough || threshold == least || step > 700) {
            std::sort(kept_.begin(), kept_.end(), better);
            return;
        }
    }
}

void Filters::narrow(double draw) {
    const FilterSettings & s = settings_;
    if (s.typical_p < 1) {
        typical();
    }
    if (s.top_p < 1) {
        top_p(total_);
    }
    if (s.min_p > 0) {
        min_p();
    }
    if (s.draws()) {
        xtc(draw);
    }
    set_temperature();
}

// Weights of what is kept, relative to the heaviest; returns their sum.
double Filters::weigh() {
    float best = kLeast;
    for (const Candidate & candidate : kept_) {
        best = std::max(best, candidate.logit);
    }
    weights_.clear();
    for (const Candidate & candidate : kept_) {
        weights_.push_back(exp_of(static_cast<double>(candidate.logit) - best));
    }
    return std::accumulate(weights_.begin(), weights_.end(), 0.0);
}

// Those whose surprise is nearest to the expected one, until they weigh typical_p.
void Filters::typical() {
    const double        sum      = weigh();
    const double        entropy  = entropy_of(weights_, sum);
    const size_t        n        = kept_.size();
    const size_t        at_least = static_cast<size_t>(std::max(settings_.min_keep, 1));
    std::vector<double> distance(n);
    std::vector<size_t> order(n);
    for (size_t i = 0; i < n; ++i) {
        distance[i] = std::fabs(-log_of(std::max(weights_[i] / sum, 1e-300)) - entropy);
        order[i]    = i;
    }
    std::stable_sort(order.begin(), order.end(), [&](size_t a, size_t b) { return distance[a] < distance[b]; });
    std::vector<Candidate> found;
    double                 weight = 0;
    for (const size_t i : order) {
        found.push_back(kept_[i]);
        weight += weights_[i] / sum;
        if (weight > settings_.typical_p && found.size() >= at_least) {
            break;
        }
    }
    std::sort(found.begin(), found.end(), better);
    kept_.swap(found);
}

// The best, until they weigh top_p of `total`, or when that is 0 of themselves.
void Filters::top_p(double total) {
    const double sum    = weigh();
    const double wanted = settings_.top_p * (total > 0 ? total : sum);
    const size_t least  = static_cast<size_t>(std::max(settings_.min_keep, 1));
    double       weight = 0;
    for (size_t i = 0; i < kept_.size(); ++i) {
        weight += weights_[i];
        if (weight >= wanted && i + 1 >= least) {
            kept_.resize(i + 1);
        }
    }
}

void Filters::min_p() {
    const double least    = kept_.front().logit + log_of(std::min(settings_.min_p, 1.0));
    const size_t at_least = static_cast<size_t>(std::max(settings_.min_keep, 1));
    size_t       n        = 0;
    while (n < kept_.size() && (kept_[n].logit >= least || n < at_least)) {
        ++n;
    }
    kept_.resize(n);
}

// Leaves out the likely ones but for the least likely of them.
void Filters::xtc(double draw) {
    if (draw > settings_.xtc_probability || kept_.size() < 2) {
        return;
    }
    const double sum  = weigh();
    size_t       last = 0;
    for (size_t i = 0; i < kept_.size() && weights_[i] / sum >= settings_.xtc_threshold; ++i) {
        last = i;
    }
    if (kept_.size() - last >= static_cast<size_t>(std::max(settings_.min_keep, 0))) {
        kept_.erase(kept_.begin(), kept_.begin() + static_cast<std::ptrdiff_t>(last));
    }
}

// Dynamic temperature: the more the candidates' entropy is that of equal ones, the higher.
void Filters::set_temperature() {
    const FilterSettings & s = settings_;
    temperature_             = s.temperature < kColdest ? 0.0 : s.temperature;
    if (s.dynatemp_range <= 0 || kept_.size() < 2) {
        return;
    }
    const double low     = std::max(0.0, s.temperature - s.dynatemp_range);
    const double high    = s.temperature + s.dynatemp_range;
    const double sum     = weigh();
    const double entropy = entropy_of(weights_, sum) / log_of(static_cast<double>(kept_.size()));
    const double share   = exp_of(s.dynatemp_exponent * log_of(std::clamp(entropy, 1e-300, 1.0)));
    temperature_         = low + (high - low) * share;
    temperature_         = temperature_ < kColdest ? 0.0 : temperature_;
}

} // namespace dflash
