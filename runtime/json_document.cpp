#include "steelyard/runtime/json_document.h"

#include <cstddef>
#include <cstdint>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

namespace steelyard::deploy {
namespace {

using Tree = nlohmann::json;

constexpr std::size_t kMostLevels = 32;  // what ends a tree calls itself for each

// Makes the tree of a text in its place, where what was read before an error can be ended too.
class TreeEvents final : public nlohmann::json_sax<Tree> {
 public:
  explicit TreeEvents(Tree& root) : root_(root) {}

  bool null() override { return add(nullptr); }
  bool boolean(bool value) override { return add(value); }
  bool number_integer(std::int64_t value) override { return add(value); }
  bool number_unsigned(std::uint64_t value) override { return add(value); }
  bool number_float(double value, const std::string&) override { return add(value); }
  bool string(std::string& text) override { return add(std::move(text)); }
  bool binary(Tree::binary_t&) override { return false; }  // no text has it
  bool key(std::string& name) override {
    key_ = std::move(name);
    return true;
  }
  bool start_object(std::size_t) override { return open(Tree::object()); }
  bool start_array(std::size_t) override { return open(Tree::array()); }
  bool end_object() override { return close(); }
  bool end_array() override { return close(); }
  bool parse_error(std::size_t, const std::string&,
                   const nlohmann::detail::exception& error) override {
    throw std::invalid_argument(error.what());
  }

 private:
  // Of a value that has no others inside.
  Tree& place(Tree value) {
    if (open_.empty()) return root_ = std::move(value);
    Tree& outer = *open_.back();
    if (outer.is_object()) return outer[key_] = std::move(value);
    outer.push_back(std::move(value));
    return outer.back();
  }
  bool add(Tree value) {
    place(std::move(value));
    return true;
  }
  bool open(Tree empty) {
    if (open_.size() == kMostLevels) {
      throw std::invalid_argument("expected at most " + std::to_string(kMostLevels) +
                                  " levels of arrays and objects");
    }
    open_.push_back(&place(std::move(empty)));
    return true;
  }
  bool close() {
    open_.pop_back();
    return true;
  }

  Tree& root_;
  std::vector<Tree*> open_;  // from the outermost on
  std::string key_;
};

// From the innermost values on: what is empty ends without a list.
void empty(Tree& tree) {
  if (!tree.is_structured()) return;
  for (Tree& item : tree) empty(item);
  tree.clear();
}

}  // namespace

// The other constructor first: from then on an exception calls the destructor.
JsonDocument::JsonDocument(std::string_view text) : JsonDocument() {
  TreeEvents events(root_);
  Tree::sax_parse(text.begin(), text.end(), &events);
}

JsonDocument::~JsonDocument() { empty(root_); }

}  // namespace steelyard::deploy
