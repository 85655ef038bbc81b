#pragma once

// What depth control estimates while it runs: how long passes take, and how likely a drafted token is right.
// Pure functions of what they were shown.

#include <array>
#include <cstdint>
#include <span>
#include <vector>

namespace dflash {

// Seconds of a pass by its width: the median of the last few at that width. Widths never seen lie between their
// neighbours, nearer to the cheaper one, so that they are tried rather than shunned. What slows every width alike (a
// longer context, a busy machine) shows at the widths in use and is taken to hold for all. Width 1, seen the least
// while all goes well, costs no more than any other.
class PassTimes {
  public:
    explicit PassTimes(int32_t n_widths)
        : seen_(static_cast<size_t>(n_widths)), times_(static_cast<size_t>(n_widths)) {}

    // Not a number, nothing, or beyond a day: ignored.
    void seen(int32_t width, double seconds);

    // Of the nearest of 1 .. n_widths; 0 when no width was seen.
    double at(int32_t width) const;

  private:
    // The last values, at most nine.
    struct Recent {
        std::array<double, 9> values{};
        size_t                n    = 0;
        size_t                next = 0;

        void   add(double value);
        double median() const;
    };
    struct Width {
        Recent recent;      // seconds by the pace of their time
        double base = 0.0;  // the median of the first three
    };

    double pace() const;
    double usual(int32_t width) const;
    double between(int32_t width) const;

    std::vector<Width>  seen_;
    Recent              paces_;  // seconds by the base of their width, over all widths
    std::vector<double> times_;
};

// How likely a drafted token is right, given that those before it are: logistic in the logit of its confidence and in
// its position. The coefficients follow the text: an extended Kalman filter, whose state drifts.
class Odds {
  public:
    explicit Odds(int32_t n_positions);

    // Of position i (from 0), with confidence in 0..1; not a number stands for one that is not known.
    double right(int32_t i, float confidence) const;

    // Of each position in turn, times those before it; positions behind the confidences are extrapolated.
    void chain(std::span<const float> confidence, std::span<double> out) const;

    // Position i was right or wrong while those before it were right.
    void learn(int32_t i, float confidence, bool was_right);

    // Another kind of text begins.
    void loosen();

  private:
    static constexpr size_t N = 3;
    using Vector = std::array<double, N>;

    double logit(int32_t i, float confidence) const;
    Vector features(int32_t i, double x) const;
    Vector spread(const Vector & phi) const;
    double probability(int32_t i, double x) const;

    int32_t                 n_positions_;
    std::vector<double>     usual_;  // running mean of the logit by position
    Vector                  theta_;
    double                  surprise_ = 0.0;
    std::array<Vector, N>   cov_{};
};

} // namespace dflash
