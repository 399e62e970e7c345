// SPDX-License-Identifier: Apache-2.0
#include "coeus/comm/together.hpp"

namespace coeus {

std::string broadcast_text(const Communicator& comm, std::string text, int root) {
    auto length = int64_t(text.size());
    comm.broadcast(Tensor(&length, Dtype::i64, {1}), root);
    text.resize(size_t(length));
    comm.broadcast(Tensor(text.data(), Dtype::u8, {length}), root);
    return text;
}

void together(const Communicator& comm, const std::function<void()>& work) {
    std::string text;
    bool failed_here = false, is_config = false;
    try {
        work();
    } catch (const ConfigError& error) {
        text = error.what();
        failed_here = is_config = true;
    } catch (const std::exception& error) {
        text = error.what();
        failed_here = true;
    }
    comm.patient_barrier();  // the work may be long, and threads of the working rank can use the cores of the
                             // others
    // the lowest failing rank has the largest key; 0: none failed
    const int64_t key = failed_here ? comm.size() - comm.rank() : 0;
    const int64_t worst = comm.all_reduce(key, Reduce::max);
    if (worst == 0) return;
    const auto failed = int(comm.size() - worst);
    text = broadcast_text(comm, text + (is_config ? "c" : "s"), failed);
    is_config = text.back() == 'c';
    text.pop_back();
    if (is_config) throw ConfigError("{}", failed > 0 ? fmt::format("rank {}: {}", failed, text) : text);
    throw CollectiveError(comm.size() > 1 ? fmt::format("rank {}: {}", failed, text) : text);
}

}  // namespace coeus
