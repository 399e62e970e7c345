// SPDX-License-Identifier: Apache-2.0
#include "coeus/comm/point_to_point.hpp"

#include "communicator_handle.hpp"

#include <exception>

namespace coeus {

// A channel is a tag: MPI keeps the order of messages of one tag, and no order between tags.
constexpr int first_tag = 16;  // below it are those of Communicator

struct PointToPoint::Requests {
    struct Message {
        const char* operation;  // null: nothing under way
        int64_t bytes;
    };
    std::vector<MPI_Request> all;
    std::vector<Message> messages;         // of each, until it was waited for
    MPI_Datatype row = MPI_DATATYPE_NULL;  // MPI counts in int: rows, not bytes
    int64_t row_bytes = 0;

    Requests() = default;
    Requests(const Requests&) = delete;
    Requests& operator=(const Requests&) = delete;
    ~Requests() {
        if (row != MPI_DATATYPE_NULL) MPI_Type_free(&row);
    }

    // Of rows of that tensor, which are mostly as long as those before.
    MPI_Datatype row_of(Tensor tensor) {
        const int64_t bytes = tensor.cols() * size_of(tensor.dtype);
        if (bytes == row_bytes) return row;
        if (row != MPI_DATATYPE_NULL) COEUS_CHECK_MPI(MPI_Type_free(&row));
        COEUS_CHECK_MPI(MPI_Type_contiguous(int(bytes), MPI_BYTE, &row));
        COEUS_CHECK_MPI(MPI_Type_commit(&row));
        row_bytes = bytes;
        return row;
    }
};

PointToPoint::PointToPoint(const Communicator& ranks, int count, Sends sends)
    : ranks_(ranks), requests_(std::make_unique<Requests>()), sends_(sends) {
    requests_->all.resize(size_t(count), MPI_REQUEST_NULL);
    requests_->messages.resize(size_t(count));
}

PointToPoint::~PointToPoint() {
    // after an exception the other end may never come
    if (std::uncaught_exceptions() > 0) return;
    for (MPI_Request& request : requests_->all)
        if (request != MPI_REQUEST_NULL) MPI_Wait(&request, MPI_STATUS_IGNORE);
}

void PointToPoint::send(int number, Tensor tensor, int peer, int channel) {
    if (ranks_.is_planned()) return;
    require(tensor.dense(), "a message needs dense rows");
    requests_->messages[size_t(number)] = {"send", tensor.bytes()};
    const auto begin = sends_ == Sends::standard ? MPI_Isend : MPI_Issend;
    COEUS_CHECK_MPI(begin(tensor.data, int(tensor.rows()), requests_->row_of(tensor), peer,
                          first_tag + channel, ranks_.handle().comm, &requests_->all[size_t(number)]));
}

void PointToPoint::receive(int number, Tensor tensor, int peer, int channel) {
    if (ranks_.is_planned()) return;
    require(tensor.dense(), "a message needs dense rows");
    requests_->messages[size_t(number)] = {"receive", tensor.bytes()};
    COEUS_CHECK_MPI(MPI_Irecv(tensor.data, int(tensor.rows()), requests_->row_of(tensor), peer,
                              first_tag + channel, ranks_.handle().comm, &requests_->all[size_t(number)]));
}

// An observer sees the waiting, which is the part of a message that the computation does not hide.
void PointToPoint::wait(int number) {
    if (number < 0 || !requests_->messages[size_t(number)].operation) return;
    auto& [operation, bytes] = requests_->messages[size_t(number)];
    CommunicationObserver* observer = ranks_.observer();
    const int64_t event =
        observer ? observer->begin(ranks_.name(), operation, bytes, std::source_location::current()) : 0;
    MPI_Request& request = requests_->all[size_t(number)];
    if (request != MPI_REQUEST_NULL) COEUS_CHECK_MPI(MPI_Wait(&request, MPI_STATUS_IGNORE));
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
