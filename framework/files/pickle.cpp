#include "steelyard/framework/files/pickle.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <map>

#include "steelyard/framework/tensor/error.h"
#include "steelyard/framework/tensor/printable.h"

namespace steelyard {
namespace {

using Kind = PickleValue::Kind;

constexpr std::string_view kOrderedDict = "collections.OrderedDict";
constexpr std::size_t kMostValues = std::size_t{1} << 22;

std::string hexadecimal(unsigned char byte) {
  constexpr const char* kDigits = "0123456789abcdef";
  return std::string("0x") + kDigits[byte >> 4] + kDigits[byte & 15];
}

// Runs the opcodes on a stack of values.
class Machine {
 public:
  Machine(std::string_view bytes, std::span<const std::string_view> allowed,
          std::deque<PickleValue>& values)
      : bytes_(bytes), allowed_(allowed), values_(values) {}

  const PickleValue* run() {
    while (true) {
      opcode_at_ = at_;
      const auto opcode = static_cast<unsigned char>(take(1)[0]);
      if (opcode == '.') {
        if (stack_.size() != 1 || !marks_.empty()) refuse("expected one value at the end");
        return stack_[0];
      }
      if (!(number(opcode) || text(opcode) || container(opcode) || memo(opcode) || name(opcode))) {
        refuse("the opcode " + hexadecimal(opcode) + " is not read");
      }
    }
  }

 private:
  [[noreturn]] void refuse(const std::string& what) const {
    throw InputError("byte " + std::to_string(opcode_at_) + ": " + what);
  }

  std::string_view take(std::uint64_t size) {
    if (size > bytes_.size() - at_) refuse("cut off");
    const std::string_view taken = bytes_.substr(at_, size);
    at_ += size;
    return taken;
  }

  // A little-endian number of up to 8 bytes.
  std::uint64_t unsigned_number(std::size_t bytes) {
    const std::string_view raw = take(bytes);
    std::uint64_t value = 0;
    for (std::size_t i = 0; i < bytes; ++i) {
      value |= std::uint64_t{static_cast<unsigned char>(raw[i])} << (8 * i);
    }
    return value;
  }

  std::string_view line() {
    const std::size_t end = bytes_.find('\n', at_);
    if (end == std::string_view::npos) refuse("cut off");
    const std::string_view taken = take(end - at_);
    take(1);
    return taken;
  }

  PickleValue& push(Kind kind) {
    if (values_.size() == kMostValues) {
      refuse("more than " + std::to_string(kMostValues) + " values");
    }
    PickleValue& value = values_.emplace_back();
    value.kind = kind;
    stack_.push_back(&value);
    return value;
  }
  void push_integer(std::int64_t integer) { push(Kind::kInteger).integer = integer; }
  void push_flag(bool flag) { push(Kind::kBool).integer = flag ? 1 : 0; }

  PickleValue* pop() {
    if (stack_.size() == (marks_.empty() ? 0 : marks_.back())) refuse("the stack is empty");
    PickleValue* value = stack_.back();
    stack_.pop_back();
    return value;
  }

  // What lies above the last mark.
  std::vector<PickleValue*> pop_to_mark() {
    if (marks_.empty()) refuse("there is no mark");
    const auto begin = stack_.begin() + static_cast<std::ptrdiff_t>(marks_.back());
    std::vector<PickleValue*> items(begin, stack_.end());
    stack_.erase(begin, stack_.end());
    marks_.pop_back();
    return items;
  }

  PickleValue& top(Kind kind, const char* expected) {
    PickleValue* value = pop();
    if (!value->is(kind)) {
      refuse(std::string("expected ") + expected + ", got " + described(*value));
    }
    stack_.push_back(value);
    return *value;
  }

  bool number(unsigned char opcode) {
    switch (opcode) {
      case 'N':
        push(Kind::kNone);
        return true;
      case 0x88:
      case 0x89:
        push_flag(opcode == 0x88);
        return true;
      case 'J':  // BININT
        push_integer(static_cast<std::int32_t>(unsigned_number(4)));
        return true;
      case 'K':  // BININT1
        push_integer(static_cast<std::int64_t>(unsigned_number(1)));
        return true;
      case 'M':  // BININT2
        push_integer(static_cast<std::int64_t>(unsigned_number(2)));
        return true;
      case 0x8A:  // LONG1
        long_integer(unsigned_number(1));
        return true;
      case 0x8B:  // LONG4
        long_integer(unsigned_number(4));
        return true;
      case 'G':  // BINFLOAT, big-endian
        push(Kind::kReal).real = big_endian_double();
        return true;
      default:
        return false;
    }
  }

