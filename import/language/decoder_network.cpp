#include "steelyard/import/language/decoder_network.h"

#include <utility>
#include <vector>

#include "steelyard/framework/tensor/error.h"
#include "steelyard/layers/norms/rms_norm.h"
#include "steelyard/layers/weighted/embedding.h"
#include "steelyard/layers/weighted/linear.h"

namespace steelyard::imports {
namespace {

constexpr const char* kStarts = "document_starts";
constexpr const char* kStartsType = "DocumentStarts";

// Builds the nodes, and reads the weight of each as it goes.
class DecoderNetwork {
 public:
  DecoderNetwork(const DecoderSizes& sizes, const DecoderPresence& presence,
                 const DecoderNames& names, DecoderWeights& weights)
      : sizes_(sizes), presence_(presence), names_(names), weights_(weights) {}

  Imported result(std::int64_t length, std::optional<std::int64_t> border) {
    imported_.graph.input = {.name = "tokens", .type = "int32"};
    imported_.graph.output.name = "logits";
    imported_.graph.sample = {length};
    imported_.graph.output_sample = {length, sizes_.vocabulary};
    add_weight(std::string(names_.embedding) + ".weight", {sizes_.vocabulary, sizes_.width});
    std::string x = add(names_.embedding, "Embedding", {"input"}, table());
    if (border) {
      if (*border < 0 || *border >= sizes_.vocabulary) {
        throw InputError(weights_.file() +
                         ": expected the number of a token that ends documents below " +
                         std::to_string(sizes_.vocabulary) + ", got " + std::to_string(*border));
      }
      add(kStarts, kStartsType, {"input"}, stored_options(DocumentStartsOptions{*border}));
      starts_ = {kStarts};
    }
    for (std::int64_t i = 0; i < sizes_.blocks; ++i) x = add_block(names_.block(i), x);
    add_head(add_norm(names_.norm, sizes_.width, x));
    return std::move(imported_);
  }

 private:
  Options table() const {
    return stored_options(EmbeddingOptions{sizes_.vocabulary, sizes_.width});
  }

  std::string add(const std::string& name, const char* type, std::vector<std::string> inputs,
                  Options options = {}) {
    imported_.graph.nodes.push_back({name, type, std::move(inputs), std::move(options)});
    return name;
  }
  void add_weight(const std::string& parameter, const Shape& shape) {
    imported_.weights.push_back({parameter, weights_.read(parameter, shape)});
  }
  bool holds(Presence presence, const std::string& parameter) const {
    return presence == Presence::kAlways ||
           (presence == Presence::kMaybe && weights_.has(parameter));
  }

  std::string add_norm(const std::string& name, std::int64_t features, const std::string& x) {
    add_weight(name + ".weight", {features});
    return add(name, "RMSNorm", {x}, stored_options(RmsNormOptions{features, sizes_.eps}));
  }

  std::string add_linear(const std::string& name, std::int64_t in, std::int64_t out,
                         Presence with_bias, const std::string& x) {
    const bool bias = holds(with_bias, name + ".bias");
    add_weight(name + ".weight", {out, in});
    if (bias) add_weight(name + ".bias", {out});
    return add(name, "Linear", {x}, stored_options(LinearOptions{in, out, bias}));
  }

  // Queries or keys.
  std::string add_heads(const std::string& name, const std::string& norm, std::int64_t heads,
                        const std::string& x) {
    const std::int64_t width = sizes_.attention.width;
    const std::string made = add_linear(name, sizes_.width, heads * width, presence_.read_bias, x);
    return holds(presence_.head_norms, norm + ".weight") ? add_norm(norm, width, made) : made;
  }

  std::string add_attention(const std::string& block, const std::string& x) {
    const CausalAttentionOptions& options = sizes_.attention;
    const std::string normed = add_norm(block + names_.attention_norm, sizes_.width, x);
    std::vector<std::string> read{
        add_heads(block + names_.queries, block + names_.query_norm, options.heads, normed),
        add_heads(block + names_.keys, block + names_.key_norm, options.key_heads, normed),
        add_linear(block + names_.values, sizes_.width, options.key_heads * options.width,
                   presence_.read_bias, normed)};
    read.insert(read.end(), starts_.begin(), starts_.end());
    const std::string name =
        add(block + names_.attention, "CausalAttention", std::move(read), stored_options(options));
    if (!options.factors.empty()) {
      const std::vector<float> factors(options.factors.begin(), options.factors.end());
      imported_.weights.push_back(
          {name + ".factors", Tensor::from(factors, {std::ssize(factors)})});
    }
    const std::string output =
        add_linear(block + names_.attention_output, options.heads * options.width, sizes_.width,
                   presence_.output_bias, name);
    return add(block + names_.attention_sum, "Add", {x, output});
  }

  std::string add_block(const std::string& block, const std::string& x) {
    const std::string between = add_attention(block, x);
    const std::string inner = add_norm(block + names_.inner_norm, sizes_.width, between);
    const Presence bias = presence_.inner_bias;
    const std::string gate =
        add_linear(block + names_.gate, sizes_.width, sizes_.hidden, bias, inner);
    const std::string up = add_linear(block + names_.up, sizes_.width, sizes_.hidden, bias, inner);
    const std::string gated = add(block + names_.gated, "SwiGLU", {gate, up});
    const std::string down =
        add_linear(block + names_.down, sizes_.hidden, sizes_.width, bias, gated);
    return add(block + names_.sum, "Add", {between, down});
  }

  void add_head(const std::string& x) {
    if (!sizes_.tied) {
      add_linear(names_.head, sizes_.width, sizes_.vocabulary, Presence::kNever, x);
      return;
    }
    add(names_.head, kEmbeddingHead, {x}, table());
    imported_.graph.nodes.back().weights_of = names_.embedding;
  }

  const DecoderSizes& sizes_;
  const DecoderPresence& presence_;
  const DecoderNames& names_;
  DecoderWeights& weights_;
  std::vector<std::string> starts_;  // the node of documents' beginnings, where they are kept apart
  Imported imported_;
};

}  // namespace

Imported decoder_network(const DecoderSizes& sizes, const DecoderPresence& presence,
                         const DecoderNames& names, DecoderWeights& weights, std::int64_t length,
                         std::optional<std::int64_t> border) {
  return DecoderNetwork(sizes, presence, names, weights).result(length, border);
}

}  // namespace steelyard::imports
