#pragma once

// The seam for tests: a target and a drafter whose passes are methods of Python objects.
// Each call takes the GIL back, which the loop has released.

#include "errors.hpp"
#include "interfaces.hpp"

#include <nanobind/nanobind.h>
#include <nanobind/ndarray.h>
#include <nanobind/stl/vector.h>

#include <cstring>
#include <string>

namespace dflash {

namespace nb = nanobind;
using matrix = nb::ndarray<const float, nb::ndim<2>, nb::c_contig, nb::device::cpu>;

inline int32_t integer_of(nb::handle object, const char * name) {
    const nb::gil_scoped_acquire gil;
    return nb::cast<int32_t>(object.attr(name));
}

// A Python object with n_vocab, n_ctx, n_batch, n_outputs, n_features, recurrent,
// decode(tokens, pos, n_logits) -> float32 [n_logits, n_vocab], features(first, n) -> float32 [n, n_features], trim(pos),
// rewind(pos) -> where it stands, mark(pos).
class ScriptedTarget final : public Target {
  public:
    explicit ScriptedTarget(nb::object script) : script_(std::move(script)) {}

    int32_t n_vocab() const override { return integer_of(script_, "n_vocab"); }
    int32_t n_ctx() const override { return integer_of(script_, "n_ctx"); }
    int32_t n_batch() const override { return integer_of(script_, "n_batch"); }
    int32_t n_outputs() const override { return integer_of(script_, "n_outputs"); }
    int32_t n_features() const override { return integer_of(script_, "n_features"); }

    void decode(std::span<const token> tokens, int32_t pos, int32_t n_logits) override {
        const nb::gil_scoped_acquire gil;
        const std::vector<token> ids(tokens.begin(), tokens.end());
        const matrix rows = nb::cast<matrix>(script_.attr("decode")(ids, pos, n_logits));
        if (static_cast<int32_t>(rows.shape(0)) != n_logits || static_cast<int32_t>(rows.shape(1)) != n_vocab()) {
            throw core_error("scripted target: decode() returned logits of another shape");
        }
        logits_.assign(rows.data(), rows.data() + rows.size());
        first_logits_ = static_cast<int32_t>(tokens.size()) - n_logits;
    }

    const float * logits(int32_t row) override {
        return logits_.data() + static_cast<size_t>(row - first_logits_) * n_vocab();
    }

    void features(int32_t first, int32_t n, float * out) override {
        const nb::gil_scoped_acquire gil;
        const matrix rows = nb::cast<matrix>(script_.attr("features")(first, n));
        if (static_cast<int32_t>(rows.size()) != n * n_features()) {
            throw core_error("scripted target: features() returned rows of another shape");
        }
        std::memcpy(out, rows.data(), rows.size() * sizeof(float));
    }

    void trim(int32_t pos) override {
        const nb::gil_scoped_acquire gil;
        script_.attr("trim")(pos);
    }

    int32_t rewind(int32_t pos) override {
        const nb::gil_scoped_acquire gil;
        return nb::cast<int32_t>(script_.attr("rewind")(pos));
    }

    bool recurrent() const override {
        const nb::gil_scoped_acquire gil;
        return nb::cast<bool>(script_.attr("recurrent"));
    }

    void mark(int32_t pos) override {
        const nb::gil_scoped_acquire gil;
        script_.attr("mark")(pos);
    }

  private:
    nb::object         script_;
    std::vector<float> logits_;
    int32_t            first_logits_ = 0;
};

// A Python object with n_max, n_ctx, n_batch, n_features, inject(features float32 [n, n_features], pos), draft(last, pos,
// n) -> ids, confidence(n) -> how likely each is right, rewind(pos) -> where it stands.
class ScriptedDrafter final : public Drafter {
  public:
    explicit ScriptedDrafter(nb::object script) : script_(std::move(script)) {}

    int32_t n_max() const override { return integer_of(script_, "n_max"); }
    int32_t n_ctx() const override { return integer_of(script_, "n_ctx"); }
    int32_t n_batch() const override { return integer_of(script_, "n_batch"); }
    int32_t n_features() const override { return integer_of(script_, "n_features"); }

    void inject(const float * features, int32_t n, int32_t pos) override {
        const nb::gil_scoped_acquire gil;
        const size_t width = static_cast<size_t>(n_features());
        const nb::ndarray<nb::numpy, const float> rows(features, {static_cast<size_t>(n), width}, nb::handle());
        script_.attr("inject")(nb::cast(rows, nb::rv_policy::copy), pos);
    }

    void draft(token last, int32_t pos, int32_t n, const Picks & picks, Proposal & out) override {
        const nb::gil_scoped_acquire gil;
        out.tokens = nb::cast<std::vector<token>>(script_.attr("draft")(last, pos, n));
        if (static_cast<int32_t>(out.tokens.size()) > n) {
            throw core_error("scripted drafter: draft() proposed " + std::to_string(out.tokens.size()) + " of at most " +
                             std::to_string(n));
        }
        if (picks.confidence()) {
            out.confidence = nb::cast<std::vector<float>>(script_.attr("confidence")(out.tokens.size()));
        }
    }

    int32_t rewind(int32_t pos) override {
        const nb::gil_scoped_acquire gil;
        return nb::cast<int32_t>(script_.attr("rewind")(pos));
    }

  private:
    nb::object script_;
};

} // namespace dflash
