#include "steelyard/import/language/huggingface_decoder.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <nlohmann/json.hpp>
#include <numbers>
#include <set>

#include "steelyard/framework/files/json_integer.h"
#include "steelyard/framework/files/json_problem.h"
#include "steelyard/framework/files/sha256.h"
#include "steelyard/framework/tensor/error.h"
#include "steelyard/import/language/decoder_network.h"

namespace steelyard::imports {
namespace {

using Json = nlohmann::json;

// What a model_type has, beside what config.json says.
struct ModelType {
  const char* name;
  DecoderPresence presence;
  bool says_biases;              // by attention_bias and mlp_bias
  std::int64_t usual_width;      // of a head where the file names none; 0: width / heads
  const char* limits_attention;  // the key that switches its windows on; null: sliding_window
};
constexpr std::array kModelTypes = {
    ModelType{"llama", {}, true, 0, nullptr}, ModelType{"mistral", {}, false, 0, nullptr},
    ModelType{"qwen2", {.read_bias = Presence::kAlways}, false, 0, "use_sliding_window"},
    ModelType{"qwen3", {.head_norms = Presence::kAlways}, true, 128, "use_sliding_window"}};

constexpr const char* kBlocks = "model_layers_";

std::string layer_prefix(std::int64_t block) { return kBlocks + std::to_string(block) + "_"; }

constexpr DecoderNames kLayerNames{.block = layer_prefix,
                                   .embedding = "model_embed_tokens",
                                   .norm = "model_norm",
                                   .head = "lm_head",
                                   .attention_norm = "input_layernorm",
                                   .queries = "self_attn_q_proj",
                                   .keys = "self_attn_k_proj",
                                   .values = "self_attn_v_proj",
                                   .query_norm = "self_attn_q_norm",
                                   .key_norm = "self_attn_k_norm",
                                   .attention = "self_attn_attention",
                                   .attention_output = "self_attn_o_proj",
                                   .attention_sum = "attention_sum",
                                   .inner_norm = "post_attention_layernorm",
                                   .gate = "mlp_gate_proj",
                                   .up = "mlp_up_proj",
                                   .gated = "mlp_swiglu",
                                   .down = "mlp_down_proj",
                                   .sum = "sum"};

// The keys of a config.json.
class Config {
 public:
  explicit Config(const std::filesystem::path& folder)
      : name_(printable((folder / kConfigFile).string())) {
    try {
      json_ = Json::parse(read_file(folder / kConfigFile, kMostConfigBytes));
    } catch (const Json::exception& error) {
      throw InputError(json_problem(name_, error));
    }
    if (!json_.is_object()) fail("expected an object");
  }

  [[noreturn]] void fail(const std::string& message) const {
    throw InputError(name_ + ": " + message);
  }
  [[noreturn]] void fail_key(const std::string& key, const std::string& message) const {
    fail("'" + printable(key) + "': " + message);
  }

  // Null where the file has none, or null.
  const Json* find(const char* key) const { return find(json_, key); }
  static const Json* find(const Json& object, const char* key) {
    const auto found = object.find(key);
    return found == object.end() || found->is_null() ? nullptr : &*found;
  }

  std::optional<std::int64_t> size_if_given(const char* key) const {
    const Json* value = find(key);
    if (value == nullptr) return std::nullopt;
    if (value->is_number_integer() && *value >= 1 && *value <= kMostDecoderSize) {
      return value->get<std::int64_t>();
    }
    fail_key(key, "expected a whole number from 1 to " + std::to_string(kMostDecoderSize) +
                      ", got " + described(*value));
  }
  std::int64_t size(const char* key) const {
    const auto given = size_if_given(key);
    if (!given) fail_key(key, "expected a whole number, the file has none");
    return *given;
  }
  double positive(const Json& object, const char* key, std::optional<double> usual) const {
    const Json* value = find(object, key);
    if (value == nullptr && usual) return *usual;
    if (value != nullptr && value->is_number()) {
      const auto number = value->get<double>();
      if (number > 0 && std::isfinite(number)) return number;
    }
    fail_key(key, "expected a number above 0, got " +
                      (value == nullptr ? std::string("none") : described(*value)));
  }
  double positive(const char* key, std::optional<double> usual) const {
    return positive(json_, key, usual);
  }
  bool flag(const char* key) const {
    const Json* value = find(key);
    if (value == nullptr) return false;
    if (value->is_boolean()) return value->get<bool>();
    fail_key(key, "expected true or false, got " + described(*value));
  }
  std::string text(const char* key) const {
    const Json* value = find(key);
    return value != nullptr && value->is_string() ? value->get<std::string>() : "";
  }
  // A key that has to be absent or this.
  template <typename T>
  void require(const char* key, const T& expected, const char* why) const {
    const Json* value = find(key);
    if (value == nullptr || *value == expected) return;
    fail_key(key, "expected " + Json(expected).dump() + ": " + why + ", got " + described(*value));
  }

