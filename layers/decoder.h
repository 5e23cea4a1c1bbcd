// What the blocks of a language model's decoder are made of, beside linear layers and norms.
#pragma once

#include <memory>
#include <vector>

#include "steelyard/framework/autograd/headed_model.h"
#include "steelyard/framework/ops/elementwise/rotary.h"
#include "steelyard/framework/tensor/fields.h"
#include "steelyard/layers/containers/graph.h"
#include "steelyard/layers/weighted/embedding.h"

namespace steelyard {

struct CausalAttentionOptions {
  std::int64_t heads = 1;
  std::int64_t key_heads = 1;  // divides `heads`
  std::int64_t width = 0;      // of a head, even
  double base = 10000;         // of the rotation's angles
  RotaryPairs pairs = RotaryPairs::kHalves;
  // [width / 2], by which the rotation's frequencies are divided; empty: by 1.
  std::vector<double> factors = {};
  static constexpr auto fields() {
    using O = CausalAttentionOptions;
    return std::tuple(field("heads", &O::heads), field("key_heads", &O::key_heads),
                      field("width", &O::width), field("base", &O::base), field("pairs", &O::pairs),
                      field("factors", &O::factors, true));
  }
};

struct DocumentStartsOptions {
  std::int64_t border = 0;  // the token that ends a document
  static constexpr auto fields() {
    return std::tuple(field("border", &DocumentStartsOptions::border));
  }
};

// document_starts() of tokens [N, T].
class DocumentStarts : public Module {
 public:
  explicit DocumentStarts(const DocumentStartsOptions& options) : options_(options) {}

  Variable forward(const Variable& x, ForwardContext& context) override;
  std::string type_name() const override { return "DocumentStarts"; }
  std::string description() const override;

 private:
  DocumentStartsOptions options_;
};

// The rotated keys, and the values, of the positions that one text has so far.
struct KeptKeys {
  std::int64_t room = 0;   // positions that fit
  std::int64_t count = 0;  // that are there
  Tensor keys, values;     // [1, room, key_heads * width], made when the first ones come
};

// causal_attention() of queries [N, T, heads * width], keys and values [N, T, key_heads * width],
// the first two rotated by their positions. A fourth input, of DocumentStarts, is where positions
// begin again and before which nothing is seen. Buffer factors f32 [width / 2] where there are any.
class CausalAttention : public JoinModule {
 public:
  // Throws std::invalid_argument on options that do not fit.
  explicit CausalAttention(const CausalAttentionOptions& options);

  Variable join(const std::vector<Variable>& inputs, ForwardContext& context) override;
  // The same of the T positions that follow those that are kept, whose keys and values are kept,
  // too; N is 1, all positions are those of one document, and no gradients are recorded. Throws
  // std::invalid_argument without room.
  Variable go_on(const std::vector<Variable>& inputs, KeptKeys& kept) const;
  std::string type_name() const override { return "CausalAttention"; }
  std::string description() const override;

 private:
  RotaryOptions angles() const;

  CausalAttentionOptions options_;
  Tensor factors_;  // undefined where there are none
};

// silu(gate) * up.
class SwiGLU : public JoinModule {
 public:
  Variable join(const std::vector<Variable>& inputs, ForwardContext& context) override;
  std::string type_name() const override { return "SwiGLU"; }
};

// y[..., N] = x[..., D] times the transpose of an embedding's table [N, D], which it shares.
class EmbeddingHead : public Module, public RowLayer {
 public:
  // Throws std::invalid_argument on null.
  explicit EmbeddingHead(const std::shared_ptr<Embedding>& embedding);

  Variable forward(const Variable& x, ForwardContext& context) override;
  std::string type_name() const override { return "EmbeddingHead"; }
  std::string description() const override;
  const Variable& table() const { return table_; }

 private:
  Variable table_;  // the embedding's parameter, listed there
};

}  // namespace steelyard
