// Layers whose weights are the blocks of one of ggml's types in every forward pass, as llama.cpp
// computes them.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "steelyard/framework/autograd/headed_model.h"
#include "steelyard/kernels/ggml_blocks/block_type.h"
#include "steelyard/layers/weighted/embedding.h"
#include "steelyard/layers/weighted/linear.h"

namespace steelyard::qat {

// block_linear() with the parameters of a linear layer.
class BlockLinear : public Module, public RowLayer {
 public:
  BlockLinear(const Linear& layer, kernels::BlockType type);

  Variable forward(const Variable& x, ForwardContext& context) override;
  std::string type_name() const override { return "BlockLinear"; }
  std::string description() const override;

 private:
  kernels::BlockType type_;
  Variable weight_;
  Variable bias_;  // undefined where the layer has none
};

// The values of the blocks of an embedding's rows.
class BlockEmbedding : public Module {
 public:
  BlockEmbedding(const Embedding& layer, kernels::BlockType type);

  Variable forward(const Variable& x, ForwardContext& context) override;
  std::string type_name() const override { return "BlockEmbedding"; }
  std::string description() const override;
  const Variable& weight() const { return weight_; }

 private:
  kernels::BlockType type_;
  Variable weight_;
};

// block_linear() with the table of an embedding, which is its parameter.
class BlockEmbeddingHead : public Module, public RowLayer {
 public:
  BlockEmbeddingHead(const BlockEmbedding& embedding, kernels::BlockType type)
      : type_(type), table_(embedding.weight()) {}

  Variable forward(const Variable& x, ForwardContext& context) override;
  std::string type_name() const override { return "BlockEmbeddingHead"; }
  std::string description() const override;

 private:
  kernels::BlockType type_;
  Variable table_;
};

// Replaces all linear and embedding layers below a module, and heads that share an embedding's
// table. Parameters keep names and storages. Throws std::invalid_argument that names the layer
// whose rows are not whole blocks.
void use_blocks(Module& model, kernels::BlockType type);

// The names of the parameters that are blocks in every pass.
std::vector<std::string> block_weights(Module& model);

}  // namespace steelyard::qat
