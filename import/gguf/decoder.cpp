#include "steelyard/import/gguf/decoder.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <optional>
#include <set>

#include "steelyard/framework/files/gguf_values.h"
#include "steelyard/framework/tensor/error.h"
#include "steelyard/framework/tensor/printable.h"
#include "steelyard/layers/decoder.h"
#include "steelyard/layers/norms/rms_norm.h"
#include "steelyard/layers/weighted/embedding.h"
#include "steelyard/layers/weighted/linear.h"

namespace steelyard::imports {
namespace {

// llama.cpp refuses a file without a tensor that it expects, or with one more.
enum class Presence { kNever, kMaybe, kAlways };

// llama.cpp's architectures whose tensors and metadata are those of Llama. Of which values of a
// head rotate together, the file's order of rows decides: convert_hf_to_gguf.py permutes those of
// llama alone.
struct Architecture {
  const char* name;
  RotaryPairs pairs;
  Presence read_bias;   // of queries, keys and values
  Presence other_bias;  // of the other layers of a block
  Presence head_norms;  // of queries and keys
};
constexpr std::array kArchitectures = {
    Architecture{"llama", RotaryPairs::kNeighbours, Presence::kMaybe, Presence::kMaybe,
                 Presence::kNever},
    Architecture{"qwen2", RotaryPairs::kHalves, Presence::kAlways, Presence::kNever,
                 Presence::kNever},
    Architecture{"qwen3", RotaryPairs::kHalves, Presence::kNever, Presence::kNever,
                 Presence::kAlways}};

constexpr const char* kEmbedding = "token_embd";
constexpr const char* kHead = "output";
constexpr const char* kFactors = "rope_freqs.weight";
constexpr const char* kBlock = "blk";
constexpr const char* kStarts = "document_starts";
constexpr const char* kStartsType = "DocumentStarts";

std::string block_name(std::int64_t block) {
  return std::string(kBlock) + "_" + std::to_string(block) + "_";
}

// Builds the nodes of a file's network, and reads the weight of each as it goes.
class DecoderImport {
 public:
  DecoderImport(const GgufReader& file, std::int64_t length, std::optional<std::int64_t> border)
      : file_(file), length_(length), border_(border), architecture_(known_architecture()) {}

  std::optional<std::int64_t> context_length() const { return size_if_given("context_length"); }

