#include "steelyard/export/c/c_nodes.h"

#include <fmt/format.h>

#include <algorithm>

#include "steelyard/export/c/c_kernels.h"
#include "steelyard/export/c/c_text.h"

namespace steelyard::deploy {

CFields& CFields::set(const char* member, std::int64_t value) {
  return set(member, std::to_string(value));
}

CFields& CFields::set(const char* member, std::string text) {
  list_.emplace_back(member, std::move(text));
  return *this;
}

CNodes::CNodes(const Graph& graph) : graph_(graph) {}

std::string CNodes::named(const char* type, const std::string& text, std::size_t bytes,
                          std::size_t size, bool of_two_places) {
  const auto [found, is_new] =
      arrays_.emplace(type + text, fmt::format("constants_{}", arrays_.size()));
  const std::int64_t taken = c_array_bytes(static_cast<std::int64_t>(bytes));
  if (!is_new && !of_two_places) saved_bytes_ += taken;
  if (is_new) {
    constant_bytes_ += taken;
    constants_ +=
        fmt::format("static const {} {}[{}] = {{\n  {}}};\n", type, found->second, size, text);
  }
  return found->second;
}

std::string CNodes::array(std::span<const std::int8_t> values, bool of_two_places) {
  return named("int8_t", c_list(values), values.size_bytes(), values.size(), of_two_places);
}

std::string CNodes::array(std::span<const std::int32_t> values) {
  return named("int32_t", c_list(values), values.size_bytes(), values.size(), false);
}

std::string CNodes::table(std::span<const std::uint16_t> values) {
  const std::vector<std::int32_t> numbers(values.begin(), values.end());
  return named("uint16_t", c_list(std::span<const std::int32_t>(numbers)), values.size_bytes(),
               values.size(), true);
}

void CNodes::call(const std::string& kernel, const char* type, const Node& node,
                  const CFields& fields) {
  call_on(std::nullopt, kernel, type, node, fields);
  calls_.back().inputs = node.inputs;
}

void CNodes::call_on(std::optional<std::size_t> input, const std::string& kernel, const char* type,
                     const Node& node, const CFields& fields) {
  const std::string name = fmt::format("call_{}", calls_.size());
  constants_ += fmt::format("static const {} {} = {{", type, name);
  std::string separator = "\n  ";
  for (const auto& [member, value] : fields.list()) {
    constants_ += fmt::format("{}.{} = {}", separator, member, value);
    separator = ",\n  ";
  }
  constants_ += "};\n";
  constant_bytes_ += c_struct_bytes(type);
  calls_.push_back({kernel, node.name, name, {}, node.output});
  if (input) calls_.back().inputs = {*input};
}

void CNodes::use_scratch(const Node& node, std::int64_t bytes) {
  const std::int64_t now = &node - graph_.nodes.data();
  calls_.back().scratch = {.bytes = bytes, .first = now, .last = now};
}

void CNodes::keep(const Node& node) { homes_[node.output] = node.inputs[0]; }

std::size_t CNodes::home(std::size_t value) const {
  const auto found = homes_.find(value);
  return found == homes_.end() ? value : home(found->second);
}

std::int64_t CNodes::last_reader(std::size_t place) const {
  if (home(graph_.output) == place) return std::ssize(graph_.nodes);
  std::int64_t last = 0;
  for (std::size_t i = 0; i < graph_.nodes.size(); ++i) {
    const std::vector<std::size_t>& inputs = graph_.nodes[i].inputs;
    if (std::any_of(inputs.begin(), inputs.end(),
                    [&](std::size_t input) { return home(input) == place; })) {
      last = static_cast<std::int64_t>(i);
    }
  }
  return last;
}

void CNodes::reuse(const Node& node) {
  const std::int64_t now = &node - graph_.nodes.data();
  for (const std::size_t input : node.inputs) {
    const bool fits =
        shape_size(graph_.values[input].shape) == shape_size(graph_.values[node.output].shape);
    if (!fits || last_reader(home(input)) != now || persistent_.contains(home(input))) continue;
    homes_[node.output] = input;
    return;
  }
}

std::vector<std::string> CNodes::kernels() const {
  std::set<std::string> names;
  for (const CCall& call : calls_) names.insert(call.kernel);
  return {names.begin(), names.end()};
}

CNodes::Places CNodes::places(std::size_t input) const {
  std::map<std::size_t, ArenaBuffer> buffers;  // by the value whose place it is
  Places places;
  for (const std::size_t value : persistent_) {
    places.offsets[value] = places.persistent_bytes;
    places.persistent_bytes += shape_size(graph_.values[value].shape);
  }
  const auto add = [&](std::size_t value, std::int64_t first) {
    if (home(value) != value || persistent_.contains(value)) return;
    buffers[value] = {.bytes = shape_size(graph_.values[value].shape),
                      .first = first,
                      .last = std::max(first, last_reader(value))};
  };
  for (std::size_t i = 0; i < graph_.nodes.size(); ++i) {
    const std::size_t value = graph_.nodes[i].output;
    add(value, value == input ? -1 : static_cast<std::int64_t>(i));
  }
  std::vector<ArenaBuffer> list;
  for (const auto& [value, buffer] : buffers) list.push_back(buffer);
  for (const CCall& call : calls_) {
    if (call.scratch) list.push_back(*call.scratch);
  }
  const Arena arena = plan_arena(list);
  places.bytes = places.persistent_bytes + arena.bytes;
  places.least_bytes = places.persistent_bytes + most_live_bytes(list);
  std::size_t next = 0;
  for (const auto& [value, buffer] : buffers) {
    places.offsets[value] = places.persistent_bytes + arena.offsets[next++];
  }
  for (const CCall& call : calls_) {
    if (call.scratch) places.scratch[call.output] = places.persistent_bytes + arena.offsets[next++];
  }
  for (const Node& node : graph_.nodes) {
    places.offsets[node.output] = places.offsets.at(home(node.output));
  }
  return places;
}

}  // namespace steelyard::deploy
