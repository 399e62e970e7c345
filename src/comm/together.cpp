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
    std::exception_ptr mine;
    std::string text;
    bool is_config = false;
    try {
        work();
    } catch (const ConfigError& error) {
        mine = std::current_exception();
        text = error.what();
        is_config = true;
    } catch (const std::exception& error) {
        mine = std::current_exception();
        text = error.what();
    }
    // the lowest failing rank has the largest key; 0: none failed
    const int64_t key = mine ? comm.size() - comm.rank() : 0;
    const int64_t worst = comm.all_reduce(key, Reduce::max);
    if (worst == 0) return;
    const auto failed = int(comm.size() - worst);
    text = broadcast_text(comm, text + (is_config ? "c" : "s"), failed);
    is_config = text.back() == 'c';
    text.pop_back();
    if (comm.rank() == failed) std::rethrow_exception(mine);
    if (is_config) throw ConfigError("{}", text);
    throw SystemError(fmt::format("rank {}: {}", failed, text));
}

}  // namespace coeus
