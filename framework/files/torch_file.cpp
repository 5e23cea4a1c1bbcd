#include "steelyard/framework/files/torch_file.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cstring>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <tuple>

#include "steelyard/framework/files/pickle.h"
#include "steelyard/framework/files/safetensors_header.h"
#include "steelyard/framework/files/zip.h"
#include "steelyard/framework/tensor/error.h"
#include "steelyard/framework/tensor/memory_error.h"

namespace steelyard {
namespace {

static_assert(std::endian::native == std::endian::little);

using Kind = PickleValue::Kind;

constexpr std::string_view kRebuildTensor = "torch._utils._rebuild_tensor_v2";
constexpr std::string_view kRebuildParameter = "torch._utils._rebuild_parameter";
constexpr std::array<std::string_view, 11> kAllowed{
    kRebuildTensor,      kRebuildParameter,       "torch.FloatStorage", "torch.DoubleStorage",
    "torch.HalfStorage", "torch.BFloat16Storage", "torch.LongStorage",  "torch.IntStorage",
    "torch.CharStorage", "torch.ByteStorage",     "torch.BoolStorage"};
constexpr std::array<std::string_view, 3> kEntries{"state_dict", "model_state_dict", "model"};
constexpr std::uint64_t kMostPickleBytes = std::uint64_t{32} << 20;
// Tensors may share a storage, but not so that they need many times the file's size.
constexpr std::uint64_t kMostUses = 4;

std::optional<DType> dtype_of_storage(std::string_view global) {
  constexpr std::array<DType, 9> kTypes{DType::kF32,  DType::kF64, DType::kF16,
                                        DType::kBF16, DType::kI64, DType::kI32,
                                        DType::kI8,   DType::kU8,  DType::kBool};
  const auto* found = std::find(kAllowed.begin() + 2, kAllowed.end(), global);
  if (found == kAllowed.end()) return std::nullopt;
  return kTypes[static_cast<std::size_t>(found - kAllowed.begin() - 2)];
}

// A tensor as the pickle describes it, in elements of its storage.
struct TensorRecord {
  std::string storage;
  DType dtype = DType::kF32;
  std::int64_t elements = 0;  // of the storage
  std::int64_t offset = 0;
  Shape shape, strides;
  auto key() const { return std::tie(storage, dtype, elements, offset, shape, strides); }
  bool operator<(const TensorRecord& other) const { return key() < other.key(); }
};

const PickleValue& argument(const PickleValue& call, std::size_t i, Kind kind, const char* what) {
  const auto& arguments = call.items[1]->items;
  if (i >= arguments.size() || !arguments[i]->is(kind)) {
    throw InputError("expected " + std::string(what) + " as argument " + std::to_string(i + 1) +
                     " of " + described(call));
  }
  return *arguments[i];
}

Shape numbers_of(const PickleValue& tuple, const char* what) {
  Shape numbers;
  for (const PickleValue* item : tuple.items) {
    if (!item->is(Kind::kInteger) || item->integer < 0) {
      throw InputError(std::string(what) + ": expected numbers of at least 0, got " +
                       described(*item));
    }
    numbers.push_back(item->integer);
  }
  if (numbers.size() > kMaxSafetensorsRank) {
    throw InputError("expected at most " + std::to_string(kMaxSafetensorsRank) +
                     " dimensions, got " + std::to_string(numbers.size()));
  }
  return numbers;
}

// ("storage", its type, its name in the archive, a device, elements).
void read_storage(const PickleValue& reference, TensorRecord& record) {
  const PickleValue& id = *reference.items[0];
  const auto has = [&](std::size_t i, Kind kind) { return id.items[i]->is(kind); };
  const bool known = id.is(Kind::kTuple) && id.items.size() == 5 && has(0, Kind::kText) &&
                     id.items[0]->text == "storage" && has(1, Kind::kGlobal) &&
                     has(2, Kind::kText) && has(4, Kind::kInteger);
  const auto dtype = known ? dtype_of_storage(id.items[1]->text) : std::nullopt;
  if (!dtype || id.items[4]->integer < 0) throw InputError("expected a storage of numbers");
  record.storage = id.items[2]->text;
  record.dtype = *dtype;
  record.elements = id.items[4]->integer;
}

// Elements; the other sizes must be possible even if one is 0.
std::int64_t product(const Shape& shape) {
  constexpr std::int64_t kMost = std::int64_t{1} << 48;
  std::int64_t size = 1;
  bool empty = false;
  for (const std::int64_t dim : shape) {
    empty = empty || dim == 0;
    if (dim > kMost / size) throw InputError("shape " + shape_string(shape) + " is too large");
    size *= std::max<std::int64_t>(dim, 1);
  }
  return empty ? 0 : size;
}

// Throws InputError unless every element lies in the storage, and not too many are one.
void require_inside(const TensorRecord& record) {
  const std::int64_t size = product(record.shape);
  if (record.shape.size() != record.strides.size()) {
    throw InputError("has " + std::to_string(record.shape.size()) + " dimensions and " +
                     std::to_string(record.strides.size()) + " strides");
  }
  if (size == 0) return;
  std::int64_t last = record.offset;
  bool inside = true;
  for (std::size_t i = 0; i < record.shape.size(); ++i) {
    std::int64_t step = 0;
    inside = inside && !__builtin_mul_overflow(record.shape[i] - 1, record.strides[i], &step) &&
             !__builtin_add_overflow(last, step, &last);
  }
  if (!inside || last >= record.elements) {
    throw InputError("shape " + shape_string(record.shape) + " with strides " +
                     shape_string(record.strides) + " at " + std::to_string(record.offset) +
                     " is outside of its " + std::to_string(record.elements) + " elements");
  }
  if (size > record.elements) {
    throw InputError("shape " + shape_string(record.shape) + " repeats its " +
                     std::to_string(record.elements) + " elements: expected a tensor of its own");
  }
}

// What PyTorch says of some tensors beside their storage: "neg", that their numbers are negated.
void require_no_properties(const PickleValue& call) {
  constexpr std::size_t kPlace = 6;
  const auto& arguments = call.items[1]->items;
  if (arguments.size() <= kPlace || arguments[kPlace]->is(Kind::kNone)) return;
  const PickleValue& properties = *arguments[kPlace];
  if (properties.is(Kind::kDict) && properties.items.empty()) return;
  throw InputError("has properties beside its numbers, " + described(properties) +
                   ": save a copy of it (tensor.clone())");
}

TensorRecord record_of(const PickleValue& call) {
  if (call.items[0]->text == kRebuildParameter) {
    const PickleValue& data = argument(call, 0, Kind::kCall, "a tensor");
    if (data.items[0]->text == kRebuildTensor) return record_of(data);
  }
  if (call.items[0]->text != kRebuildTensor) throw InputError("is no tensor");
  TensorRecord record;
  read_storage(argument(call, 0, Kind::kPersistent, "a storage"), record);
  record.offset = argument(call, 1, Kind::kInteger, "an offset").integer;
  if (record.offset < 0) throw InputError("a negative offset");
  record.shape = numbers_of(argument(call, 2, Kind::kTuple, "a shape"), "shape");
  record.strides = numbers_of(argument(call, 3, Kind::kTuple, "strides"), "strides");
  require_inside(record);
  require_no_properties(call);
  return record;
}

bool is_row_major(const TensorRecord& record) {
  std::int64_t stride = 1;
  for (std::size_t i = record.shape.size(); i-- > 0;) {
    if (record.shape[i] != 1 && record.strides[i] != stride) return false;
    stride *= record.shape[i];
  }
  return true;
}

// Copies the elements one by one, in row-major order.
void gather(const TensorRecord& record, const std::string& storage, std::size_t bytes, char* into) {
  Shape at(record.shape.size(), 0);
  std::int64_t from = record.offset;
  for (std::int64_t i = 0; i < product(record.shape); ++i) {
    std::memcpy(into + static_cast<std::size_t>(i) * bytes,
                storage.data() + static_cast<std::size_t>(from) * bytes, bytes);
    for (std::size_t axis = at.size(); axis-- > 0;) {
      from += record.strides[axis];
      if (++at[axis] < record.shape[axis]) break;
      from -= at[axis] * record.strides[axis];
      at[axis] = 0;
    }
  }
}

void require_bools(const Tensor& tensor) {
  const auto* bytes = static_cast<const unsigned char*>(tensor.raw());
  const auto* bad = std::find_if(bytes, bytes + tensor.size(), [](auto b) { return b > 1; });
  if (bad == bytes + tensor.size()) return;
  throw InputError("expected 0 or 1 at index " + std::to_string(bad - bytes) + ", got " +
                   std::to_string(*bad));
}

// The archive's members, under the name of the folder that they all lie in.
class Archive {
 public:
  explicit Archive(const std::filesystem::path& path)
      : members_(std::make_shared<const InputFile>(path)) {
    constexpr std::string_view kPickle = "/data.pkl";
    for (const std::string& name : members_.names()) {
      if (name.ends_with(kPickle) && name.find('/') == name.size() - kPickle.size()) {
        folder_ = name.substr(0, name.size() - kPickle.size() + 1);
      }
      stored_ += members_.size(name);
    }
    if (folder_.empty()) throw InputError("not a PyTorch file: the archive has no data.pkl");
    const std::string order = folder_ + "byteorder";
    if (members_.contains(order) && text_of(order) != "little") {
      throw InputError("its numbers are not little-endian");
    }
  }

