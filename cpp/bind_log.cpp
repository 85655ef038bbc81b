// libllama's log, given to a Python function; what that raises is raised again in the main thread's Python code.
//
// A signal's handler runs where Python code begins, and during a native call that is the function of its callback, before
// its first line. ctypes drops what is raised there; here it is kept, and raised anew until it is out of the callback.

#include "bindings.hpp"
#include "llama_abi.hpp"

#include <memory>

namespace nb = nanobind;
using namespace nb::literals;

namespace dflash {

namespace {

PyObject * receiver = nullptr;  // never freed: libllama may say something until the process ends

int raise_kept(void * kept) {
    std::unique_ptr<nb::python_error>(static_cast<nb::python_error *>(kept))->restore();
    return -1;
}

void raise_later(const nb::python_error & error) {
    auto kept = std::make_unique<nb::python_error>(error);
    if (Py_AddPendingCall(raise_kept, kept.get()) == 0) {
        kept.release();
    } else {  // 32 of them wait
        kept->discard_as_unraisable("a callback of libllama's log");
    }
}

void log_line(ggml_log_level level, const char * text, void *) {
    if (!Py_IsInitialized()) {
        return;
    }
    const nb::gil_scoped_acquire gil;
    try {
        const nb::object function = nb::borrow(receiver);
        function(static_cast<int>(level), nb::bytes(text));
    } catch (const nb::python_error & error) {
        raise_later(error);
    }
}

uintptr_t log_callback(const nb::object & function) {
    Py_XDECREF(receiver);
    receiver = nb::object(function).release().ptr();
    return reinterpret_cast<uintptr_t>(&log_line);
}

} // namespace

void bind_log(nb::module_ & m) {
    m.def("log_callback", &log_callback, "receiver"_a,
          "The address of a `ggml_log_callback` that calls `receiver` with a level and bytes, from any thread. There is "
          "one receiver. What it raises, or a signal's handler in it, is raised in the main thread's next Python code.");
}

} // namespace dflash
