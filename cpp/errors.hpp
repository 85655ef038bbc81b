#pragma once

// The exceptions that leave the native core on purpose; bindings.cpp turns them into SessionError and QuantizeError.

#include <stdexcept>

namespace dflash {

struct core_error : std::runtime_error {
    using std::runtime_error::runtime_error;
};

struct quantize_error : core_error {
    using core_error::core_error;
};

} // namespace dflash
