#include "steelyard/kernels/cpu/onednn/context.h"

#include "steelyard/kernels/backend.h"
#include "steelyard/kernels/cpu/onednn/kernels.h"
#include "steelyard/kernels/device_memory.h"
#include "steelyard/kernels/instructions.h"

namespace steelyard::kernels::onednn {
namespace {

dnnl::cpu_isa highest_isa(InstructionLevel level) {
  switch (level) {
    case InstructionLevel::kV2:
      return dnnl::cpu_isa::sse41;
    case InstructionLevel::kV3:
      return dnnl::cpu_isa::avx2;
    default:
      return dnnl::cpu_isa::avx512_core;
  }
}

// True where the processor has the instructions and DNNL_MAX_CPU_ISA lets oneDNN use them.
bool may_use(dnnl::cpu_isa isa) {
  const unsigned available = instruction_set();
  const auto wanted = static_cast<unsigned>(isa);
  return (available & wanted) == wanted;
}

}  // namespace

bool built() { return true; }
void hold_to_limit() {
  static const bool done = [] {
    const auto limit = instruction_limit();
    if (limit && *limit <= InstructionLevel::kV4) dnnl::set_max_cpu_isa(highest_isa(*limit));
    return true;
  }();
  static_cast<void>(done);
}
unsigned instruction_set() {
  hold_to_limit();
  return static_cast<unsigned>(dnnl::get_effective_cpu_isa());
}
bool has_bf16() {
  static const bool has = may_use(dnnl::cpu_isa::avx512_core_bf16);
  return has;
}

const dnnl::engine& cpu_engine() {
  static const dnnl::engine engine(dnnl::engine::kind::cpu, 0);
  return engine;
}

dnnl::stream& cpu_stream() {
  thread_local dnnl::stream stream(cpu_engine());
  return stream;
}

void* scratch(Scratch slot, std::size_t bytes) {
  constexpr auto kSlots = static_cast<std::size_t>(Scratch::kCount);
  thread_local std::array<std::unique_ptr<DeviceBuffer>, kSlots> buffers;
  auto& buffer = buffers[static_cast<std::size_t>(slot)];
  if (!buffer || buffer->bytes() < bytes) {
    buffer.reset();  // before there is another
    buffer = std::make_unique<DeviceBuffer>(DeviceType::kCpu, bytes);
  }
  return buffer->data();
}

dnnl::primitive_attr user_scratchpad() {
  dnnl::primitive_attr attr;
  attr.set_scratchpad_mode(dnnl::scratchpad_mode::user);
  return attr;
}

std::optional<dnnl::reorder> reorder_between(const dnnl::memory::desc& from,
                                             const dnnl::memory::desc& to) {
  if (from == to) return {};
  return dnnl::reorder(dnnl::reorder::primitive_desc(cpu_engine(), from, cpu_engine(), to));
}

dnnl::memory reordered(const std::optional<dnnl::reorder>& reorder, const dnnl::memory::desc& from,
                       const dnnl::memory::desc& to, const float* data, Scratch slot) {
  dnnl::memory given = wrap(from, data);
  if (!reorder) return given;
  dnnl::memory result = scratch_memory(slot, to);
  reorder->execute(cpu_stream(), given, result);
  return result;
}

PrimitiveKey conv_key(const Conv2dShape& s, int kind) {
  // oneDNN divides the work when it creates a primitive, so the thread count is part of the key.
  const std::int64_t kind_and_threads = (std::int64_t{kind} << 32) | num_threads();
  return {s.batch,        s.in_h,     s.in_w,           s.in_channels,
          s.out_channels, s.kernel_h, s.kernel_w,       s.stride_h,
          s.stride_w,     s.pad_h,    s.pad_w,          s.dilation_h,
          s.dilation_w,   s.groups,   kind_and_threads, 0};
}

}  // namespace steelyard::kernels::onednn
