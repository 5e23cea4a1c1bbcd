// GGUF files for callers of the C face.
#include "steelyard/framework/files/gguf/gguf.h"

#include <algorithm>
#include <limits>
#include <optional>
#include <stdexcept>
#include <string>
#include <string_view>
#include <vector>

#include "steelyard/c/context.h"
#include "steelyard/c/steelyard_c.h"
#include "steelyard/c/views.h"
#include "steelyard/framework/files/gguf/gguf_rewrite.h"

struct steelyard_gguf {
  steelyard::GgufReader reader;
};

namespace steelyard::c {
namespace {

const GgufTensor& tensor_at(const steelyard_gguf& gguf, std::size_t index) {
  const auto& tensors = gguf.reader.header().tensors;
  if (index < tensors.size()) return tensors[index];
  throw std::invalid_argument("expected a tensor below " + std::to_string(tensors.size()) +
                              ", got " + std::to_string(index));
}

View bytes_view(const DLTensor* tensor, std::uint64_t bytes) {
  View view = view_of(tensor, "bytes");
  require_dtype(view, "bytes", {DType::kU8});
  require_dense(view, "bytes");
  require_on(view, "bytes", Device::cpu());
  require_shape(view, "bytes", {static_cast<std::int64_t>(bytes)});
  return view;
}

std::vector<GgufEntry> entries_of(const steelyard_gguf& gguf, std::int32_t file_type) {
  const std::vector<GgufEntry>& entries = gguf.reader.header().entries;
  return file_type < 0 ? entries : with_file_type(entries, static_cast<std::uint32_t>(file_type));
}

}  // namespace
}  // namespace steelyard::c

using namespace steelyard;

void steelyard_gguf_tensor_info_init(steelyard_gguf_tensor_info* info, size_t struct_bytes) {
  c::init_struct(info, struct_bytes, steelyard_gguf_tensor_info{});
}

steelyard_status steelyard_gguf_open(steelyard_context* context, const char* path,
                                     steelyard_gguf** gguf) {
  return c::call(context, __func__, [&] {
    c::required(gguf, "gguf") = nullptr;
    *gguf = new steelyard_gguf{GgufReader(&c::required(path, "path"))};
  });
}

void steelyard_gguf_destroy(steelyard_gguf* gguf) { delete gguf; }

steelyard_status steelyard_gguf_count(steelyard_context* context, const steelyard_gguf* gguf,
                                      size_t* count) {
  return c::call(context, __func__, [&] {
    c::required(count, "count") = c::required(gguf, "gguf").reader.header().tensors.size();
  });
}

steelyard_status steelyard_gguf_tensor(steelyard_context* context, const steelyard_gguf* gguf,
                                       size_t index, steelyard_gguf_tensor_info* info) {
  return c::call(context, __func__, [&] {
    const GgufTensor& tensor = c::tensor_at(c::required(gguf, "gguf"), index);
    c::read_struct(info, "info", "steelyard_gguf_tensor_info_init");
    steelyard_gguf_tensor_info filled{};
    filled.name = tensor.name.c_str();
    filled.type = tensor.type->name.data();  // of a literal
    filled.rank = static_cast<std::int32_t>(tensor.sizes.size());
    std::copy(tensor.sizes.rbegin(), tensor.sizes.rend(), filled.shape);
    filled.bytes = tensor.bytes();
    c::init_struct(info, info->struct_bytes, filled);
  });
}

steelyard_status steelyard_gguf_text(steelyard_context* context, const steelyard_gguf* gguf,
                                     const char* key, const char** text) {
  return c::call(context, __func__, [&] {
    const GgufHeader& header = c::required(gguf, "gguf").reader.header();
    const GgufValue* value = header.find(&c::required(key, "key"));
    const bool is_text = value != nullptr && value->text().has_value();
    c::required(text, "text") = is_text ? value->bytes.c_str() : nullptr;
  });
}

steelyard_status steelyard_gguf_number(steelyard_context* context, const steelyard_gguf* gguf,
                                       const char* key, double* number) {
  return c::call(context, __func__, [&] {
    const GgufHeader& header = c::required(gguf, "gguf").reader.header();
    const GgufValue* value = header.find(&c::required(key, "key"));
    const auto found = value == nullptr ? std::nullopt : value->number();
    c::required(number, "number") = found.value_or(std::numeric_limits<double>::quiet_NaN());
  });
}

steelyard_status steelyard_gguf_read(steelyard_context* context, const steelyard_gguf* gguf,
                                     size_t index, const DLTensor* bytes) {
  return c::call(context, __func__, [&] {
    const GgufTensor& tensor = c::tensor_at(c::required(gguf, "gguf"), index);
    const c::View to = c::bytes_view(bytes, tensor.bytes());
    gguf->reader.bytes_of(tensor)->read(0, to.data, tensor.bytes());
  });
}

steelyard_status steelyard_gguf_write(steelyard_context* context, const steelyard_gguf* gguf,
                                      const char* path, int32_t file_type, size_t count,
                                      const size_t* tensors, const char* const* types,
                                      const DLTensor* const* bytes) {
  return c::call(context, __func__, [&] {
    const auto& own = c::required(gguf, "gguf").reader.header().tensors;
    std::vector<GgufTensor> written = own;
    std::vector<const std::byte*> replaced(own.size(), nullptr);
    if (count > 0) {
      c::required(tensors, "tensors");
      c::required(types, "types");
      c::required(bytes, "bytes");
    }
    for (size_t i = 0; i < count; ++i) {
      c::tensor_at(*gguf, tensors[i]);  // which is one of its tensors
      GgufTensor& tensor = written[tensors[i]];
      const char* type = &c::required(types[i], "a type");
      tensor.type = kernels::find_ggml_type(std::string_view(type));
      if (tensor.type == nullptr) {
        throw std::invalid_argument("expected a type of ggml's, got '" + printable(type) + "'");
      }
      if (replaced[tensors[i]] != nullptr) {
        throw std::invalid_argument("tensor '" + printable(tensor.name) + "' is given twice");
      }
      if (tensor.sizes[0] % tensor.type->elements != 0) {
        throw std::invalid_argument("tensor '" + printable(tensor.name) +
                                    "': expected rows of whole blocks of " +
                                    std::to_string(tensor.type->elements) + ", got rows of " +
                                    std::to_string(tensor.sizes[0]));
      }
      replaced[tensors[i]] = c::bytes_view(bytes[i], tensor.bytes()).data;
    }
    GgufWriter writer(&c::required(path, "path"), c::entries_of(*gguf, file_type), written);
    for (size_t i = 0; i < own.size(); ++i) {
      if (replaced[i] != nullptr) {
        writer.write(replaced[i], written[i].bytes());
      } else {
        writer.write(*gguf->reader.bytes_of(own[i]));
      }
    }
    writer.commit();
  });
}