 private:
  std::string name_;
  Json json_;
};

// Llama 3's divisors of the rotation's frequencies: transformers, modeling_rope_utils.py,
// _compute_llama3_parameters().
std::vector<double> llama3_factors(const Config& config, const Json& scaling,
                                   const CausalAttentionOptions& attention) {
  const double factor = config.positive(scaling, "factor", std::nullopt);
  const double low = config.positive(scaling, "low_freq_factor", std::nullopt);
  const double high = config.positive(scaling, "high_freq_factor", std::nullopt);
  const double context = config.positive(scaling, "original_max_position_embeddings", std::nullopt);
  if (!(low < high)) config.fail_key("low_freq_factor", "expected less than high_freq_factor");
  std::vector<double> factors;
  for (std::int64_t i = 0; i < attention.width / 2; ++i) {
    const double share = 2.0 * static_cast<double>(i) / static_cast<double>(attention.width);
    const double turns =
        context / (2 * std::numbers::pi * std::pow(attention.base, share));  // over the context
    const double kept = std::clamp((turns - low) / (high - low), 0.0, 1.0);
    factors.push_back(1 / ((1 - kept) / factor + kept));
  }
  return factors;
}

// What config.json says of the network.
class NetworkConfig {
 public:
  NetworkConfig(const std::filesystem::path& folder, std::int64_t length)
      : config_(folder), length_(length), type_(known_type()) {}

  const char* type() const { return type_.name; }

  DecoderPresence presence() const {
    DecoderPresence presence = type_.presence;
    if (!type_.says_biases) return presence;
    if (config_.flag("attention_bias")) {
      presence.read_bias = presence.output_bias = Presence::kAlways;
    }
    if (config_.flag("mlp_bias")) presence.inner_bias = Presence::kAlways;
    return presence;
  }

  DecoderSizes read_sizes() const {
    config_.require("hidden_act", "silu", "other activations are not known here");
    config_.require("attention_dropout", 0.0, "dropout is not known here");
    config_.require("partial_rotary_factor", 1.0, "parts of heads are not rotated here");
    DecoderSizes sizes;
    sizes.blocks = config_.size("num_hidden_layers");
    sizes.width = config_.size("hidden_size");
    sizes.hidden = config_.size("intermediate_size");
    sizes.vocabulary = config_.size("vocab_size");
    sizes.eps = config_.positive("rms_norm_eps", 1e-6);
    sizes.tied = config_.flag("tie_word_embeddings");
    sizes.attention = read_attention(sizes.width);
    const auto most = context();
    if (most && length_ > *most) {
      config_.fail_key("max_position_embeddings",
                       "expected at least the " + std::to_string(length_) +
                           " tokens of a sequence, got " + std::to_string(*most));
    }
    if (const auto seen = window(); seen && length_ > *seen) {
      config_.fail_key("sliding_window", "expected at least the " + std::to_string(length_) +
                                             " tokens of a sequence, got " + std::to_string(*seen) +
                                             ": attention over windows is not known here");
    }
    return sizes;
  }

  // Tokens that attention sees at most, where it has windows.
  std::optional<std::int64_t> window() const {
    const bool has_windows =
        type_.limits_attention == nullptr || config_.flag(type_.limits_attention);
    return has_windows ? config_.size_if_given("sliding_window") : std::nullopt;
  }
  std::optional<std::int64_t> context() const {
    return config_.size_if_given("max_position_embeddings");
  }

