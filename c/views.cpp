#include "steelyard/c/views.h"

#include <algorithm>
#include <memory>
#include <stdexcept>

#include "steelyard/framework/ops/moves/strided.h"
#include "steelyard/framework/tensor/on_device.h"
#include "steelyard/kernels/cuda/cuda_memory.h"

namespace steelyard::c {
namespace {

constexpr int kMostAxes = 8;

[[noreturn]] void refuse(const char* name, const std::string& expected, const std::string& got) {
  throw std::invalid_argument(std::string(name) + ": expected " + expected + ", got " + got);
}

struct DTypeRow {
  DType dtype;
  DLDataTypeCode code;
  std::uint8_t bits;
};
constexpr DTypeRow kDTypes[] = {
    {DType::kF32, kDLFloat, 32}, {DType::kF64, kDLFloat, 64},   {DType::kF16, kDLFloat, 16},
    {DType::kI64, kDLInt, 64},   {DType::kBF16, kDLBfloat, 16}, {DType::kI32, kDLInt, 32},
    {DType::kI8, kDLInt, 8},     {DType::kU8, kDLUInt, 8},      {DType::kBool, kDLBool, 8},
};

std::string text_of(DLDataType dtype) {
  return "the code " + std::to_string(dtype.code) + " of " + std::to_string(dtype.bits) +
         " bits in " + std::to_string(dtype.lanes) + " lanes";
}

Shape shape_from(const DLTensor& tensor, const char* name) {
  if (tensor.ndim < 0 || tensor.ndim > kMostAxes) {
    refuse(name, "0 to " + std::to_string(kMostAxes) + " axes", std::to_string(tensor.ndim));
  }
  if (tensor.ndim > 0 && tensor.shape == nullptr) refuse(name, "a shape", "NULL");
  Shape shape(tensor.shape, tensor.shape + tensor.ndim);
  try {
    shape_size(shape);
  } catch (const std::invalid_argument& error) {
    throw std::invalid_argument(std::string(name) + ": " + error.what());
  }
  return shape;
}

// How many elements the lowest and the highest one lie from the first.
std::pair<std::int64_t, std::int64_t> reach_of(const View& view) {
  std::int64_t lowest = 0, highest = 0;
  for (std::size_t axis = 0; axis < view.shape.size(); ++axis) {
    const std::int64_t last = (view.shape[axis] - 1) * view.strides[axis];
    (last < 0 ? lowest : highest) += last;
  }
  return {lowest, highest};
}

// Throws where the last element is too far away for an address.
void require_reachable(const View& view, const char* name) {
  std::int64_t reach = static_cast<std::int64_t>(dtype_bytes(view.dtype));
  for (std::size_t axis = 0; axis < view.shape.size(); ++axis) {
    std::int64_t span = 0;
    const bool fits = !__builtin_mul_overflow(view.shape[axis], view.strides[axis], &span) &&
                      !__builtin_mul_overflow(span, std::int64_t{16}, &span) &&
                      !__builtin_add_overflow(reach, std::abs(span), &reach);
    if (!fits) refuse(name, "strides within the memory", shape_string(view.strides));
  }
}

// Of elements of so many bytes, whose numbers the copy does not look at.
template <typename T>
void copy_strided(const View& view, const Tensor& to, const char* name) {
  const auto from = ops::strided_index(name, view.shape, view.strides);
  const auto dense = ops::strided_index(name, view.shape, ops::row_major_strides(view.shape));
  run(view.device, kernels::CopyStrided<T>{.n = view.size(),
                                           .x = reinterpret_cast<const T*>(view.data),
                                           .from = from,
                                           .y = static_cast<T*>(to.raw()),
                                           .to = dense});
}

struct Managed {
  DLManagedTensor dl = {};
  Tensor tensor;
  Shape shape, strides;
};

}  // namespace

bool View::is_dense() const {
  const Shape dense = ops::row_major_strides(shape);
  for (std::size_t axis = 0; axis < shape.size(); ++axis) {
    if (shape[axis] != 1 && strides[axis] != dense[axis]) return size() == 0;
  }
  return true;
}

const std::byte* View::begin() const {
  if (size() == 0) return data;
  return data + reach_of(*this).first * static_cast<std::int64_t>(dtype_bytes(dtype));
}

const std::byte* View::end() const {
  if (size() == 0) return data;
  return data + (reach_of(*this).second + 1) * static_cast<std::int64_t>(dtype_bytes(dtype));
}

View view_of(const DLTensor* tensor, const char* name) {
  if (tensor == nullptr) refuse(name, "a tensor", "NULL");
  View view;
  view.device = device_from(tensor->device, name);
  view.dtype = dtype_from(tensor->dtype, name);
  view.shape = shape_from(*tensor, name);
  view.strides = tensor->strides == nullptr
                     ? ops::row_major_strides(view.shape)
                     : Shape(tensor->strides, tensor->strides + tensor->ndim);
  if (view.size() == 0) return view;
  if (tensor->data == nullptr) refuse(name, "memory", "NULL");
  require_reachable(view, name);
  view.data = static_cast<std::byte*>(tensor->data) + tensor->byte_offset;
  const std::uintptr_t past = reinterpret_cast<std::uintptr_t>(view.data) % dtype_bytes(view.dtype);
  if (past != 0) {
    refuse(name, "an address aligned to its " + std::to_string(dtype_bytes(view.dtype)) + " bytes",
           "one " + std::to_string(past) + " past such an address");
  }
  return view;
}

void require_dtype(const View& view, const char* name, std::initializer_list<DType> dtypes) {
  if (std::find(dtypes.begin(), dtypes.end(), view.dtype) != dtypes.end()) return;
  std::string expected;
  for (const DType dtype : dtypes) {
    expected.append(expected.empty() ? "" : " or ").append(dtype_name(dtype));
  }
  refuse(name, expected, std::string(dtype_name(view.dtype)));
}

void require_shape(const View& view, const char* name, const Shape& shape) {
  if (view.shape == shape) return;
  refuse(name, "the shape " + shape_string(shape), shape_string(view.shape));
}

void require_dense(const View& view, const char* name) {
  if (view.is_dense()) return;
  refuse(name, "a dense array, strides " + shape_string(ops::row_major_strides(view.shape)),
         "strides " + shape_string(view.strides));
}

void require_on(const View& view, const char* name, Device device) {
  if (view.device == device) return;
  refuse(name, "memory of " + device_name(device), device_name(view.device));
}

bool overlap(const View& a, const View& b) { return a.begin() < b.end() && b.begin() < a.end(); }

Device device_from(DLDevice device, const char* name) {
  switch (device.device_type) {
    case kDLCPU:
    case kDLCUDAHost:
      return Device::cpu();
    case kDLCUDA:
      if (device.device_id >= 0) return Device::cuda(device.device_id);
      refuse(name, "a device from 0 on", std::to_string(device.device_id));
  }
  refuse(name, "a device of the kinds 1 (CPU), 2 (CUDA) and 3 (pinned memory)",
         "the kind " + std::to_string(static_cast<int>(device.device_type)));
}

Device available_device_from(DLDevice device, const char* name) {
  return resolve_device(device_name(device_from(device, name)));
}

DType dtype_from(DLDataType dtype, const char* name) {
  for (const DTypeRow& row : kDTypes) {
    if (row.code == dtype.code && row.bits == dtype.bits && dtype.lanes == 1) return row.dtype;
  }
  refuse(name, "f32, f64, f16, bf16, i64, i32, i8, u8 or bool", text_of(dtype));
}

DLDevice dl_device(Device device) {
  return {device.kind == Device::Kind::kCpu ? kDLCPU : kDLCUDA, device.index};
}

DLDataType dl_dtype(DType dtype) {
  for (const DTypeRow& row : kDTypes) {
    if (row.dtype == dtype) return {static_cast<std::uint8_t>(row.code), row.bits, 1};
  }
  throw std::logic_error("[c] no code for " + std::string(dtype_name(dtype)));
}

Tensor copied(const View& view, const char* name) {
  Tensor own = Tensor::empty(view.shape, view.dtype, view.device);
  if (view.size() == 0) return own;
  if (view.is_dense()) {
    copy_bytes(own.raw(), view.device, view.data, view.device,
               static_cast<std::size_t>(own.bytes()));
    return own;
  }
  switch (dtype_bytes(view.dtype)) {
    case 1:
      copy_strided<std::int8_t>(view, own, name);
      break;
    case 4:
      copy_strided<std::int32_t>(view, own, name);
      break;
    case 8:
      copy_strided<double>(view, own, name);
      break;
    default:
      require_dense(view, name);  // no kernel copies two bytes
  }
  return own;
}

void write_to(const View& view, const Tensor& values) {
  copy_bytes(view.data, view.device, values.raw(), values.device(),
             static_cast<std::size_t>(values.bytes()));
}

namespace {

std::unique_ptr<Managed> made_of(const Tensor& tensor) {
  auto own = std::make_unique<Managed>();
  own->tensor = tensor;
  own->shape = tensor.shape();
  own->strides = ops::row_major_strides(own->shape);
  own->dl.dl_tensor = {tensor.raw(),
                       dl_device(tensor.device()),
                       static_cast<std::int32_t>(own->shape.size()),
                       dl_dtype(tensor.dtype()),
                       own->shape.data(),
                       own->strides.data(),
                       0};
  own->dl.manager_ctx = own.get();
  own->dl.deleter = [](DLManagedTensor* self) {
    if (self != nullptr) delete static_cast<Managed*>(self->manager_ctx);
  };
  return own;
}

}  // namespace

DLManagedTensor* managed(const Tensor& tensor) { return &made_of(tensor).release()->dl; }

void require_room(std::size_t given, std::size_t expected, const char* what) {
  if (given == expected) return;
  throw std::invalid_argument("expected room for " + std::to_string(expected) + " " + what +
                              ", got " + std::to_string(given));
}

void give(const std::vector<Tensor>& tensors, DLManagedTensor** room) {
  std::vector<std::unique_ptr<Managed>> made;
  made.reserve(tensors.size());
  for (const Tensor& t : tensors) made.push_back(t.defined() ? made_of(t) : nullptr);
  std::ranges::transform(made, room, [](std::unique_ptr<Managed>& own) {
    return own == nullptr ? nullptr : &own.release()->dl;
  });
}

SelectedDevice::SelectedDevice(Device device) {
  if (device.kind == Device::Kind::kCpu) return;
  previous_ = kernels::cuda_selected_device();
  kernels::cuda_select_device(device.index);
}

SelectedDevice::~SelectedDevice() {
  if (previous_ < 0) return;
  try {
    kernels::cuda_select_device(previous_);
  } catch (...) {  // a driver that is gone: the call's own error says so
  }
}

void require_stream_of(Device device, const void* stream) {
  if (device.kind == Device::Kind::kCuda || stream == nullptr) return;
  throw std::invalid_argument("expected no stream on the CPU, got one");
}

void engine_waits(Device device, void* stream) {
  if (device.kind == Device::Kind::kCpu) return;
  kernels::cuda_wait_for(cuda_queue(device), {.stream = stream});
}

void caller_waits(Device device, void* stream) {
  if (device.kind == Device::Kind::kCpu) return;
  kernels::cuda_wait_for({.stream = stream}, cuda_queue(device));
}

}  // namespace steelyard::c
