// SPDX-License-Identifier: Apache-2.0
#include "coeus/comm/point_to_point.hpp"

#include "communicator_handle.hpp"

#include <exception>

namespace coeus {

// A channel is a tag: MPI keeps the order of messages of one tag, and no order between tags.
constexpr int first_tag = 16;  // below it are those of Communicator

struct PointToPoint::Requests {
    struct Message {
        const char* operation = nullptr;  // null: nothing under way
        int64_t bytes = 0;
        std::source_location where;
        void* arrives_at = nullptr;  // of a device's memory, behind its staging
    };
    std::vector<MPI_Request> all;
    std::vector<Message> messages;  // of each, until it was waited for
    std::vector<Buffer> staging;    // of each, of messages of a device
    struct Row {
        int64_t bytes;
        MPI_Datatype type;
    };
    std::vector<Row> rows;  // MPI counts in int: rows, not bytes

    Requests() = default;
    Requests(const Requests&) = delete;
    Requests& operator=(const Requests&) = delete;
    ~Requests() {
        for (Row& row : rows) MPI_Type_free(&row.type);
    }

    // A message begins; returns its request.
    MPI_Request* begin(int number, Message message) {
        Message& place = messages[size_t(number)];
        require(place.operation == nullptr, "a message begins under a number that is in use");
        place = message;
        return &all[size_t(number)];
    }

    // Where a message of a device's tensor begins or ends on the host.
    Tensor staged(int number, Tensor tensor, const Device& device) {
        Buffer& buffer = staging[size_t(number)];
        if (buffer.bytes() < tensor.bytes())
            buffer = Buffer(tensor.bytes(), "messages between GPUs", device.staging());
        return Tensor(buffer.data(), tensor.dtype, tensor.shape);
    }

    // Of rows of that tensor, which have one of few lengths.
    MPI_Datatype row_of(Tensor tensor) {
        const int64_t bytes = tensor.cols() * size_of(tensor.dtype);
        for (const Row& row : rows)
            if (row.bytes == bytes) return row.type;
        MPI_Datatype type = MPI_DATATYPE_NULL;
        COEUS_CHECK_MPI(MPI_Type_contiguous(int(bytes), MPI_BYTE, &type));
        COEUS_CHECK_MPI(MPI_Type_commit(&type));
        rows.push_back({bytes, type});
        return type;
    }
};

PointToPoint::PointToPoint(const Communicator& ranks, int count, Sends sends)
    : ranks_(ranks), requests_(std::make_unique<Requests>()), sends_(sends) {
    requests_->all.resize(size_t(count), MPI_REQUEST_NULL);
    requests_->messages.resize(size_t(count));
    requests_->staging.resize(size_t(count));
}

PointToPoint::PointToPoint(const Communicator& ranks, int count, Sends sends, Exec& exec)
    : PointToPoint(ranks, count, sends) {
    exec_ = &exec;
}

PointToPoint::~PointToPoint() {
    // after an exception the other end may never come
    if (std::uncaught_exceptions() > 0) return;
    for (MPI_Request& request : requests_->all)
        if (request != MPI_REQUEST_NULL) MPI_Wait(&request, MPI_STATUS_IGNORE);
}

void PointToPoint::send(int number, Tensor tensor, int peer, int channel, Where where) {
    if (ranks_.is_planned()) return;
    require(tensor.dense(), "a message needs dense rows");
    MPI_Request* request = requests_->begin(number, {"send", tensor.bytes(), where, nullptr});
    if (exec_ && exec_->queue) {
        const Tensor on_device = tensor;
        tensor = requests_->staged(number, on_device, *exec_->device);
        exec_->queue->copy(tensor.data, on_device.data, tensor.bytes());
        exec_->queue->finish();
    }
    const auto begin = sends_ == Sends::standard ? MPI_Isend : MPI_Issend;
    COEUS_CHECK_MPI(begin(tensor.data, int(tensor.rows()), requests_->row_of(tensor), peer,
                          first_tag + channel, ranks_.handle().comm, request));
}

void PointToPoint::receive(int number, Tensor tensor, int peer, int channel, Where where) {
    if (ranks_.is_planned()) return;
    require(tensor.dense(), "a message needs dense rows");
    const bool by_host = exec_ && exec_->queue;
    MPI_Request* request =
        requests_->begin(number, {"receive", tensor.bytes(), where, by_host ? tensor.data : nullptr});
    if (by_host) tensor = requests_->staged(number, tensor, *exec_->device);
    COEUS_CHECK_MPI(MPI_Irecv(tensor.data, int(tensor.rows()), requests_->row_of(tensor), peer,
                              first_tag + channel, ranks_.handle().comm, request));
}

// An observer sees the waiting, which is the part of a message that the computation does not hide.
void PointToPoint::wait(int number) {
    if (number < 0 || !requests_->messages[size_t(number)].operation) return;
    auto& [operation, bytes, where, arrives_at] = requests_->messages[size_t(number)];
    CommunicationObserver* observer = ranks_.observer();
    const int64_t event = observer ? observer->begin(ranks_.name(), operation, bytes, where) : 0;
    MPI_Request& request = requests_->all[size_t(number)];
    if (request != MPI_REQUEST_NULL) COEUS_CHECK_MPI(MPI_Wait(&request, MPI_STATUS_IGNORE));
    if (arrives_at) {
        exec_->queue->copy(arrives_at, requests_->staging[size_t(number)].data(), bytes);
        exec_->queue->finish();
    }
    operation = nullptr;
    if (observer) observer->end(event);
}

void PointToPoint::wait_for_all() {
    for (int number = 0; number < int(requests_->all.size()); ++number) wait(number);
}

void PointToPoint::progress() {
    if (std::ranges::all_of(requests_->all, [](MPI_Request r) { return r == MPI_REQUEST_NULL; })) return;
    int done = 0, index = 0;
    COEUS_CHECK_MPI(
        MPI_Testany(int(requests_->all.size()), requests_->all.data(), &index, &done, MPI_STATUS_IGNORE));
}

}  // namespace coeus