  double big_endian_double() {
    std::uint64_t bits = 0;
    for (const char byte : take(8)) bits = bits << 8 | static_cast<unsigned char>(byte);
    return std::bit_cast<double>(bits);
  }

  // Two's complement; one of more than 64 bits becomes a real number.
  void long_integer(std::uint64_t size) {
    const std::string_view raw = take(size);
    const bool negative = !raw.empty() && (static_cast<unsigned char>(raw.back()) & 0x80) != 0;
    if (size > sizeof(std::int64_t)) {
      double real = negative ? -1 : 0;
      for (std::size_t i = raw.size(); i-- > 0;) {
        real = real * 256 + static_cast<unsigned char>(raw[i]);
      }
      push(Kind::kReal).real = real;
      return;
    }
    std::uint64_t value = negative ? ~std::uint64_t{0} : 0;
    for (std::size_t i = raw.size(); i-- > 0;) {
      value = value << 8 | static_cast<unsigned char>(raw[i]);
    }
    push_integer(static_cast<std::int64_t>(value));
  }

  bool text(unsigned char opcode) {
    switch (opcode) {
      case 'U':   // SHORT_BINSTRING
      case 'C':   // SHORT_BINBYTES
      case 0x8C:  // SHORT_BINUNICODE
        push_text(unsigned_number(1));
        return true;
      case 'T':  // BINSTRING
      case 'B':  // BINBYTES
      case 'X':  // BINUNICODE
        push_text(unsigned_number(4));
        return true;
      case 0x8D:  // BINUNICODE8
      case 0x8E:  // BINBYTES8
        push_text(unsigned_number(8));
        return true;
      default:
        return false;
    }
  }
  void push_text(std::uint64_t size) { push(Kind::kText).text = take(size); }

  bool container(unsigned char opcode) {
    switch (opcode) {
      case '(':
        marks_.push_back(stack_.size());
        return true;
      case ')':
        push(Kind::kTuple);
        return true;
      case ']':
        push(Kind::kList);
        return true;
      case '}':
        push(Kind::kDict);
        return true;
      case 0x85:  // TUPLE1 to TUPLE3
      case 0x86:
      case 0x87:
        push_tuple(opcode - 0x84);
        return true;
      case 't': {
        std::vector<PickleValue*> items = pop_to_mark();
        push(Kind::kTuple).items = std::move(items);
        return true;
      }
      case 'a': {  // APPEND
        PickleValue* item = pop();
        top(Kind::kList, "a list").items.push_back(item);
        return true;
      }
      case 'e': {  // APPENDS
        const std::vector<PickleValue*> items = pop_to_mark();
        auto& list = top(Kind::kList, "a list").items;
        list.insert(list.end(), items.begin(), items.end());
        return true;
      }
      case 's': {  // SETITEM
        PickleValue* value = pop();
        PickleValue* key = pop();
        set_items({key, value});
        return true;
      }
      case 'u':  // SETITEMS
        set_items(pop_to_mark());
        return true;
      case '0':  // POP
        pop();
        return true;
      default:
        return false;
    }
  }

  void push_tuple(int size) {
    std::vector<PickleValue*> items;
    for (int i = 0; i < size; ++i) items.push_back(pop());
    std::reverse(items.begin(), items.end());
    push(Kind::kTuple).items = std::move(items);
  }

  void set_items(const std::vector<PickleValue*>& items) {
    if (items.size() % 2 != 0) refuse("a key without a value");
    auto& entries = top(Kind::kDict, "a dict").items;
    entries.insert(entries.end(), items.begin(), items.end());
  }

