#include "choose.hpp"

#include "self_check.hpp"

#include <array>
#include <mutex>

namespace dflash::kernels {

namespace {

struct Width {
    int lanes;
    const Entry * table;
    bool (*here)();
};

bool always() { return true; }

#ifdef DFLASH_X86_LANES
bool has_avx2() { return __builtin_cpu_supports("avx2"); }

bool has_avx512() {
    return __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") && __builtin_cpu_supports("avx512dq") &&
           __builtin_cpu_supports("avx512vl");
}
#endif

constexpr Width kWidths[] = {
#ifdef DFLASH_X86_LANES
    {16, table_16, has_avx512},
    {8, table_8, has_avx2},
#endif
    {4, table_4, always},
};
constexpr size_t kNumWidths = std::size(kWidths);

enum class Verdict : signed char { unknown, equal, different };

// One for each width, type, and importance or none; only read and written under `mutex`.
std::array<Verdict, kNumWidths * kTypes * 2> verdicts{};
std::mutex mutex;

} // namespace

std::vector<int> widths() {
    std::vector<int> found;
    for (const Width & width : kWidths) {
        if (width.here()) {
            found.push_back(width.lanes);
        }
    }
    return found;
}

std::vector<int> types() {
    std::vector<int> found;
    for (int i = 0; i < kTypes; ++i) {
        found.push_back(table_4[i].type);
    }
    return found;
}

Kernel find(int type, bool weighted, int lanes) {
    for (size_t w = 0; w < kNumWidths; ++w) {
        for (int t = 0; t < kTypes; ++t) {
            const Width & width = kWidths[w];
            if (width.lanes != lanes || width.table[t].type != type || !width.here()) {
                continue;
            }
            const Kernel kernel = weighted ? width.table[t].weighted : width.table[t].plain;
            const std::lock_guard<std::mutex> lock(mutex);
            Verdict & verdict = verdicts[(w * kTypes + t) * 2 + weighted];
            if (verdict == Verdict::unknown) {
                verdict = equals_ggml(kernel, type, weighted) ? Verdict::equal : Verdict::different;
            }
            return verdict == Verdict::equal ? kernel : nullptr;
        }
    }
    return nullptr;
}

} // namespace dflash::kernels
