#include "steelyard/qat/blocks/block_layers.h"

#include <optional>
#include <vector>

#include "steelyard/framework/ops/products/embedding.h"
#include "steelyard/framework/tensor/error.h"
#include "steelyard/layers/decoder.h"
#include "steelyard/qat/blocks/block_ops.h"
#include "steelyard/qat/model/target_match.h"

namespace steelyard::qat {
namespace {

using kernels::BlockType;

constexpr const char* kLinear = "Linear";
constexpr const char* kEmbedding = "Embedding";

std::string described(const char* layer, const Variable& weight, const BlockScheme& scheme) {
  return std::string(layer) + "(" + std::to_string(weight.dim(0)) + " x " +
         std::to_string(weight.dim(1)) + ", " + to_string(scheme) + ")";
}

// The groups as a matcher reads them: which of its configs is which group is its place in the list.
QuantizeConfig groups_of(const BlockConfig& config) {
  QuantizeConfig groups{
      .groups = {}, .ignore = config.ignore, .ignore_places = config.ignore_places};
  for (const BlockGroup& group : config.groups) {
    groups.groups.push_back({group.targets, {}, group.target_places});
  }
  if (groups.groups.empty()) groups.groups.push_back({{"re:.*"}, {}, {}});
  return groups;
}

std::string name_of(const std::optional<BlockScheme>& scheme) {
  return scheme ? to_string(*scheme) : "float";
}

class BlockSwap {
 public:
  explicit BlockSwap(const BlockConfig& config)
      : config_(config), groups_(groups_of(config)), matcher_(groups_) {}

  // The layers below a module, before its heads: these share what replaces an embedding.
  void visit(const Module& module, const std::string& path, TargetMatcher::Scope around) {
    const TargetMatcher::Scope scope = matcher_.enter(path, module.type_name(), around);
    for (const auto& slot : module.children()) {
      const std::string name = join_path(path, slot->name());
      if (const auto* linear = dynamic_cast<const Linear*>(&**slot)) {
        if (const auto scheme = choose(name, kLinear, scope, linear->weight().dim(1)).scheme) {
          slot->replace(std::make_shared<BlockLinear>(*linear, *scheme));
        }
      } else if (const auto* embedding = dynamic_cast<const Embedding*>(&**slot)) {
        Table& table = tables_[embedding->weight().node().get()];
        table.slots.push_back(slot.get());
        table.chosen = choose(name, kEmbedding, scope, embedding->weight().dim(1));
      } else if (const auto* head = dynamic_cast<const EmbeddingHead*>(&**slot)) {
        heads_.push_back({slot.get(), head->table().node().get(),
                          choose(name, kLinear, scope, head->table().dim(1))});
      } else {
        visit(**slot, name, scope);
      }
    }
  }

  Plan finish() {
    for (const Head& head : heads_) join(head.chosen, tables_.at(head.table).chosen);
    for (auto& [node, table] : tables_) {
      if (!table.chosen.scheme) continue;
      const auto& embedding = dynamic_cast<const Embedding&>(**table.slots[0]);
      table.layer = std::make_shared<BlockEmbedding>(embedding, *table.chosen.scheme);
      for (Slot* slot : table.slots) slot->replace(table.layer);
    }
    for (const Head& head : heads_) {
      const Table& table = tables_.at(head.table);
      if (table.layer) head.slot->replace(std::make_shared<BlockEmbeddingHead>(*table.layer));
    }
    matcher_.finish("Linear and Embedding");
    return std::move(plan_);
  }

 private:
  // What the config says of a layer.
  struct Chosen {
    std::size_t row = 0;  // of the plan
    std::optional<BlockScheme> scheme = {};
  };
  struct Table {
    std::vector<Slot*> slots = {};
    Chosen chosen = {};
    std::shared_ptr<BlockEmbedding> layer = {};  // null: in float
  };
  struct Head {
    Slot* slot;
    const GradNode* table;
    Chosen chosen;
  };

