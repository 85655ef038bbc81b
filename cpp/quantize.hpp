#pragma once

#include "ggml.h"

#include <cstddef>
#include <cstdint>
#include <optional>

namespace dflash {

// How much each column of a row matters: an importance matrix's row. Borrowed.
struct Importance {
    const float * weights;
    int64_t n;
};

// Rows of floats, or of blocks that ggml makes floats of, -> rows of `dst_type`, in `n_threads` native threads. Sizes are
// in bytes.
// With one type on both sides, `dst` may be `src`: the values are then only checked. `importance` holds one weight a
// column; types that ggml cannot make without (ggml_quantize_requires_imatrix) need it.
// Kernels of `lanes` lanes do it where there are such for the type and their bytes are ggml's, else ggml does.
// Throws quantize_error on a wrong argument, a value that is not finite, or one that `dst_type` cannot hold.
void quantize_rows(const void * src, size_t src_size, int src_type, void * dst, size_t dst_size, int dst_type,
                   int64_t n_per_row, int n_threads, const std::optional<Importance> & importance, int lanes);

} // namespace dflash
