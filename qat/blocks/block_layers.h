// Layers whose weights are the blocks of one of ggml's types in every forward pass, as llama.cpp
// computes them.
#pragma once

#include <map>
#include <memory>
#include <string>

#include "steelyard/framework/autograd/headed_model.h"
#include "steelyard/layers/weighted/embedding.h"
#include "steelyard/layers/weighted/linear.h"
#include "steelyard/qat/blocks/block_config.h"
#include "steelyard/qat/prepare/plan.h"

namespace steelyard::qat {

// block_linear() with the parameters of a linear layer.
class BlockLinear : public Module, public RowLayer {
 public:
  BlockLinear(const Linear& layer, const BlockScheme& scheme);

  Variable forward(const Variable& x, ForwardContext& context) override;
  std::string type_name() const override { return "BlockLinear"; }
  std::string description() const override;
  const BlockScheme& scheme() const { return scheme_; }
  const Variable& weight() const { return weight_; }
  const Variable& bias() const { return bias_; }

 private:
  BlockScheme scheme_;
  Variable weight_;
  Variable bias_;  // undefined where the layer has none
};

// The values of the blocks of an embedding's rows.
class BlockEmbedding : public Module {
 public:
  BlockEmbedding(const Embedding& layer, const BlockScheme& scheme);

  Variable forward(const Variable& x, ForwardContext& context) override;
  std::string type_name() const override { return "BlockEmbedding"; }
  std::string description() const override;
  const BlockScheme& scheme() const { return scheme_; }
  const Variable& weight() const { return weight_; }

 private:
  BlockScheme scheme_;
  Variable weight_;
};

// block_linear() with the table of an embedding, which is its parameter.
class BlockEmbeddingHead : public Module, public RowLayer {
 public:
  explicit BlockEmbeddingHead(const BlockEmbedding& embedding)
      : scheme_(embedding.scheme()), table_(embedding.weight()) {}

  Variable forward(const Variable& x, ForwardContext& context) override;
  std::string type_name() const override { return "BlockEmbeddingHead"; }
  std::string description() const override;
  const BlockScheme& scheme() const { return scheme_; }
  const Variable& table() const { return table_; }

 private:
  BlockScheme scheme_;
  Variable table_;
};

// Replaces the linear and embedding layers below a module that the config chooses, and heads that
// share an embedding's table, which targets and messages call Linear. Parameters keep names and
// storages. Returns what became of each layer. Throws std::invalid_argument that names the layer
// whose rows are not whole blocks, InputError for targets that match nothing, or a head and an
// embedding of one table that are not the same.
Plan use_blocks(Module& model, const BlockConfig& config);
// With all of them blocks of a type.
Plan use_blocks(Module& model, kernels::BlockType type);

// The parameters that are blocks in every pass, by name.
std::map<std::string, BlockScheme> block_weights(Module& model);

}  // namespace steelyard::qat
