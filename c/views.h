// What the caller's tensors are: checked, and in the engine's words.
#pragma once

#include <cstdint>
#include <initializer_list>
#include <string>

#include "steelyard/c/steelyard_dlpack.h"
#include "steelyard/framework/tensor/tensor.h"

namespace steelyard::c {

// The caller's memory. A pinned host's memory is the CPU's.
struct View {
  std::byte* data = nullptr;  // the first element; null where there is none
  Device device;
  DType dtype = DType::kF32;
  Shape shape;
  Shape strides;  // in elements, one for each axis

  std::int64_t size() const { return shape_size(shape); }
  bool is_dense() const;
  // The bytes between the first and the last one of any element.
  const std::byte* begin() const;
  const std::byte* end() const;
};

// Throws std::invalid_argument, naming the tensor, for what no tensor has: no memory, a negative
// size, another dtype or kind of device, an address that is not aligned to the elements.
View view_of(const DLTensor* tensor, const char* name);

// Throw std::invalid_argument, naming the tensor.
void require_dtype(const View& view, const char* name, std::initializer_list<DType> dtypes);
void require_shape(const View& view, const char* name, const Shape& shape);
void require_dense(const View& view, const char* name);
void require_on(const View& view, const char* name, Device device);

// Whether both have a byte between their ends.
bool overlap(const View& a, const View& b);

Device device_from(DLDevice device, const char* name);
// As above; throws DeviceError where there is no such device.
Device available_device_from(DLDevice device, const char* name);
DType dtype_from(DLDataType dtype, const char* name);
DLDevice dl_device(Device device);
DLDataType dl_dtype(DType dtype);

// The elements as a tensor of the engine's own, on their device: dense ones copied as they are,
// strided ones one by one. On a GPU in the order of the engine's queue.
Tensor copied(const View& view, const char* name);
// Writes a tensor of that shape, dtype and device to dense memory of the caller's.
void write_to(const View& view, const Tensor& values);

// A tensor that the caller owns. It shares the storage.
DLManagedTensor* managed(const Tensor& tensor);
// Throws std::invalid_argument where the caller's array has room for another number of `what`.
void require_room(std::size_t given, std::size_t expected, const char* what);
// All of them, or none where it throws; NULL in place of an undefined one.
void give(const std::vector<Tensor>& tensors, DLManagedTensor** room);

// Selects a device of CUDA's for the calling thread, and the one before at its end.
class SelectedDevice {
 public:
  explicit SelectedDevice(Device device);
  ~SelectedDevice();
  SelectedDevice(const SelectedDevice&) = delete;
  SelectedDevice& operator=(const SelectedDevice&) = delete;

 private:
  int previous_ = -1;  // -1: none was selected
};

// Throws std::invalid_argument for a stream on the CPU.
void require_stream_of(Device device, const void* stream);
// The engine's next work on a GPU comes after what is queued on the caller's stream by now, or the
// other way round. Nothing on the CPU.
void engine_waits(Device device, void* stream);
void caller_waits(Device device, void* stream);

// Runs work that the engine queues, in the order of the caller's stream.
template <typename Work>
void in_order_of(Device device, void* stream, const Work& work) {
  require_stream_of(device, stream);
  const SelectedDevice selected(device);
  engine_waits(device, stream);
  try {
    work();
  } catch (...) {
    caller_waits(device, stream);  // what was queued may still write the caller's memory
    throw;
  }
  caller_waits(device, stream);
}

}  // namespace steelyard::c
