#pragma once

#include <nanobind/nanobind.h>

namespace dflash {

void bind_quantize(nanobind::module_ & m);

} // namespace dflash
