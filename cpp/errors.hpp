#pragma once

// The one exception that leaves the native core on purpose; bindings.cpp turns it into SessionError or QuantizeError.

#include <stdexcept>

namespace dflash {

struct core_error : std::runtime_error {
    using std::runtime_error::runtime_error;
};

} // namespace dflash
