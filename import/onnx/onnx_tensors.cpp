#include "steelyard/import/onnx/onnx_tensors.h"

#include <onnx.pb.h>

#include <algorithm>
#include <cstring>
#include <optional>

#include "steelyard/framework/files/files.h"
#include "steelyard/framework/tensor/error.h"
#include "steelyard/framework/tensor/printable.h"

namespace steelyard::imports {
namespace {

constexpr std::int64_t kMaxElements = std::int64_t{1} << 30;
constexpr int kMaxRank = 64;

// How a type's elements are stored in raw_data.
template <typename T>
struct Stored {
  using type = T;
};
struct Half {
  std::uint16_t bits;
};
struct BrainFloat {
  std::uint16_t bits;
};

float value_of(Half half) {
  Tensor narrow = Tensor::empty({1}, DType::kF16);
  std::memcpy(narrow.raw(), &half, sizeof half);
  return narrow.to(DType::kF32).data<float>()[0];
}
float value_of(BrainFloat number) {
  const std::uint32_t bits = std::uint32_t{number.bits} << 16;
  float value = 0;
  std::memcpy(&value, &bits, sizeof value);
  return value;
}
template <typename T>
T value_of(T value) {
  return value;
}

class TensorReader {
 public:
  TensorReader(const onnx::TensorProto& proto, const std::filesystem::path& file, std::string what)
      : proto_(proto), file_(file), what_(std::move(what)) {}

  Constant read() {
    read_shape();
    read_bytes();
    const Read as_stored = how_to_read(proto_.data_type());
    if (as_stored == nullptr) {
      fail("expected a tensor of numbers or booleans, got type " + type_name(proto_.data_type()));
    }
    return as_stored(*this);
  }

  using Read = Constant (*)(TensorReader&);
  // Null for a type that is not read.
  static Read how_to_read(int type) {
    switch (type) {
      case onnx::TensorProto::FLOAT:
        return [](TensorReader& t) { return t.floats<float>(t.proto_.float_data()); };
      case onnx::TensorProto::DOUBLE:
        return [](TensorReader& t) { return t.floats<double>(t.proto_.double_data()); };
      case onnx::TensorProto::FLOAT16:
        return [](TensorReader& t) { return t.floats<Half>(t.proto_.int32_data()); };
      case onnx::TensorProto::BFLOAT16:
        return [](TensorReader& t) { return t.floats<BrainFloat>(t.proto_.int32_data()); };
      case onnx::TensorProto::INT64:
        return [](TensorReader& t) { return t.integers<std::int64_t>(t.proto_.int64_data()); };
      case onnx::TensorProto::INT32:
        return [](TensorReader& t) { return t.integers<std::int32_t>(t.proto_.int32_data()); };
      case onnx::TensorProto::INT16:
        return [](TensorReader& t) { return t.integers<std::int16_t>(t.proto_.int32_data()); };
      case onnx::TensorProto::INT8:
        return [](TensorReader& t) { return t.integers<std::int8_t>(t.proto_.int32_data()); };
      case onnx::TensorProto::UINT16:
        return [](TensorReader& t) { return t.integers<std::uint16_t>(t.proto_.int32_data()); };
      case onnx::TensorProto::UINT8:
      case onnx::TensorProto::BOOL:
        return [](TensorReader& t) { return t.integers<std::uint8_t>(t.proto_.int32_data()); };
      case onnx::TensorProto::UINT32:
        return [](TensorReader& t) { return t.integers<std::uint32_t>(t.proto_.uint64_data()); };
      case onnx::TensorProto::UINT64:
        return [](TensorReader& t) { return t.integers<std::uint64_t>(t.proto_.uint64_data()); };
      default:
        return nullptr;
    }
  }

  std::string bytes_of_external() {
    read_shape();
    return read_external();
  }

 private:
  [[noreturn]] void fail(const std::string& why) const {
    throw InputError(printable(file_.string()) + ": " + what_ + ": " + why);
  }

  void read_shape() {
    if (proto_.dims_size() > kMaxRank) {
      fail("expected at most " + std::to_string(kMaxRank) + " dimensions, got " +
           std::to_string(proto_.dims_size()));
    }
    std::int64_t size = 1, of_others = 1;  // than 0: strides are products of some of them
    for (const std::int64_t dim : proto_.dims()) {
      constant_.shape.push_back(dim);
      if (dim < 0 || (dim > 0 && of_others > kMaxElements / dim)) {
        fail("expected a shape of at most " + std::to_string(kMaxElements) + " elements, got " +
             shape_string({proto_.dims().begin(), proto_.dims().end()}));
      }
      if (dim > 0) of_others *= dim;
      size *= dim;
    }
    size_ = static_cast<std::size_t>(size);
  }

  void read_bytes() {
    if (proto_.data_location() == onnx::TensorProto::EXTERNAL) {
      external_ = read_external();
      bytes_ = &external_;
    } else if (proto_.has_raw_data()) {
      bytes_ = &proto_.raw_data();
    }
  }

  std::uint64_t number(const std::string& text, const char* key) const {
    if (text.empty() || text.size() > 18 ||
        text.find_first_not_of("0123456789") != std::string::npos) {
      fail(std::string("external data: ") + key + ": expected a whole number, got " +
           in_quotes(text));
    }
    return std::stoull(text);
  }

