#include "steelyard/import/language/gguf_decoder.h"

#include <array>
#include <cmath>
#include <optional>
#include <set>

#include "steelyard/framework/files/gguf/gguf_values.h"
#include "steelyard/framework/tensor/error.h"
#include "steelyard/framework/tensor/printable.h"
#include "steelyard/import/language/decoder_network.h"

namespace steelyard::imports {
namespace {

// llama.cpp's architectures whose tensors and metadata are those of Llama. Of which values of a
// head rotate together, the file's order of rows decides: convert_hf_to_gguf.py permutes those of
// llama alone. llama.cpp refuses a file without a tensor that it expects, or with one more.
struct Architecture {
  const char* name;
  RotaryPairs pairs;
  DecoderPresence presence;
};
constexpr std::array kArchitectures = {
    Architecture{"llama",
                 RotaryPairs::kNeighbours,
                 {.read_bias = Presence::kMaybe,
                  .output_bias = Presence::kMaybe,
                  .inner_bias = Presence::kMaybe}},
    Architecture{"qwen2", RotaryPairs::kHalves, {.read_bias = Presence::kAlways}},
    Architecture{"qwen3", RotaryPairs::kHalves, {.head_norms = Presence::kAlways}}};

constexpr const char* kFactors = "rope_freqs.weight";
constexpr const char* kBlock = "blk";

std::string block_prefix(std::int64_t block) {
  return std::string(kBlock) + "_" + std::to_string(block) + "_";
}

constexpr DecoderNames kNames{.block = block_prefix,
                              .embedding = "token_embd",
                              .norm = "output_norm",
                              .head = "output",
                              .attention_norm = "attn_norm",
                              .queries = "attn_q",
                              .keys = "attn_k",
                              .values = "attn_v",
                              .query_norm = "attn_q_norm",
                              .key_norm = "attn_k_norm",
                              .attention = "attn",
                              .attention_output = "attn_output",
                              .attention_sum = "attn_sum",
                              .inner_norm = "ffn_norm",
                              .gate = "ffn_gate",
                              .up = "ffn_up",
                              .gated = "ffn_swiglu",
                              .down = "ffn_down",
                              .sum = "ffn_sum"};

// The sizes that a file's metadata names, and its weights.
class GgufDecoder final : public DecoderWeights {
 public:
  GgufDecoder(const GgufReader& file, std::int64_t length)
      : file_(file), length_(length), architecture_(known_architecture()) {}

  std::optional<std::int64_t> context_length() const { return size_if_given("context_length"); }

  Imported result(std::optional<std::int64_t> border) {
    const DecoderSizes sizes = read_sizes();
    Imported imported =
        decoder_network(sizes, architecture_.presence, kNames, *this, length_, border);
    for (const GgufTensor& tensor : file_.header().tensors) {
      if (!used_.contains(tensor.name)) {
        fail_tensor(tensor.name, std::string("expected a tensor of a ") + architecture_.name +
                                     " model, which has none of this name");
      }
    }
    return imported;
  }

  std::string file() const override { return file_.name(); }
  bool has(const std::string& parameter) const override {
    return file_.find(tensor_of_parameter(parameter)) != nullptr;
  }
  Tensor read(const std::string& parameter, const Shape& shape) override {
    return read_tensor(tensor_of_parameter(parameter), shape);
  }

 private:
  [[noreturn]] void fail(const std::string& message) const {
    throw InputError(file_.name() + ": " + message);
  }
  [[noreturn]] void fail_key(const std::string& key, const std::string& message) const {
    fail("metadata '" + printable(key) + "': " + message);
  }
  [[noreturn]] void fail_tensor(const std::string& name, const std::string& message) const {
    fail("tensor '" + printable(name) + "': " + message);
  }

  const Architecture& known_architecture() const {
    const GgufValue* value = file_.header().find("general.architecture");
    const std::string name = value == nullptr ? "" : std::string(value->text().value_or(""));
    for (const Architecture& known : kArchitectures) {
      if (name == known.name) return known;
    }
    std::string list;
    for (const std::string& known : known_architectures()) {
      list += (list.empty() ? "" : ", ") + known;
    }
    fail_key("general.architecture", "expected one of " + list + ", got '" + printable(name) + "'");
  }

  std::string key(const char* name) const { return std::string(architecture_.name) + "." + name; }
  const GgufValue* find(const char* name) const { return file_.header().find(key(name)); }

  // A size: at least 1, and small enough for products of three of them.
  std::optional<std::int64_t> size_if_given(const char* name) const {
    const GgufValue* value = find(name);
    if (value == nullptr) return std::nullopt;
    const auto number = value->whole_number();
    if (number && *number >= 1 && *number <= kMostDecoderSize) return *number;
    fail_key(key(name), "expected a whole number from 1 to " + std::to_string(kMostDecoderSize) +
                            (number ? ", got " + std::to_string(*number) : ", got none"));
  }
  std::int64_t size(const char* name) const {
    const auto given = size_if_given(name);
    if (!given) fail_key(key(name), "expected a whole number, the file has none");
    return *given;
  }
  double positive(const char* name, std::optional<double> usual) const {
    const GgufValue* value = find(name);
    const auto number = value == nullptr ? usual : value->number();
    if (number && *number > 0 && std::isfinite(*number)) return *number;
    fail_key(key(name), "expected a number above 0, got " +
                            (number ? std::to_string(*number) : std::string("none")));
  }