  // A head and the embedding whose weight it is: of two types nothing can be made, but where one is
  // ignored the weight stays in float.
  void join(const Chosen& head, Chosen& table) {
    if (head.scheme == table.scheme) return;
    PlanRow& of_head = plan_.rows[head.row];
    PlanRow& of_table = plan_.rows[table.row];
    if (of_head.note.starts_with(kIgnoredBy)) {
      of_table = in_float(of_table.module, "its weight is that of " + of_head.module);
      table.scheme.reset();
      return;
    }
    if (of_table.note.starts_with(kIgnoredBy)) {
      of_head = in_float(of_head.module, "its weight is that of " + of_table.module);
      return;
    }
    throw InputError(of_head.module + " and " + of_table.module +
                     " share a weight, which is one tensor of the file: expected both in one "
                     "type, or neither, got " +
                     name_of(head.scheme) + " and " + name_of(table.scheme) +
                     "; name both in one list of targets");
  }

  static PlanRow in_float(const std::string& name, const std::string& why) {
    return {name, "weight", "float", "-", why};
  }

  Chosen choose(const std::string& name, const char* type, TargetMatcher::Scope scope,
                std::int64_t width) {
    std::string reason;
    const std::size_t row = plan_.rows.size();
    const QConfig* chosen = matcher_.config_for(name, type, scope, reason);
    if (chosen == nullptr) {
      plan_.rows.push_back(in_float(name, reason));
      return {row};
    }
    BlockScheme scheme(config_.type);
    for (std::size_t i = 0; i < config_.groups.size(); ++i) {
      if (&groups_.groups[i].config != chosen) continue;
      scheme = {config_.groups[i].type.value_or(config_.type), config_.groups[i].scales};
    }
    require_whole_blocks(name, width, scheme.type);
    plan_.rows.push_back({name, "weight", "blocks of " + std::string(ggml_type(scheme.type).name),
                          word_of(scheme.scales),
                          type == kLinear ? "inputs are blocks of q8_0" : ""});
    return {row, scheme};
  }

  const BlockConfig& config_;
  const QuantizeConfig groups_;
  TargetMatcher matcher_;
  Plan plan_;
  std::map<const GradNode*, Table> tables_;  // by the tape's node of a table's parameter
  std::vector<Head> heads_;
};

}  // namespace

BlockLinear::BlockLinear(const Linear& layer, const BlockScheme& scheme)
    : scheme_(scheme), weight_(register_parameter("weight", layer.weight().value())) {
  if (layer.bias().defined()) bias_ = register_parameter("bias", layer.bias().value());
}

Variable BlockLinear::forward(const Variable& x, ForwardContext&) {
  return block_linear(x, weight_, bias_, scheme_);
}

std::string BlockLinear::description() const { return described("BlockLinear", weight_, scheme_); }

BlockEmbedding::BlockEmbedding(const Embedding& layer, const BlockScheme& scheme)
    : scheme_(scheme), weight_(register_parameter("weight", layer.weight().value())) {}

Variable BlockEmbedding::forward(const Variable& x, ForwardContext&) {
  return block_values(
      is_floating(x.dtype()) ? embedding(x, weight_) : embedding(x.value(), weight_), scheme_);
}

std::string BlockEmbedding::description() const {
  return described("BlockEmbedding", weight_, scheme_);
}

Variable BlockEmbeddingHead::forward(const Variable& x, ForwardContext&) {
  return block_linear(x, table_, {}, scheme_);
}

std::string BlockEmbeddingHead::description() const {
  return described("BlockEmbeddingHead", table_, scheme_);
}

Plan use_blocks(Module& model, const BlockConfig& config) {
  BlockSwap swap(config);
  swap.visit(model, "", TargetMatcher::kNoScope);
  return swap.finish();
}

Plan use_blocks(Module& model, BlockType type) {
  return use_blocks(model, BlockConfig{.type = type});
}

std::map<std::string, BlockScheme> block_weights(Module& model) {
  std::map<std::string, BlockScheme> schemes;
  for (const NamedModule& entry : model.named_modules()) {
    const std::string name = join_path(entry.name, "weight");
    if (const auto* linear = dynamic_cast<const BlockLinear*>(entry.module)) {
      schemes.emplace(name, linear->scheme());
    } else if (const auto* embedding = dynamic_cast<const BlockEmbedding*>(entry.module)) {
      schemes.emplace(name, embedding->scheme());
    }
  }
  return schemes;
}

}  // namespace steelyard::qat
