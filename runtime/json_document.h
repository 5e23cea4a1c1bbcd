// A JSON document that ends without memory.
#pragma once

#include <nlohmann/json.hpp>
#include <string_view>

namespace steelyard::deploy {

// The values of a JSON text. nlohmann's destructor first lists the values of an array or object,
// and ends the process where there is no memory for the list; this one takes none.
class JsonDocument {
 public:
  // Throws std::invalid_argument for a text that is no JSON or has more than 32 levels of arrays
  // and objects, std::bad_alloc.
  explicit JsonDocument(std::string_view text);
  ~JsonDocument();
  JsonDocument(const JsonDocument&) = delete;
  JsonDocument& operator=(const JsonDocument&) = delete;

  const nlohmann::json& root() const { return root_; }

 private:
  JsonDocument() = default;

  nlohmann::json root_;
};

}  // namespace steelyard::deploy