 private:
  const ModelType& known_type() const {
    const std::string name = config_.text("model_type");
    std::string list;
    for (const ModelType& known : kModelTypes) {
      if (name == known.name) return known;
      list += (list.empty() ? "" : ", ") + std::string(known.name);
    }
    config_.fail_key("model_type", "expected one of " + list + ", got '" + printable(name) + "'");
  }

  CausalAttentionOptions read_attention(std::int64_t width) const {
    CausalAttentionOptions attention;
    attention.heads = config_.size("num_attention_heads");
    attention.key_heads = config_.size_if_given("num_key_value_heads").value_or(attention.heads);
    attention.width =
        config_.size_if_given("head_dim")
            .value_or(type_.usual_width != 0 ? type_.usual_width : width / attention.heads);
    if (attention.heads % attention.key_heads != 0) {
      config_.fail_key("num_key_value_heads", "expected a divisor of the " +
                                                  std::to_string(attention.heads) + " heads, got " +
                                                  std::to_string(attention.key_heads));
    }
    if (attention.width < 2 || attention.width % 2 != 0) {
      config_.fail_key("head_dim",
                       "expected an even width of a head, got " + std::to_string(attention.width));
    }
    attention.base = config_.positive("rope_theta", 10000.0);
    attention.pairs = RotaryPairs::kHalves;
    // The key of transformers 5, and the one before, which it prefers where both are there.
    const Json* both[] = {config_.find("rope_parameters"), config_.find("rope_scaling")};
    if (both[0] != nullptr && both[1] != nullptr && *both[0] != *both[1]) {
      config_.fail_key("rope_scaling", "expected none beside another rope_parameters");
    }
    if (both[0] != nullptr) {
      read_rotation("rope_parameters", *both[0], attention);
    } else if (both[1] != nullptr) {
      read_rotation("rope_scaling", *both[1], attention);
    }
    return attention;
  }

  void read_rotation(const char* key, const Json& scaling,
                     CausalAttentionOptions& attention) const {
    if (!scaling.is_object()) config_.fail_key(key, "expected an object");
    attention.base = config_.positive(scaling, "rope_theta", attention.base);
    const Json* type = Config::find(scaling, "rope_type");
    if (type == nullptr) type = Config::find(scaling, "type");
    if (type == nullptr || *type == "default") return;
    if (*type != "llama3") {
      config_.fail_key(key, "expected the rotations default or llama3, got " + described(*type));
    }
    attention.factors = llama3_factors(config_, scaling, attention);
  }

  Config config_;
  std::int64_t length_;
  const ModelType& type_;
};

// The tensors of the folder, in float.
class FolderWeights final : public DecoderWeights {
 public:
  explicit FolderWeights(const std::filesystem::path& folder)
      : name_(printable(folder.string())), tensors_(folder) {}

  std::string file() const override { return name_; }
  bool has(const std::string& parameter) const override {
    return tensors_.find(huggingface_tensor(parameter)) != nullptr;
  }
  Tensor read(const std::string& parameter, const Shape& shape) override {
    const std::string name = huggingface_tensor(parameter);
    const SafetensorsEntry* entry = tensors_.find(name);
    if (entry == nullptr) {
      throw InputError(name_ + ": expected a tensor '" + name + "' " + shape_string(shape));
    }
    if (entry->shape != shape) {
      fail_tensor(name, "expected " + shape_string(shape) + ", got " + shape_string(entry->shape));
    }
    if (entry->dtype != DType::kF32 && entry->dtype != DType::kF16 &&
        entry->dtype != DType::kBF16) {
      fail_tensor(name, "expected f32, f16 or bf16, got " + std::string(dtype_name(entry->dtype)));
    }
    used_.insert(name);
    return tensors_.read(name).to(DType::kF32);
  }

