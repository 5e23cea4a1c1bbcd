#include "steelyard/qat/blocks/block_layers.h"

#include <map>

#include "steelyard/framework/ops/products/embedding.h"
#include "steelyard/layers/decoder.h"
#include "steelyard/qat/blocks/block_ops.h"

namespace steelyard::qat {
namespace {

using kernels::BlockType;

std::string described(const char* layer, const Variable& weight, BlockType type) {
  return std::string(layer) + "(" + std::to_string(weight.dim(0)) + " x " +
         std::to_string(weight.dim(1)) + ", " + std::string(kernels::ggml_type(type).name) + ")";
}

class BlockSwap {
 public:
  explicit BlockSwap(BlockType type) : type_(type) {}

  // The layers below a module, before its heads: these share what replaces an embedding.
  void visit(const Module& module, const std::string& path) {
    for (const auto& slot : module.children()) {
      const std::string name = join_path(path, slot->name());
      if (const auto* linear = dynamic_cast<const Linear*>(&**slot)) {
        require_whole_blocks(name, linear->weight().dim(1), type_);
        slot->replace(std::make_shared<BlockLinear>(*linear, type_));
      } else if (const auto* embedding = dynamic_cast<const Embedding*>(&**slot)) {
        require_whole_blocks(name, embedding->weight().dim(1), type_);
        const auto made = std::make_shared<BlockEmbedding>(*embedding, type_);
        embeddings_[embedding->weight().node().get()] = made;
        slot->replace(made);
      } else if (const auto* head = dynamic_cast<const EmbeddingHead*>(&**slot)) {
        heads_.push_back({slot.get(), head->table().node().get()});
      } else {
        visit(**slot, name);
      }
    }
  }

  void finish() const {
    for (const auto& [slot, table] : heads_) {
      slot->replace(std::make_shared<BlockEmbeddingHead>(*embeddings_.at(table), type_));
    }
  }

 private:
  BlockType type_;
  // By the tape's node of a table's parameter.
  std::map<const GradNode*, std::shared_ptr<BlockEmbedding>> embeddings_;
  std::vector<std::pair<Slot*, const GradNode*>> heads_;
};

}  // namespace

BlockLinear::BlockLinear(const Linear& layer, BlockType type)
    : type_(type), weight_(register_parameter("weight", layer.weight().value())) {
  if (layer.bias().defined()) bias_ = register_parameter("bias", layer.bias().value());
}

Variable BlockLinear::forward(const Variable& x, ForwardContext&) {
  return block_linear(x, weight_, bias_, type_);
}

std::string BlockLinear::description() const { return described("BlockLinear", weight_, type_); }

BlockEmbedding::BlockEmbedding(const Embedding& layer, BlockType type)
    : type_(type), weight_(register_parameter("weight", layer.weight().value())) {}

Variable BlockEmbedding::forward(const Variable& x, ForwardContext&) {
  return block_values(
      is_floating(x.dtype()) ? embedding(x, weight_) : embedding(x.value(), weight_), type_);
}

std::string BlockEmbedding::description() const {
  return described("BlockEmbedding", weight_, type_);
}

Variable BlockEmbeddingHead::forward(const Variable& x, ForwardContext&) {
  return block_linear(x, table_, {}, type_);
}

std::string BlockEmbeddingHead::description() const {
  return described("BlockEmbeddingHead", table_, type_);
}

void use_blocks(Module& model, BlockType type) {
  BlockSwap swap(type);
  swap.visit(model, "");
  swap.finish();
}

std::vector<std::string> block_weights(Module& model) {
  std::vector<std::string> names;
  for (const NamedModule& entry : model.named_modules()) {
    const bool has_blocks = dynamic_cast<const BlockLinear*>(entry.module) != nullptr ||
                            dynamic_cast<const BlockEmbedding*>(entry.module) != nullptr;
    if (has_blocks) names.push_back(join_path(entry.name, "weight"));
  }
  return names;
}

}  // namespace steelyard::qat