  std::string pickle() { return text_of(folder_ + "data.pkl"); }

  // Each tensor once: a tensor under two names is one.
  Tensor read(const TensorRecord& record) {
    const auto [found, is_new] = read_.try_emplace(record);
    if (is_new) found->second = read_anew(record);
    return found->second;
  }

 private:
  std::string text_of(const std::string& member) {
    const std::uint64_t size = members_.size(member);
    if (size > kMostPickleBytes) {
      throw InputError("data.pkl: expected at most " + std::to_string(kMostPickleBytes) +
                       " bytes, got " + std::to_string(size));
    }
    std::string text(size, '\0');
    members_.open(member)->read(0, text.data(), text.size());
    return text;
  }

  Tensor read_anew(const TensorRecord& record) {
    const std::string member = folder_ + "data/" + record.storage;
    if (!members_.contains(member)) {
      throw InputError("the archive has no data/" + printable(record.storage));
    }
    const std::uint64_t stored = members_.size(member);
    const std::size_t bytes = dtype_bytes(record.dtype);
    if (stored / bytes != static_cast<std::uint64_t>(record.elements) || stored % bytes != 0) {
      throw InputError("expected " + std::to_string(record.elements) + " elements of " +
                       std::string(dtype_name(record.dtype)) + " in data/" +
                       printable(record.storage) + ", got " + std::to_string(stored) + " bytes");
    }
    const auto size = static_cast<std::uint64_t>(product(record.shape)) * bytes;
    if (size == 0) return Tensor::empty(record.shape, record.dtype);
    const bool whole = is_row_major(record);
    const bool reads_all = !whole && member != strided_;
    used_ += size + (reads_all ? stored : 0);
    if (used_ / kMostUses > stored_) {
      throw InputError("its tensors read their storages too often");
    }
    Tensor tensor = Tensor::empty(record.shape, record.dtype);
    if (whole) {
      members_.open(member)->read(static_cast<std::uint64_t>(record.offset) * bytes, tensor.raw(),
                                  size);
    } else {
      if (reads_all) {
        storage_.assign(stored, '\0');
        members_.open(member)->read(0, storage_.data(), storage_.size());
        strided_ = member;
      }
      gather(record, storage_, bytes, static_cast<char*>(tensor.raw()));
    }
    if (record.dtype == DType::kBool) require_bools(tensor);
    return tensor;
  }

