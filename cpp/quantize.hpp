#pragma once

#include "ggml.h"

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace dflash {

// The shape of one tensor as libllama's type selection sees it: ggml order, row length first.
struct TensorShape {
    std::string name;
    std::vector<int64_t> ne;
    ggml_type type;
};

// The few sizes of a model on which libllama's type selection depends.
struct QuantModel {
    std::string arch;
    uint32_t n_embd;
    uint32_t n_ff;
    uint32_t n_layer;
    uint32_t n_head;
    uint32_t n_head_kv;
    uint32_t head_dim;
};

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

// The type that llama-quantize gives to each tensor at `ftype`. `tensors` must be the whole file in llama-quantize's
// order, because the choice for one tensor counts those before it. Throws quantize_error on a wrong argument.
std::vector<ggml_type> quant_types(const QuantModel & model, int ftype, const std::vector<TensorShape> & tensors);

} // namespace dflash
