// Memory of the library for callers that have none of their own.
#include "steelyard/c/context.h"
#include "steelyard/c/views.h"
#include "steelyard/framework/tensor/on_device.h"
#include "steelyard/kernels/cuda/cuda_memory.h"

using namespace steelyard;

steelyard_status steelyard_tensor_create(steelyard_context* context, DLDevice device,
                                         DLDataType dtype, int32_t ndim, const int64_t* shape,
                                         DLManagedTensor** tensor) {
  return c::call(context, __func__, [&] {
    c::required(tensor, "tensor") = nullptr;
    if (ndim < 0) throw std::invalid_argument("expected ndim >= 0, got " + std::to_string(ndim));
    if (ndim > 0) c::required(shape, "shape");
    const Device on = c::available_device_from(device, "tensor");
    const c::SelectedDevice selected(on);
    *tensor =
        c::managed(Tensor::empty(Shape(shape, shape + ndim), c::dtype_from(dtype, "tensor"), on));
  });
}

steelyard_status steelyard_tensor_copy(steelyard_context* context, void* stream,
                                       const DLTensor* from, const DLTensor* to) {
  return c::call(context, __func__, [&] {
    const c::View source = c::view_of(from, "from"), target = c::view_of(to, "to");
    c::require_dtype(target, "to", {source.dtype});
    c::require_shape(target, "to", source.shape);
    c::require_dense(source, "from");
    c::require_dense(target, "to");
    if (c::overlap(source, target)) {
      throw std::invalid_argument("expected from and to apart, got memory that overlaps");
    }
    const Device gpu = source.device == Device::cpu() ? target.device : source.device;
    c::in_order_of(gpu, stream, [&] {
      copy_bytes(target.data, target.device, source.data, source.device,
                 static_cast<std::size_t>(source.size()) * dtype_bytes(source.dtype));
      if (gpu.kind == Device::Kind::kCuda) kernels::cuda_synchronize(cuda_queue(gpu));
    });
  });
}
