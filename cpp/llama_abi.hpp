#pragma once

// What libllama exports and its installed headers do not declare.
// Source: llama.cpp 0.5.0 src/llama-ext.h, the staging header of its own tools. C++ linkage, so a changed signature
// fails to link rather than to run; dflash_gguf/abi.py compares the structs that cross the boundary.

#include "llama.h"

#include <cstddef>
#include <cstdint>
#include <map>

struct quantize_state_impl;

struct llama_quant_model_desc {
    const char * architecture;
    uint32_t n_embd;
    uint32_t n_ff;
    uint32_t n_layer;
    uint32_t n_head;
    uint32_t n_head_kv;
    uint32_t n_expert;
    uint32_t n_embd_head_k;
    uint32_t n_embd_head_v;
};

LLAMA_API ggml_type llama_ftype_get_default_type(llama_ftype ftype);
LLAMA_API llama_model * llama_quant_model_from_metadata(const llama_quant_model_desc * desc);
LLAMA_API quantize_state_impl * llama_quant_init(const llama_model * model, const llama_model_quantize_params * params);
LLAMA_API void llama_quant_free(quantize_state_impl * state);
LLAMA_API bool llama_quant_tensor_allows_quantization(const quantize_state_impl * state, const ggml_tensor * tensor);
LLAMA_API void llama_quant_compute_types(quantize_state_impl * state, llama_ftype ftype, ggml_tensor ** tensors,
                                         ggml_type * result_types, size_t n_tensors);

LLAMA_API void    llama_set_embeddings_nextn(llama_context * ctx, bool value, bool masked);
LLAMA_API float * llama_get_embeddings_nextn(llama_context * ctx);
LLAMA_API void    llama_set_embeddings_layer_inp(llama_context * ctx, uint32_t layer, bool value);
LLAMA_API float * llama_get_embeddings_layer_inp(llama_context * ctx, uint32_t layer);

LLAMA_API int32_t         llama_model_dflash_selector_top_k(const llama_model * model);
LLAMA_API const int32_t * llama_model_target_layer_ids(const llama_model * model);
LLAMA_API uint32_t        llama_model_target_layer_ids_n(const llama_model * model);

struct llama_memory_breakdown_data {
    size_t model;
    size_t context;
    size_t compute;
};
using llama_memory_breakdown = std::map<ggml_backend_buffer_type_t, llama_memory_breakdown_data>;
LLAMA_API llama_memory_breakdown llama_get_memory_breakdown(const llama_context * ctx);

// Of the class only the one function that sizes the buffers of passes anew, before a pass asks for it. Source:
// src/llama-context.h.
struct llama_context {
    void sched_reserve();
};
