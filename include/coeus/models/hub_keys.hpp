// SPDX-License-Identifier: Apache-2.0
// The table of a family's config.json in Hugging Face folders: a function that names each key once, with the
// field that it means. The same function reads the file and writes it, so that both agree:
//   void hub_keys(HubKeys& keys, DecoderConfig& config) {
//       keys.usual(config, {.rope = {.layout = RopeLayout::half_split}, .norm_eps = 1e-6});
//       keys.silu();
//       keys.rope(config);
//       keys.integer("sliding_window", config.grouped().window);
//   }
// A field whose key is absent keeps the value that it has in the model of usual(). A key that means something
// computed of fields is a local variable: computed before its key is named, and put back after it.
#pragma once

#include "coeus/file/json.hpp"
#include "coeus/models/decoder_config.hpp"

#include <array>
#include <initializer_list>
#include <optional>
#include <string>

namespace coeus {

struct ModelFamily;

/// router_aux_loss_coef of most classes of transformers, if a folder has none.
inline constexpr double usual_router_aux_loss_coef = 0.001;

/// A key of config.json. `also`: another name that the same value has in some files; only read, and if both
/// are there, they must agree.
struct HubKey {
    HubKey(const char* key, const char* other = nullptr) : name(key), also(other) {}

    const char *name, *also;
};

/// A list with an entry for each layer: `chosen` for the layers of a choice, `other` for the others.
struct HubLayers {
    const char* key;
    Json chosen, other;
    bool may_be_empty = false;  ///< an empty list is as good as none
};

/// How a family's config.json says which layers have a window.
struct HubWindow {
    const char* used_if = nullptr;  ///< a key that must be true, or there is no window
    /// The window is in all layers, whatever the keys say that list layers.
    bool in_all_layers = false;
    bool has_first = true;     ///< "max_window_layers" is a key: the first layer with a window
    bool writes_lists = true;  ///< false: writes neither this key nor "layer_types"
    int64_t without_any = 0;   ///< what is written if no layer has a window; 0: null
};

/// The keys of routed and shared experts, by default those of DeepSeek.
struct HubExperts {
    HubKey experts = {"n_routed_experts", "num_local_experts"};
    HubKey top_k = "num_experts_per_tok";
    const char* shared = "n_shared_experts";
    const char* scale = "routed_scaling_factor";  ///< null: there is none
};

/// See the head of this file. ConfigError, from all functions that read: file, key, value and rule of what is
/// wrong. Those that write throw nothing: hub_config_of (hub_model.hpp) compares what can be read again.
class HubKeys {
public:
    /// Reads `json`, which must have a list "architectures" of one architecture of the family.
    HubKeys(const ModelFamily& family, const JsonView& json);
    /// Writes into `json`, an object: first the family's first architecture.
    HubKeys(const ModelFamily& family, Json& json);

    bool reads() const { return !out_; }
    /// What is read. LogicError while writing.
    const JsonView& json() const;
    /// Writes a key. Reading knows it then, and takes nothing from it.
    void write(const char* key, Json value);
    /// Keys that are read and written, but mean nothing here. Only read: they become known.
    void idle(std::initializer_list<const char*> keys);
    /// The same for a part, with all its keys.
    void idle_part(const char* key);

    /// True for one of the family's architectures: while reading, if config.json has it; while writing, if
    /// `is_this`, and then it is written.
    bool architecture(const char* name, bool is_this);

    /// The fields with usual keys (ConfigField::hub). Reading begins with `absent`, the model of a
    /// config.json that has no keys. If num_key_value_heads is null, or absent with 0 in `absent`, there are
    /// num_attention_heads; such a head_dim is hidden_size / num_attention_heads. A required key is missing,
    /// or a value is outside its limits: refused.
    void usual(DecoderConfig& config, const DecoderConfig& absent);
    /// The same for a family whose layers all have experts: intermediate_size is their width.
    void usual_of_experts(DecoderConfig& config, const DecoderConfig& absent);

    /// A key that must have one value or be absent. `why`: "biases are not implemented yet". `synonym`:
    /// another name of the value.
    void constant(const char* key, const Json& value, const char* why, const char* synonym = nullptr);
    /// The activation function, which must be the SiLU of SwiGLU.
    void silu() { constant("hidden_act", "silu", "others are not implemented yet", "swish"); }

    /// A value of 0 before, with a `least` above that, is a key that must be there. At most the usual limit
    /// of a field (ConfigField::most): what is computed of it must not overflow or fill the memory.
    void integer(HubKey key, int64_t& value, int64_t least = 1);
    /// The same, with null for 0.
    void integer_or_null(HubKey key, int64_t& value);
    void number(const char* key, double& value);
    /// The same, of a factor that must be greater than 0.
    void positive(const char* key, double& value);
    /// As in transformers, null is false.
    void truth(const char* key, bool& value);
    /// A truth value that means one of two values of a field.
    template <class T>
    void choice(const char* key, T& value, T if_true, T if_false) {
        bool is_true = value == if_true;
        truth(key, is_true);
        value = is_true ? if_true : if_false;
    }
    /// A text that names the value of an enumeration (names_of).
    template <class Enum>
    void name(const char* key, Enum& value) {
        constexpr auto names = names_of(Enum());
        std::vector<std::string> all;
        int64_t index = 0;
        for (const EnumName<Enum>& entry : names) {
            if (entry.value == value) index = int64_t(all.size());
            all.emplace_back(entry.name);
        }
        name_of(key, all, index);
        value = names[size_t(index)].value;
    }
    /// A number that others fix: refused if it is another one. `rule`: "qk_nope_head_dim + qk_rope_head_dim".
    void computed(const char* key, int64_t value, const char* rule);