  // The tensors' file must lie in the model's folder or below it.
  std::filesystem::path external_path(const std::string& location) const {
    const std::filesystem::path relative(location);
    const bool climbs = std::any_of(relative.begin(), relative.end(),
                                    [](const auto& part) { return part == ".."; });
    if (location.empty() || relative.is_absolute() || climbs ||
        location.find('\0') != std::string::npos) {
      fail("external data: expected a file in the model's folder, got " + in_quotes(location));
    }
    const std::filesystem::path folder = file_.has_parent_path() ? file_.parent_path() : ".";
    std::error_code error;
    const auto real_folder = std::filesystem::canonical(folder, error);
    const auto real_file = std::filesystem::weakly_canonical(folder / relative, error);
    const auto differs =
        std::mismatch(real_folder.begin(), real_folder.end(), real_file.begin(), real_file.end());
    if (error || differs.first != real_folder.end()) {
      fail("external data: expected a file in the model's folder, got " + in_quotes(location));
    }
    return folder / relative;
  }

  std::string read_external() const {
    std::string location;
    std::uint64_t offset = 0;
    std::optional<std::uint64_t> length;
    for (const onnx::StringStringEntryProto& entry : proto_.external_data()) {
      if (entry.key() == "location") location = entry.value();
      if (entry.key() == "offset") offset = number(entry.value(), "offset");
      if (entry.key() == "length") length = number(entry.value(), "length");
    }
    const std::filesystem::path path = external_path(location);
    if (!path_exists(path)) fail("external data: there is no " + in_quotes(path.string()));
    const InputFile file(path);
    if (offset > file.size() || length.value_or(0) > file.size() - offset) {
      fail("external data: " + in_quotes(location) + " has " + std::to_string(file.size()) +
           " bytes, expected " + std::to_string(length.value_or(0)) + " from byte " +
           std::to_string(offset));
    }
    const std::uint64_t bytes = length.value_or(file.size() - offset);
    if (bytes > size_ * sizeof(double)) {
      fail("external data: " + std::to_string(bytes) + " bytes are too many for the shape " +
           shape_string(constant_.shape));
    }
    std::string data(bytes, '\0');
    file.read(offset, data.data(), bytes);
    return data;
  }

  // Calls f(i, element) for each element, from the bytes or the field of the type.
  template <typename T, typename Field, typename F>
  void for_each(const Field& field, const F& f) const {
    if (bytes_ != nullptr) {
      if (bytes_->size() != size_ * sizeof(T)) {
        fail("expected " + std::to_string(size_ * sizeof(T)) + " bytes for the shape " +
             shape_string(constant_.shape) + ", got " + std::to_string(bytes_->size()));
      }
      for (std::size_t i = 0; i < size_; ++i) {
        T value;
        std::memcpy(&value, bytes_->data() + i * sizeof(T), sizeof(T));
        f(i, value_of(value));
      }
      return;
    }
    if (static_cast<std::size_t>(field.size()) != size_) {
      fail("expected " + std::to_string(size_) + " values for the shape " +
           shape_string(constant_.shape) + ", got " + std::to_string(field.size()));
    }
    for (std::size_t i = 0; i < size_; ++i) {
      const auto value = field.Get(static_cast<int>(i));
      if constexpr (std::is_same_v<T, Half> || std::is_same_v<T, BrainFloat>) {
        f(i, value_of(T{static_cast<std::uint16_t>(value)}));
      } else {
        f(i, value_of(static_cast<T>(value)));
      }
    }
  }

  template <typename T, typename Field>
  Constant floats(const Field& field) {
    constant_.floating = true;
    for_each<T>(field, [&](std::size_t i, auto value) {
      if (i == 0) constant_.reals.resize(size_);
      constant_.reals[i] = static_cast<float>(value);
    });
    return std::move(constant_);
  }

  template <typename T, typename Field>
  Constant integers(const Field& field) {
    for_each<T>(field, [&](std::size_t i, auto value) {
      if (i == 0) constant_.integers.resize(size_);
      const auto number = static_cast<std::int64_t>(value);
      if (std::is_unsigned_v<decltype(value)> && number < 0) {
        fail("expected whole numbers of 63 bits, got " + std::to_string(value));
      }
      constant_.integers[i] = {number};
    });
    return std::move(constant_);
  }

  const onnx::TensorProto& proto_;
  const std::filesystem::path& file_;
  std::string what_;
  Constant constant_;
  std::size_t size_ = 0;
  std::string external_;
  const std::string* bytes_ = nullptr;
};

}  // namespace

std::string in_quotes(const std::string& text) { return "'" + printable(text) + "'"; }

std::string in_small_letters(std::string name) {
  std::transform(name.begin(), name.end(), name.begin(),
                 [](unsigned char c) { return static_cast<char>(std::tolower(c)); });
  return name;
}

std::string type_name(int type) {
  const bool known = onnx::TensorProto::DataType_IsValid(type);
  if (!known) return "number " + std::to_string(type);
  return in_small_letters(
      onnx::TensorProto::DataType_Name(static_cast<onnx::TensorProto::DataType>(type)));
}

bool holds_numbers(const onnx::TensorProto& tensor) {
  return TensorReader::how_to_read(tensor.data_type()) != nullptr;
}

Constant read_tensor(const onnx::TensorProto& tensor, const std::filesystem::path& file,
                     std::string what) {
  return TensorReader(tensor, file, std::move(what)).read();
}

void take_external(onnx::TensorProto& tensor, const std::filesystem::path& file, std::string what) {
  if (tensor.data_location() != onnx::TensorProto::EXTERNAL) return;
  std::string bytes = TensorReader(tensor, file, std::move(what)).bytes_of_external();
  tensor.set_raw_data(std::move(bytes));
  tensor.clear_external_data();
  tensor.clear_data_location();
}

}  // namespace steelyard::imports
