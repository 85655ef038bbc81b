#include "quant_types.hpp"

#include "errors.hpp"
#include "llama_abi.hpp"

#include <algorithm>
#include <iterator>
#include <memory>
#include <regex>

namespace dflash {

namespace {

constexpr uint32_t kMaxLayers  = 512;  // LLAMA_MAX_LAYERS
constexpr size_t   kMaxPattern = 256;  // std::regex recurses once a character

bool is_type(int type) {
    return type >= 0 && type < GGML_TYPE_COUNT && ggml_blck_size(static_cast<ggml_type>(type)) > 0;
}

void check_tensor(const TensorShape & tensor) {
    if (tensor.name.empty() || tensor.name.size() >= GGML_MAX_NAME) {
        throw quantize_error("the tensor name `" + tensor.name + "` is empty or too long");
    }
    if (tensor.ne.empty() || tensor.ne.size() > GGML_MAX_DIMS || !is_type(tensor.type)) {
        throw quantize_error("tensor `" + tensor.name + "` has no valid shape and type");
    }
    if (!std::all_of(tensor.ne.begin(), tensor.ne.end(), [](int64_t n) { return n > 0; })) {
        throw quantize_error("tensor `" + tensor.name + "` has an empty dimension");
    }
}

void check_model(const QuantModel & model, int ftype) {
    if (model.arch != "dflash") {
        throw quantize_error("type selection knows the architecture `dflash`, not `" + model.arch + "`");
    }
    const uint32_t sizes[] = {model.n_embd, model.n_ff, model.n_layer, model.n_head, model.n_head_kv, model.head_dim};
    if (std::any_of(std::begin(sizes), std::end(sizes), [](uint32_t n) { return n == 0; })) {
        throw quantize_error("a model size is zero");
    }
    if (model.n_layer > kMaxLayers) {
        throw quantize_error("a model of more than " + std::to_string(kMaxLayers) + " layers");
    }
    if (llama_ftype_get_default_type(static_cast<llama_ftype>(ftype)) == GGML_TYPE_COUNT) {
        throw quantize_error("file type " + std::to_string(ftype) + " does not exist");
    }
}

// The patterns as libllama itself compiles them, so that what it throws can name the one that is wrong.
std::vector<std::regex> patterns_of(const QuantOptions & options) {
    std::vector<std::regex> patterns;
    for (const auto & [text, type] : options.tensor_types) {
        if (text.size() > kMaxPattern) {
            throw quantize_error("a pattern of " + std::to_string(text.size()) + " characters, expected at most " +
                                 std::to_string(kMaxPattern));
        }
        try {
            patterns.emplace_back(text);
        } catch (const std::regex_error & error) {
            throw quantize_error("the pattern `" + text + "` is no regular expression: " + error.what());
        }
    }
    return patterns;
}

using ModelPtr = std::unique_ptr<llama_model, decltype(&llama_model_free)>;
using StatePtr = std::unique_ptr<quantize_state_impl, decltype(&llama_quant_free)>;

ModelPtr mock_model(const QuantModel & model) {
    llama_quant_model_desc desc = {};
    desc.architecture = model.arch.c_str();
    desc.n_embd = model.n_embd;
    desc.n_ff = model.n_ff;
    desc.n_layer = model.n_layer;
    desc.n_head = model.n_head;
    desc.n_head_kv = model.n_head_kv;
    desc.n_expert = model.n_expert;
    desc.n_embd_head_k = model.head_dim;
    desc.n_embd_head_v = model.head_dim;
    return {llama_quant_model_from_metadata(&desc), llama_model_free};
}

ggml_tensor as_tensor(const TensorShape & shape) {
    ggml_tensor tensor = {};
    tensor.type = shape.type;
    std::fill(std::begin(tensor.ne), std::end(tensor.ne), 1);
    std::copy(shape.ne.begin(), shape.ne.end(), tensor.ne);
    ggml_set_name(&tensor, shape.name.c_str());
    return tensor;
}

llama_model_quantize_params as_params(const QuantOptions & options, int ftype,
                                      std::vector<llama_model_tensor_override> & overrides) {
    llama_model_quantize_params params = llama_model_quantize_default_params();
    params.ftype = static_cast<llama_ftype>(ftype);
    params.pure = options.pure;
    params.quantize_output_tensor = options.quantize_output_tensor;
    params.output_tensor_type = options.output_tensor_type;
    params.token_embedding_type = options.token_embedding_type;
    for (const auto & [text, type] : options.tensor_types) {
        overrides.push_back({text.c_str(), type});
    }
    if (!overrides.empty()) {
        overrides.push_back({nullptr, GGML_TYPE_COUNT});
        params.tt_overrides = overrides.data();
    }
    return params;
}

// Source: llama.cpp src/llama-quant.cpp, llama_tensor_get_type.
bool by_mixture(const quantize_state_impl * state, const QuantOptions & options, const std::vector<std::regex> & patterns,
                int ftype, const ggml_tensor & tensor) {
    const std::string name = ggml_get_name(&tensor);
    const auto found = [&](const std::regex & pattern) { return std::regex_search(name, pattern); };
    return !options.pure && ggml_is_quantized(llama_ftype_get_default_type(static_cast<llama_ftype>(ftype))) &&
           llama_quant_tensor_allows_quantization(state, &tensor) &&
           std::none_of(patterns.begin(), patterns.end(), found);
}

} // namespace

std::vector<ChosenType> quant_types(const QuantModel & model, int ftype, const QuantOptions & options,
                                    const std::vector<TensorShape> & tensors) {
    check_model(model, ftype);
    std::for_each(tensors.begin(), tensors.end(), check_tensor);
    const std::vector<std::regex> patterns = patterns_of(options);
    std::vector<ggml_tensor> metadata(tensors.size());
    std::vector<ggml_tensor *> pointers(tensors.size());
    for (size_t i = 0; i < tensors.size(); ++i) {
        metadata[i] = as_tensor(tensors[i]);
        pointers[i] = &metadata[i];
    }
    const ModelPtr mock = mock_model(model);
    std::vector<llama_model_tensor_override> overrides;
    const llama_model_quantize_params params = as_params(options, ftype, overrides);
    std::vector<ggml_type> types(tensors.size());
    std::vector<ChosenType> chosen(tensors.size());
    try {
        const StatePtr state(llama_quant_init(mock.get(), &params), llama_quant_free);
        llama_quant_compute_types(state.get(), params.ftype, pointers.data(), types.data(), types.size());
        for (size_t i = 0; i < types.size(); ++i) {
            chosen[i] = {types[i], by_mixture(state.get(), options, patterns, ftype, metadata[i])};
        }
    } catch (const std::exception & error) {
        throw quantize_error(std::string("libllama finds no type for a tensor: ") + error.what() +
                             "; choose another type for the file, or for that tensor");
    }
    return chosen;
}

} // namespace dflash