    /// RoPE in all its forms (read_hub_rope, write_hub_rope). After usual().
    void rope(DecoderConfig& config);
    /// RoPE of layers with a window and of others (read_hub_ropes, write_hub_ropes). After window(): without
    /// a window, there is one RoPE. `window_theta`: the key that older files have for theta in windows, or
    /// null.
    void ropes(DecoderConfig& config, const char* window_theta);
    /// RoPE, and a temperature of all layers: "llama_4_scaling_beta" and "original_max_position_embeddings"
    /// in the objects of RoPE (Ministral 3). After usual().
    void rope_and_temperature(DecoderConfig& config);
    /// For a class of transformers that fills in an absent RoPE whole, with a theta of its own: without an
    /// object of RoPE, a rope_theta beside it means nothing there. Refused if it is another one. Before
    /// rope().
    void whole_rope_if_absent(const DecoderConfig& config);
    /// The part of a head that RoPE rotates. Before rope(), which writes it into rope_parameters too.
    void rope_fraction(DecoderConfig& config);

    /// The widths of latent attention, by the keys of DeepSeek. Its "head_dim" is qk_rope_head_dim.
    void latent_attention(LatentAttentionConfig& attention);

    /// A list of layers with an entry for each. Absent, or of the same layers: the choice remains.
    void layers(const HubLayers& list, const DecoderConfig& config, LayerChoice& choice);
    /// "sliding_window" and the layers that have it, by "layer_types" if there are any, else by
    /// "max_window_layers", or as the choice was. A window of 0 before: without the key there is none.
    void window(DecoderConfig& config, const HubWindow& form = {});
    /// The layers without RoPE: "no_rope_layers" has 1 for a layer with RoPE. Without it, each
    /// "no_rope_layer_interval"-th, which is only read.
    void layers_without_rope(DecoderConfig& config);

    /// How experts are balanced in an architecture that has no place for biases: by a loss with the
    /// coefficient "router_aux_loss_coef". transformers adds this loss only if "output_router_logits" is
    /// true. If it is not, coefficients above 0.1 count as the default of its class, `usual`: gpt-oss's
    /// folders have 0.9, an earlier default. Not written for a model that was balanced by biases alone. After
    /// the other keys of experts.
    void balance(DecoderConfig& config, double usual = usual_router_aux_loss_coef);
    /// Numbers and widths of routed and shared experts, and the factor of their weights.
    void shared_experts(MoeConfig& moe, const HubExperts& names = {});
    /// The groups of which some are kept, and whether the weights of a token are divided by their sum.
    void expert_groups(MoeConfig& moe);

private:
    std::optional<JsonView> find(const HubKey& key) const;
    void name_of(const char* key, const std::vector<std::string>& names, int64_t& index);
    void read_window(DecoderConfig& config, const HubWindow& form);

    const ModelFamily& family_;
    std::string architecture_;
    std::optional<JsonView> in_;
    Json* out_ = nullptr;
};

/// The coefficient of moe.sequence_balance in the terms of transformers, router_aux_loss_coef. Its loss is
/// E sum_e f_e p_e (Fedus et al. 2021, Switch Transformers, eq. 4-6): f_e is the choices of expert e divided
/// by the tokens, p_e the mean of the softmax over all experts. Here it is the mean over sequences and layers
/// with experts; moe.sequence_balance weighs the sum over these layers, with f_e divided by top_k. 0 without
/// experts.
double router_aux_loss_coef(const DecoderConfig& model);
void set_router_aux_loss_coef(DecoderConfig& model, double coefficient);

/// A number rounded to 12 digits: a coefficient that was read, multiplied and divided again is written as it
/// was.
double without_last_digits(double number);

/// All but each `period`-th of a model's layers, as older files choose those with a window. `usual`: see
/// LayerChoice::of.
LayerChoice all_but_each(int64_t period, int64_t layers, const LayerChoice& usual);
/// An integer of at least this. ConfigError if it is less, or more than `most`.
int64_t integer_within(int64_t least, int64_t most, const JsonView& json);
/// ConfigError: two places in config.json contradict each other.
[[noreturn]] void reject_both(const JsonView& a, const JsonView& b);
/// The value of two keys for the same number, of which one may be absent. ConfigError if they do not agree.
std::optional<JsonView> number_in_either(const std::optional<JsonView>& a, const std::optional<JsonView>& b);
/// True if the key is there and null.
bool is_null(const JsonView& json, const char* key);

}  // namespace coeus
