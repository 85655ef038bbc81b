#pragma once

// Which ggml type each tensor of a file gets: libllama's own choice. Reads no weights.

#include "ggml.h"

#include <cstdint>
#include <string>
#include <utility>
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
    uint32_t n_expert;
    uint32_t head_dim;
};

// What llama-quantize is told beside the file type, by its own names. A type of GGML_TYPE_COUNT is none.
struct QuantOptions {
    bool pure = false;
    bool quantize_output_tensor = true;
    ggml_type output_tensor_type = GGML_TYPE_COUNT;
    ggml_type token_embedding_type = GGML_TYPE_COUNT;
    std::vector<std::pair<std::string, ggml_type>> tensor_types; // the first pattern that is found in a name counts
};

// `standard`: the mixture of the file type chose it, and no option.
struct ChosenType {
    ggml_type type;
    bool standard;
};

// The type that llama-quantize gives to each tensor at `ftype`, without an importance matrix. `tensors` must be the whole
// file in llama-quantize's order, because the choice for one tensor counts those before it. Throws quantize_error on a
// wrong argument, a pattern that is no regular expression, or where libllama knows no type for a tensor.
std::vector<ChosenType> quant_types(const QuantModel & model, int ftype, const QuantOptions & options,
                                    const std::vector<TensorShape> & tensors);

} // namespace dflash
