// Python's side of activations.*: names in, arrays out; and the addresses that a context is made with.

#include "activations.hpp"
#include "bindings.hpp"
#include "errors.hpp"

#include <nanobind/ndarray.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include <memory>

namespace nb = nanobind;

namespace dflash {

namespace {

using Sums = nb::ndarray<nb::numpy, float, nb::ndim<2>>;

const Squares & squares_of(const Activations & activations, const std::string & name) {
    const auto found = activations.squares().find(name);
    if (found == activations.squares().end()) {
        throw core_error("activations: `" + name + "` was not asked for");
    }
    return found->second;
}

Sums sums(const Activations & activations, const std::string & name) {
    const Squares & squares = squares_of(activations, name);
    auto            held    = std::make_unique<std::vector<float>>(squares.sums.begin(), squares.sums.end());
    float * const   data    = held->data();
    const nb::capsule owner(held.release(), [](void * p) noexcept { delete static_cast<std::vector<float> *>(p); });
    const size_t shape[] = {static_cast<size_t>(squares.n_matrices), static_cast<size_t>(squares.n_per_row)};
    return Sums(data, 2, shape, owner);
}

} // namespace

void bind_activations(nb::module_ & m) {
    nb::class_<Activations>(m, "Activations", "Sums of squares of what runs through named matrices of a context.")
        .def(nb::init<>())
        .def("add", &Activations::add, nb::arg("name"), nb::arg("n_per_row"), nb::arg("n_matrices"),
             "Looks at a matrix, or at several behind one another.")
        .def("check", &Activations::check, "Raises SessionError when a value was not finite, or a matrix not as named.")
        .def("sums", &sums, nb::arg("name"), "float32 [n_matrices, n_per_row].")
        .def("counts", [](const Activations & self, const std::string & name) { return squares_of(self, name).counts; },
             nb::arg("name"), "Rows that went through each matrix.")
        .def_prop_ro("callback", [](const Activations &) { return reinterpret_cast<uintptr_t>(&Activations::on_tensor); },
                     "Address for a context's cb_eval.")
        .def_prop_ro("address", [](const Activations & self) { return reinterpret_cast<uintptr_t>(&self); },
                     "Address for its user data. This must outlive the context.");
}

} // namespace dflash
