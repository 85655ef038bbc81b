// Python's side of depth.*, for tests and for -v: the loop uses the class itself.

#include "bindings.hpp"
#include "depth.hpp"
#include "scan.hpp"

#include <nanobind/ndarray.h>
#include <nanobind/stl/vector.h>

namespace nb = nanobind;
using namespace nb::literals;

namespace dflash {

void bind_depth(nb::module_ & m) {
    m.def("lead",
          [](const nb::ndarray<const float, nb::ndim<1>, nb::c_contig, nb::device::cpu> & row) {
              return lead(row.data(), static_cast<int32_t>(row.shape(0)));
          },
          "row"_a, "By how much the largest of a row of logits is larger than the next one.");
    nb::class_<DepthRound>(m, "DepthRound", "What a round did, and its seconds.")
        .def(nb::init<int32_t, int32_t, int32_t, double, double, float>(), "n_drafted"_a, "n_verified"_a,
             "n_accepted"_a, "t_draft"_a, "t_verify"_a, "lead"_a = 0.0f);
    nb::class_<DepthControl>(m, "DepthControl", "How many tokens to draft and to verify; see cpp/depth.hpp.")
        .def("__init__",
             [](DepthControl * self, int32_t n_max, int32_t n_min, float p_min, uint64_t seed) {
                 new (self) DepthControl({n_max, n_min, p_min}, seed);
             },
             "n_max"_a, "n_min"_a = 0, "p_min"_a = 0.0f, "seed"_a = 0)
        .def("measured_verify", &DepthControl::measured_verify, "width"_a, "seconds"_a,
             "A target's pass over that many rows was timed.")
        .def("measured_draft", &DepthControl::measured_draft, "width"_a, "seconds"_a,
             "A drafter's pass for that many proposals was timed.")
        .def("begin", &DepthControl::begin, "Another request.")
        .def("draft", &DepthControl::draft, "n_limit"_a, "How many tokens to draft; 0: a plain pass.")
        .def("verify",
             [](DepthControl & self, const std::vector<float> & confidence, int32_t n_limit) {
                 return self.verify(confidence, n_limit);
             },
             "confidence"_a, "n_limit"_a, "How many of the drafted tokens to verify.")
        .def("observe", &DepthControl::observe, "round"_a)
        .def("judge",
             [](DepthControl & self, const std::vector<float> & confidence, int32_t agreed, int32_t judged) {
                 self.judge(confidence, agreed, judged);
             },
             "confidence"_a, "agreed"_a, "judged"_a, "How right the last draft was, as far as the text tells.")
        .def("cost_verify", &DepthControl::cost_verify, "width"_a, "Seconds of a target's pass.")
        .def("cost_draft", &DepthControl::cost_draft, "width"_a, "Seconds of a drafter's pass.")
        .def("chance", &DepthControl::chance, "i"_a, "That proposal i is right when those before it were.")
        .def_prop_ro("gain", &DepthControl::gain, "Expected tokens a second over plain decoding's.")
        .def_prop_ro("balance", &DepthControl::balance, "Seconds that drafting may lose now.")
        .def_prop_ro("interval", &DepthControl::interval, "Plain passes between two probes.");
}

} // namespace dflash
