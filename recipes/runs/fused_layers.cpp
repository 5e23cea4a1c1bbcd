#include "steelyard/recipes/runs/fused_layers.h"

#include <map>
#include <span>
#include <string_view>
#include <vector>

#include "steelyard/framework/tensor/printable.h"

namespace steelyard {
namespace {

constexpr std::string_view kAttention[] = {"q_proj", "k_proj", "v_proj"};
constexpr std::string_view kInner[] = {"gate_proj", "up_proj"};

// What the plan says of each layer of such a name, by what is before it: a text for each form.
std::map<std::string, std::vector<std::string>> forms_of(const qat::Plan& plan,
                                                         std::span<const std::string_view> names) {
  std::map<std::string, std::vector<std::string>> forms;
  for (std::size_t i = 0; i < names.size(); ++i) {
    for (const qat::PlanRow& row : plan.rows) {
      if (!row.module.ends_with(names[i])) continue;
      std::vector<std::string>& of_block =
          forms[row.module.substr(0, row.module.size() - names[i].size())];
      of_block.resize(names.size());
      of_block[i] += row.tensor + " " + row.quantized + "\n";
    }
  }
  return forms;
}

}  // namespace

std::optional<std::string> note_of_fused_layers(const qat::Plan& plan) {
  std::string first;
  std::size_t more = 0;
  for (const std::span<const std::string_view> names :
       {std::span<const std::string_view>(kAttention), std::span<const std::string_view>(kInner)}) {
    for (const auto& [before, forms] : forms_of(plan, names)) {
      bool same = true;
      for (const std::string& form : forms) same = same && form == forms[0];
      if (same) continue;
      if (!first.empty()) {
        ++more;
        continue;
      }
      for (const std::string_view name : names) {
        first += (first.empty() ? "" : ", ") + before + std::string(name);
      }
    }
  }
  if (first.empty()) return std::nullopt;
  return printable(first) +
         (more == 0 ? "" : " (and " + std::to_string(more) + " more such groups)") +
         " are not all quantized alike: vLLM computes them as one layer and does not load such a "
         "folder; targets and ignore should name all of them";
}

}  // namespace steelyard
