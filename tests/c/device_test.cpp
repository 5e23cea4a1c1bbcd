// Plans, observers and copies on a GPU, and on the emulated one: the bits of the CPU.
#include <gmock/gmock.h>

#include "steelyard/kernels/cuda/cuda_memory.h"
#include "tests/c/plan_support.h"
#include "tests/support/devices.h"

namespace steelyard::c_face {
namespace {

constexpr DLDevice kGpu = {kDLCUDA, 0};

// A copy of an array on the GPU.
struct OnGpu {
  OnGpu(const Context& with, const DLTensor& of) : context(with), host(of) {
    DLManagedTensor* made = nullptr;
    EXPECT_EQ(steelyard_tensor_create(context, kGpu, of.dtype, of.ndim, of.shape, &made),
              STEELYARD_OK)
        << context.message();
    tensor.reset(made);
    EXPECT_EQ(steelyard_tensor_copy(context, nullptr, &host, view()), STEELYARD_OK)
        << context.message();
  }
  const DLTensor* view() const { return &tensor->dl_tensor; }
  void copy_back(void* stream) {
    EXPECT_EQ(steelyard_tensor_copy(context, stream, view(), &host), STEELYARD_OK)
        << context.message();
  }

  const Context& context;
  DLTensor host;
  std::unique_ptr<DLManagedTensor, Destroy> tensor;
};

class CDevice : public testing::WithCudaDevice {};

// A stream of the caller's.
struct Stream {
  ~Stream() { kernels::cuda_release_stream(stream); }
  void* stream = kernels::cuda_new_stream();
};

TEST_F(CDevice, PlansGiveTheBitsOfTheCpuOnTheCallersStream) {
  const Context context;
  const Stream own;
  Array<float> x(wave(120), {3, 40}), scale({0.01F, 0.02F, 0.0123F});
  Array<float> on_cpu(std::vector<float>(120), {3, 40}), on_gpu(std::vector<float>(120), {3, 40});
  steelyard_plan_descriptor d = of_channels({3, 40});
  steelyard_plan_arrays arrays = no_arrays();
  arrays.x = &x.view;
  arrays.y = &on_cpu.view;
  arrays.scale = &scale.view;
  const Plan cpu = plan_of(context, d);
  ASSERT_EQ(steelyard_plan_run(context, cpu.get(), nullptr, nullptr, 0, &arrays), STEELYARD_OK);
  d.device = kGpu;
  const Plan gpu = plan_of(context, d);
  EXPECT_EQ(steelyard_plan_run(context, gpu.get(), own.stream, nullptr, 0, &arrays),
            STEELYARD_INVALID_ARGUMENT);
  EXPECT_EQ(context.message(), "steelyard_plan_run: x: expected memory of cuda:0, got cpu");
  const OnGpu gpu_x(context, x.view), gpu_scale(context, scale.view);
  OnGpu gpu_y(context, on_gpu.view);
  arrays.x = gpu_x.view();
  arrays.y = gpu_y.view();
  arrays.scale = gpu_scale.view();
  ASSERT_EQ(steelyard_plan_run(context, gpu.get(), own.stream, nullptr, 0, &arrays), STEELYARD_OK)
      << context.message();
  gpu_y.copy_back(own.stream);
  EXPECT_EQ(on_gpu.values, on_cpu.values);
}

TEST_F(CDevice, ObserversFollowTheCallersStream) {
  const Context context;
  const Stream own;
  Array<float> x(wave(120), {3, 40});
  steelyard_observer_descriptor d;
  steelyard_observer_descriptor_init(&d, sizeof d);
  d.type = "histogram";
  d.channels = 3;
  Array<float> scales[] = {Array<float>({0, 0, 0}), Array<float>({0, 0, 0})};
  Array<std::int32_t> zeros[] = {Array<std::int32_t>({1, 1, 1}), Array<std::int32_t>({1, 1, 1})};
  for (int gpu = 0; gpu < 2; ++gpu) {
    void* stream = gpu == 1 ? own.stream : nullptr;
    if (gpu == 1) d.device = kGpu;
    steelyard_observer* made = nullptr;
    ASSERT_EQ(steelyard_observer_create(context, &d, &made), STEELYARD_OK) << context.message();
    const std::unique_ptr<steelyard_observer, Destroy> observer(made);
    const OnGpu copy(context, x.view);
    const DLTensor* values = gpu == 1 ? copy.view() : &x.view;
    ASSERT_EQ(steelyard_observer_observe(context, made, stream, values, 0), STEELYARD_OK)
        << context.message();
    OnGpu scale(context, scales[gpu].view), zero(context, zeros[gpu].view);
    const DLTensor* to_scale = gpu == 1 ? scale.view() : &scales[gpu].view;
    const DLTensor* to_zero = gpu == 1 ? zero.view() : &zeros[gpu].view;
    ASSERT_EQ(steelyard_observer_qparams(context, made, stream, to_scale, to_zero), STEELYARD_OK)
        << context.message();
    if (gpu == 1) scale.copy_back(stream);
    if (gpu == 1) zero.copy_back(stream);
    std::int64_t skipped = -1;
    EXPECT_EQ(steelyard_observer_non_finite(context, made, &skipped), STEELYARD_OK);
    EXPECT_EQ(skipped, 0);
  }
  EXPECT_EQ(scales[0].values, scales[1].values);
  EXPECT_EQ(zeros[0].values, zeros[1].values);
  EXPECT_GT(scales[0].values[0], 0);
}

}  // namespace
}  // namespace steelyard::c_face
