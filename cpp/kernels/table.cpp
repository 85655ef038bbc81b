// The kernels for one number of lanes: compiled once for each, with the instructions that it takes.

#include "codebook_blocks.hpp"
#include "legacy_blocks.hpp"
#include "offset_blocks.hpp"
#include "signed_blocks.hpp"
#include "work.hpp"

#define DFLASH_JOIN_(a, b) a##b
#define DFLASH_JOIN(a, b) DFLASH_JOIN_(a, b)

namespace dflash::kernels {

namespace {

alignas(64) constexpr unsigned char kZeros[kSuper * 4] = {};

// Where the blocks of each lane are; lanes behind the last block read zeros and write to `spare`.
template <class Type> DFLASH_INLINE void
place(Group & group, const Work & work, int64_t first, unsigned char * spare) {
    const int64_t in_row = work.n_per_row / Type::kBlock;
    int64_t column = first % in_row;
    for (int lane = 0; lane < kLanes; ++lane) {
        const bool used = first + lane < work.n_blocks;
        group.src[lane] = used ? work.src + (first + lane) * Type::kBlock * item_bytes(work.source) : kZeros;
        group.dst[lane] = used ? work.dst + (first + lane) * Type::kBytes : spare;
        if (work.importance != nullptr) {
            const float * weights = work.importance + column * Type::kBlock;
            group.importance[lane] = used ? reinterpret_cast<const unsigned char *>(weights) : kZeros;
            column = column + 1 == in_row ? 0 : column + 1;
        }
    }
}

// The mean square of each of `n_rows` rows, at most one a lane.
DFLASH_INLINE void mean_squares(const Work & work, int64_t n_rows, float (&means)[kLanes]) {
    Places rows;
    for (int64_t lane = 0; lane < kLanes; ++lane) {
        const int64_t row = lane < n_rows ? lane : 0;
        rows[lane] = work.src + row * work.n_per_row * item_bytes(work.source);
    }
    F sum{}, x[kLegacy];
    I unused{};
    for (int64_t i = 0; i < work.n_per_row; i += kLegacy) {
        load(work.source, rows, i, kLegacy, x, unused);
        for (int k = 0; k < kLegacy; ++k) {
            sum += x[k] * x[k];
        }
    }
    sum /= all(static_cast<float>(work.n_per_row));
    std::memcpy(means, &sum, sizeof(means));
}

template <class Type, bool Weighted> struct Runner {
    Group group;
    unsigned char spare[Type::kBytes];

    // One block in each lane, from block `first` on.
    unsigned step(const Work & work, int64_t first) {
        place<Type>(group, work, first, spare);
        I peak{};
        Quick quick;
        attempt(work, peak, quick);
        if (any(quick.doubt)) {
            Exact exact;
            attempt(work, peak, exact);
        }
        return (any(peak >= all(kInfinity)) ? kBadSource : 0) | (any(group.flawed) ? kBadResult : 0);
    }

    template <class Near> DFLASH_INLINE void attempt(const Work & work, I & peak, Near & near) {
        load(work.source, group.src, 0, Type::kBlock, group.x, peak);
        group.flawed = I{};
        Type::template quantize<Weighted>(group, near);
    }

    unsigned all_blocks(const Work & work) {
        unsigned flaws = 0;
        for (int64_t first = 0; first < work.n_blocks; first += kLanes) {
            flaws |= step(work, first);
        }
        return flaws;
    }

    // The same, with the mean square of each block's row: as many rows at once as there are lanes.
    unsigned whole_rows(const Work & work) {
        const int64_t in_row = work.n_per_row / Type::kBlock, n_rows = work.n_blocks / in_row;
        unsigned flaws = 0;
        Work band = work;
        for (int64_t row = 0; row < n_rows; row += kLanes) {
            const int64_t n = n_rows - row < kLanes ? n_rows - row : kLanes;
            band.src = work.src + row * work.n_per_row * item_bytes(work.source);
            band.dst = work.dst + row * in_row * Type::kBytes;
            band.n_blocks = n * in_row;
            float means[kLanes];
            mean_squares(band, n, means);
            for (int64_t first = 0; first < band.n_blocks; first += kLanes) {
                for (int64_t lane = 0; lane < kLanes; ++lane) {
                    const int64_t at = (first + lane) / in_row;
                    group.sigma2[lane] = means[at < n ? at : 0];
                }
                flaws |= step(band, first);
            }
        }
        return flaws;
    }
};

template <class Type, bool Weighted> unsigned run(const Work & work) {
    Runner<Type, Weighted> runner;
    if constexpr (Weighted && Type::kWholeRows) {
        return runner.whole_rows(work);
    } else {
        return runner.all_blocks(work);
    }
}

template <class Type> constexpr Entry entry(int type) {
    return {type, run<Type, false>, run<Type, true>};
}

} // namespace

// ggml's numbers, ggml/include/ggml.h (0.5.0).
const Entry DFLASH_JOIN(table_, DFLASH_LANES)[kTypes] = {
    entry<Signed<4>>(2),           // Q4_0
    entry<Offset<4>>(3),           // Q4_1
    entry<Signed<5>>(6),           // Q5_0
    entry<Offset<5>>(7),           // Q5_1
    entry<Q8_0>(8),                // Q8_0
    entry<OffsetBlocks<Q2K>>(10),  // Q2_K
    entry<Q3K>(11),                // Q3_K
    entry<OffsetBlocks<Q4K>>(12),  // Q4_K
    entry<OffsetBlocks<Q5K>>(13),  // Q5_K
    entry<Q6K>(14),                // Q6_K
    entry<IQ4NL>(20),              // IQ4_NL
    entry<IQ4XS>(23),              // IQ4_XS
};

} // namespace dflash::kernels
