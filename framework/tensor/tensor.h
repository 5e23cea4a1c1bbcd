// Dense row-major n-dimensional arrays.
#pragma once

#include <cstdint>
#include <initializer_list>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "steelyard/framework/tensor/device.h"
#include "steelyard/framework/tensor/dtype.h"
#include "steelyard/framework/tensor/storage.h"

namespace steelyard {

using Shape = std::vector<std::int64_t>;

// "[2, 3]".
std::string shape_string(const Shape& shape);
// Product of the dimensions (1 for rank 0); throws std::invalid_argument on a negative dimension or
// when the product exceeds 64 bits.
std::int64_t shape_size(const Shape& shape);

// A handle to shared storage: copies alias, clone() copies. A default Tensor is undefined.
// Images are [N, H, W, C]; convolution weights [O, C/groups, KH, KW]; linear weights [out, in].
class Tensor {
 public:
  Tensor() = default;

  // Uninitialized memory.
  static Tensor empty(Shape shape, DType dtype = DType::kF32, Device device = {});
  // A shape without elements: raw() and data() are null, though size() is the shape's.
  static Tensor without_elements(Shape shape, DType dtype);
  static Tensor zeros(Shape shape, DType dtype = DType::kF32, Device device = {});
  // Elements that lie in memory of somebody else's, which lives as long as `owner`; both are never
  // null. Throws std::invalid_argument where it is not aligned as allocated memory is, to 64 bytes.
  static Tensor borrow(void* memory, Shape shape, DType dtype, Device device,
                       std::shared_ptr<const void> owner);
  // As fill().
  static Tensor full(Shape shape, double value, DType dtype = DType::kF32, Device device = {});
  // Copies `values` (row-major); their number must be shape_size(shape).
  template <typename T>
  static Tensor from(std::span<const T> values, Shape shape);
  template <typename T>
  static Tensor from(std::initializer_list<T> values, Shape shape) {
    return from(std::span<const T>(values.begin(), values.size()), std::move(shape));
  }
  template <typename T>
  static Tensor from(const std::vector<T>& values, Shape shape) {
    return from(std::span<const T>(values), std::move(shape));
  }

  bool defined() const { return storage_ != nullptr; }
  const Shape& shape() const { return shape_; }
  std::int64_t rank() const { return static_cast<std::int64_t>(shape_.size()); }
  // Size of dimension i; negative counts from the end. Throws std::out_of_range.
  std::int64_t dim(std::int64_t i) const;
  std::int64_t size() const { return size_; }
  std::int64_t bytes() const;
  DType dtype() const { return dtype_; }
  Device device() const { return storage_ ? storage_->device() : Device{}; }

  // Typed memory, the device's (span(): the CPU's only); throws std::invalid_argument when T is not
  // the tensor's dtype. A Tensor is a handle: constness of the handle does not protect the
  // elements.
  template <typename T>
  T* data() const {
    require_dtype(DTypeOf<T>::value);
    return static_cast<T*>(raw());
  }
  template <typename T>
  std::span<T> span() const {
    require_cpu("span");
    return {data<T>(), static_cast<std::size_t>(size_)};
  }
  void* raw() const { return storage_ ? storage_->data() : nullptr; }
  // The only element as double; throws unless size() == 1. Waits for a GPU.
  double item() const;

  // A tensor with this one's storage under another shape of equal size.
  Tensor reshape(Shape shape) const;
  Tensor clone() const;
  // Conversion by value; the same dtype gives a clone. f16 and bf16 convert to and from the
  // floating dtypes only, rounded to nearest even. Floats lose their fraction as integers; what
  // becomes of NaN and of values that the integer dtype cannot hold is undefined.
  Tensor to(DType dtype) const;
  // A copy of the tensor on another device; on its own device the tensor itself.
  Tensor to(Device device) const;
  // Moves the storage: every handle that shares it is on `device` afterwards.
  void move_to(Device device) const;
  // Copies the elements of a tensor of equal shape and dtype, from any device, into this storage.
  // The storage has changed then, as after fill().
  void copy_from(const Tensor& other) const;
  // Integer dtypes drop the value's fraction. Throws std::invalid_argument for one that they cannot
  // hold, or NaN.
  void fill(double value) const;
  // Says that elements were written through a pointer: data(), span() and raw() give it to readers
  // and writers alike, so they count no change. Between an operation that keeps the tensor and its
  // backward pass a change is an error (Variable::backward()).
  void mark_changed() const {
    if (storage_) storage_->mark_changed();
  }
  // Counts the changes of the storage; 0 for an undefined tensor.
  std::uint64_t version() const { return storage_ ? storage_->version() : 0; }
  bool shares_storage_with(const Tensor& other) const { return storage_ == other.storage_; }
  // Nobody else has a handle to the storage.
  bool is_sole_handle() const { return storage_.use_count() == 1; }

 private:
  // Throws std::invalid_argument.
  void require_defined(const char* op) const;
  void require_dtype(DType dtype) const;
  void require_cpu(const char* op) const;
  // Takes shape and dtype; returns the bytes of such a tensor.
  std::size_t take_form(Shape shape, DType dtype);

  std::shared_ptr<Storage> storage_;
  Shape shape_;
  std::int64_t size_ = 0;
  DType dtype_ = DType::kF32;
};

// data(), or null of a tensor that is not defined.
template <typename T>
T* data_or_null(const Tensor& tensor) {
  return tensor.defined() ? tensor.data<T>() : nullptr;
}

// Calls f with a value of the tensor's floating C++ type: visit_floating(t, "op", [&](auto zero)
// { using T = decltype(zero); ... }). Throws naming `op` for other dtypes.
template <typename F>
decltype(auto) visit_floating(DType dtype, const char* op, F&& f);
[[noreturn]] void throw_not_floating(const char* op, DType dtype);

template <typename F>
decltype(auto) visit_floating(DType dtype, const char* op, F&& f) {
  switch (dtype) {
    case DType::kF32:
      return f(float{});
    case DType::kF64:
      return f(double{});
    default:
      throw_not_floating(op, dtype);
  }
}

}  // namespace steelyard
