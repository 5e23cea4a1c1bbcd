// Observers of the caller's values.
#include <memory>
#include <stdexcept>

#include "steelyard/c/context.h"
#include "steelyard/c/views.h"
#include "steelyard/observers/registry.h"

using namespace steelyard;

struct steelyard_observer {
  observers::QScheme scheme;
  std::int64_t channels;
  Device device;
  std::unique_ptr<observers::Observer> observer;
  Tensor non_finite;  // i64 [1]
};

namespace steelyard::c {
namespace {

observers::QScheme scheme_from(const steelyard_observer_descriptor& given) {
  observers::QScheme scheme;
  scheme.bits = given.num_bits;
  scheme.is_signed = flag(given.is_signed, "is_signed");
  scheme.symmetric = flag(given.symmetric, "symmetric");
  scheme.narrow_range = flag(given.narrow_range, "narrow_range");
  scheme.granularity =
      given.channels == 1 ? kernels::Granularity::kTensor : kernels::Granularity::kChannel;
  observers::validate(scheme);
  return scheme;
}

// How values of that shape divide into the observer's channels.
kernels::ChannelLayout layout_of(const View& values, std::int64_t channels, std::int32_t axis) {
  if (channels == 1) return kernels::ChannelLayout::per_tensor(values.size());
  const auto rank = static_cast<std::int64_t>(values.shape.size());
  const std::int64_t from_first = axis < 0 ? axis + rank : axis;
  const bool exists = from_first >= 0 && from_first < rank;
  if (!exists || values.shape[static_cast<std::size_t>(from_first)] != channels) {
    throw std::invalid_argument("values: expected " + std::to_string(channels) +
                                " channels along axis " + std::to_string(axis) +
                                ", got the shape " + shape_string(values.shape));
  }
  const auto at = values.shape.begin() + from_first;
  return {shape_size({values.shape.begin(), at}), channels,
          shape_size({at + 1, values.shape.end()})};
}

// What writes the range to the caller's arrays: through memory of the engine's own, whose alignment
// it relies on.
void write_qparams(const steelyard_observer& observer, const View& scale, const View& zero_point) {
  const Shape channels{observer.channels};
  const observers::QParamTensors own{Tensor::empty(channels, DType::kF32, observer.device),
                                     Tensor::empty(channels, DType::kI32, observer.device)};
  const Tensor zero_range = Tensor::empty(channels, DType::kU8, observer.device);
  observer.observer->write_qparams(observer.scheme, own, zero_range);
  write_to(scale, own.scale);
  write_to(zero_point, own.zero_point);
}

View parameters_of(const steelyard_observer& observer, const DLTensor* tensor, const char* name,
                   DType dtype) {
  View view = view_of(tensor, name);
  require_dtype(view, name, {dtype});
  require_shape(view, name, {observer.channels});
  require_dense(view, name);
  require_on(view, name, observer.device);
  return view;
}

}  // namespace
}  // namespace steelyard::c

void steelyard_observer_descriptor_init(steelyard_observer_descriptor* descriptor,
                                        size_t struct_bytes) {
  static const observers::ObserverOptions kOptions;  // its words live as long as the library
  const observers::QScheme scheme;
  steelyard_observer_descriptor defaults{};
  defaults.type = kOptions.type.c_str();
  defaults.num_bits = scheme.bits;
  defaults.is_signed = scheme.is_signed ? 1 : 0;
  defaults.symmetric = scheme.symmetric ? 1 : 0;
  defaults.narrow_range = scheme.narrow_range ? 1 : 0;
  defaults.channels = 1;
  defaults.averaging_constant = kOptions.averaging_constant;
  defaults.percentile = kOptions.percentile;
  defaults.limit = kOptions.limit;
  defaults.device = {kDLCPU, 0};
  c::init_struct(descriptor, struct_bytes, defaults);
}

