#pragma once

// What runs through a model's matrices: the sum of squares of each of their inputs, row by row of every pass of a context.
// Source: llama.cpp tools/imatrix/imatrix.cpp (0.5.0), whose sums these are; here no row is left out, and names are asked for.

#include "ggml.h"

#include <cstdint>
#include <map>
#include <string>
#include <vector>

namespace dflash {

// Of one matrix, or of several of one shape behind one another, as experts are.
struct Squares {
    int64_t n_per_row;
    int64_t n_matrices;
    std::vector<double>  sums;    // [n_matrices, n_per_row]
    std::vector<int64_t> counts;  // rows that went through each matrix
};

class Activations {
  public:
    // Only what `add` named is looked at.
    void add(const std::string & name, int64_t n_per_row, int64_t n_matrices);

    const std::map<std::string, Squares> & squares() const { return squares_; }

    // Throws core_error when a value was not finite, or a matrix was not as it was named.
    void check() const;

    // A context's cb_eval, whose user data is an Activations that outlives the context. Throws nothing.
    static bool on_tensor(ggml_tensor * tensor, bool ask, void * self);

  private:
    Squares * find(const ggml_tensor * weight);
    void      see(const ggml_tensor * tensor);
    void      see_rows(Squares & squares, const ggml_tensor * weight, const ggml_tensor * input);
    void      see_experts(Squares & squares, const ggml_tensor * weight, const ggml_tensor * input, const ggml_tensor * ids);
    bool      add_row(Squares & squares, int64_t matrix, const float * row);

    std::map<std::string, Squares> squares_;
    std::string                    failure_;
    std::vector<uint8_t>           room_;
    std::vector<uint8_t>           ids_;
};

} // namespace dflash
