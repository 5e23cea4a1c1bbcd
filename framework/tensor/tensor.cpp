#include "steelyard/framework/tensor/tensor.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <stdexcept>
#include <type_traits>

#include "steelyard/framework/tensor/on_device.h"
#include "steelyard/kernels/convert/convert.h"
#include "steelyard/kernels/elementwise/elementwise.h"

namespace steelyard {
namespace {

// Throws for a tensor that has its shape alone (without_elements()).
void require_elements(const Tensor& tensor, const char* op) {
  if (tensor.size() == 0 || tensor.raw() != nullptr) return;
  throw std::invalid_argument(std::string("[") + op + "] expected a tensor " +
                              shape_string(tensor.shape()) + " with elements, got its shape alone");
}

// Calls f with a null pointer to the dtype's C++ type.
template <typename F>
void visit_dtype(DType dtype, const char* op, F&& f) {
  switch (dtype) {
    case DType::kF32:
      return f(static_cast<float*>(nullptr));
    case DType::kF64:
      return f(static_cast<double*>(nullptr));
    case DType::kI64:
      return f(static_cast<std::int64_t*>(nullptr));
    case DType::kI32:
      return f(static_cast<std::int32_t*>(nullptr));
    case DType::kI8:
      return f(static_cast<std::int8_t*>(nullptr));
    case DType::kU8:
      return f(static_cast<std::uint8_t*>(nullptr));
    case DType::kBool:
      return f(static_cast<bool*>(nullptr));
    case DType::kF16:
    case DType::kBF16:
      break;
  }
  throw std::invalid_argument(std::string("[") + op + "] unsupported dtype " +
                              std::string(dtype_name(dtype)));
}

// Throws where an integer type cannot hold the value, cut to an integer.
template <typename T>
void require_held(const char* op, double value, DType dtype) {
  if constexpr (std::is_integral_v<T> && !std::is_same_v<T, bool>) {
    const double whole = std::trunc(value), end = std::ldexp(1.0, std::numeric_limits<T>::digits);
    if (whole >= static_cast<double>(std::numeric_limits<T>::min()) && whole < end) return;
    throw std::invalid_argument(std::string("[") + op + "] expected a value that " +
                                std::string(dtype_name(dtype)) + " holds, got " +
                                std::to_string(value));
  }
}

bool is_half(DType dtype) { return dtype == DType::kF16 || dtype == DType::kBF16; }

void require_floating(DType dtype) {
  if (!is_floating(dtype)) {
    throw std::invalid_argument("[to] f16 and bf16 convert to and from floating dtypes, not " +
                                std::string(dtype_name(dtype)));
  }
}

// Calls f with a null pointer to the C++ type of what kernels convert.
template <typename F>
void visit_convertible(DType dtype, F&& f) {
  switch (dtype) {
    case DType::kF32:
      return f(static_cast<float*>(nullptr));
    case DType::kF64:
      return f(static_cast<double*>(nullptr));
    case DType::kF16:
      return f(static_cast<kernels::Half*>(nullptr));
    case DType::kBF16:
      return f(static_cast<kernels::BFloat16*>(nullptr));
    case DType::kI32:
      return f(static_cast<std::int32_t*>(nullptr));
    default:
      break;
  }
}

// y = x where the tensors are, rounded once; false where no kernel does it.
bool convert(const Tensor& x, const Tensor& y) {
  bool done = false;
  visit_convertible(x.dtype(), [&](auto* from) {
    visit_convertible(y.dtype(), [&](auto* to) {
      using From = std::remove_pointer_t<decltype(from)>;
      using To = std::remove_pointer_t<decltype(to)>;
      if constexpr (!std::is_same_v<From, To> && (!std::is_integral_v<From> || sizeof(To) > 2) &&
                    (!std::is_integral_v<To> || sizeof(From) > 2)) {
        run(x.device(), kernels::Convert<From, To>{.n = x.size(),
                                                   .x = static_cast<const From*>(x.raw()),
                                                   .y = static_cast<To*>(y.raw())});
        done = true;
      }
    });
  });
  return done;
}

}  // namespace

std::string shape_string(const Shape& shape) {
  std::string text = "[";
  for (std::size_t i = 0; i < shape.size(); ++i) {
    if (i > 0) text += ", ";
    text += std::to_string(shape[i]);
  }
  return text + "]";
}

std::int64_t shape_size(const Shape& shape) {
  std::int64_t size = 1;
  if (std::find(shape.begin(), shape.end(), 0) != shape.end()) size = 0;  // the order is no matter
  for (const std::int64_t d : shape) {
    if (d < 0) {
      throw std::invalid_argument("[tensor] negative dimension in " + shape_string(shape));
    }
    if (__builtin_mul_overflow(size, d, &size)) {
      throw std::invalid_argument("[tensor] size of " + shape_string(shape) + " exceeds 64 bits");
    }
  }
  return size;
}

std::size_t Tensor::take_form(Shape shape, DType dtype) {
  size_ = shape_size(shape);
  std::int64_t bytes = 0;
  if (__builtin_mul_overflow(size_, static_cast<std::int64_t>(dtype_bytes(dtype)), &bytes)) {
    throw std::invalid_argument("[tensor] bytes of " + shape_string(shape) + " exceed 64 bits");
  }
  shape_ = std::move(shape);
  dtype_ = dtype;
  return static_cast<std::size_t>(bytes);
}

Tensor Tensor::empty(Shape shape, DType dtype, Device device) {
  Tensor t;
  const std::size_t bytes = t.take_form(std::move(shape), dtype);
  t.storage_ = std::make_shared<Storage>(bytes, device);
  return t;
}

Tensor Tensor::without_elements(Shape shape, DType dtype) {
  Tensor t;
  t.take_form(std::move(shape), dtype);
  t.storage_ = std::make_shared<Storage>(0, Device{});
  return t;
}

Tensor Tensor::borrow(void* memory, Shape shape, DType dtype, Device device,
                      std::shared_ptr<const void> owner) {
  constexpr std::uintptr_t kVectorBytes = 64;  // kernels read whole vectors
  const std::uintptr_t past = reinterpret_cast<std::uintptr_t>(memory) % kVectorBytes;
  if (past != 0) {
    throw std::invalid_argument("[tensor] expected memory aligned to " +
                                std::to_string(kVectorBytes) + " bytes, got an address " +
                                std::to_string(past) + " past one");
  }
  Tensor t;
  const std::size_t bytes = t.take_form(std::move(shape), dtype);
  t.storage_ = std::make_shared<Storage>(memory, bytes, device, std::move(owner));
  return t;
}

Tensor Tensor::zeros(Shape shape, DType dtype, Device device) {
  Tensor t = empty(std::move(shape), dtype, device);
  t.fill(0);
  return t;
}

Tensor Tensor::full(Shape shape, double value, DType dtype, Device device) {
  Tensor t = empty(std::move(shape), dtype, device);
  t.fill(value);
  return t;
}

template <typename T>
Tensor Tensor::from(std::span<const T> values, Shape shape) {
  Tensor t = empty(std::move(shape), DTypeOf<T>::value);
  if (static_cast<std::int64_t>(values.size()) != t.size()) {
    throw std::invalid_argument("[tensor] shape " + shape_string(t.shape()) + " needs " +
                                std::to_string(t.size()) + " values, got " +
                                std::to_string(values.size()));
  }
  std::copy(values.begin(), values.end(), t.data<T>());
  return t;
}
template Tensor Tensor::from(std::span<const float>, Shape);
template Tensor Tensor::from(std::span<const double>, Shape);
template Tensor Tensor::from(std::span<const std::int64_t>, Shape);
template Tensor Tensor::from(std::span<const std::int32_t>, Shape);
template Tensor Tensor::from(std::span<const std::int8_t>, Shape);
template Tensor Tensor::from(std::span<const std::uint8_t>, Shape);

std::int64_t Tensor::dim(std::int64_t i) const {
  require_defined("dim");
  const std::int64_t axis = i < 0 ? i + rank() : i;
  if (axis < 0 || axis >= rank()) {
    throw std::out_of_range("[tensor] dimension " + std::to_string(i) + " of " +
                            shape_string(shape_));
  }
  return shape_[static_cast<std::size_t>(axis)];
}

std::int64_t Tensor::bytes() const {
  return size_ * static_cast<std::int64_t>(dtype_bytes(dtype_));
}

double Tensor::item() const {
  require_defined("item");
  if (size_ != 1) {
    throw std::invalid_argument("[tensor] item() needs one element, shape is " +
                                shape_string(shape_));
  }
  if (device().kind != Device::Kind::kCpu) return to(Device{}).item();
  double value = 0;
  visit_dtype(dtype_, "item", [&](auto* tag) {
    using T = std::remove_pointer_t<decltype(tag)>;
    value = static_cast<double>(*data<T>());
  });
  return value;
}

Tensor Tensor::reshape(Shape shape) const {
  require_defined("reshape");
  if (shape_size(shape) != size_) {
    throw std::invalid_argument("[reshape] cannot view " + shape_string(shape_) + " as " +
                                shape_string(shape));
  }
  Tensor t = *this;
  t.shape_ = std::move(shape);
  return t;
}

Tensor Tensor::clone() const {
  if (!defined()) return {};
  Tensor t = empty(shape_, dtype_, device());
  t.copy_from(*this);
  return t;
}

Tensor Tensor::to(DType dtype) const {
  require_defined("to");
  require_elements(*this, "to");
  if (dtype == dtype_) return clone();
  if (is_half(dtype_)) require_floating(dtype);
  if (is_half(dtype)) require_floating(dtype_);
  Tensor t = empty(shape_, dtype, device());
  if (convert(*this, t)) return t;
  if (device().kind != Device::Kind::kCpu) return to(Device{}).to(dtype).to(device());
  visit_dtype(dtype_, "to", [&](auto* from_tag) {
    using From = std::remove_pointer_t<decltype(from_tag)>;
    visit_dtype(dtype, "to", [&](auto* to_tag) {
      using To = std::remove_pointer_t<decltype(to_tag)>;
      const From* in = data<From>();
      To* out = t.data<To>();
      for (std::int64_t i = 0; i < size_; ++i) out[i] = static_cast<To>(in[i]);
    });
  });
  return t;
}

void Tensor::copy_from(const Tensor& other) const {
  require_defined("copy_from");
  other.require_defined("copy_from");
  require_elements(*this, "copy_from");
  require_elements(other, "copy_from");
  if (shape_ != other.shape_ || dtype_ != other.dtype_) {
    throw std::invalid_argument(
        "[copy_from] expected " + shape_string(shape_) + " " + std::string(dtype_name(dtype_)) +
        ", got " + shape_string(other.shape_) + " " + std::string(dtype_name(other.dtype_)));
  }
  copy_bytes(raw(), device(), other.raw(), other.device(), static_cast<std::size_t>(bytes()));
  mark_changed();
}

Tensor Tensor::to(Device device) const {
  if (!defined() || device == this->device()) return *this;
  Tensor t = empty(shape_, dtype_, device);
  t.copy_from(*this);
  return t;
}

void Tensor::move_to(Device device) const {
  if (defined()) storage_->move_to(device);
}

void Tensor::fill(double value) const {
  require_defined("fill");
  require_elements(*this, "fill");
  if (is_half(dtype_)) {
    return copy_from(full(shape_, value, DType::kF64).to(dtype_).to(device()));
  }
  visit_dtype(dtype_, "fill", [&](auto* tag) {
    using T = std::remove_pointer_t<decltype(tag)>;
    require_held<T>("fill", value, dtype_);
    using Stored = std::conditional_t<std::is_same_v<T, bool>, std::uint8_t, T>;
    run(device(), kernels::Fill<Stored>{.n = size_,
                                        .value = static_cast<Stored>(static_cast<T>(value)),
                                        .y = static_cast<Stored*>(raw())});
  });
  mark_changed();
}

void Tensor::require_defined(const char* op) const {
  if (defined()) return;
  throw std::invalid_argument(std::string("[") + op + "] expected a tensor, got an undefined one");
}

void Tensor::require_dtype(DType dtype) const {
  require_defined("data");
  if (dtype != dtype_) {
    throw std::invalid_argument("[tensor] expected dtype " + std::string(dtype_name(dtype)) +
                                ", got " + std::string(dtype_name(dtype_)));
  }
}

void Tensor::require_cpu(const char* op) const {
  require_elements(*this, op);
  if (device().kind == Device::Kind::kCpu) return;
  throw std::invalid_argument(std::string("[") + op + "] expected a tensor on the CPU, got " +
                              device_name(device()));
}

void throw_not_floating(const char* op, DType dtype) {
  throw std::invalid_argument(std::string("[") + op + "] expected f32 or f64, got " +
                              std::string(dtype_name(dtype)));
}

}  // namespace steelyard
