// What a kernel is given and what it says. Knows nothing of threads, nor of how a kernel is chosen.
#pragma once

#include <cstdint>

namespace dflash::kernels {

enum class Source { f32, f16, bf16 };

// `n_blocks` blocks of the kernel's type, one after the other, made of as many values in `src`. `importance` holds one
// weight a column, `n_per_row` of them (null: none); `src` then starts with a row, and a kernel that looks at whole rows
// is given whole rows.
struct Work {
    const unsigned char * src;
    Source source;
    unsigned char * dst;
    int64_t n_blocks;
    const float * importance;
    int64_t n_per_row;
};

// Bits of what a kernel returns; 0: all is well.
constexpr unsigned kBadSource = 1; // a value of the source is not finite
constexpr unsigned kBadResult = 2; // a factor of a block is not finite

using Kernel = unsigned (*)(const Work & work);

// One destination type, by ggml's number.
struct Entry {
    int type;
    Kernel plain;
    Kernel weighted;
};

constexpr int kTypes = 12;

// The same kernels for each number of lanes; only those that this build has are defined.
extern const Entry table_4[kTypes];
extern const Entry table_8[kTypes];
extern const Entry table_16[kTypes];

} // namespace dflash::kernels
