// A library that a CUDA program loads where CUDA_INJECTION64_PATH names it: writes a line for each
// kernel that the program ran to the file that GPU_KERNEL_TRACE names, "start nanoseconds name",
// those of captured graphs, too. It slows a program down by a few percent, where Nsight Compute,
// which runs every kernel alone, takes minutes for a large network.
#include <cupti.h>
#include <cxxabi.h>

#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <memory>

namespace {

constexpr std::size_t kBufferBytes = std::size_t{8} << 20;

std::FILE* trace = nullptr;

void CUPTIAPI give_buffer(std::uint8_t** buffer, std::size_t* bytes, std::size_t* most_records) {
  *buffer = static_cast<std::uint8_t*>(std::aligned_alloc(8, kBufferBytes));
  *bytes = *buffer == nullptr ? 0 : kBufferBytes;
  *most_records = 0;  // as many as fit
}

void write_kernel(const CUpti_ActivityKernel10& kernel) {
  const std::unique_ptr<char, decltype(&std::free)> name(
      abi::__cxa_demangle(kernel.name, nullptr, nullptr, nullptr), &std::free);
  std::fprintf(trace, "%llu %llu %s\n", static_cast<unsigned long long>(kernel.start),
               static_cast<unsigned long long>(kernel.end - kernel.start),
               name != nullptr ? name.get() : kernel.name);
}

void CUPTIAPI take_buffer(CUcontext, std::uint32_t, std::uint8_t* buffer, std::size_t,
                          std::size_t filled) {
  CUpti_Activity* record = nullptr;
  while (cuptiActivityGetNextRecord(buffer, filled, &record) == CUPTI_SUCCESS) {
    if (record->kind != CUPTI_ACTIVITY_KIND_CONCURRENT_KERNEL) continue;
    write_kernel(*reinterpret_cast<const CUpti_ActivityKernel10*>(record));
  }
  std::free(buffer);
}

void finish() {
  cuptiActivityFlushAll(CUPTI_ACTIVITY_FLAG_FLUSH_FORCED);
  std::fclose(trace);
}

}  // namespace

// CUDA calls it.
extern "C" __attribute__((visibility("default"))) int InitializeInjection() {
  const char* path = std::getenv("GPU_KERNEL_TRACE");
  trace = path == nullptr ? nullptr : std::fopen(path, "w");
  if (trace == nullptr ||
      cuptiActivityRegisterCallbacks(give_buffer, take_buffer) != CUPTI_SUCCESS ||
      cuptiActivityEnable(CUPTI_ACTIVITY_KIND_CONCURRENT_KERNEL) != CUPTI_SUCCESS) {
    std::fprintf(stderr, "gpu_kernel_trace: no trace: GPU_KERNEL_TRACE or CUPTI\n");
    return 0;
  }
  std::atexit(finish);
  return 1;
}
