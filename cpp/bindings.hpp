#pragma once

#include <nanobind/nanobind.h>

namespace dflash {

void bind_activations(nanobind::module_ & m);
void bind_depth(nanobind::module_ & m);
void bind_memory(nanobind::module_ & m);
void bind_quantize(nanobind::module_ & m);
void bind_sampler(nanobind::module_ & m);

} // namespace dflash
