// What libllama says it keeps in memory, for estimates: a context of a model that was loaded without its weights tells too.

#include "bindings.hpp"
#include "errors.hpp"
#include "llama_abi.hpp"

#include <nanobind/stl/string.h>
#include <nanobind/stl/tuple.h>
#include <nanobind/stl/vector.h>

#include <exception>
#include <string>
#include <tuple>
#include <vector>

namespace nb = nanobind;
using namespace nb::literals;

namespace dflash {

namespace {

using Row = std::tuple<std::string, size_t, size_t, size_t>;

// Host memory that a GPU's backend allocates counts as the processor's, as in llama.cpp's own common/fit.cpp.
std::string place_of(ggml_backend_buffer_type_t type) {
    const ggml_backend_dev_t device = ggml_backend_buft_is_host(type) ? nullptr : ggml_backend_buft_get_device(type);
    return device == nullptr ? "" : ggml_backend_dev_name(device);
}

std::vector<Row> breakdown(uintptr_t address, const std::vector<int32_t> & layers, bool lattice) {
    auto * const ctx = reinterpret_cast<llama_context *>(address);
    for (const int32_t layer : layers) {
        llama_set_embeddings_layer_inp(ctx, static_cast<uint32_t>(layer), true);
    }
    if (lattice) {
        llama_set_embeddings_nextn(ctx, true, /*masked=*/false);
    }
    std::vector<Row> rows;
    try {
        ctx->sched_reserve();
        for (const auto & [type, bytes] : llama_get_memory_breakdown(ctx)) {
            rows.emplace_back(place_of(type), bytes.model, bytes.context, bytes.compute);
        }
    } catch (const std::exception & error) {
        throw core_error(std::string("libllama could not say what it keeps in memory: ") + error.what());
    }
    return rows;
}

} // namespace

void bind_memory(nb::module_ & m) {
    m.def("memory_breakdown", &breakdown, "context"_a, "layers"_a, "lattice"_a = false,
          nb::call_guard<nb::gil_scoped_release>(),
          "Bytes of a context whose `layers` inputs are captured, or that leaves DFlash 2's lattice: for each kind of "
          "buffer the device (empty: the host), and what weights, memory and passes take.");
}

} // namespace dflash
