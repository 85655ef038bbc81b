#pragma once

// What C code prints on stderr while a function runs, as text. Python and other processes, which write to the descriptor,
// are not touched; another thread's C code, should it print at that moment, is passed on.

#include <cstdio>
#include <cstdlib>
#include <mutex>
#include <string>

#if defined(__GLIBC__) || defined(__APPLE__)
#define DFLASH_STDERR_IS_A_VARIABLE
#endif

namespace dflash {

// Empty where the C library's stderr cannot be exchanged, and it is printed.
template <class Function> std::string spoken(const Function & function) {
#ifdef DFLASH_STDERR_IS_A_VARIABLE
    static std::mutex one_at_a_time;
    static char *     text = nullptr;
    static size_t     size = 0;
    static FILE *     memory = open_memstream(&text, &size);  // never closed: another thread may have taken it for stderr
    const std::lock_guard lock(one_at_a_time);
    if (memory == nullptr) {
        function();
        return "";
    }
    std::rewind(memory);
    FILE * const before = stderr;
    stderr              = memory;
    function();
    stderr = before;
    std::fflush(memory);
    return std::string(text, size);
#else
    function();
    return "";
#endif
}

} // namespace dflash
