// SPDX-License-Identifier: Apache-2.0
#include "coeus/device/device.hpp"

#include "coeus/base/error.hpp"
#include "coeus/device/cpu.hpp"

#include <atomic>
#include <cstring>
#include <limits>

namespace coeus {

namespace {

// The host's queue, which does its work at once.
class HostQueue : public Queue {
public:
    bool is_synchronous() const override { return true; }
    void copy(void* to, const void* from, int64_t bytes) override {
        if (bytes > 0 && to != from) std::memcpy(to, from, size_t(bytes));
    }
    void finish() override {}
    int64_t mark() override { return 0; }
    void finish(int64_t /*point*/) override {}
    void wait_for(const Queue& /*other*/, int64_t /*point*/) override {}
    void wait_for(const Event& /*event*/) override {}
    void begin_recording() override { throw LogicError("the host's queue records no graphs"); }
    std::unique_ptr<Graph> end_recording() override {
        throw LogicError("the host's queue records no graphs");
    }
    void give(const Graph& /*graph*/) override { throw LogicError("the host's queue takes no graphs"); }
    bool is_recording() const override { return false; }
    void enter_thread() const override {}
    void* native() const override { return nullptr; }
};

class HostEvent : public Event {
public:
    void record(const Queue& /*queue*/) override {}
    bool passed() const override { return true; }
};

class Host : public Device {
public:
    Backend backend() const override { return Backend::cpu; }
    const std::string& name() const override { return name_; }
    const Memory& memory() const override { return host_memory(); }
    const Memory& staging() const override { return host_memory(); }
    std::unique_ptr<Queue> make_queue(Priority /*priority*/) const override {
        return std::make_unique<HostQueue>();
    }
    std::unique_ptr<Event> make_event() const override { return std::make_unique<HostEvent>(); }
    void copy(void* to, const void* from, int64_t bytes) const override {
        std::memcpy(to, from, size_t(bytes));
    }
    int64_t memory_bytes() const override { return memory_limit_bytes(); }
    int64_t peak_bytes() const override { return peak_resident_bytes(); }

private:
    std::string name_ = cpu_name();
};

// Hands out addresses above those of any process, so that an access is an error.
class PlannedMemory : public Memory {
public:
    std::byte* take(int64_t bytes, const std::string& /*what*/) const override {
        return reinterpret_cast<std::byte*>(next_.fetch_add(padded_bytes(bytes)));  // NOLINT: no memory
    }
    void give_back(std::byte* /*data*/, int64_t /*bytes*/) const override {}

private:
    mutable std::atomic<intptr_t> next_ = intptr_t(1) << 52;
};

class PlannedEvent : public HostEvent {
public:
    explicit PlannedEvent(QueueObserver& observer) : observer_(observer) {}
    void record(const Queue& queue) override {
        queue_ = &queue;
        point_ = observer_.mark(queue);
    }
    void make_wait(const Queue& queue) const {
        if (queue_) observer_.wait(queue, *queue_, point_);
    }

private:
    QueueObserver& observer_;
    const Queue* queue_ = nullptr;  // null: never recorded
    int64_t point_ = 0;
};

class PlannedQueue : public HostQueue {
public:
    explicit PlannedQueue(QueueObserver& observer) : observer_(observer) {}
    bool is_synchronous() const override { return false; }
    void copy(void* /*to*/, const void* /*from*/, int64_t /*bytes*/) override {}
    int64_t mark() override { return observer_.mark(*this); }
    void wait_for(const Queue& other, int64_t point) override { observer_.wait(*this, other, point); }
    void wait_for(const Event& event) override { static_cast<const PlannedEvent&>(event).make_wait(*this); }

private:
    QueueObserver& observer_;
};

class PlannedDevice : public Device {
public:
    PlannedDevice(Backend backend, int architecture, QueueObserver& observer)
        : backend_(backend), architecture_(architecture), observer_(observer) {}
    Backend backend() const override { return backend_; }
    const std::string& name() const override { return name_; }
    const Memory& memory() const override { return memory_; }
    const Memory& staging() const override { return host_memory(); }
    std::unique_ptr<Queue> make_queue(Priority /*priority*/) const override {
        return std::make_unique<PlannedQueue>(observer_);
    }
    std::unique_ptr<Event> make_event() const override { return std::make_unique<PlannedEvent>(observer_); }
    void copy(void* /*to*/, const void* /*from*/, int64_t /*bytes*/) const override {}
    int64_t memory_bytes() const override { return std::numeric_limits<int64_t>::max(); }
    int64_t peak_bytes() const override { return 0; }
    int architecture() const override { return architecture_; }

private:
    Backend backend_;
    int architecture_;
    QueueObserver& observer_;
    std::string name_ = "a planned device";
    PlannedMemory memory_;
};

}  // namespace

const Device& host_device() {
    static const Host host;
    return host;
}

std::unique_ptr<Device> make_planned_device(Backend backend, int architecture, QueueObserver& observer) {
    return std::make_unique<PlannedDevice>(backend, architecture, observer);
}

OwnedTensor moved_to(const Device& device, OwnedTensor tensor) {
    if (device.is_host()) return tensor;
    OwnedTensor there(tensor.view.dtype, tensor.view.shape, tensor.buffer.what(), device.memory());
    device.copy(there.view.data, tensor.view.data, tensor.view.bytes());
    return there;
}

}  // namespace coeus