steelyard_status steelyard_observer_create(steelyard_context* context,
                                           const steelyard_observer_descriptor* descriptor,
                                           steelyard_observer** observer) {
  return c::call(context, __func__, [&] {
    c::required(observer, "observer") = nullptr;
    const auto given =
        c::read_struct(descriptor, "a descriptor", "steelyard_observer_descriptor_init");
    observers::ObserverOptions options;
    options.type = &c::required(given.type, "type");
    options.averaging_constant = given.averaging_constant;
    options.percentile = given.percentile;
    options.limit = given.limit;
    if (given.channels < 1) {
      throw std::invalid_argument("expected channels >= 1, got " + std::to_string(given.channels));
    }
    auto made = std::make_unique<steelyard_observer>();
    made->scheme = c::scheme_from(given);
    made->channels = given.channels;
    made->device = c::available_device_from(given.device, "descriptor");
    const c::SelectedDevice selected(made->device);
    made->observer = observers::make_observer(options, made->scheme, made->channels);
    made->observer->set_bits(made->scheme.bits);
    made->non_finite = Tensor::zeros({1}, DType::kI64, made->device);
    for (const NamedBuffer& buffer : made->observer->state()) buffer.tensor.move_to(made->device);
    *observer = made.release();
  });
}

void steelyard_observer_destroy(steelyard_observer* observer) { delete observer; }

steelyard_status steelyard_observer_observe(steelyard_context* context,
                                            steelyard_observer* observer, void* stream,
                                            const DLTensor* values, int32_t axis) {
  return c::call(context, __func__, [&] {
    c::required(observer, "observer");
    const c::View view = c::view_of(values, "values");
    c::require_dtype(view, "values", {DType::kF32});
    c::require_on(view, "values", observer->device);
    const auto layout = c::layout_of(view, observer->channels, axis);
    c::in_order_of(observer->device, stream, [&] {
      observer->observer->observe(layout, c::copied(view, "values"), observer->non_finite);
    });
  });
}

steelyard_status steelyard_observer_qparams(steelyard_context* context,
                                            const steelyard_observer* observer, void* stream,
                                            const DLTensor* scale, const DLTensor* zero_point) {
  return c::call(context, __func__, [&] {
    c::required(observer, "observer");
    const c::View scales = c::parameters_of(*observer, scale, "scale", DType::kF32);
    const c::View zeros = c::parameters_of(*observer, zero_point, "zero_point", DType::kI32);
    if (c::overlap(scales, zeros)) {
      throw std::invalid_argument("expected scale and zero_point apart, got memory that overlaps");
    }
    c::in_order_of(observer->device, stream, [&] { c::write_qparams(*observer, scales, zeros); });
  });
}

steelyard_status steelyard_observer_range(steelyard_context* context,
                                          const steelyard_observer* observer, double* lo,
                                          double* hi, int64_t channels) {
  return c::call(context, __func__, [&] {
    c::required(observer, "observer");
    c::required(lo, "lo");
    c::required(hi, "hi");
    if (channels != observer->channels) {
      throw std::invalid_argument("expected room for " + std::to_string(observer->channels) +
                                  " channels, got " + std::to_string(channels));
    }
    const c::SelectedDevice selected(observer->device);
    for (const observers::Range& range : observer->observer->ranges()) {
      *lo++ = range.lo;
      *hi++ = range.hi;
    }
  });
}

steelyard_status steelyard_observer_non_finite(steelyard_context* context,
                                               const steelyard_observer* observer, int64_t* count) {
  return c::call(context, __func__, [&] {
    c::required(observer, "observer");
    const c::SelectedDevice selected(observer->device);
    c::required(count, "count") = *observer->non_finite.to(Device{}).data<std::int64_t>();
  });
}

steelyard_status steelyard_observer_reset(steelyard_context* context,
                                          steelyard_observer* observer) {
  return c::call(context, __func__, [&] {
    const c::SelectedDevice selected(c::required(observer, "observer").device);
    observer->observer->reset();
    observer->non_finite.fill(0);
  });
}
