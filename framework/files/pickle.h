// Python's pickles, read as data: nothing that they name is imported or called.
// Source: the opcodes' descriptions in Python's Lib/pickletools.py, protocols 2 to 5.
#pragma once

#include <cstdint>
#include <deque>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace steelyard {

// A value in a pickle. Values are owned by their PickleDocument and may contain one another.
struct PickleValue {
  enum class Kind : std::uint8_t {
    kNone,
    kBool,
    kInteger,
    kReal,
    kText,  // strings, and bytes
    kTuple,
    kList,
    kDict,
    kGlobal,      // the name of a function or a type
    kPersistent,  // what the program that wrote it keeps elsewhere: items[0] says what
    kCall         // items[0], a global, of the arguments items[1], a tuple
  };

  Kind kind = Kind::kNone;
  std::int64_t integer = 0;
  double real = 0;
  std::string text = {};
  std::vector<PickleValue*> items = {};  // kDict: key, value, key, value, ...

  bool is(Kind k) const { return kind == k; }
  bool names(std::string_view global) const { return kind == Kind::kGlobal && text == global; }
  // The value of a text key of a kDict; null without it.
  const PickleValue* find(std::string_view key) const;
};

// "a dict", "the text 'x'".
std::string described(const PickleValue& value);

class PickleDocument {
 public:
  // `allowed`: the globals that may be named, as "module.name"; collections.OrderedDict always may,
  // and is a kDict. Throws InputError that begins with "byte N: " for every other global, for
  // opcodes that make objects, and for what is damaged.
  PickleDocument(std::string_view bytes, std::span<const std::string_view> allowed);
  PickleDocument(const PickleDocument&) = delete;
  PickleDocument& operator=(const PickleDocument&) = delete;

  const PickleValue& root() const { return *root_; }

 private:
  std::deque<PickleValue> values_;
  const PickleValue* root_ = nullptr;
};

}  // namespace steelyard
