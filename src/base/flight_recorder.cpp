// SPDX-License-Identifier: Apache-2.0
#include "coeus/base/flight_recorder.hpp"

#include "coeus/base/clock.hpp"
#include "coeus/base/error.hpp"

#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <functional>
#include <map>
#include <mutex>
#include <type_traits>
#include <utility>

namespace coeus {

namespace {

constexpr int most_lines = 256;
constexpr uint64_t magic = 0x636f65757366726cU;

// A value that one thread writes while others, also of other processes, copy it. It is stored as atomic
// words, so that no access is a race, with a version that is odd while it is written (a sequence lock).
template <class T>
class Published {
public:
    // False if another thread is writing.
    bool try_lock() {
        uint64_t version = version_.load(std::memory_order_relaxed);
        return version % 2 == 0 &&
               version_.compare_exchange_strong(version, version + 1, std::memory_order_acquire);
    }
    void store_and_unlock(const T& value) {
        std::array<uint64_t, count> copy;
        std::memcpy(copy.data(), &value, sizeof value);
        std::atomic_thread_fence(std::memory_order_release);
        for (size_t i = 0; i < count; ++i) words_[i].store(copy[i], std::memory_order_relaxed);
        version_.fetch_add(1, std::memory_order_release);
    }
    void unlock() { version_.fetch_sub(1, std::memory_order_release); }
    // False if it was never written, or is being written.
    bool load(T& value) const {
        const uint64_t version = version_.load(std::memory_order_acquire);
        if (version == 0 || version % 2 == 1) return false;
        std::array<uint64_t, count> copy;
        for (size_t i = 0; i < count; ++i) copy[i] = words_[i].load(std::memory_order_relaxed);
        std::atomic_thread_fence(std::memory_order_acquire);
        if (version_.load(std::memory_order_relaxed) != version) return false;
        std::memcpy(static_cast<void*>(&value), copy.data(), sizeof value);
        return true;
    }

private:
    static_assert(sizeof(T) % sizeof(uint64_t) == 0 && std::is_trivially_copyable_v<T>);
    static constexpr size_t count = sizeof(T) / sizeof(uint64_t);
    std::atomic<uint64_t> version_;
    std::array<std::atomic<uint64_t>, count> words_;
};

struct Slot {
    Published<Operation> operation;
    std::atomic<double> ended;  // when the operation ended; 0: in progress
    std::atomic<bool> reached;
    std::atomic<uint64_t> position;  // in the order of all operations, from 1; 0: unused
};

struct LineSlot {
    Published<OperationLine> line;
    std::atomic<int64_t> collectives, messages;
    std::atomic<int> taken;
};

int32_t this_thread() {
    static thread_local const auto number = int32_t(gettid());
    return number;
}

template <size_t N>
void copy_begin(std::array<char, N>& to, std::string_view from) {
    std::memcpy(to.data(), from.data(), std::min(from.size(), N - 1));
}

template <size_t N>
void copy_end(std::array<char, N>& to, std::string_view from) {
    copy_begin(to, from.substr(from.size() - std::min(from.size(), N - 1)));
}

}  // namespace

// All bytes are zero at first.
struct FlightRecorder::Memory {
    std::atomic<uint64_t> begins_with;
    std::atomic<int64_t> pid;
    Notes notes;
    std::atomic<uint64_t> given;
    std::array<Slot, remembered> slots;
    std::array<LineSlot, most_lines> lines;
};

FlightRecorder& FlightRecorder::own() {
    // never destroyed: threads record operations until the process ends
    static FlightRecorder* const recorder = [] {
        const int file = memfd_create("coeus flight recorder", MFD_CLOEXEC);
        const bool sized = file >= 0 && ftruncate(file, sizeof(Memory)) == 0;
        void* const memory =
            mmap(nullptr, sizeof(Memory), PROT_READ | PROT_WRITE,
                 (sized ? MAP_SHARED : MAP_PRIVATE | MAP_ANONYMOUS) | MAP_POPULATE, sized ? file : -1, 0);
        if (memory == MAP_FAILED) throw SystemError("no memory for the flight recorder");
        auto* const own = new FlightRecorder(static_cast<Memory*>(memory), sized ? file : -1);
        own->memory_->pid = getpid();
        own->memory_->begins_with = magic;
        return own;
    }();
    return *recorder;
}

std::unique_ptr<FlightRecorder> FlightRecorder::of(int64_t pid, int descriptor) {
    if (descriptor < 0) return nullptr;
    const int file = open(fmt::format("/proc/{}/fd/{}", pid, descriptor).c_str(), O_RDWR | O_CLOEXEC);
    if (file < 0) return nullptr;
    // on another host the same pid and descriptor may belong to another process
    const bool whole = lseek(file, 0, SEEK_END) == off_t(sizeof(Memory));
    void* const memory =
        whole ? mmap(nullptr, sizeof(Memory), PROT_READ | PROT_WRITE, MAP_SHARED, file, 0) : MAP_FAILED;
    close(file);
    if (memory == MAP_FAILED) return nullptr;
    std::unique_ptr<FlightRecorder> other(new FlightRecorder(static_cast<Memory*>(memory), -1));
    if (other->memory_->begins_with != magic || other->memory_->pid != pid) return nullptr;
    return other;
}

FlightRecorder::~FlightRecorder() {
    munmap(memory_, sizeof(Memory));
}

int64_t FlightRecorder::pid() const {
    return memory_->pid;
}

FlightRecorder::Notes& FlightRecorder::notes() const {
    return memory_->notes;
}

// Skips slots whose operations are in progress. If all are, the operation is not recorded.
int FlightRecorder::begin(const Line* line, OperationKind kind, const char* name, int64_t bytes,
                          std::string_view place, int source_line, int peer, double allowance) {
    Operation operation = {.bytes = bytes,
                           .began = steady_seconds(),
                           .allowance = allowance,
                           .line = line ? line->number_ : -1,
                           .thread = this_thread(),
                           .peer = peer,
                           .source_line = source_line,
                           .kind = kind};
    if (operation.line >= 0) {
        LineSlot& of = memory_->lines[size_t(operation.line)];
        operation.sequence = 1 + (kind == OperationKind::message ? of.messages : of.collectives)
                                     .fetch_add(1, std::memory_order_relaxed);
    }
    copy_begin(operation.name, name);
    copy_end(operation.place, place);
    for (int attempt = 0; attempt < remembered; ++attempt) {
        const uint64_t position = memory_->given.fetch_add(1, std::memory_order_relaxed);
        const auto entry = size_t(position % remembered);
        Slot& slot = memory_->slots[entry];
        if (!slot.operation.try_lock()) continue;
        if (slot.position != 0 && slot.ended == 0) {
            slot.operation.unlock();
            continue;
        }
        slot.ended.store(0, std::memory_order_relaxed);
        slot.reached.store(kind != OperationKind::queued, std::memory_order_relaxed);
        slot.position.store(position + 1, std::memory_order_relaxed);
        slot.operation.store_and_unlock(operation);
        return int(entry);
    }
    return -1;
}

void FlightRecorder::end(int entry) {
    if (entry >= 0) memory_->slots[size_t(entry)].ended.store(steady_seconds(), std::memory_order_release);
}

void FlightRecorder::reach(int entry) {
    if (entry >= 0) memory_->slots[size_t(entry)].reached.store(true, std::memory_order_release);
}

void FlightRecorder::pass_over(const Line& line) {
    if (line.number_ >= 0)
        memory_->lines[size_t(line.number_)].collectives.fetch_add(1, std::memory_order_relaxed);
}

std::vector<Operation> FlightRecorder::operations() const {
    std::map<uint64_t, Operation> found;
    for (const Slot& slot : memory_->slots) {
        Operation operation;
        const uint64_t position = slot.position;
        const double ended = slot.ended;
        const bool reached = slot.reached;
        if (position == 0 || !slot.operation.load(operation) || slot.position != position) continue;
        operation.ended = ended;
        operation.reached = reached;
        found[position] = operation;
    }
    std::vector<Operation> all;
    for (const auto& [position, operation] : found) all.push_back(operation);
    return all;
}

std::vector<OperationLine> FlightRecorder::lines() const {
    std::vector<OperationLine> all(most_lines);
    for (size_t i = 0; i < all.size(); ++i) {
        const LineSlot& slot = memory_->lines[i];
        if (!slot.line.load(all[i])) continue;
        all[i].collectives = slot.collectives;
        all[i].messages = slot.messages;
    }
    while (!all.empty() && all.back().name[0] == 0) all.pop_back();
    return all;
}

FlightRecorder::Line::Line(std::string_view name, uint64_t kind_of_id, int rank, int size) {
    static std::mutex mutex;
    static std::map<uint64_t, int> made;
    const std::lock_guard lock(mutex);
    id_ = std::hash<std::string>()(fmt::format("{} {} {} {}", name, kind_of_id, size, made[kind_of_id]++));
    static int next = 0;
    auto& lines = own().memory_->lines;
    int tried = 0;
    while (tried < most_lines && lines[size_t(next)].taken != 0) {
        next = (next + 1) % most_lines;
        ++tried;
    }
    if (tried == most_lines) return;
    LineSlot* const free = &lines[size_t(next)];
    number_ = next;
    next = (next + 1) % most_lines;
    OperationLine line = {.id = id_, .rank = rank, .size = size};
    copy_begin(line.name, name);
    free->collectives = free->messages = 0;
    if (free->line.try_lock()) free->line.store_and_unlock(line);
    free->taken = 1;
}

FlightRecorder::Line::~Line() {
    if (number_ >= 0) own().memory_->lines[size_t(number_)].taken = 0;
}

FlightRecorder::Line::Line(Line&& other) noexcept
    : number_(std::exchange(other.number_, -1)), id_(other.id_) {}

FlightRecorder::Line& FlightRecorder::Line::operator=(Line&& other) noexcept {
    std::swap(number_, other.number_);
    std::swap(id_, other.id_);
    return *this;
}

Recorded::Recorded(const FlightRecorder::Line& line, OperationKind kind, const char* name, int64_t bytes,
                   const std::source_location& where, int peer) {
    enter(&line, kind, name, bytes, where.file_name(), int(where.line()), peer, 0);
}

Recorded::Recorded(const char* name, int64_t bytes, std::string_view path) {
    constexpr double slowest_disk = 10 << 20;  // bytes per second
    enter(nullptr, OperationKind::file, name, bytes, path, 0, -1, double(bytes) / slowest_disk);
}

Recorded::Recorded(OperationKind kind, const char* name, const std::source_location& where) {
    enter(nullptr, kind, name, 0, where.file_name(), int(where.line()), -1, 0);
}

void Recorded::enter(const FlightRecorder::Line* line, OperationKind kind, const char* name, int64_t bytes,
                     std::string_view place, int source_line, int peer, double allowance) {
    FlightRecorder& recorder = FlightRecorder::own();
    OperationFault* const fault = recorder.fault();
    if (fault && fault->leaves_out(name, kind)) {
        left_out_ = true;
        return;
    }
    entry_ = recorder.begin(line, kind, name, bytes, place, source_line, peer, allowance);
    if (!fault) return;
    try {
        fault->entered(name, kind);
    } catch (...) {
        recorder.end(entry_);
        throw;
    }
}

Recorded::~Recorded() {
    FlightRecorder::own().end(entry_);
}

}  // namespace coeus