  Imported result() {
    read_sizes();
    imported_.graph.input = {.name = "tokens", .type = "int32"};
    imported_.graph.output.name = "logits";
    imported_.graph.sample = {length_};
    std::string x = add_embedding();
    if (border_) add_starts();
    for (std::int64_t i = 0; i < blocks_; ++i) x = add_block(block_name(i), x);
    add_head(add_norm("output_norm", width_, x));
    imported_.graph.output_sample = {length_, vocabulary_};
    for (const GgufTensor& tensor : file_.header().tensors) {
      if (!used_.contains(tensor.name)) {
        fail_tensor(tensor.name, std::string("expected a tensor of a ") + architecture_.name +
                                     " model, which has none of this name");
      }
    }
    return std::move(imported_);
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
    constexpr std::int64_t kMost = std::int64_t{1} << 20;
    const GgufValue* value = find(name);
    if (value == nullptr) return std::nullopt;
    const auto number = value->whole_number();
    if (number && *number >= 1 && *number <= kMost) return *number;
    fail_key(key(name), "expected a whole number from 1 to " + std::to_string(kMost) +
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

  void read_sizes() {
    blocks_ = size("block_count");
    width_ = size("embedding_length");
    hidden_ = size("feed_forward_length");
    attention_.heads = size("attention.head_count");
    attention_.key_heads = size_if_given("attention.head_count_kv").value_or(attention_.heads);
    attention_.width = size_if_given("attention.key_length").value_or(width_ / attention_.heads);
    attention_.base = positive("rope.freq_base", 10000.0);
    attention_.pairs = architecture_.pairs;
    eps_ = positive("attention.layer_norm_rms_epsilon", std::nullopt);
    if (attention_.heads % attention_.key_heads != 0) {
      fail_key(key("attention.head_count_kv"),
               "expected a divisor of the " + std::to_string(attention_.heads) + " heads, got " +
                   std::to_string(attention_.key_heads));
    }
    if (attention_.width < 2 || attention_.width % 2 != 0) {
      fail_key(key("attention.head_count"),
               "expected heads of an even width, got " + std::to_string(attention_.width));
    }
    require_equal("attention.value_length", attention_.width);
    require_equal("rope.dimension_count", attention_.width);
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
    read_factors();
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
  void read_factors() {
    if (file_.find(kFactors) == nullptr) return;
    const Tensor factors = read(kFactors, {attention_.width / 2});
    for (const float factor : factors.span<float>()) {
      if (!(factor > 0)) fail_tensor(kFactors, "expected numbers above 0");
      attention_.factors.push_back(static_cast<double>(factor));
    }
    factors_ = factors;
  }

  bool has(const std::string& parameter) const {
    return file_.find(tensor_of_parameter(parameter)) != nullptr;
  }

  // The values of a tensor that must be there, of that shape.
  Tensor read(const std::string& name, const Shape& shape) {
    const GgufTensor* tensor = file_.find(name);
    if (tensor == nullptr) fail("expected a tensor '" + name + "' " + shape_string(shape));
    if (shape_of(*tensor) != shape) {
      fail_tensor(name,
                  "expected " + shape_string(shape) + ", got " + shape_string(shape_of(*tensor)));
    }
    used_.insert(name);
    return read_values(file_, *tensor);
  }
  void add_weight(const std::string& parameter, const Shape& shape) {
    imported_.weights.push_back({parameter, read(tensor_of_parameter(parameter), shape)});
  }

  std::string add(const std::string& name, const char* type, std::vector<std::string> inputs,
                  Options options = {}) {
    imported_.graph.nodes.push_back({name, type, std::move(inputs), std::move(options)});
    return name;
  }

  std::string add_embedding() {
    const GgufTensor* table = file_.find(std::string(kEmbedding) + ".weight");
    vocabulary_ = table == nullptr ? 0 : table->sizes.back();
    add_weight(std::string(kEmbedding) + ".weight",
               {std::max<std::int64_t>(vocabulary_, 1), width_});
    return add(kEmbedding, "Embedding", {"input"},
               stored_options(EmbeddingOptions{vocabulary_, width_}));
  }

  void add_starts() {
    if (*border_ < 0 || *border_ >= vocabulary_) {
      fail("expected the number of a token that ends documents below " +
           std::to_string(vocabulary_) + ", got " + std::to_string(*border_));
    }
    add(kStarts, kStartsType, {"input"}, stored_options(DocumentStartsOptions{*border_}));
  }

  std::string add_norm(const std::string& name, std::int64_t features, const std::string& x) {
    add_weight(name + ".weight", {features});
    return add(name, "RMSNorm", {x}, stored_options(RmsNormOptions{features, eps_}));
  }

  bool holds(Presence presence, const std::string& parameter) const {
    return presence == Presence::kAlways || (presence == Presence::kMaybe && has(parameter));
  }

  std::string add_linear(const std::string& name, std::int64_t in, std::int64_t out,
                         Presence with_bias, const std::string& x) {
    const bool bias = holds(with_bias, name + ".bias");
    add_weight(name + ".weight", {out, in});
    if (bias) add_weight(name + ".bias", {out});
    return add(name, "Linear", {x}, stored_options(LinearOptions{in, out, bias}));
  }

  // Queries or keys.
  std::string add_heads(const std::string& name, std::int64_t heads, const std::string& x) {
    const std::string made =
        add_linear(name, width_, heads * attention_.width, architecture_.read_bias, x);
    const std::string norm = name + "_norm";
    return holds(architecture_.head_norms, norm + ".weight")
               ? add_norm(norm, attention_.width, made)
               : made;
  }

  std::string add_block(const std::string& block, const std::string& x) {
    const std::string normed = add_norm(block + "attn_norm", width_, x);
    const std::string q = add_heads(block + "attn_q", attention_.heads, normed);
    const std::string k = add_heads(block + "attn_k", attention_.key_heads, normed);
    const std::int64_t values = attention_.key_heads * attention_.width;
    const std::string v =
        add_linear(block + "attn_v", width_, values, architecture_.read_bias, normed);
    std::vector<std::string> read_by_attention{q, k, v};
    if (border_) read_by_attention.emplace_back(kStarts);
    const std::string attention = add(block + "attn", "CausalAttention",
                                      std::move(read_by_attention), stored_options(attention_));
    if (factors_.defined()) imported_.weights.push_back({block + "attn.factors", factors_});
    const std::string read = add_linear(block + "attn_output", attention_.heads * attention_.width,
                                        width_, architecture_.other_bias, attention);
    const std::string between = add(block + "attn_sum", "Add", {x, read});
    const std::string inner = add_norm(block + "ffn_norm", width_, between);
    const std::string gate =
        add_linear(block + "ffn_gate", width_, hidden_, architecture_.other_bias, inner);
    const std::string up =
        add_linear(block + "ffn_up", width_, hidden_, architecture_.other_bias, inner);
    const std::string gated = add(block + "ffn_swiglu", "SwiGLU", {gate, up});
    const std::string down =
        add_linear(block + "ffn_down", hidden_, width_, architecture_.other_bias, gated);
    return add(block + "ffn_sum", "Add", {between, down});
  }

  void add_head(const std::string& x) {
    if (has(std::string(kHead) + ".weight")) {
      add_linear(kHead, width_, vocabulary_, Presence::kNever, x);
      return;
    }
    add(kHead, kEmbeddingHead, {x}, stored_options(EmbeddingOptions{vocabulary_, width_}));
    imported_.graph.nodes.back().weights_of = kEmbedding;
  }

  const GgufReader& file_;
  std::int64_t length_;
  std::optional<std::int64_t> border_;
  const Architecture& architecture_;
  std::int64_t blocks_ = 0, width_ = 0, hidden_ = 0, vocabulary_ = 0;
  double eps_ = 0;
  CausalAttentionOptions attention_;
  Tensor factors_;  // undefined where there are none
  Imported imported_;
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
  return DecoderImport(file, length, border).result();
}

std::optional<std::int64_t> context_length(const GgufReader& file) {
  return DecoderImport(file, 1, {}).context_length();
}

}  // namespace steelyard::imports
