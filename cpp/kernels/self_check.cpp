#include "self_check.hpp"

#include "ggml.h"

#include <cmath>
#include <vector>

namespace dflash::kernels {

namespace {

constexpr int64_t kPerRow = 512;
// Several groups of every number of lanes for both sizes of blocks, and a last one that is not full.
constexpr int64_t kRows = 21;

// Uniform in [-1, 1), the same everywhere.
class Numbers {
  public:
    float next() {
        state_ = state_ * 6364136223846793005u + 1442695040888963407u;
        return static_cast<float>(static_cast<int32_t>(state_ >> 32)) * 0x1p-31f;
    }

    // Nearly normal.
    float bell() { return 0.5f * (next() + next() + next() + next()); }

  private:
    uint64_t state_ = 42;
};

float value_of(int64_t row, int64_t i, Numbers & numbers) {
    const float bell = numbers.bell();
    switch (row) {
        case 0:  return 0.0f;
        case 1:  return 0.25f;
        case 2:  return -0.25f;
        case 3:  return i % 100 == 7 ? 50.0f : 0.001f * bell;
        case 4:  return i % 2 == 0 ? 0.5f : -0.5f;
        case 5:  return 1e-41f * bell;
        case 6:  return 1e-20f * bell;
        case 7:  return 1e20f * bell;
        case 8:  return -1.0f - 1e-6f * static_cast<float>(i % 7);
        case 9:  return i % 48 < 16 ? 0.0f : bell;
        case 10: return static_cast<float>(i - kPerRow / 2);
        case 11: return std::ldexp(bell, static_cast<int>(i / 16) - 16);
        case 12: return 30.0f * bell * bell * bell;
        case 13: return std::fabs(bell);
        default: return 0.02f * bell;
    }
}

} // namespace

bool equals_ggml(Kernel kernel, int type, bool weighted) {
    Numbers numbers;
    std::vector<float> values(kRows * kPerRow), importance(kPerRow);
    for (int64_t i = 0; i < kRows * kPerRow; ++i) {
        values[i] = value_of(i / kPerRow, i % kPerRow, numbers);
    }
    for (float & weight : importance) {
        weight = std::fabs(numbers.bell());
    }
    const ggml_type kind = static_cast<ggml_type>(type);
    const float * weights = weighted ? importance.data() : nullptr;
    std::vector<unsigned char> ours(kRows * ggml_row_size(kind, kPerRow)), theirs(ours.size());
    ggml_quantize_chunk(kind, values.data(), theirs.data(), 0, kRows, kPerRow, weights);
    const auto src = reinterpret_cast<const unsigned char *>(values.data());
    const int64_t n_blocks = kRows * kPerRow / ggml_blck_size(kind);
    kernel({src, Source::f32, ours.data(), n_blocks, weights, kPerRow});
    return ours == theirs;
}

} // namespace dflash::kernels
