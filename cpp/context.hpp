#pragma once

// What a target's and a drafter's libllama context have in common: a batch that is re-used, passes, trims.
// Contexts and models belong to Python (runner/models.py), which frees them after these objects.

#include "interfaces.hpp"
#include "llama_abi.hpp"

#include <memory>
#include <vector>

namespace dflash {

class Context {
  public:
    explicit Context(llama_context * ctx, const char * role);

    void add_token(token id, int32_t pos, bool output);
    void add_features(const float * row, int32_t width, int32_t pos);

    // Runs what was added and empties the batch. Throws core_error naming the role when libllama refuses.
    void run();

    // Takes back the end of the last pass. libllama allows this once a pass for a recurrent state, and for all but the
    // first of its rows: of the state before the pass it keeps no copy.
    void trim(int32_t pos);

    // Goes back to pos, or to a marked state before it, or to nothing; returns where it stands. A recurrent state is only
    // to be had where it was marked, and a window only while it still reaches back from pos.
    int32_t rewind(int32_t pos);
    void    mark(int32_t pos);
    bool    recurrent() const { return recurrent_; }

    // Whether not even the end of a pass can be taken back; then: keep the state before a pass, and go back to it, at pos.
    bool one_way() const { return recurrent_ && llama_n_rs_seq(ctx_) == 0; }
    void hold();
    void release(int32_t pos);

    llama_context *     ctx() const { return ctx_; }
    const llama_model * model() const { return llama_get_model(ctx_); }

  private:
    struct free_batch {
        void operator()(llama_batch_ext * batch) const { llama_batch_ext_free(batch); }
    };

    struct Mark {
        int32_t              pos;
        std::vector<uint8_t> state;
    };

    void    place(int32_t index, int32_t pos);
    bool    save(std::vector<uint8_t> & state) const;
    bool    restore(int32_t & pos);
    int32_t forget();

    llama_context *                              ctx_;
    const char *                                 role_;
    bool                                         recurrent_;
    std::vector<Mark>                            marks_;  // by position
    std::vector<uint8_t>                         held_;
    std::unique_ptr<llama_batch_ext, free_batch> batch_;
};

} // namespace dflash
