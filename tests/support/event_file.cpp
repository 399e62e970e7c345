// SPDX-License-Identifier: Apache-2.0
#include "support/event_file.hpp"

#include "support/support.hpp"

#include <algorithm>
#include <cstring>
#include <functional>
#include <stdexcept>
#include <string_view>

namespace coeus::test {

namespace {

void demand(bool holds, const char* what) {
    if (!holds) throw std::runtime_error(what);
}

// Computed bit by bit, from the polynomial's definition (RFC 3720, appendix B.4).
uint32_t crc32c(std::string_view bytes) {
    uint32_t crc = ~0u;
    for (const char byte : bytes) {
        crc ^= uint8_t(byte);
        for (int bit = 0; bit < 8; ++bit) crc = crc & 1 ? crc >> 1 ^ 0x82F63B78u : crc >> 1;
    }
    return ~crc;
}

// Reads values from the front of a string of bytes.
class Reader {
public:
    explicit Reader(std::string_view bytes) : left_(bytes) {}
    bool done() const { return left_.empty(); }
    std::string_view take(uint64_t count) {
        demand(count <= left_.size(), "cut short");
        const std::string_view taken = left_.substr(0, count);
        left_.remove_prefix(count);
        return taken;
    }
    template <class Number>
    Number number() {
        Number value;
        std::memcpy(&value, take(sizeof value).data(), sizeof value);
        return value;
    }
    uint64_t varint() {
        uint64_t value = 0;
        for (int shift = 0; shift < 64; shift += 7) {
            const auto byte = uint8_t(take(1)[0]);
            value |= uint64_t(byte & 0x7f) << shift;
            if (byte < 0x80) return value;
        }
        throw std::runtime_error("varint too long");
    }
    std::string_view checked(std::string_view bytes) {
        const uint32_t crc = crc32c(bytes);
        demand(number<uint32_t>() == (crc >> 15 | crc << 17) + 0xa282ead8u, "wrong checksum");
        return bytes;
    }

private:
    std::string_view left_;
};

// Calls `read` with the number of each field of a message; `read` must consume the value.
void for_each_field(std::string_view message, const std::function<void(uint64_t tag, Reader&)>& read) {
    for (Reader in(message); !in.done();) read(in.varint(), in);
}

constexpr uint64_t tag(uint64_t field, uint64_t form) {
    return field << 3 | form;
}

void read_value(std::string_view message, BoardEvent& event) {
    std::string key;
    float value = 0;
    for_each_field(message, [&](uint64_t t, Reader& in) {
        if (t == tag(1, 2))
            key = in.take(in.varint());
        else if (t == tag(2, 5))
            value = in.number<float>();
        else
            demand(false, "unknown field of a value");
    });
    demand(event.scalars.emplace(key, value).second, "a key twice in one event");
}

BoardEvent parse_event(std::string_view message) {
    BoardEvent event;
    for_each_field(message, [&](uint64_t t, Reader& in) {
        if (t == tag(1, 1))
            event.wall_time = in.number<double>();
        else if (t == tag(2, 0))
            event.step = int64_t(in.varint());
        else if (t == tag(3, 2))
            event.file_version = in.take(in.varint());
        else if (t == tag(5, 2))
            for_each_field(in.take(in.varint()), [&](uint64_t inner, Reader& values) {
                demand(inner == tag(1, 2), "unknown field of a summary");
                read_value(values.take(values.varint()), event);
            });
        else if (t == tag(7, 2))
            for_each_field(in.take(in.varint()), [&](uint64_t inner, Reader& session) {
                demand(inner == tag(1, 0), "unknown field of a session");
                event.session_status = int64_t(session.varint());
            });
        else
            demand(false, "unknown field of an event");
    });
    return event;
}

}  // namespace

std::vector<BoardEvent> read_events(const std::filesystem::path& file) {
    const std::string bytes = read_file(file);
    std::vector<BoardEvent> events;
    for (Reader in(bytes); !in.done();) {
        uint64_t length = 0;
        const std::string_view length_bytes = in.checked(in.take(8));
        std::memcpy(&length, length_bytes.data(), 8);
        events.push_back(parse_event(in.checked(in.take(length))));
    }
    return events;
}

std::vector<std::filesystem::path> event_files(const std::filesystem::path& folder) {
    std::vector<std::filesystem::path> files;
    for (const auto& entry : std::filesystem::directory_iterator(folder))
        if (entry.is_regular_file()) files.push_back(entry.path());
    std::sort(files.begin(), files.end());
    return files;
}

std::map<std::string, std::map<int64_t, float>> shown_scalars(const std::filesystem::path& folder) {
    std::map<std::string, std::map<int64_t, float>> shown;
    for (const auto& file : event_files(folder)) {
        for (const BoardEvent& event : read_events(file)) {
            if (event.session_status == 1)
                for (auto& [key, values] : shown) values.erase(values.lower_bound(event.step), values.end());
            for (const auto& [key, value] : event.scalars)
                demand(shown[key].emplace(event.step, value).second, "a step twice");
        }
    }
    return shown;
}

}  // namespace coeus::test
