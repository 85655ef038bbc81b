#include "activations.hpp"

#include "errors.hpp"

#include "ggml-backend.h"

#include <cmath>
#include <exception>

namespace dflash {

namespace {

// The scheduler names a copy on another device "CUDA0#blk.0.attn_k.weight#0".
std::string bare(const char * name) {
    const std::string text  = name;
    const size_t      first = text.find('#');
    if (first == std::string::npos) {
        return text;
    }
    const size_t second = text.find('#', first + 1);
    return text.substr(first + 1, second == std::string::npos ? second : second - first - 1);
}

const ggml_tensor * root(const ggml_tensor * tensor) {
    while (tensor->view_src != nullptr) {
        tensor = tensor->view_src;
    }
    return tensor;
}

// The tensor's bytes here: its own where its buffer lies in memory, else a copy in `room`.
const uint8_t * here(const ggml_tensor * tensor, std::vector<uint8_t> & room) {
    if (ggml_backend_buffer_is_host(root(tensor)->buffer)) {
        return static_cast<const uint8_t *>(tensor->data);
    }
    room.resize(ggml_nbytes(tensor));
    ggml_backend_tensor_get(tensor, room.data(), 0, room.size());
    return room.data();
}

bool has_input(const ggml_tensor * tensor) {
    return (tensor->op == GGML_OP_MUL_MAT || tensor->op == GGML_OP_MUL_MAT_ID) && tensor->src[1]->type == GGML_TYPE_F32;
}

} // namespace

void Activations::add(const std::string & name, int64_t n_per_row, int64_t n_matrices) {
    if (n_per_row < 1 || n_matrices < 1) {
        throw core_error("activations: `" + name + "` has no rows");
    }
    Squares & squares = squares_[name];
    squares           = {n_per_row, n_matrices, {}, {}};
    squares.sums.assign(static_cast<size_t>(n_per_row * n_matrices), 0.0);
    squares.counts.assign(static_cast<size_t>(n_matrices), 0);
}

void Activations::check() const {
    if (!failure_.empty()) {
        throw core_error("activations: " + failure_);
    }
}

Squares * Activations::find(const ggml_tensor * weight) {
    const auto found = squares_.find(bare(root(weight)->name));
    return found == squares_.end() ? nullptr : &found->second;
}

bool Activations::on_tensor(ggml_tensor * tensor, bool ask, void * self) {
    auto & activations = *static_cast<Activations *>(self);
    try {
        if (ask) {
            return has_input(tensor) && activations.find(tensor->src[0]) != nullptr;
        }
        activations.see(tensor);
    } catch (const std::exception & error) {
        activations.failure_ = error.what();
    }
    // The pass goes on: what went wrong is told behind it.
    return true;
}

void Activations::see(const ggml_tensor * tensor) {
    const ggml_tensor * weight = tensor->src[0];
    Squares *           found  = has_input(tensor) ? find(weight) : nullptr;
    if (found == nullptr || !failure_.empty()) {
        return;
    }
    if (tensor->src[1]->ne[0] != found->n_per_row || tensor->src[1]->nb[0] != sizeof(float)) {
        throw core_error("`" + bare(root(weight)->name) + "` has rows of " + std::to_string(found->n_per_row) +
                         " values, its input " + std::to_string(tensor->src[1]->ne[0]));
    }
    if (tensor->op == GGML_OP_MUL_MAT_ID) {
        see_experts(*found, weight, tensor->src[1], tensor->src[2]);
    } else {
        see_rows(*found, weight, tensor->src[1]);
    }
}

// A file's matrix may be multiplied as several of fewer rows: then each of these goes into its one set of sums.
void Activations::see_rows(Squares & squares, const ggml_tensor * weight, const ggml_tensor * input) {
    const uint8_t * data = here(input, room_);
    for (int64_t i3 = 0; i3 < input->ne[3]; ++i3) {
        for (int64_t i2 = 0; i2 < input->ne[2]; ++i2) {
            const int64_t matrix = ((i3 % weight->ne[3]) * weight->ne[2] + i2 % weight->ne[2]) % squares.n_matrices;
            for (int64_t i1 = 0; i1 < input->ne[1]; ++i1) {
                const uint8_t * row = data + i1 * input->nb[1] + i2 * input->nb[2] + i3 * input->nb[3];
                if (!add_row(squares, matrix, reinterpret_cast<const float *>(row))) {
                    throw core_error("an input of `" + bare(root(weight)->name) + "` is not finite");
                }
            }
        }
    }
}

// ids: int32 [experts of a token, tokens]; input: [n_per_row, experts of a token or 1, tokens].
void Activations::see_experts(Squares & squares, const ggml_tensor * weight, const ggml_tensor * input,
                              const ggml_tensor * ids) {
    const uint8_t * data  = here(input, room_);
    const uint8_t * chose = here(ids, ids_);
    for (int64_t token = 0; token < ids->ne[1]; ++token) {
        for (int64_t i = 0; i < ids->ne[0]; ++i) {
            const int32_t expert = *reinterpret_cast<const int32_t *>(chose + token * ids->nb[1] + i * ids->nb[0]);
            if (expert < 0 || expert >= squares.n_matrices) {
                throw core_error("`" + bare(root(weight)->name) + "` has no expert " + std::to_string(expert));
            }
            const uint8_t * row = data + (i % input->ne[1]) * input->nb[1] + token * input->nb[2];
            if (!add_row(squares, expert, reinterpret_cast<const float *>(row))) {
                throw core_error("an input of `" + bare(root(weight)->name) + "` is not finite");
            }
        }
    }
}

// False when a value is not finite.
bool Activations::add_row(Squares & squares, int64_t matrix, const float * row) {
    double * sums = squares.sums.data() + matrix * squares.n_per_row;
    bool     good = true;
    for (int64_t i = 0; i < squares.n_per_row; ++i) {
        const double value = row[i];
        good &= std::isfinite(row[i]);
        sums[i] += value * value;
    }
    ++squares.counts[matrix];
    return good;
}

} // namespace dflash
