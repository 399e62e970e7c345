// SPDX-License-Identifier: Apache-2.0
// Messages through MPI: from host memory, or from a device through pinned host memory.
#include "communicator_handle.hpp"
#include "message_carrier.hpp"
#include "wait.hpp"

#include <algorithm>
#include <exception>

namespace coeus {

namespace {

// A channel is a tag: MPI keeps the order of messages with one tag, and no order between tags.
constexpr int first_tag = 16;  // tags below it are used by Communicator

class HostMessages : public MessageCarrier {
public:
    HostMessages(const Communicator& ranks, int count, Sends sends)
        : ranks_(ranks), sends_(sends), requests_(size_t(count), MPI_REQUEST_NULL) {}
    ~HostMessages() override {
        // after an exception the other end may never answer
        if (std::uncaught_exceptions() == 0)
            for (MPI_Request& request : requests_)
                if (request != MPI_REQUEST_NULL) MPI_Wait(&request, MPI_STATUS_IGNORE);
        for (Row& row : rows_) MPI_Type_free(&row.type);
    }

    void send(int number, Tensor tensor, int peer, int channel) override {
        const auto begin = sends_ == Sends::standard ? MPI_Isend : MPI_Issend;
        COEUS_CHECK_MPI(begin(tensor.data, int(tensor.rows()), row_of(tensor), peer, first_tag + channel,
                              ranks_.handle().comm, &requests_[size_t(number)]));
    }

    void receive(int number, Tensor tensor, int peer, int channel) override {
        COEUS_CHECK_MPI(MPI_Irecv(tensor.data, int(tensor.rows()), row_of(tensor), peer, first_tag + channel,
                                  ranks_.handle().comm, &requests_[size_t(number)]));
    }

    void wait(int number) override {
        MPI_Request& request = requests_[size_t(number)];
        if (request != MPI_REQUEST_NULL) wait_for(request);
    }

    void progress() override {
        if (std::ranges::all_of(requests_, [](MPI_Request r) { return r == MPI_REQUEST_NULL; })) return;
        int done = 0, index = 0;
        COEUS_CHECK_MPI(
            MPI_Testany(int(requests_.size()), requests_.data(), &index, &done, MPI_STATUS_IGNORE));
    }

private:
    struct Row {
        int64_t bytes;
        MPI_Datatype type;
    };

    // The MPI type for the tensor's rows, which have one of few lengths. MPI counts in int, so messages count
    // rows, not bytes.
    MPI_Datatype row_of(Tensor tensor) {
        const int64_t bytes = tensor.cols() * size_of(tensor.dtype);
        for (const Row& row : rows_)
            if (row.bytes == bytes) return row.type;
        MPI_Datatype type = MPI_DATATYPE_NULL;
        COEUS_CHECK_MPI(MPI_Type_contiguous(int(bytes), MPI_BYTE, &type));
        COEUS_CHECK_MPI(MPI_Type_commit(&type));
        rows_.push_back({bytes, type});
        return type;
    }

    const Communicator& ranks_;
    Sends sends_;
    std::vector<MPI_Request> requests_;
    std::vector<Row> rows_;
};

class StagedMessages : public HostMessages {
public:
    StagedMessages(const Communicator& ranks, int count, Sends sends, Exec& exec)
        : HostMessages(ranks, count, sends), exec_(exec), copies_(size_t(count)) {}

    void send(int number, Tensor tensor, int peer, int channel) override {
        const Tensor here = staged(number, tensor);
        copies_[size_t(number)].arrives_at = nullptr;
        exec_.queue->copy(here.data, tensor.data, tensor.bytes());
        exec_.queue->finish();
        HostMessages::send(number, here, peer, channel);
    }

    void receive(int number, Tensor tensor, int peer, int channel) override {
        const Tensor here = staged(number, tensor);
        copies_[size_t(number)].arrives_at = tensor.data;
        copies_[size_t(number)].bytes = tensor.bytes();
        HostMessages::receive(number, here, peer, channel);
    }

    void wait(int number) override {
        HostMessages::wait(number);
        const Copy& copy = copies_[size_t(number)];
        if (!copy.arrives_at) return;
        exec_.queue->copy(copy.arrives_at, copy.buffer.data(), copy.bytes);
        exec_.queue->finish();
    }

private:
    // The host copy of a message.
    struct Copy {
        Buffer buffer;
        void* arrives_at = nullptr;  // device memory that a received message is copied to; null for a send
        int64_t bytes = 0;
    };

    Tensor staged(int number, Tensor tensor) {
        Buffer& buffer = copies_[size_t(number)].buffer;
        if (buffer.bytes() < tensor.bytes())
            buffer = Buffer(tensor.bytes(), "messages between GPUs", exec_.device->staging());
        return Tensor(buffer.data(), tensor.dtype, tensor.shape);
    }

    Exec& exec_;
    std::vector<Copy> copies_;
};

}  // namespace

std::unique_ptr<MessageCarrier> make_host_messages(const Communicator& ranks, int count, Sends sends) {
    return std::make_unique<HostMessages>(ranks, count, sends);
}

std::unique_ptr<MessageCarrier> make_staged_messages(const Communicator& ranks, int count, Sends sends,
                                                     Exec& exec) {
    return std::make_unique<StagedMessages>(ranks, count, sends, exec);
}

}  // namespace coeus
