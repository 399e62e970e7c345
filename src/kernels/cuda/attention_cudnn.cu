// SPDX-License-Identifier: Apache-2.0
#include "attention_cudnn.hpp"
#include "attention_mma.hpp"
#include "coeus/base/log.hpp"
#include "coeus/kernels/cudnn.hpp"
#include "cudnn_attention.hpp"
#include "launch.hpp"

#include <map>

namespace coeus::cuda {

namespace {

/// cuDNN, its handle, and a plan for each shape met so far; the plan is null if cuDNN does not support the
/// shape.
class Cudnn : public BackendState {
public:
    Cudnn(const std::string& path, cudaStream_t stream) : library_(load_cudnn(path)) {
        library_.check(library_.create(&handle_), "cudnnCreate");
        if (const int status = library_.set_stream(handle_, stream)) {
            library_.destroy(handle_);
            library_.check(status, "cudnnSetStream");
        }
    }
    ~Cudnn() override {
        plans_.clear();
        library_.destroy(handle_);
    }

    std::string text() const { return library_.text(); }

    const CudnnAttention* plan(const Exec& exec, const CudnnAttentionShape& shape, int64_t most_workspace) {
        if (!plans_.contains(shape) && is_recording(exec)) return nullptr;  // it would load a kernel
        const auto [known, is_new] = plans_.try_emplace(shape);
        if (is_new) try {
                known->second = std::make_unique<CudnnAttention>(library_, handle_, shape, most_workspace);
            } catch (const SystemError& error) {
                log::info(
                    "cuDNN does not support attention of {} x {} tokens, {} heads of width {}: {}; using "
                    "Coeus's kernel",
                    shape.batch, shape.sequence, shape.heads, shape.head_dim, error.what());
            }
        return known->second.get();
    }

private:
    CudnnLibrary library_;
    void* handle_ = nullptr;
    std::map<CudnnAttentionShape, std::unique_ptr<CudnnAttention>> plans_;
};

}  // namespace

bool attention_cudnn(Exec& exec, Tensor out, Tensor lse, Tensor q, Tensor k, Tensor v, Tensor document_start,
                     const AttentionShape& s, Tensor workspace) {
    CudaState& state = state_of(exec);
    if (!state.cudnn || !cudnn_fits(out, q, document_start, s) || !in_pieces({out, q, k, v})) return false;
    const CudnnAttentionShape shape = {s.batch, s.sequence, s.heads, s.kv_heads, s.head_dim,
                                       out.ld,  q.ld,       k.ld,    v.ld};
    const CudnnAttention* const plan = static_cast<Cudnn&>(*state.cudnn).plan(exec, shape, workspace.bytes());
    if (!plan) return false;
    plan->run(out, lse, q, k, v, s.scale, workspace);
    return true;
}

}  // namespace coeus::cuda

namespace coeus {

std::string use_cudnn(Exec& exec) {
    require(!exec.device->is_host(), "cuDNN is for GPUs");
    cuda::CudaState& state = cuda::state_of(exec);
    std::string why;
    for (const std::string& path : cuda::cudnn_paths()) try {
            auto cudnn = std::make_unique<cuda::Cudnn>(path, state.stream);
            std::string text = cudnn->text();
            state.cudnn = std::move(cudnn);
            return text;
        } catch (const std::runtime_error& error) {  // missing, or not for this GPU
            if (why.empty()) why = error.what();
        }
    throw ConfigError("{}", why);
}

void use_own_attention(Exec& exec) {
    cuda::state_of(exec).cudnn.reset();
}

}  // namespace coeus
