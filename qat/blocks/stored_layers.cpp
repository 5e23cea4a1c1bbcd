#include "steelyard/qat/blocks/stored_layers.h"

#include <map>

#include "steelyard/layers/decoder.h"
#include "steelyard/layers/weighted/embedding.h"
#include "steelyard/layers/weighted/linear.h"
#include "steelyard/qat/blocks/block_layers.h"
#include "steelyard/qat/blocks/block_ops.h"

namespace steelyard::qat {
namespace {

class StoredBlockLinear : public Module {
 public:
  StoredBlockLinear(StoredBlocks weight, Variable bias)
      : weight_(std::move(weight)), bias_(std::move(bias)) {}

  Variable forward(const Variable& x, ForwardContext&) override {
    return stored_block_linear(x, weight_.blocks, bias_, weight_.type);
  }
  std::string type_name() const override { return "StoredBlockLinear"; }

 private:
  StoredBlocks weight_;
  Variable bias_;
};

class StoredSwap {
 public:
  using BlocksOf = std::function<std::optional<StoredBlocks>(const std::string& parameter)>;

  explicit StoredSwap(const BlocksOf& blocks_of) : blocks_of_(blocks_of) {}

  void visit(const Module& module, const std::string& path) {
    for (const auto& slot : module.children()) {
      const std::string name = join_path(path, slot->name());
      const std::string parameter = join_path(name, "weight");
      if (const auto* linear = dynamic_cast<const Linear*>(&**slot)) {
        replace(*slot, parameter, linear->bias());
      } else if (const auto* embedding = dynamic_cast<const Embedding*>(&**slot)) {
        tables_[embedding->weight().node().get()] = parameter;
      } else if (const auto* head = dynamic_cast<const EmbeddingHead*>(&**slot)) {
        replace(*slot, tables_.at(head->table().node().get()), {});
      } else {
        visit(**slot, name);
      }
    }
  }

 private:
  void replace(Slot& slot, const std::string& parameter, const Variable& bias) const {
    if (auto blocks = blocks_of_(parameter)) {
      slot.replace(std::make_shared<StoredBlockLinear>(*std::move(blocks), bias));
    }
  }

  const BlocksOf& blocks_of_;
  std::map<const GradNode*, std::string> tables_;  // parameters, by the tape's node
};

}  // namespace

void use_stored_blocks(
    Module& model,
    const std::function<std::optional<StoredBlocks>(const std::string& parameter)>& blocks_of) {
  StoredSwap(blocks_of).visit(model, "");
}

void store_blocks(Module& model) {
  const auto store = [](Slot& slot, const Variable& weight, const Variable& bias,
                        const BlockScheme& scheme) {
    slot.replace(std::make_shared<StoredBlockLinear>(
        StoredBlocks{encoded_blocks(weight.value(), scheme), scheme.type}, bias));
  };
  for (const auto& slot : model.children()) {
    if (const auto* linear = dynamic_cast<const BlockLinear*>(&**slot)) {
      store(*slot, linear->weight(), linear->bias(), linear->scheme());
    } else if (const auto* head = dynamic_cast<const BlockEmbeddingHead*>(&**slot)) {
      store(*slot, head->table(), {}, head->scheme());
    } else {
      store_blocks(**slot);
    }
  }
}

}  // namespace steelyard::qat