  DecoderSizes read_sizes() {
    DecoderSizes sizes;
    sizes.blocks = size("block_count");
    sizes.width = size("embedding_length");
    sizes.hidden = size("feed_forward_length");
    sizes.eps = positive("attention.layer_norm_rms_epsilon", std::nullopt);
    sizes.attention = read_attention(sizes.width);
    require_plain("rope.scaling.type", "none");
    for (const char* name :
         {"rope.scaling.factor", "rope.scale_linear", "rope.scaling.attn_factor"}) {
      require_one(name);  // linear is llama.cpp's type where a file names none
    }
    for (const char* experts : {"expert_count", "expert_used_count"}) {
      const GgufValue* value = find(experts);
      if (value != nullptr && value->whole_number().value_or(1) != 0) {
        fail_key(key(experts), "expected 0: models of experts are not known here");
      }
    }
    const auto context = context_length();
    if (context && length_ > *context) {
      fail_key(key("context_length"), "expected at least the " + std::to_string(length_) +
                                          " tokens of a sequence, got " + std::to_string(*context));
    }
    sizes.attention.factors = read_factors(sizes.attention.width);
    const GgufTensor* table = file_.find(std::string(kNames.embedding) + ".weight");
    sizes.vocabulary = table == nullptr ? 1 : table->sizes.back();
    sizes.tied = !has(std::string(kNames.head) + ".weight");
    return sizes;
  }

  CausalAttentionOptions read_attention(std::int64_t width) const {
    CausalAttentionOptions attention;
    attention.heads = size("attention.head_count");
    attention.key_heads = size_if_given("attention.head_count_kv").value_or(attention.heads);
    attention.width = size_if_given("attention.key_length").value_or(width / attention.heads);
    attention.base = positive("rope.freq_base", 10000.0);
    attention.pairs = architecture_.pairs;
    if (attention.heads % attention.key_heads != 0) {
      fail_key(key("attention.head_count_kv"),
               "expected a divisor of the " + std::to_string(attention.heads) + " heads, got " +
                   std::to_string(attention.key_heads));
    }
    if (attention.width < 2 || attention.width % 2 != 0) {
      fail_key(key("attention.head_count"),
               "expected heads of an even width, got " + std::to_string(attention.width));
    }
    require_equal("attention.value_length", attention.width);
    require_equal("rope.dimension_count", attention.width);
    return attention;
  }

  void require_equal(const char* name, std::int64_t expected) const {
    const auto given = size_if_given(name);
    if (given.value_or(expected) == expected) return;
    fail_key(key(name), "expected " + std::to_string(expected) + ", the width of a head, got " +
                            std::to_string(*given));
  }
  void require_plain(const char* name, std::string_view expected) const {
    const GgufValue* value = find(name);
    if (value == nullptr || value->text() == expected) return;
    fail_key(key(name), "expected '" + std::string(expected) + "', got '" +
                            printable(std::string(value->text().value_or(""))) + "'");
  }

  void require_one(const char* name) const {
    const GgufValue* value = find(name);
    if (value == nullptr || value->number() == 1.0) return;
    fail_key(key(name), "expected 1: scaled rotations are not known here");
  }

  // What Llama 3 divides its frequencies by.
  std::vector<double> read_factors(std::int64_t width) {
    if (file_.find(kFactors) == nullptr) return {};
    std::vector<double> divisors;
    const Tensor factors = read_tensor(kFactors, {width / 2});
    for (const float factor : factors.span<float>()) {
      if (!(factor > 0)) fail_tensor(kFactors, "expected numbers above 0");
      divisors.push_back(static_cast<double>(factor));
    }
    return divisors;
  }

  // The values of a tensor that must be there, of that shape.
  Tensor read_tensor(const std::string& name, const Shape& shape) {
    const GgufTensor* tensor = file_.find(name);
    if (tensor == nullptr) fail("expected a tensor '" + name + "' " + shape_string(shape));
    if (shape_of(*tensor) != shape) {
      fail_tensor(name,
                  "expected " + shape_string(shape) + ", got " + shape_string(shape_of(*tensor)));
    }
    used_.insert(name);
    return read_values(file_, *tensor);
  }

  const GgufReader& file_;
  std::int64_t length_;
  const Architecture& architecture_;
  std::set<std::string> used_;  // tensors
};

}  // namespace

std::vector<std::string> known_architectures() {
  std::vector<std::string> names;
  for (const Architecture& known : kArchitectures) names.emplace_back(known.name);
  return names;
}

std::string tensor_of_parameter(const std::string& parameter) {
  const std::string prefix = std::string(kBlock) + "_";
  const std::size_t end = parameter.find('_', prefix.size());
  if (!parameter.starts_with(prefix) || end == std::string::npos) return parameter;
  return std::string(kBlock) + "." + parameter.substr(prefix.size(), end - prefix.size()) + "." +
         parameter.substr(end + 1);
}

Imported import_decoder(const GgufReader& file, std::int64_t length,
                        std::optional<std::int64_t> border) {
  return GgufDecoder(file, length).result(border);
}

std::optional<std::int64_t> context_length(const GgufReader& file) {
  return GgufDecoder(file, 1).context_length();
}

}  // namespace steelyard::imports
