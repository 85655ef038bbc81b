#include "depth_estimates.hpp"

#include <algorithm>
#include <cmath>
#include <cstddef>

namespace dflash {

namespace {

constexpr double LONGEST    = 86400.0;  // seconds: more is no measurement
constexpr size_t BASED      = 3;     // passes that make a base
constexpr double CHANCE     = 1.15;  // times as long: may be chance
constexpr double NEAR_LOWER = 0.7;   // of the way to the wider neighbour that a straight line would go
constexpr double PER_WIDTH  = 0.2;   // a wider pass than any seen costs this much of the widest more, per row

// Means and variances that the coefficients start with: they say that a confidence is roughly a probability.
constexpr std::array<double, 3> PRIOR_MEAN     = {-0.7, 0.8, 1.0};
constexpr std::array<double, 3> PRIOR_VARIANCE = {1.0, 0.05, 1.0};
constexpr std::array<double, 3> DRIFT          = {0.002, 0.0001, 0.001};  // added for each token judged
constexpr double                LOOSENED       = 0.3;   // the offset's variance at least, after loosen()
constexpr double                SURPRISE_STEP  = 0.15;  // of the running mean of errors in standard deviations
constexpr double                SURPRISED      = 0.8;   // beyond it the text has changed
constexpr double                SHAKEN         = 0.15;  // and the offset's variance grows by this

double clamped_logit(float confidence) {
    const double c = std::clamp(static_cast<double>(confidence), 0.01, 0.995);
    return std::log(c / (1.0 - c));
}

double logistic(double z) { return 1.0 / (1.0 + std::exp(-std::clamp(z, -12.0, 12.0))); }

} // namespace

void PassTimes::Recent::add(double value) {
    values[next] = value;
    next = (next + 1) % values.size();
    n    = std::min(n + 1, values.size());
}

double PassTimes::Recent::median() const {
    std::array<double, 9> sorted = values;
    std::sort(sorted.begin(), sorted.begin() + static_cast<std::ptrdiff_t>(n));
    return sorted[(n - 1) / 2];
}

void PassTimes::seen(int32_t width, double seconds) {
    if (width < 1 || width > static_cast<int32_t>(seen_.size()) || !(seconds > 1e-9) || !(seconds < LONGEST)) {
        return;
    }
    Width & one = seen_[static_cast<size_t>(width - 1)];
    if (one.recent.n >= BASED) {
        paces_.add(seconds / one.base);
    }
    one.recent.add(seconds / pace());
    if (one.recent.n <= BASED) {
        one.base = one.recent.median();
    }
    for (size_t i = 0; i < times_.size(); ++i) {
        times_[i] = pace() * usual(static_cast<int32_t>(i) + 1);
    }
}

// How much longer than at first passes take now; 1 while it may be chance.
double PassTimes::pace() const {
    if (paces_.n < paces_.values.size()) {
        return 1.0;
    }
    const double found = paces_.median();
    return found > CHANCE ? found / CHANCE : found < 1.0 / CHANCE ? found * CHANCE : 1.0;
}

double PassTimes::at(int32_t width) const {
    return times_[static_cast<size_t>(std::clamp(width, 1, static_cast<int32_t>(times_.size())) - 1)];
}

double PassTimes::usual(int32_t width) const {
    const Recent & recent = seen_[static_cast<size_t>(width - 1)].recent;
    double found = recent.n > 0 ? recent.median() : between(width);
    if (width == 1) {
        for (const Width & wider : seen_) {
            found = wider.recent.n > 0 ? std::min(found, wider.recent.median()) : found;
        }
    }
    return found;
}

double PassTimes::between(int32_t width) const {
    const auto known = [this](int32_t w) { return seen_[static_cast<size_t>(w - 1)].recent.n > 0; };
    const auto value = [this](int32_t w) { return seen_[static_cast<size_t>(w - 1)].recent.median(); };
    const int32_t n  = static_cast<int32_t>(seen_.size());
    int32_t below = width - 1, above = width + 1;
    for (; below >= 1 && !known(below); --below) {}
    for (; above <= n && !known(above); ++above) {}
    if (below < 1) {
        return above > n ? 0.0 : value(above);
    }
    const double low = value(below);
    if (above > n) {
        return low * (1.0 + PER_WIDTH * (width - below));
    }
    const double rise  = value(above) - low;
    const double share = static_cast<double>(width - below) / (above - below);
    return low + rise * share * (rise > 0.0 ? NEAR_LOWER : 1.0);
}

Odds::Odds(int32_t n_positions)
    : n_positions_(n_positions), usual_(static_cast<size_t>(n_positions), 1.0), theta_(PRIOR_MEAN) {
    for (size_t i = 0; i < N; ++i) {
        cov_[i][i] = PRIOR_VARIANCE[i];
    }
}

double Odds::logit(int32_t i, float confidence) const {
    return std::isnan(confidence) ? usual_[static_cast<size_t>(i)] : clamped_logit(confidence);
}

Odds::Vector Odds::features(int32_t i, double x) const {
    return {1.0, x - 1.0, static_cast<double>(i) / std::max(1, n_positions_ - 1)};
}

Odds::Vector Odds::spread(const Vector & phi) const {
    Vector out{};
    for (size_t r = 0; r < N; ++r) {
        for (size_t c = 0; c < N; ++c) {
            out[r] += cov_[r][c] * phi[c];
        }
    }
    return out;
}

double Odds::probability(int32_t i, double x) const {
    const Vector phi = features(i, x);
    double z = 0.8;
    for (size_t k = 0; k < N; ++k) {
        z += theta_[k] * phi[k];
    }
    return logistic(z);
}

double Odds::right(int32_t i, float confidence) const { return probability(i, logit(i, confidence)); }

void Odds::chain(std::span<const float> confidence, std::span<double> out) const {
    double product = 1.0, above = 0.0;
    for (size_t i = 0; i < out.size(); ++i) {
        const int32_t position = static_cast<int32_t>(i);
        double x = usual_[i] + above;
        if (i < confidence.size() && !std::isnan(confidence[i])) {
            x     = clamped_logit(confidence[i]);
            above = 0.5 * (x - usual_[i]);
        }
        product *= probability(position, x);
        out[i] = product;
    }
}

void Odds::learn(int32_t i, float confidence, bool was_right) {
    if (i < 0 || i >= n_positions_) {
        return;
    }
    const double x       = logit(i, confidence);
    const Vector phi     = features(i, x);
    const double p       = probability(i, x);
    const double weight  = p * (1.0 - p);
    const Vector along   = spread(phi);
    double       squared = 0.0;
    for (size_t k = 0; k < N; ++k) {
        squared += phi[k] * along[k];
    }
    const double scale = 1.0 + weight * squared;
    for (size_t r = 0; r < N; ++r) {
        theta_[r] = std::clamp(theta_[r] + along[r] * ((was_right ? 1.0 : 0.0) - p) / scale, -6.0, 6.0);
        for (size_t c = 0; c < N; ++c) {
            cov_[r][c] -= weight * along[r] * along[c] / scale;
        }
    }
    for (size_t k = 0; k < N; ++k) {
        cov_[k][k] = std::min(cov_[k][k] + DRIFT[k], PRIOR_VARIANCE[k]);
    }
    const double error = std::clamp(((was_right ? 1.0 : 0.0) - p) / std::sqrt(std::max(weight, 1e-3)), -3.0, 3.0);
    surprise_ += SURPRISE_STEP * (error - surprise_);
    if (std::abs(surprise_) > SURPRISED) {
        cov_[0][0] = std::min(cov_[0][0] + SHAKEN, PRIOR_VARIANCE[0]);
    }
    usual_[static_cast<size_t>(i)] += 0.1 * (x - usual_[static_cast<size_t>(i)]);
}

void Odds::loosen() { cov_[0][0] = std::max(cov_[0][0], LOOSENED); }

} // namespace dflash
