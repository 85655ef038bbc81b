#pragma once

// From a row of logits to the candidates of a choice, with llama.cpp's filters in its order: top_n_sigma, top_k,
// typical_p, top_p, min_p, XTC, temperature.
// Source for their meaning: llama.cpp 0.5.0 src/llama-sampler.cpp and common/sampling.cpp. Sums are in double and in a
// fixed order, so that neither threads nor the width of vector registers change what survives.

#include "scan.hpp"

#include <span>
#include <vector>

namespace dflash {

// A temperature below it is none: a logit divided by it would not be finite.
constexpr double kColdest = 1e-6;

// By llama.cpp's names; runner/sampling.py says what each means. As they stand here, nothing is filtered.
struct FilterSettings {
    double  temperature       = 0.0;
    double  dynatemp_range    = 0.0;
    double  dynatemp_exponent = 1.0;
    int32_t top_k             = 0;
    double  top_p             = 1.0;
    double  min_p             = 0.0;
    double  typical_p         = 1.0;
    double  top_n_sigma       = -1.0;
    double  xtc_probability   = 0.0;
    double  xtc_threshold     = 0.1;
    int32_t min_keep          = 0;

    // Whether the best candidate is taken, whatever the noise.
    bool greedy() const { return temperature < kColdest && dynatemp_range <= 0; }

    // Whether every token is a candidate, at a temperature that does not depend on them.
    bool keeps_all() const {
        return top_k <= 0 && top_p >= 1 && min_p <= 0 && typical_p >= 1 && top_n_sigma <= 0 && !draws() &&
               dynatemp_range <= 0;
    }

    // Whether XTC draws a number at each position.
    bool draws() const { return xtc_probability > 0 && xtc_threshold <= 0.5; }
};

class Filters {
  public:
    explicit Filters(const FilterSettings & settings) : settings_(settings) {}

    // The survivors of a row of n logits, the best first. Minus infinity and what is no number never survive.
    // `draw`: a uniform number of this position, for XTC. Throws core_error when the row has no finite maximum.
    std::span<const Candidate> apply(const float * logits, int32_t n, double draw);

    // The same for given candidates, at least one; they are left in another order.
    std::span<const Candidate> apply(std::vector<Candidate> & candidates, double draw);

    // Those of the last apply().
    std::span<const Candidate> survivors() const { return kept_; }

    // For the survivors of the last apply(); 0: the best is taken.
    double temperature() const { return temperature_; }

    const FilterSettings & settings() const { return settings_; }

  private:
    void   collect(const float * logits, int32_t n);
    void   collect_top_p(const float * logits, int32_t n, float best, float least);
    void   narrow(double draw);
    void   typical();
    void   top_p(double total);
    void   min_p();
    void   xtc(double draw);
    void   set_temperature();
    double weigh();

    FilterSettings         settings_;
    double                 temperature_ = 0;
    std::vector<Candidate> kept_;     // the best first
    std::vector<double>    weights_;  // of kept_: exp(logit - best)
    double                 total_ = 0;  // weight of all that kept_ was taken from; 0: of kept_ itself
    std::vector<float>     room_;
};

} // namespace dflash
