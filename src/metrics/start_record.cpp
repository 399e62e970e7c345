// SPDX-License-Identifier: Apache-2.0
#include "coeus/metrics/start_record.hpp"

#include "coeus/base/text.hpp"

#include <fmt/format.h>

#include <algorithm>

namespace coeus {

Json json_of(const StartRecord& record) {
    Json json = Json::object();
    const auto set = [&](const char* key, const auto& value, bool known) {
        if (known) json.set(key, value);
    };
    set("version", record.version, !record.version.empty());
    set("model", record.model, !record.model.empty());
    set("parameters", record.parameters, record.parameters > 0);
    set("active_parameters", record.active_parameters, record.active_parameters > 0);
    set("ranks", record.ranks, record.ranks > 0);
    set("mesh", record.mesh, !record.mesh.empty());
    set("machine", record.machine, !record.machine.empty());
    set("hosts", record.hosts, !record.hosts.empty());
    set("data", record.data, !record.data.empty());
    if (record.bytes_per_token) json.set("bytes_per_token", *record.bytes_per_token);
    if (record.validation_bytes_per_token)
        json.set("validation_bytes_per_token", *record.validation_bytes_per_token);
    set("deck", record.deck, !record.deck.empty());
    return json;
}

StartRecord start_record(const JsonView& json) {
    StartRecord record = {.version = json.string("version", ""),
                          .model = json.string("model", ""),
                          .parameters = json.integer("parameters", 0),
                          .active_parameters = json.integer("active_parameters", 0),
                          .ranks = json.integer("ranks", 0),
                          .mesh = json.string("mesh", ""),
                          .machine = json.string("machine", ""),
                          .data = json.string("data", ""),
                          .deck = json.string("deck", "")};
    if (json.contains("hosts")) record.hosts = json["hosts"].strings();
    if (json.contains("bytes_per_token")) record.bytes_per_token = json.number("bytes_per_token");
    if (json.contains("validation_bytes_per_token"))
        record.validation_bytes_per_token = json.number("validation_bytes_per_token");
    return record;
}

std::string hosts_text(const std::vector<std::string>& hosts) {
    constexpr size_t most = 3;
    if (hosts.size() <= 1) return join(hosts, "");
    std::vector<std::string> named(hosts.begin(), hosts.begin() + int64_t(std::min(hosts.size(), most)));
    if (hosts.size() > most) named.emplace_back("...");
    return fmt::format("{} hosts: {}", hosts.size(), join(named, ", "));
}

}  // namespace coeus
