// The Python face of the native core: checks arguments, releases the GIL, turns failures into our errors.

#include "bindings.hpp"

#include "drafter.hpp"
#include "errors.hpp"
#include "llama_abi.hpp"
#include "scripted.hpp"
#include "session.hpp"
#include "target.hpp"

#include <nanobind/nanobind.h>
#include <nanobind/ndarray.h>
#include <nanobind/stl/pair.h>
#include <nanobind/stl/shared_ptr.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include <array>
#include <exception>
#include <memory>

namespace nb = nanobind;
using namespace nb::literals;
using dflash::token;

namespace {

using released = nb::call_guard<nb::gil_scoped_release>;

// What C++ was compiled with, for dflash_gguf.abi to compare with llama_cpp's ctypes view.
nb::dict abi_facts() {
    const llama_context_params c = llama_context_default_params();
    const llama_model_params   m = llama_model_default_params();
    nb::dict context, model, facts;
    context["n_batch"]    = c.n_batch;
    context["n_ubatch"]   = c.n_ubatch;
    context["n_seq_max"]  = c.n_seq_max;
    context["type_k"]     = static_cast<int>(c.type_k);
    context["swa_full"]   = c.swa_full;
    context["n_samplers"] = c.n_samplers;
    model["n_gpu_layers"] = m.n_gpu_layers;
    model["split_mode"]   = static_cast<int>(m.split_mode);
    model["load_mode"]    = static_cast<int>(m.load_mode);
    model["load_mtp"]     = m.load_mtp;
    facts["llama_cpp_python"]            = LLAMA_CPP_PYTHON_VERSION;
    facts["llama_version"]               = llama_version();
    facts["address_of_llama_version"]    = reinterpret_cast<uintptr_t>(&llama_version);
    facts["sizeof_llama_context_params"] = sizeof(llama_context_params);
    facts["sizeof_llama_model_params"]   = sizeof(llama_model_params);
    facts["llama_context_params"]        = context;
    facts["llama_model_params"]          = model;
    return facts;
}

// nanobind hides a Python exception that leaves a module's start behind one of its own; a C++ one keeps its words.
void check_abi() {
    try {
        nb::module_::import_("dflash_gguf.abi").attr("check")(abi_facts());
    } catch (const nb::python_error & error) {
        throw std::runtime_error(nb::cast<std::string>(nb::str(error.value())));
    }
}

void translate(const std::exception_ptr & failure, void *) {
    try {
        std::rethrow_exception(failure);
    } catch (const dflash::core_error & error) {
        const bool quantizing = dynamic_cast<const dflash::quantize_error *>(&error) != nullptr;
        const char * name = quantizing ? "QuantizeError" : "SessionError";
        PyErr_SetString(nb::module_::import_("dflash_gguf.errors").attr(name).ptr(), error.what());
    }
}

llama_context * context_at(uintptr_t address) { return reinterpret_cast<llama_context *>(address); }

template <typename T, size_t N>
using array_of = nb::ndarray<nb::numpy, T, nb::ndim<N>>;

// Values as a NumPy array that owns them.
template <typename T, size_t N>
array_of<T, N> owned(std::vector<T> values, const std::array<size_t, N> & shape) {
    auto held = std::make_unique<std::vector<T>>(std::move(values));
    T * const data = held->data();
    const nb::capsule owner(held.release(), [](void * p) noexcept { delete static_cast<std::vector<T> *>(p); });
    return array_of<T, N>(data, N, shape.data(), owner);
}

// (candidate ids int32 [n, top_k], scores float32 [n, top_k, top_k]); scores[i, p, c]: candidate c after predecessor p.
std::pair<array_of<int32_t, 2>, array_of<float, 3>> lattice_arrays(dflash::LlamaDrafter & drafter, token last,
                                                                   int32_t pos, int32_t n) {
    std::vector<int32_t> ids;
    std::vector<float>   scores;
    size_t               k = 0;
    {
        const nb::gil_scoped_release release;
        if (drafter.kind() != dflash::Kind::dflash2) {
            throw dflash::core_error("drafter: only DFlash 2 has a lattice");
        }
        drafter.block(last, pos, n);
        const dflash::Lattice lattice = drafter.lattice();
        k = static_cast<size_t>(lattice.top_k);
        for (int32_t i = 1; i <= n; ++i) {
            const float * row = lattice.rows + static_cast<size_t>(i) * lattice.stride;
            ids.insert(ids.end(), row, row + k);
            scores.insert(scores.end(), row + k, row + k + k * k);
        }
    }
    const size_t rows = static_cast<size_t>(n);
    return {owned<int32_t, 2>(std::move(ids), {rows, k}), owned<float, 3>(std::move(scores), {rows, k, k})};
}

// Logits of the proposals, float32 [n, n_vocab].
array_of<float, 2> logit_rows(dflash::LlamaDrafter & drafter, token last, int32_t pos, int32_t n) {
    const size_t width = static_cast<size_t>(drafter.n_vocab());
    std::vector<float> rows;
    {
        const nb::gil_scoped_release release;
        if (drafter.kind() == dflash::Kind::dflash2) {
            throw dflash::core_error("drafter: DFlash 2 leaves a lattice, not logits");
        }
        drafter.block(last, pos, n);
        for (int32_t i = 0; i < n; ++i) {
            const float * row = drafter.logits(i);
            rows.insert(rows.end(), row, row + width);
        }
    }
    return owned<float, 2>(std::move(rows), {static_cast<size_t>(n), width});
}

// Layer inputs of rows first .. first+n-1 of the last pass, float32 [n, n_features].
array_of<float, 2> feature_array(dflash::LlamaTarget & target, int32_t first, int32_t n) {
    const size_t width = static_cast<size_t>(target.n_features());
    std::vector<float> rows(static_cast<size_t>(n) * width);
    {
        const nb::gil_scoped_release release;
        target.features(first, n, rows.data());
    }
    return owned<float, 2>(std::move(rows), {static_cast<size_t>(n), width});
}

array_of<float, 1> row_array(const float * logits, int32_t n_vocab) {
    const size_t n = static_cast<size_t>(n_vocab);
    return owned<float, 1>(std::vector<float>(logits, logits + n), {n});
}

std::vector<std::pair<double, std::vector<std::pair<token, double>>>> scores_of(const dflash::Loop & loop) {
    std::vector<std::pair<double, std::vector<std::pair<token, double>>>> out;
    for (const dflash::Score & score : loop.scores()) {
        out.emplace_back(score.logprob, score.best);
    }
    return out;
}

array_of<float, 1> last_logits(dflash::Loop & loop) { return row_array(loop.last_logits(), loop.n_vocab()); }

array_of<float, 1> logit_row(dflash::LlamaTarget & target, int32_t row) {
    return row_array(target.logits(row), target.n_vocab());
}

void bind_models(nb::module_ & m) {
    nb::class_<dflash::Target>(m, "Target", "A target behind the loop's seam.");
    nb::class_<dflash::Drafter>(m, "Drafter", "A drafter behind the loop's seam.")
        .def_prop_ro("n_max", &dflash::Drafter::n_max, "Tokens that one pass can propose.");

    nb::class_<dflash::LlamaTarget, dflash::Target>(m, "LlamaTarget", "A target in a libllama context.")
        .def("__init__",
             [](dflash::LlamaTarget * self, uintptr_t context, int32_t n_ctx, const std::vector<int32_t> & layers,
                int32_t n_outputs) {
                 new (self) dflash::LlamaTarget(context_at(context), n_ctx, layers, n_outputs);
             },
             released(), "context"_a, "n_ctx"_a, "layers"_a, "n_outputs"_a,
             "context: address of a llama_context that outlives this; n_ctx: positions of it to use; layers: layer inputs to "
             "capture, in the drafter's order; n_outputs: rows of a pass that may ask for logits.")
        .def("decode",
             [](dflash::LlamaTarget & self, const std::vector<token> & tokens, int32_t pos, int32_t n_logits) {
                 self.decode(tokens, pos, n_logits);
             },
             released(), "tokens"_a, "pos"_a, "n_logits"_a, "One pass over tokens from position pos on.")
        .def_prop_ro("n_ctx", &dflash::LlamaTarget::n_ctx, "Positions that fit.")
        .def_prop_ro("n_outputs", &dflash::LlamaTarget::n_outputs, "Rows of a pass that may ask for logits.")
        .def("mark", &dflash::LlamaTarget::mark, released(), "pos"_a,
             "Remembers a recurrent state at its end, pos, for rewind().")
        .def("rewind", &dflash::LlamaTarget::rewind, released(), "pos"_a,
             "Goes back to pos, or as near before it as the memory allows; returns where it stands.")
        .def("logits", &logit_row, "row"_a, "Logits of a row of the last pass: float32 [n_vocab].")
        .def("features", &feature_array, "first"_a, "n"_a,
             "Layer inputs of rows of the last pass: float32 [n, taps * n_embd].");

    nb::enum_<dflash::Kind>(m, "Kind", "What a drafter's pass leaves to read.")
        .value("dflash", dflash::Kind::dflash, "A row of logits for each position behind the anchor.")
        .value("dflash2", dflash::Kind::dflash2, "A lattice of candidates and pairwise scores.")
        .value("dspark", dflash::Kind::dspark, "Rows of logits, each conditioned on the best token of the one before.");
    nb::class_<dflash::LlamaDrafter, dflash::Drafter>(m, "LlamaDrafter", "A drafter in a libllama context.")
        .def("__init__",
             [](dflash::LlamaDrafter * self, uintptr_t context, dflash::Kind kind, bool anchor_first, int32_t n_ctx,
                bool confidence_head) {
                 new (self) dflash::LlamaDrafter(context_at(context), kind, anchor_first, confidence_head, n_ctx);
             },
             released(), "context"_a, "kind"_a, "anchor_first"_a, "n_ctx"_a = 0, "confidence_head"_a = false,
             "context: address of a llama_context that outlives this; anchor_first: the anchor's own row is the first "
             "proposal; n_ctx: positions of it to use, 0: all; confidence_head: DSpark rows say how likely they are right.")
        .def("inject",
             [](dflash::LlamaDrafter & self, const dflash::matrix & rows, int32_t pos) {
                 if (static_cast<int32_t>(rows.shape(1)) != self.n_features()) {
                     throw dflash::core_error("drafter: feature rows of another width");
                 }
                 const int32_t n = static_cast<int32_t>(rows.shape(0));
                 if (n > self.n_batch()) {
                     throw dflash::core_error("drafter: more feature rows than one pass takes");
                 }
                 const nb::gil_scoped_release release;
                 self.inject(rows.data(), n, pos);
             },
             "features"_a, "pos"_a, "Adds feature rows, float32 [n, n_features], from position pos on.")
        .def("lattice", &lattice_arrays, "last"_a, "pos"_a, "n"_a,
             "One pass of DFlash 2: (candidate ids int32 [n, top_k], scores float32 [n, top_k, top_k]).")
        .def("rows", &logit_rows, "last"_a, "pos"_a, "n"_a,
             "One pass of DFlash or DSpark: logits of the proposals, float32 [n, n_vocab].")
        .def("draft",
             [](dflash::LlamaDrafter & self, token last, int32_t pos, int32_t n) {
                 const dflash::Sampler best(self.n_vocab());
                 dflash::Proposal      out;
                 self.draft(last, pos, n, dflash::Picks(best, false, false, false), out);
                 return out.tokens;
             },
             released(), "last"_a, "pos"_a, "n"_a,
             "Proposes n tokens to follow `last` at position pos, the best at each place.");

    nb::class_<dflash::ScriptedTarget, dflash::Target>(m, "ScriptedTarget", "A target whose passes are Python methods.")
        .def(nb::init<nb::object>(), "script"_a);
    nb::class_<dflash::ScriptedDrafter, dflash::Drafter>(m, "ScriptedDrafter",
                                                         "A drafter whose passes are Python methods.")
        .def(nb::init<nb::object>(), "script"_a);
}

void bind_stats(nb::module_ & m) {
    using dflash::Stats;
    nb::class_<Stats>(m, "Stats", "Counts, and seconds, since begin().")
        .def_ro("n_prompt", &Stats::n_prompt)
        .def_ro("n_injected", &Stats::n_injected)
        .def_ro("n_drafts", &Stats::n_drafts)
        .def_ro("n_verify", &Stats::n_verify)
        .def_ro("draft_n", &Stats::draft_n)
        .def_ro("draft_n_accepted", &Stats::draft_n_accepted)
        .def_ro("drafted_at", &Stats::drafted_at)
        .def_ro("accepted_at", &Stats::accepted_at)
        .def_ro("t_prefill", &Stats::t_prefill)
        .def_ro("t_draft", &Stats::t_draft)
        .def_ro("t_verify", &Stats::t_verify)
        .def_ro("t_accept", &Stats::t_accept)
        .def_ro("t_inject", &Stats::t_inject);
}

void bind_loop(nb::module_ & m) {
    using dflash::Loop;
    nb::class_<Loop>(m, "Loop", "The loop of one request; see cpp/session.hpp for the state between rounds.")
        .def("__init__",
             [](Loop * self, dflash::Target & target, dflash::Drafter * drafter, int32_t n_max, dflash::DraftRule rule,
                bool automatic, int32_t n_min, float p_min) {
                 new (self) Loop(target, drafter, {n_max, n_min, p_min}, automatic, rule);
             },
             "target"_a, "drafter"_a.none(), "n_max"_a, "rule"_a = dflash::DraftRule::argmax, "automatic"_a = false,
             "n_min"_a = 0, "p_min"_a = 0.0f, nb::keep_alive<1, 2>(), nb::keep_alive<1, 3>(),
             "n_max: tokens drafted a round at the most; automatic: depth control decides how many; n_min, p_min: see "
             "cpp/depth.hpp.")
        .def("calibrate", &Loop::calibrate, released(), "seconds"_a,
             "Times passes of every width for depth control; forgets the sequence.")
        .def_prop_ro("control", [](const Loop & self) { return self.control(); }, nb::rv_policy::reference_internal,
                     "Depth control; None at a fixed depth.")
        .def("begin", &Loop::begin, released(), "keep"_a = 0, "drafts"_a = true,
             "Forgets the counts and all but the first `keep` positions; returns how many could be kept. Without drafts "
             "the request that comes is decoded plainly.")
        .def("choose_by", &Loop::choose_by, "sampler"_a.none(),
             "Between begin() and the prompt: what chooses its answer; None: the best token is chosen.")
        .def("report", &Loop::report, "n_best"_a,
             "Between begin() and the prompt: scores the answer's tokens and names so many others; below 0: not.")
        .def_prop_ro("scores", &scores_of,
                     "Of the tokens that prefill() or round() returned last: log probability, and the likeliest ids "
                     "with theirs.")
        .def("prefill",
             [](Loop & self, const std::vector<token> & tokens, bool final) { return self.prefill(tokens, final); },
             released(), "tokens"_a, "final"_a,
             "The next tokens of the prompt; with final, returns the first chosen token, else -1.")
        .def("mark", &Loop::mark, released(), "Remembers a recurrent target's state here, for a later begin().")
        .def("last_logits", &last_logits, "The logits that the newest token was chosen from: float32 [n_vocab].")
        .def("round", [](Loop & self, int32_t n_limit) { return self.round(n_limit); }, released(), "n_limit"_a,
             "Drafts at most n_limit tokens, verifies them, returns what the target wrote.")
        .def("commit", &Loop::commit, released(), "k"_a, "Keeps the first k tokens of the round, at least one.")
        .def_prop_ro("n_ctx", &Loop::n_ctx, "Positions that fit.")
        .def_prop_ro("n_vocab", &Loop::n_vocab, "Size of the vocabulary.")
        .def_prop_ro("n_batch", &Loop::n_batch, "Tokens that one pass takes.")
        .def_prop_ro("n_past", &Loop::n_past, "Positions in both caches.")
        .def_prop_ro("last", &Loop::last, "The newest token, not yet through the target; -1 before the prompt is over.")
        .def_prop_ro("pending", &Loop::pending, "Whether a round waits for commit(), or for begin() to drop it.")
        .def_prop_ro("recurrent", &Loop::recurrent, "Whether the target can go back only to where it was marked.")
        .def_prop_ro("n_max", &Loop::n_max, "Tokens drafted a round at the most.")
        .def_prop_ro("n_drafted", &Loop::n_drafted, "Tokens proposed in the last round.")
        .def_prop_ro("stats", &Loop::stats, nb::rv_policy::copy, "A copy of the counts so far.");
}

} // namespace

NB_MODULE(_core, m) {
    m.doc() = "The native core: the loop and the quantizer on top of llama-cpp-python's libllama.";
    check_abi();
    nb::register_exception_translator(translate);
    dflash::bind_activations(m);
    dflash::bind_depth(m);
    dflash::bind_memory(m);
    dflash::bind_quantize(m);
    dflash::bind_sampler(m);
    bind_models(m);
    bind_stats(m);
    bind_loop(m);
}
