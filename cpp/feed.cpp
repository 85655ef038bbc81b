#include "feed.hpp"

#include <algorithm>

namespace dflash {

void Feed::keep(int32_t n_rows, int32_t pos) {
    if (drafter_ == nullptr) {
        return;
    }
    n_rows              = std::min(n_rows, drafter_->n_ctx() - pos);
    const int32_t width = target_.n_features();
    for (int32_t first = 0; first < n_rows;) {
        const int32_t n = std::min(n_rows - first, drafter_->n_batch() - n_);
        rows_.resize(static_cast<size_t>(n_ + n) * width);
        target_.features(first, n, rows_.data() + static_cast<size_t>(n_) * width);
        n_ += n;
        first += n;
        if (n_ == drafter_->n_batch()) {
            flush();
        }
    }
}

void Feed::flush() {
    if (n_ == 0) {
        return;
    }
    const int32_t n = n_;
    n_              = 0;  // a pass that fails is not tried again
    drafter_->inject(rows_.data(), n, pos_);
    pos_ += n;
    n_given_ += n;
}

bool Feed::rewind(int32_t pos) {
    if (drafter_ == nullptr) {
        return true;
    }
    pos                 = std::min(pos, drafter_->n_ctx());
    const int32_t there = std::min(pos, pos_);
    const int32_t stands = drafter_->rewind(there);
    n_   = stands == there ? std::min(n_, pos - there) : 0;
    pos_ = stands;
    return stands + n_ == pos;
}

} // namespace dflash
