// The network of a language model's decoder, whatever file its weights are in.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "steelyard/import/translate.h"
#include "steelyard/layers/decoder.h"

namespace steelyard::imports {

// Whether files have a tensor.
enum class Presence { kNever, kMaybe, kAlways };

struct DecoderPresence {
  Presence read_bias = Presence::kNever;    // of queries, keys and values
  Presence output_bias = Presence::kNever;  // of the layer after attention
  Presence inner_bias = Presence::kNever;   // of gate, up and down
  Presence head_norms = Presence::kNever;   // of queries and keys
};

// The names of modules, which are those of their tensors in a file; those of a block follow its
// prefix.
struct DecoderNames {
  std::string (*block)(std::int64_t number);
  const char *embedding, *norm, *head;
  const char *attention_norm, *queries, *keys, *values, *query_norm, *key_norm, *attention,
      *attention_output, *attention_sum;
  const char *inner_norm, *gate, *up, *gated, *down, *sum;
};

struct DecoderSizes {
  std::int64_t blocks = 0, width = 0, hidden = 0, vocabulary = 0;
  double eps = 0;
  CausalAttentionOptions attention;  // with the factors of its frequencies
  bool tied = false;                 // the head is the embedding's table
};

// The weights of a file.
class DecoderWeights {
 public:
  virtual ~DecoderWeights() = default;
  // As messages name it.
  virtual std::string file() const = 0;
  // Whether the file has this parameter of a module.
  virtual bool has(const std::string& parameter) const = 0;
  // Its values, f32. Throws InputError that names the file where it is absent or of another shape.
  virtual Tensor read(const std::string& parameter, const Shape& shape) = 0;
};

// The network for sequences of `length` tokens, which gives [length, vocabulary] logits. Attention
// does not look over tokens `border`, after which positions begin again at 0. Throws InputError
// where `border` is no token.
Imported decoder_network(const DecoderSizes& sizes, const DecoderPresence& presence,
                         const DecoderNames& names, DecoderWeights& weights, std::int64_t length,
                         std::optional<std::int64_t> border);

// The largest size that files may name: products of three of them fit 64 bits.
inline constexpr std::int64_t kMostDecoderSize = std::int64_t{1} << 20;

}  // namespace steelyard::imports