  ZipFile members_;
  std::string folder_;  // "archive/"
  std::uint64_t stored_ = 0, used_ = 0;
  std::string strided_, storage_;  // the last member that a tensor with strides lies in: its bytes
  std::map<TensorRecord, Tensor> read_;
};

bool holds_tensors(const PickleValue& dict) {
  for (std::size_t i = 1; i < dict.items.size(); i += 2) {
    if (dict.items[i]->is(Kind::kCall)) return true;
  }
  return false;
}

// "epoch, net".
std::string keys_of(const PickleValue& dict) {
  constexpr std::size_t kShown = 5;
  std::string text;
  for (std::size_t i = 0; i < std::min(dict.items.size(), 2 * kShown); i += 2) {
    const PickleValue& key = *dict.items[i];
    text += (i == 0 ? "" : ", ") + (key.is(Kind::kText) ? printable(key.text, 40) : described(key));
  }
  return text + (dict.items.size() > 2 * kShown ? ", ..." : "");
}

struct StateDict {
  const PickleValue* dict;
  std::string entry;
};

StateDict state_dict_in(const PickleValue& root) {
  if (!root.is(Kind::kDict)) {
    throw InputError("expected a state dict, got " + described(root));
  }
  // Entries first: a training script's checkpoint may hold other tensors, such as its best
  // accuracy.
  for (const std::string_view entry : kEntries) {
    const PickleValue* value = root.find(entry);
    if (value != nullptr && value->is(Kind::kDict)) return {value, std::string(entry)};
  }
  if (holds_tensors(root)) return {&root, ""};
  throw InputError(
      "expected a dict of tensors, or one with the entry state_dict, model_state_dict or model, "
      "got "
      "one of " +
      (root.items.empty() ? "nothing" : keys_of(root)));
}

NamedTensor named_tensor(Archive& archive, const std::string& file, const PickleValue& key,
                         const PickleValue& value) {
  if (!key.is(Kind::kText) || !is_utf8(key.text)) {
    throw InputError("expected names of tensors, got " + described(key));
  }
  try {
    if (!value.is(Kind::kCall)) throw InputError("expected a tensor, got " + described(value));
    return {key.text, with_memory_for(file + ": tensor '" + printable(key.text) + "'",
                                      [&] { return archive.read(record_of(value)); })};
  } catch (const InputError& error) {
    throw InputError("tensor '" + printable(key.text) + "': " + error.what());
  }
}

}  // namespace

TorchFile read_torch_file(const std::filesystem::path& path) {
  constexpr std::size_t kMostOfMessage = 1000;
  const std::string name = printable(path.string());
  Archive archive = [&] {
    try {
      return Archive(path);
    } catch (const InputError& error) {
      const std::string what = printable(error.what(), kMostOfMessage);
      throw InputError(what.starts_with(name) ? what : name + ": " + what);
    }
  }();
  try {
    const std::string bytes = archive.pickle();
    const auto document = [&] {
      try {
        return std::make_unique<const PickleDocument>(bytes, kAllowed);
      } catch (const InputError& error) {
        throw InputError(std::string("data.pkl, ") + error.what());
      }
    }();
    const StateDict state = state_dict_in(document->root());
    TorchFile file{.tensors = {}, .entry = state.entry};
    std::set<std::string> names;
    for (std::size_t i = 0; i + 1 < state.dict->items.size(); i += 2) {
      file.tensors.push_back(
          named_tensor(archive, name, *state.dict->items[i], *state.dict->items[i + 1]));
      if (!names.insert(file.tensors.back().name).second) {
        throw InputError("two tensors have the name '" + printable(file.tensors.back().name) + "'");
      }
    }
    return file;
  } catch (const InputError& error) {
    throw InputError(name + ": " + printable(error.what(), kMostOfMessage));
  }
}

}  // namespace steelyard
