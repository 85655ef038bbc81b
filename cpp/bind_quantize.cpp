// Python's side of quantize.*: buffers and lists in, bytes and types out. Failures leave as quantize_error.

#include "bindings.hpp"
#include "errors.hpp"
#include "fp8.hpp"
#include "kernels/choose.hpp"
#include "kernels/self_check.hpp"
#include "quant_types.hpp"
#include "quantize.hpp"

#include <nanobind/ndarray.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/pair.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

namespace nb = nanobind;

namespace dflash {

namespace {

using Source = nb::ndarray<const uint8_t, nb::ndim<1>, nb::c_contig, nb::device::cpu>;
using Weights = nb::ndarray<const float, nb::ndim<1>, nb::c_contig, nb::device::cpu>;
using Factors = nb::ndarray<const float, nb::ndim<2>, nb::c_contig, nb::device::cpu>;
using Destination = nb::ndarray<uint8_t, nb::ndim<1>, nb::c_contig, nb::device::cpu>;

void rows(const Source & src, int src_type, const Destination & dst, int dst_type, int64_t n_per_row, int n_threads,
          const std::optional<Weights> & importance, int lanes) {
    const nb::gil_scoped_release release;
    std::optional<Importance> weights;
    if (importance) {
        weights = Importance{importance->data(), static_cast<int64_t>(importance->size())};
    }
    quantize_rows(src.data(), src.nbytes(), src_type, dst.data(), dst.nbytes(), dst_type, n_per_row, n_threads, weights,
                  lanes);
}

ggml_type optional_type(std::optional<int> type) { return type ? static_cast<ggml_type>(*type) : GGML_TYPE_COUNT; }

std::vector<std::pair<int, bool>> types(const std::string & arch, uint32_t n_embd, uint32_t n_ff, uint32_t n_layer,
                                        uint32_t n_head, uint32_t n_head_kv, uint32_t n_expert, uint32_t head_dim,
                                        int ftype, const std::vector<std::string> & names,
                                        const std::vector<std::vector<int64_t>> & shapes, const std::vector<int> & stored,
                                        bool pure, bool quantize_output_tensor, std::optional<int> output_tensor_type,
                                        std::optional<int> token_embedding_type,
                                        const std::vector<std::pair<std::string, int>> & tensor_types) {
    if (names.size() != shapes.size() || names.size() != stored.size()) {
        throw quantize_error("names, shapes and types differ in number");
    }
    std::vector<TensorShape> tensors;
    for (size_t i = 0; i < names.size(); ++i) {
        tensors.push_back({names[i], shapes[i], static_cast<ggml_type>(stored[i])});
    }
    QuantOptions options = {pure, quantize_output_tensor, optional_type(output_tensor_type),
                            optional_type(token_embedding_type), {}};
    for (const auto & [pattern, type] : tensor_types) {
        options.tensor_types.emplace_back(pattern, static_cast<ggml_type>(type));
    }
    const nb::gil_scoped_release release;
    std::vector<std::pair<int, bool>> chosen;
    for (const ChosenType & one :
         quant_types({arch, n_embd, n_ff, n_layer, n_head, n_head_kv, n_expert, head_dim}, ftype, options, tensors)) {
        chosen.emplace_back(one.type, one.standard);
    }
    return chosen;
}

void fp8(const Source & src, int mantissa_bits, const Factors & factors, int64_t n_across, const Destination & dst,
         int64_t n_per_row) {
    const nb::gil_scoped_release release;
    widen_fp8(src.data(), src.size(), mantissa_bits, factors.data(), factors.size(), n_across, dst.data(), dst.nbytes(),
              n_per_row);
}

bool is_exact(int type, bool weighted, int lanes) {
    const nb::gil_scoped_release release;
    return kernels::find(type, weighted, lanes) != nullptr;
}

bool makes(int kernel_type, int type, bool weighted, int lanes) {
    if (ggml_row_size(static_cast<ggml_type>(kernel_type), 256) != ggml_row_size(static_cast<ggml_type>(type), 256)) {
        throw quantize_error("blocks of different sizes cannot be compared");
    }
    const nb::gil_scoped_release release;
    const kernels::Kernel kernel = kernels::find(kernel_type, weighted, lanes);
    return kernel != nullptr && kernels::equals_ggml(kernel, type, weighted);
}

} // namespace

void bind_quantize(nb::module_ & m) {
    m.def("quantize_rows", &rows, nb::arg("src"), nb::arg("src_type"), nb::arg("dst"), nb::arg("dst_type"),
          nb::arg("n_per_row"), nb::arg("n_threads"), nb::arg("importance") = nb::none(),
          nb::arg("lanes") = 0,
          "Turn rows of floats or blocks into rows of `dst_type`; both buffers hold whole rows. `lanes`: of our kernels; "
          "0: ggml's own code.");
    m.def("widen_fp8", &fp8, nb::arg("src"), nb::arg("mantissa_bits"), nb::arg("factors"), nb::arg("n_across"),
          nb::arg("dst"), nb::arg("n_per_row"),
          "Rows of FP8, each group of `n_across` columns times its factor, as F32.");
    m.def("kernel_lanes", &kernels::widths, "How many lanes our kernels can have on this processor, most first.");
    m.def("kernel_types", &kernels::types, "The types that our kernels make, by ggml's numbers.");
    m.def("kernel_is_exact", &is_exact, nb::arg("type"), nb::arg("weighted"), nb::arg("lanes"),
          "Whether a kernel makes the same bytes as ggml on this machine; found out once.");
    m.def("kernel_makes", &makes, nb::arg("kernel_type"), nb::arg("type"), nb::arg("weighted"), nb::arg("lanes"),
          "Whether the kernel of one type makes ggml's bytes of another, whose blocks are as large.");
    m.def("quant_types", &types, nb::arg("arch"), nb::arg("n_embd"), nb::arg("n_ff"), nb::arg("n_layer"),
          nb::arg("n_head"), nb::arg("n_head_kv"), nb::arg("n_expert"), nb::arg("head_dim"), nb::arg("ftype"),
          nb::arg("names"), nb::arg("shapes"), nb::arg("types"), nb::arg("pure") = false,
          nb::arg("quantize_output_tensor") = true, nb::arg("output_tensor_type") = nb::none(),
          nb::arg("token_embedding_type") = nb::none(), nb::arg("tensor_types") = nb::list(),
          "The type that llama-quantize gives to each tensor of a whole file, in its own order, without an importance "
          "matrix, and whether the mixture chose it, and no option.");
}

} // namespace dflash
