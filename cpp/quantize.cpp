#include "quantize.hpp"

#include "errors.hpp"
#include "kernels/choose.hpp"

#include <algorithm>
#include <atomic>
#include <cmath>
#include <cstring>
#include <exception>
#include <mutex>
#include <numeric>
#include <string>
#include <thread>
#include <vector>

namespace dflash {

namespace {

// Values that a thread takes at once: few enough to stay in its cache.
constexpr int64_t kChunkValues = 1 << 16;
constexpr int kMaxThreads = 512;

using Bytes = const unsigned char *;

bool is_float(int type) {
    return type == GGML_TYPE_F32 || type == GGML_TYPE_F16 || type == GGML_TYPE_BF16;
}

bool is_type(int type) {
    return type >= 0 && type < GGML_TYPE_COUNT && ggml_blck_size(static_cast<ggml_type>(type)) > 0;
}

// What ggml_quantize_chunk knows; any other type ends the process there.
bool is_destination(int type) {
    return is_float(type) || (is_type(type) && ggml_is_quantized(static_cast<ggml_type>(type)) &&
                              type != GGML_TYPE_Q8_1 && type != GGML_TYPE_Q8_K);
}

// What ggml makes floats of.
bool is_source(int type) {
    return is_float(type) || (is_type(type) && ggml_is_quantized(static_cast<ggml_type>(type)) &&
                              ggml_get_type_traits(static_cast<ggml_type>(type))->to_float != nullptr);
}

std::string type_text(int type) {
    return is_type(type) ? ggml_type_name(static_cast<ggml_type>(type)) : "type " + std::to_string(type);
}

// One bit pattern test a value: an exponent of all ones is an infinity or not a number.
template <typename T> bool all_finite(Bytes data, int64_t n, T exponent) {
    T bad = 0;
    for (int64_t i = 0; i < n; ++i) {
        T bits;
        std::memcpy(&bits, data + i * sizeof(T), sizeof(T));
        bad |= static_cast<T>((bits & exponent) == exponent);
    }
    return bad == 0;
}

bool is_finite(ggml_type type, Bytes data, int64_t n) {
    switch (type) {
        case GGML_TYPE_F32:  return all_finite<uint32_t>(data, n, 0x7f800000u);
        case GGML_TYPE_F16:  return all_finite<uint16_t>(data, n, 0x7c00u);
        case GGML_TYPE_BF16: return all_finite<uint16_t>(data, n, 0x7f80u);
        default:             return ggml_validate_row_data(type, data, ggml_row_size(type, n));
    }
}

struct Job {
    Bytes src;
    ggml_type src_type;
    unsigned char * dst;
    ggml_type dst_type;
    int64_t n_per_row;
    int64_t n_rows;
    const float * importance;
    kernels::Kernel kernel; // null: ggml's own code
    int lanes;
};

const float * as_floats(const Job & job, Bytes src, int64_t n, std::vector<float> & buffer) {
    if (job.src_type == GGML_TYPE_F32 && reinterpret_cast<uintptr_t>(src) % alignof(float) == 0) {
        return reinterpret_cast<const float *>(src);
    }
    buffer.resize(n);
    switch (job.src_type) {
        case GGML_TYPE_F32:  std::memcpy(buffer.data(), src, n * sizeof(float)); break;
        case GGML_TYPE_F16:  ggml_fp16_to_fp32_row(reinterpret_cast<const ggml_fp16_t *>(src), buffer.data(), n); break;
        case GGML_TYPE_BF16: ggml_bf16_to_fp32_row(reinterpret_cast<const ggml_bf16_t *>(src), buffer.data(), n); break;
        default:             ggml_get_type_traits(job.src_type)->to_float(src, buffer.data(), n); break;
    }
    return buffer.data();
}

constexpr const char * kNotFinite = "a value is not finite";

std::string too_large(ggml_type type) { return "a value is too large for " + type_text(type); }

// By our kernel, which widens floats as it reads them and sees by the way whether values and factors are finite.
void run_kernel(const Job & job, Bytes src, unsigned char * dst, int64_t n, std::vector<float> & buffer) {
    kernels::Work work = {src, kernels::Source::f32, dst, n / ggml_blck_size(job.dst_type), job.importance, job.n_per_row};
    switch (job.src_type) {
        case GGML_TYPE_F32:  break;
        case GGML_TYPE_F16:  work.source = kernels::Source::f16; break;
        case GGML_TYPE_BF16: work.source = kernels::Source::bf16; break;
        default:             work.src = reinterpret_cast<Bytes>(as_floats(job, src, n, buffer)); break;
    }
    const unsigned flaws = job.kernel(work);
    if ((flaws & kernels::kBadSource) != 0) {
        throw quantize_error(kNotFinite);
    }
    if (flaws != 0) {
        throw quantize_error(too_large(job.dst_type));
    }
}

// ggml looks values of these types up in a grid; where its products overflow it finds no point there and ends the process
// (ggml/src/ggml-quants.c: "found point ... not on grid"). No factor of a block holds such values.
constexpr float kMaxOnGrid = 1e8f;
constexpr float kMaxWeight = 1e12f;

bool has_grid(ggml_type type) {
    switch (type) {
        case GGML_TYPE_IQ1_S:
        case GGML_TYPE_IQ1_M:
        case GGML_TYPE_IQ2_XXS:
        case GGML_TYPE_IQ2_XS:
        case GGML_TYPE_IQ2_S:
        case GGML_TYPE_IQ3_XXS:
        case GGML_TYPE_IQ3_S:   return true;
        default:                return false;
    }
}

void convert_chunk(const Job & job, int64_t row, int64_t n_rows, std::vector<float> & buffer) {
    const size_t src_row = ggml_row_size(job.src_type, job.n_per_row);
    const size_t dst_row = ggml_row_size(job.dst_type, job.n_per_row);
    const Bytes src = job.src + row * src_row;
    unsigned char * dst = job.dst + row * dst_row;
    const int64_t n = n_rows * job.n_per_row;
    if (job.kernel != nullptr) {
        run_kernel(job, src, dst, n, buffer);
        return;
    }
    if (!is_finite(job.src_type, src, n)) {
        throw quantize_error(kNotFinite);
    }
    if (job.src_type == job.dst_type) {
        if (dst != src) {
            std::memcpy(dst, src, n_rows * src_row);
        }
        return;
    }
    const float * values = as_floats(job, src, n, buffer);
    if (has_grid(job.dst_type) && !std::all_of(values, values + n, [](float v) { return std::fabs(v) <= kMaxOnGrid; })) {
        throw quantize_error(too_large(job.dst_type));
    }
    ggml_quantize_chunk(job.dst_type, values, dst, 0, n_rows, job.n_per_row, job.importance);
    if (!is_finite(job.dst_type, dst, n)) {
        throw quantize_error(too_large(job.dst_type));
    }
}

// Runs `work` in `n` threads, this one included, and throws the first failure once all have ended.
template <typename Work> void in_threads(int n, const Work & work) {
    std::exception_ptr failure;
    std::mutex mutex;
    const auto guarded = [&] {
        try {
            work();
        } catch (...) {
            const std::lock_guard<std::mutex> lock(mutex);
            failure = failure ? failure : std::current_exception();
        }
    };
    std::vector<std::thread> workers;
    try {
        workers.reserve(n - 1);
        for (int i = 1; i < n; ++i) {
            workers.emplace_back(guarded);
        }
    } catch (const std::exception &) {
        // No more threads or memory: those that there are do the same work.
    }
    guarded();
    for (auto & worker : workers) {
        worker.join();
    }
    if (failure) {
        std::rethrow_exception(failure);
    }
}

// Rows that a thread takes at once; so many, where it can be, that no lane of a kernel stays empty.
int64_t rows_a_chunk(const Job & job) {
    const int64_t rows = std::max<int64_t>(1, kChunkValues / job.n_per_row);
    if (job.kernel == nullptr) {
        return rows;
    }
    const int64_t blocks = job.n_per_row / ggml_blck_size(job.dst_type);
    const int64_t full = job.lanes / std::gcd<int64_t>(job.lanes, blocks);
    return (rows + full - 1) / full * full;
}

void run(const Job & job, int n_threads) {
    const int64_t chunk = rows_a_chunk(job);
    const int64_t n_chunks = (job.n_rows + chunk - 1) / chunk;
    std::atomic<int64_t> next{0};
    std::atomic<bool> stop{false};
    ggml_quantize_init(job.dst_type);
    in_threads(static_cast<int>(std::min<int64_t>(n_threads, n_chunks)), [&] {
        std::vector<float> buffer;
        for (int64_t i = next++; i < n_chunks && !stop; i = next++) {
            try {
                convert_chunk(job, i * chunk, std::min(chunk, job.n_rows - i * chunk), buffer);
            } catch (...) {
                stop = true;
                throw;
            }
        }
    });
}

// A weight that is negative or not finite would make ggml search for a scale that does not exist.
void check_importance(const std::optional<Importance> & importance, int dst_type, int64_t n_per_row) {
    if (!importance) {
        if (ggml_quantize_requires_imatrix(static_cast<ggml_type>(dst_type))) {
            throw quantize_error("rows of " + type_text(dst_type) + " cannot be made without importance weights");
        }
        return;
    }
    if (importance->n != n_per_row) {
        throw quantize_error(std::to_string(importance->n) + " importance weights for rows of " +
                             std::to_string(n_per_row) + " values");
    }
    const auto good = [](float weight) { return weight >= 0.0f && weight <= kMaxWeight; };
    if (!std::all_of(importance->weights, importance->weights + n_per_row, good)) {
        throw quantize_error("an importance weight is negative, more than 1e12, or not finite");
    }
}

} // namespace

void quantize_rows(const void * src, size_t src_size, int src_type, void * dst, size_t dst_size, int dst_type,
                   int64_t n_per_row, int n_threads, const std::optional<Importance> & importance, int lanes) {
    if (!is_source(src_type)) {
        throw quantize_error("source rows of " + type_text(src_type) + " cannot be read");
    }
    if (!is_destination(dst_type)) {
        throw quantize_error("rows of " + type_text(dst_type) + " cannot be made");
    }
    check_importance(importance, dst_type, n_per_row);
    if (n_threads < 1 || n_threads > kMaxThreads) {
        throw quantize_error(std::to_string(n_threads) + " threads, expected 1 to " + std::to_string(kMaxThreads));
    }
    const Job shape = {static_cast<Bytes>(src), static_cast<ggml_type>(src_type), static_cast<unsigned char *>(dst),
                       static_cast<ggml_type>(dst_type), n_per_row, 0,
                       importance ? importance->weights : nullptr, nullptr, lanes};
    for (const ggml_type type : {shape.dst_type, shape.src_type}) {
        if (n_per_row < 1 || static_cast<size_t>(n_per_row) > SIZE_MAX / 64 || n_per_row % ggml_blck_size(type) != 0) {
            throw quantize_error("rows of " + std::to_string(n_per_row) + " values do not fit the blocks of " + type_text(type));
        }
    }
    const size_t src_row = ggml_row_size(shape.src_type, n_per_row);
    if (src_size % src_row != 0) {
        throw quantize_error("the source of " + std::to_string(src_size) + " bytes is not made of whole rows");
    }
    Job job = shape;
    job.n_rows = static_cast<int64_t>(src_size / src_row);
    if (dst_size != job.n_rows * ggml_row_size(job.dst_type, n_per_row)) {
        throw quantize_error("the destination has " + std::to_string(dst_size) + " bytes, expected " +
                         std::to_string(job.n_rows * ggml_row_size(job.dst_type, n_per_row)));
    }
    if (job.n_rows > 0) {
        job.kernel = job.src_type == job.dst_type ? nullptr : kernels::find(dst_type, importance.has_value(), lanes);
        run(job, n_threads);
    }
}

} // namespace dflash
