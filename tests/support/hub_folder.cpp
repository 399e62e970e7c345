// SPDX-License-Identifier: Apache-2.0
#include "support/hub_folder.hpp"

#include "coeus/models/hub_model.hpp"
#include "coeus/models/registry.hpp"
#include "coeus/pretrained/pretrained.hpp"

namespace coeus::test {

namespace fs = std::filesystem;

Tensor FolderTensors::add(const std::string& name, Dtype type, const Shape& shape) {
    const Tensor& tensor = memory_.emplace_back(type, shape).view;
    named_.push_back({name, tensor});
    return tensor;
}

void FolderTensors::write(const fs::path& folder, const Json& config) const {
    fs::create_directories(folder);
    write_json(config, folder / "config.json");
    write_safetensors((folder / "model.safetensors").string(), named_);
}

int below(int limit, Numbers& random) {
    return int(random() % unsigned(limit));
}

double small_number(Numbers& random) {
    return double(below(255, random) - 127) / 512;
}

std::map<std::string, Shape> folder_shapes(const DecoderConfig& model) {
    std::map<std::string, Shape> shapes;
    for (const HubTensor& tensor : hub_tensors(model))
        for (const HubPlace& place : tensor.places) shapes.emplace(place.name, place.shape);
    return shapes;
}

DecoderConfig small_model(const std::string& family, const std::string& flavor, int64_t dim, int64_t kv_heads,
                          int64_t head_dim) {
    DecoderConfig model = find_flavor(find_family(family), flavor);
    model.dim = dim;
    model.layers = 2;
    model.vocab = 288;
    std::visit([&](auto& a) { a.heads = 4, a.head_dim = head_dim; }, model.attention);
    if (auto* a = std::get_if<GroupedAttentionConfig>(&model.attention)) a->kv_heads = kv_heads;
    return model;
}

namespace {

void add_random(FolderTensors& tensors, const std::string& name, const Shape& shape, Numbers& random) {
    const Tensor tensor = tensors.add(name, Dtype::f32, shape);
    for (int64_t i = 0; i < shape.count(); ++i) set_element(tensor, i, small_number(random));
}

// The tensors of a model; named(name) is the name in the folder.
template <class Named>
FolderTensors random_tensors(const DecoderConfig& model, const Named& named) {
    FolderTensors tensors;
    Numbers random;
    for (const auto& [name, shape] : folder_shapes(model)) add_random(tensors, named(name), shape, random);
    return tensors;
}
std::string own_name(const std::string& name) {
    return name;
}
std::string outside(const std::string& name) {
    return "language_model." + name;
}
std::string inside(const std::string& name) {
    const std::string model = "model.";
    return name.starts_with(model) ? "model.language_model." + name.substr(model.size()) : name;
}

}  // namespace

void write_random_folder(const fs::path& folder, const DecoderConfig& model) {
    random_tensors(model, own_name).write(folder, hub_config_of(model));
}

void write_folder_with_images(const fs::path& of_text, const fs::path& with_images,
                              const DecoderConfig& model, const std::string& architecture, TextNames names) {
    Json text = hub_config_of(model);
    random_tensors(model, own_name).write(of_text, text);
    const bool is_inside = names == TextNames::inside;
    FolderTensors tensors = random_tensors(model, is_inside ? inside : outside);
    Numbers random;
    for (const char* name : {"multi_modal_projector.linear_1.weight", "vision_model.class_embedding",
                             "vision_model.model.layers.0.self_attn.q_proj.weight"})
        add_random(tensors, (is_inside ? "model." : "") + std::string(name), {6, 4}, random);
    text.set("bos_token_id", 1).set("torch_dtype", "float32");
    tensors.write(with_images,
                  Json::object()
                      .set("architectures", std::vector<std::string>{architecture})
                      .set("boi_token_index", 270)
                      .set("eoi_token_index", 271)
                      .set("image_token_index", 272)
                      .set("text_config", std::move(text))
                      .set("tie_word_embeddings", !model.tied)  // the weights decide
                      .set("vision_config",
                           Json::object()
                               .set("hidden_size", 6)
                               .set("rope_parameters",
                                    Json::object().set("rope_theta", 10000).set("rope_type", "default"))));
}

}  // namespace coeus::test
