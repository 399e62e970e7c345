// SPDX-License-Identifier: Apache-2.0
#include "coeus/comm/together.hpp"

#include "coeus/base/error_text.hpp"

#include <algorithm>
#include <utility>

namespace coeus {

std::string broadcast_text(const Communicator& comm, std::string text, int root) {
    auto length = int64_t(text.size());
    comm.broadcast(Tensor(&length, Dtype::i64, {1}), root);
    text.resize(size_t(length));
    comm.broadcast(Tensor(text.data(), Dtype::u8, {length}), root);
    return text;
}

std::vector<std::string> broadcast_texts(const Communicator& comm, const std::vector<std::string>& texts,
                                         int root) {
    std::string packed;  // "5:hello"
    for (const std::string& text : texts) packed += fmt::format("{}:{}", text.size(), text);
    packed = broadcast_text(comm, std::move(packed), root);
    std::vector<std::string> all;
    for (size_t at = 0; at < packed.size();) {
        const size_t colon = packed.find(':', at), length = std::stoull(packed.substr(at, colon - at));
        all.push_back(packed.substr(colon + 1, length));
        at = colon + 1 + length;
    }
    return all;
}

void broadcast_numbers(const Communicator& comm, std::vector<int32_t>& numbers) {
    auto count = int64_t(comm.rank() == 0 ? numbers.size() : 0);
    count = comm.all_reduce(count, Reduce::max);
    numbers.resize(size_t(count));
    if (count > 0) comm.broadcast(Tensor(numbers.data(), Dtype::i32, {count}), 0);
}

std::vector<std::string> gather_texts(const Communicator& comm, const std::string& text) {
    const auto size = size_t(comm.all_reduce(int64_t(text.size()), Reduce::max)) + 1;
    std::vector<char> own(size), all(size * size_t(comm.size()));
    std::ranges::copy(text, own.begin());
    comm.all_gather(Tensor(all.data(), Dtype::u8, {int64_t(all.size())}),
                    Tensor(own.data(), Dtype::u8, {int64_t(size)}));
    std::vector<std::string> texts;
    for (size_t at = 0; at < all.size(); at += size) texts.emplace_back(&all[at]);
    return texts;
}

namespace {

// The error's text after one letter for its kind.
std::string packed(const std::exception& error) {
    const char kind = dynamic_cast<const ConfigError*>(&error)      ? 'c'
                      : dynamic_cast<const StoppedError*>(&error)   ? 'e'
                      : dynamic_cast<const NotFiniteError*>(&error) ? 'n'
                                                                    : 's';
    return kind + text_of(error);
}

}  // namespace

void together(const Communicator& comm, const std::function<void()>& work) {
    std::string text;
    try {
        work();
    } catch (const std::exception& error) {
        text = packed(error);
    }
    // the work may be long, and the threads of the working rank can use the cores of the others
    comm.patient_barrier();
    // the lowest failing rank has the largest key; 0: none failed
    const int64_t key = text.empty() ? 0 : comm.size() - comm.rank();
    const int64_t worst = comm.all_reduce(key, Reduce::max);
    if (worst == 0) return;
    const auto failed = int(comm.size() - worst);
    text = broadcast_text(comm, text, failed);
    const char kind = text[0];
    text.erase(0, 1);
    if (kind == 'e') throw StoppedError(text);
    if (kind == 'n') throw NotFiniteError(text);
    if (kind == 'c') throw ConfigError("{}", failed > 0 ? fmt::format("rank {}: {}", failed, text) : text);
    throw CollectiveError(comm.size() > 1 ? fmt::format("rank {}: {}", failed, text) : text);
}

}  // namespace coeus
