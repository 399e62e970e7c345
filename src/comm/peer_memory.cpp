// SPDX-License-Identifier: Apache-2.0
#include "coeus/comm/peer_memory.hpp"

#include "coeus/base/error.hpp"
#include "coeus/comm/together.hpp"
#include "coeus/device/step_graph.hpp"

#include <algorithm>
#include <exception>
#include <utility>

namespace coeus {

namespace {

// The numbers at the beginning of a rank's memory, one of each kind for each peer.
enum Kind : int { is_free, has_arrived, trial, kinds };

uint32_t* number_of(std::byte* memory, int ranks, Kind kind, int peer) {
    return reinterpret_cast<uint32_t*>(memory) + int(kind) * ranks + peer;
}

}  // namespace

int64_t PeerMemory::bytes_of_numbers(int ranks) {
    return padded_bytes(kinds * ranks * int64_t(sizeof(uint32_t)));
}

std::unique_ptr<PeerMemory> PeerMemory::planned(const Communicator& ranks) {
    return std::unique_ptr<PeerMemory>(new PeerMemory(ranks));
}

// A rank that fails leaves between two collectives, together with the others.
std::unique_ptr<PeerMemory> PeerMemory::open(const Communicator& ranks, Exec& exec, const Buffer& memory,
                                             std::string& why_not, const std::string& host) {
    std::unique_ptr<PeerMemory> peers(new PeerMemory(ranks));
    try {
        peers->connect(*exec.device, memory, host);
        peers->try_out(exec);
    } catch (const std::exception& error) {  // the same on all ranks
        why_not = error.what();
        return nullptr;
    }
    return peers;
}

PeerMemory::~PeerMemory() {
    if (!peers_) return;
    for (int peer = 0; peer < int(memory_.size()); ++peer)
        if (peer != ranks_.rank() && memory_[size_t(peer)]) peers_->close(memory_[size_t(peer)]);
    // nobody frees memory that another rank has open
    if (std::uncaught_exceptions() == 0) ranks_.barrier();
}

void PeerMemory::connect(const Device& device, const Buffer& memory, const std::string& host) {
    const std::vector<std::string> hosts = gather_texts(ranks_, host);
    const auto elsewhere = std::ranges::find_if(hosts, [&](const auto& other) { return other != hosts[0]; });
    if (elsewhere != hosts.end())
        throw SystemError(
            fmt::format("the ranks are on several hosts, such as {} and {}", hosts[0], *elsewhere));
    const int ranks = ranks_.size();
    std::vector<MemoryName> names(static_cast<size_t>(ranks));
    MemoryName& own = names[size_t(ranks_.rank())];
    std::unique_ptr<Peers> peers;
    together(ranks_, [&] {
        peers = peers_of(device);
        own = peers->name_of(memory.data());
    });
    const Tensor all(names.data(), Dtype::u8, {ranks, int64_t(sizeof own)});
    ranks_.all_gather(all, all.slice_rows(ranks_.rank(), 1));
    bytes_ = memory.bytes();
    memory_.resize(size_t(ranks));
    memory_[size_t(ranks_.rank())] = memory.data();
    peers_ = std::move(peers);  // from now on they are closed together
    together(ranks_, [&] {
        for (int peer = 0; peer < ranks; ++peer)
            if (peer != ranks_.rank()) memory_[size_t(peer)] = peers_->open(names[size_t(peer)]);
    });
}

// Every rank writes into the memory of every other one, which checks what it got. Nobody waits for a number
// that is not there yet.
void PeerMemory::try_out(Exec& exec) const {
    const int ranks = ranks_.size(), rank = ranks_.rank();
    const auto own = [&](Kind kind, int peer) { return number_of(memory_[size_t(rank)], ranks, kind, peer); };
    const auto write = [&] {
        peers_->write(*exec.queue, own(trial, rank), uint32_t(rank + 1));
        for (int peer = 0; peer < ranks; ++peer) {
            if (peer == rank) continue;
            std::byte* const theirs = memory_[size_t(peer)];
            exec.queue->copy(number_of(theirs, ranks, trial, rank), own(trial, rank), sizeof(uint32_t));
            peers_->write(*exec.queue, number_of(theirs, ranks, has_arrived, rank), 1);
        }
    };
    const auto clear = [&] {
        for (int peer = 0; peer < ranks; ++peer) {
            peers_->wait(*exec.queue, own(has_arrived, peer), peer != rank);
            for (const Kind kind : {has_arrived, trial}) peers_->write(*exec.queue, own(kind, peer), 0);
        }
    };
    std::vector<uint32_t> got(size_t(kinds * ranks));
    StepGraph writing("a trial of copies to other GPUs"), clearing("its end");
    for (const char* how : {"", " in a graph"}) {  // the second call of give() records a graph
        together(ranks_, [&] {
            writing.give(exec, write);
            exec.queue->finish();
        });
        together(ranks_, [&] {
            exec.device->copy(got.data(), memory_[size_t(rank)], int64_t(got.size() * sizeof got[0]));
            for (int peer = 0; peer < ranks; ++peer)
                if (got[size_t(trial * ranks + peer)] != uint32_t(peer + 1) ||
                    got[size_t(has_arrived * ranks + peer)] != uint32_t(peer != rank))
                    throw SystemError(
                        fmt::format("what rank {} copies{} does not arrive at rank {}", peer, how, rank));
        });
        together(ranks_, [&] {
            clearing.give(exec, clear);
            exec.queue->finish();
        });
    }
}

void PeerMemory::send_receive(Queue& queue, Tensor sent, int to, Tensor place, Tensor received, int from,
                              Where where) {
    CommunicationObserver* observer = ranks_.observer();
    const int64_t event =
        observer ? observer->begin(ranks_.name(), "peer_copy", sent.bytes(), where, &queue) : 0;
    if (peers_) pass(queue, sent, to, place, received, from);
    if (observer) observer->end(event);
}

void PeerMemory::pass(Queue& queue, Tensor sent, int to, Tensor place, Tensor received, int from) const {
    const int ranks = ranks_.size(), rank = ranks_.rank();
    std::byte* const memory = memory_[size_t(rank)];
    const auto first_of = [&](const Tensor& rows) {
        return static_cast<const std::byte*>(rows.data) - memory;
    };
    for (const Tensor& rows : {place, received})
        require(first_of(rows) >= bytes_of_numbers(ranks) && first_of(rows) + rows.bytes() <= bytes_,
                "rows are copied to or from a place outside of the memory that others have opened");
    require(
        sent.dense() && place.dense() && sent.bytes() == place.bytes() && sent.bytes() == received.bytes(),
        "copies to other GPUs need dense rows and equal sizes");
    const auto wait_for = [&](Kind kind, int peer) {
        peers_->wait(queue, number_of(memory, ranks, kind, peer), 1);
        peers_->write(queue, number_of(memory, ranks, kind, peer), 0);
    };
    const auto tell = [&](int peer, Kind kind) {
        peers_->write(queue, number_of(memory_[size_t(peer)], ranks, kind, rank), 1);
    };
    tell(from, is_free);
    wait_for(is_free, to);
    queue.copy(memory_[size_t(to)] + first_of(place), sent.data, sent.bytes());
    tell(to, has_arrived);
    wait_for(has_arrived, from);
}

}  // namespace coeus