  // Throws InputError where the folder has a tensor that was not read.
  void require_all_read(const char* type) const {
    for (const std::string& tensor : tensors_.tensors()) {
      if (used_.contains(tensor) || tensor.ends_with("rotary_emb.inv_freq")) continue;
      fail_tensor(tensor, std::string("expected a tensor of a ") + type +
                              " model, which has none of this name");
    }
  }

 private:
  [[noreturn]] void fail_tensor(const std::string& name, const std::string& message) const {
    throw InputError(tensors_.file_of(name) + ": tensor '" + printable(name) + "': " + message);
  }

  std::string name_;
  SafetensorsFolder tensors_;
  std::set<std::string> used_;  // tensors
};

// Whether the head is the embedding's table: not where the file has another one, which transformers
// then uses, whatever config.json says.
bool is_tied(const DecoderSizes& sizes, DecoderWeights& weights) {
  const std::string head = std::string(kLayerNames.head) + ".weight";
  if (!sizes.tied || !weights.has(head)) return sizes.tied;
  const Shape shape{sizes.vocabulary, sizes.width};
  const Tensor own = weights.read(head, shape);
  const Tensor table = weights.read(std::string(kLayerNames.embedding) + ".weight", shape);
  const auto a = own.span<float>(), b = table.span<float>();
  return std::equal(a.begin(), a.end(), b.begin());
}

}  // namespace

std::string huggingface_tensor(const std::string& parameter) {
  const auto behind = [](const std::string& text, std::string_view prefix,
                         std::string_view dotted) {
    return text.starts_with(prefix) ? std::string(dotted) + text.substr(prefix.size()) : text;
  };
  const std::string_view blocks = kBlocks;
  const std::size_t end =
      parameter.starts_with(blocks) ? parameter.find('_', blocks.size()) : std::string::npos;
  if (end == std::string::npos) return behind(parameter, "model_", "model.");
  const std::string number = parameter.substr(blocks.size(), end - blocks.size());
  const std::string rest = behind(parameter.substr(end + 1), "self_attn_", "self_attn.");
  return "model.layers." + number + "." + behind(rest, "mlp_", "mlp.");
}

Imported import_huggingface(const std::filesystem::path& folder, std::int64_t length,
                            std::optional<std::int64_t> border, DecoderWeights& weights) {
  const NetworkConfig config(folder, length);
  DecoderSizes sizes = config.read_sizes();
  sizes.tied = is_tied(sizes, weights);
  return decoder_network(sizes, config.presence(), kLayerNames, weights, length, border);
}

Imported import_huggingface(const std::filesystem::path& folder, std::int64_t length,
                            std::optional<std::int64_t> border) {
  const NetworkConfig config(folder, length);  // what it says is told before what is missing
  FolderWeights weights(folder);
  Imported imported = import_huggingface(folder, length, border, weights);
  weights.require_all_read(config.type());
  return imported;
}

std::optional<std::int64_t> context_of(const std::filesystem::path& folder) {
  const NetworkConfig config(folder, 1);
  const auto context = config.context(), window = config.window();
  return context && window ? std::min(context, window) : context ? context : window;
}

std::vector<std::int64_t> ends_of_text(const std::filesystem::path& folder) {
  constexpr const char* kKey = "eos_token_id";
  const Config config(folder);
  const Json* value = config.find(kKey);
  if (value == nullptr) return {};
  try {
    std::vector<std::int64_t> ends = value->is_array()
                                         ? integers_of<std::int64_t>(*value)
                                         : std::vector{integer_of<std::int64_t>(*value)};
    for (const std::int64_t end : ends) {
      if (end >= 0 && end < kMostDecoderSize) continue;
      throw std::invalid_argument("expected numbers of tokens, got " + std::to_string(end));
    }
    return ends;
  } catch (const std::invalid_argument& error) {
    config.fail_key(kKey, error.what());
  }
}

std::string digest_of_huggingface(const std::filesystem::path& folder) {
  std::string all = sha256_of_file(folder / kConfigFile);
  for (const std::filesystem::path& file : SafetensorsFolder(folder).files()) {
    all += " " + sha256_of_file(file);
  }
  return sha256_of(all);
}

}  // namespace steelyard::imports