  bool memo(unsigned char opcode) {
    switch (opcode) {
      case 'q':  // BINPUT
        memo_[unsigned_number(1)] = top_value();
        return true;
      case 'r':  // LONG_BINPUT
        memo_[unsigned_number(4)] = top_value();
        return true;
      case 0x94:  // MEMOIZE
        memo_[memo_.size()] = top_value();
        return true;
      case 'h':  // BINGET
        recall(unsigned_number(1));
        return true;
      case 'j':  // LONG_BINGET
        recall(unsigned_number(4));
        return true;
      case 0x80:  // PROTO
        if (const std::uint64_t protocol = unsigned_number(1); protocol < 2 || protocol > 5) {
          refuse("protocol " + std::to_string(protocol) + ", expected 2 to 5");
        }
        return true;
      case 0x95:  // FRAME
        unsigned_number(8);
        return true;
      default:
        return false;
    }
  }

  PickleValue* top_value() {
    PickleValue* value = pop();
    stack_.push_back(value);
    return value;
  }
  void recall(std::uint64_t index) {
    const auto found = memo_.find(index);
    if (found == memo_.end()) refuse("nothing was stored as " + std::to_string(index));
    stack_.push_back(found->second);
  }

  bool name(unsigned char opcode) {
    switch (opcode) {
      case 'c': {  // GLOBAL
        const std::string module(line());
        push_global(module + "." + std::string(line()));
        return true;
      }
      case 0x93: {  // STACK_GLOBAL
        const PickleValue* last = pop();
        const PickleValue* module = pop();
        if (!last->is(Kind::kText) || !module->is(Kind::kText)) refuse("expected two texts");
        push_global(module->text + "." + last->text);
        return true;
      }
      case 'Q': {  // BINPERSID
        PickleValue* id = pop();
        push(Kind::kPersistent).items = {id};
        return true;
      }
      case 'R':
        reduce();
        return true;
      case 'b': {  // BUILD: attributes of an OrderedDict, which are no items of it
        pop();
        top(Kind::kDict, "a dict");
        return true;
      }
      default:
        return false;
    }
  }

  void push_global(const std::string& name) {
    const bool known =
        name == kOrderedDict || std::find(allowed_.begin(), allowed_.end(), name) != allowed_.end();
    if (!known) {
      refuse("names " + printable(name) +
             ": only tensors, dicts, lists, tuples, numbers and texts are read "
             "(torch.save(model.state_dict(), ...) writes such a file)");
    }
    push(Kind::kGlobal).text = name;
  }

  void reduce() {
    PickleValue* arguments = pop();
    PickleValue* callable = pop();
    if (!callable->is(Kind::kGlobal) || !arguments->is(Kind::kTuple)) {
      refuse("expected a call of a global, got one of " + described(*callable));
    }
    if (callable->text != kOrderedDict) {
      push(Kind::kCall).items = {callable, arguments};
      return;
    }
    if (!arguments->items.empty()) refuse("an OrderedDict that is made of other values");
    push(Kind::kDict);
  }

  std::string_view bytes_;
  std::span<const std::string_view> allowed_;
  std::deque<PickleValue>& values_;
  std::size_t at_ = 0, opcode_at_ = 0;
  std::vector<PickleValue*> stack_;
  std::vector<std::size_t> marks_;
  std::map<std::uint64_t, PickleValue*> memo_;
};

}  // namespace

const PickleValue* PickleValue::find(std::string_view key) const {
  for (std::size_t i = 0; i + 1 < items.size(); i += 2) {
    if (items[i]->is(Kind::kText) && items[i]->text == key) return items[i + 1];
  }
  return nullptr;
}

std::string described(const PickleValue& value) {
  switch (value.kind) {
    case Kind::kNone:
      return "None";
    case Kind::kBool:
      return value.integer != 0 ? "True" : "False";
    case Kind::kInteger:
      return "the number " + std::to_string(value.integer);
    case Kind::kReal:
      return "the number " + std::to_string(value.real);
    case Kind::kText:
      return "the text '" + printable(value.text, 40) + "'";
    case Kind::kTuple:
      return "a tuple";
    case Kind::kList:
      return "a list";
    case Kind::kDict:
      return "a dict";
    case Kind::kGlobal:
    case Kind::kCall:
      return printable(value.is(Kind::kCall) ? value.items[0]->text : value.text);
    case Kind::kPersistent:
      break;
  }
  return "a reference";
}

PickleDocument::PickleDocument(std::string_view bytes, std::span<const std::string_view> allowed)
    : root_(Machine(bytes, allowed, values_).run()) {}

}  // namespace steelyard
