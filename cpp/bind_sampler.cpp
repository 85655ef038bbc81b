// Python's side of sampler.*: settings and rows in, tokens out.

#include "bindings.hpp"
#include "errors.hpp"
#include "noise.hpp"
#include "picks.hpp"

#include <nanobind/ndarray.h>
#include <nanobind/stl/array.h>
#include <nanobind/stl/pair.h>
#include <nanobind/stl/shared_ptr.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

namespace nb = nanobind;
using namespace nb::literals;

namespace dflash {

namespace {

using Row = nb::ndarray<const float, nb::ndim<1>, nb::c_contig, nb::device::cpu>;

void bind_settings(nb::module_ & m) {
    nb::class_<FilterSettings>(m, "FilterSettings", "Settings of the filters; as made, nothing is filtered.")
        .def(nb::init<>())
        .def_rw("temperature", &FilterSettings::temperature)
        .def_rw("dynatemp_range", &FilterSettings::dynatemp_range)
        .def_rw("dynatemp_exponent", &FilterSettings::dynatemp_exponent)
        .def_rw("top_k", &FilterSettings::top_k)
        .def_rw("top_p", &FilterSettings::top_p)
        .def_rw("min_p", &FilterSettings::min_p)
        .def_rw("typical_p", &FilterSettings::typical_p)
        .def_rw("top_n_sigma", &FilterSettings::top_n_sigma)
        .def_rw("xtc_probability", &FilterSettings::xtc_probability)
        .def_rw("xtc_threshold", &FilterSettings::xtc_threshold)
        .def_rw("min_keep", &FilterSettings::min_keep);
    nb::class_<PenaltySettings>(m, "PenaltySettings", "Settings of the penalties; as made, nothing is penalized.")
        .def(nb::init<>())
        .def_rw("last_n", &PenaltySettings::last_n)
        .def_rw("repeat", &PenaltySettings::repeat)
        .def_rw("frequency", &PenaltySettings::frequency)
        .def_rw("presence", &PenaltySettings::presence)
        .def_rw("dry_multiplier", &PenaltySettings::dry_multiplier)
        .def_rw("dry_base", &PenaltySettings::dry_base)
        .def_rw("dry_allowed_length", &PenaltySettings::dry_allowed_length)
        .def_rw("dry_last_n", &PenaltySettings::dry_last_n)
        .def_rw("dry_breakers", &PenaltySettings::dry_breakers);
    nb::class_<Filters>(m, "Filters", "The filters alone.")
        .def(nb::init<const FilterSettings &>(), "settings"_a)
        .def("apply",
             [](Filters & self, const Row & row, double draw) {
                 std::vector<token> ids;
                 for (const Candidate & one : self.apply(row.data(), static_cast<int32_t>(row.size()), draw)) {
                     ids.push_back(one.id);
                 }
                 return std::pair(ids, self.temperature());
             },
             "logits"_a, "draw"_a = 0.0, "Ids of the survivors of a row, float32 [n], the best first; the temperature.");
}

std::shared_ptr<Sampler> make_sampler(int32_t n_vocab, const FilterSettings & filters, uint64_t seed,
                                      std::vector<std::pair<token, float>> bias, const PenaltySettings & penalties,
                                      std::vector<token> prompt, const std::string & grammar, uintptr_t vocab) {
    const llama_vocab * const address = reinterpret_cast<const llama_vocab *>(vocab);
    return std::make_shared<Sampler>(
        n_vocab, SamplerSettings{filters, seed, std::move(bias)},
        std::make_unique<History>(address, n_vocab, penalties, std::move(prompt)),
        grammar.empty() ? nullptr : std::make_unique<Grammar>(address, grammar));
}

} // namespace

void bind_sampler(nb::module_ & m) {
    m.def("philox", &philox, "counter"_a, "key"_a, "Philox4x32-10.");
    m.def("uniform", [](uint64_t seed, int32_t pos, token id) { return uniform(seed, pos, id); }, "seed"_a, "pos"_a,
          "id"_a, "The uniform number in (0, 1) of a token at a position.");
    m.def("gumbel", &gumbel, "seed"_a, "pos"_a, "id"_a, "The Gumbel noise of a token at a position.");
    bind_settings(m);
    nb::class_<Sampler>(m, "Sampler", "The choice at each position of one answer.")
        .def(nb::new_(&make_sampler), nb::call_guard<nb::gil_scoped_release>(), "n_vocab"_a, "filters"_a, "seed"_a = 0,
             "logit_bias"_a = std::vector<std::pair<token, float>>(), "penalties"_a = PenaltySettings(),
             "prompt"_a = std::vector<token>(), "grammar"_a = "", "vocab"_a = 0,
             "prompt: ids that penalties look back at; grammar: GBNF, empty for none; vocab: address of a llama_vocab that "
             "outlives this, which a grammar and DRY need.")
        .def("choose",
             [](Sampler & self, const Row & row, int32_t pos) {
                 if (static_cast<int32_t>(row.size()) != self.n_vocab()) {
                     throw core_error("a row of " + std::to_string(row.size()) + " logits for a vocabulary of " +
                                      std::to_string(self.n_vocab()));
                 }
                 const nb::gil_scoped_release release;
                 return self.choose(row.data(), pos);
             },
             "logits"_a, "pos"_a, "The token for position pos, from logits float32 [n_vocab].")
        .def("accept", &Sampler::accept, "id"_a, "Goes on with a token that was chosen.")
        .def("truncate", &Sampler::truncate, "n"_a, "Takes back all but the first n accepted tokens.");
    nb::enum_<DraftRule>(m, "DraftRule", "How a drafter picks from its candidates.")
        .value("argmax", DraftRule::argmax, "The best score.")
        .value("keyed", DraftRule::keyed, "The best with the target's own filters and noise.")
        .value("auto", DraftRule::automatic, "Of the two the one of which more is accepted.");
    nb::class_<RuleChoice>(m, "RuleChoice", "Which draft rule to use.")
        .def(nb::init<DraftRule>(), "rule"_a)
        .def_prop_ro("keyed", &RuleChoice::keyed, "Whether the next round is drafted by the keyed rule.")
        .def("observe", &RuleChoice::observe, "written"_a, "argmax"_a, "keyed"_a,
             "What the target wrote in a round, and what each rule proposed for it.");
}

} // namespace dflash
