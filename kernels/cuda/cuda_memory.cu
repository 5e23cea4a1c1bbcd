#include "steelyard/kernels/cuda/cuda_memory.h"

#include "steelyard/kernels/cuda/small_copy.h"

namespace steelyard::kernels {
namespace {

void require(cudaError_t error, const char* what) { cuda::check(error, what, __FILE__, __LINE__); }

// A graph would keep the address of the host's bytes and read from there every time it runs.
void require_not_capturing(const CudaQueue& queue) {
  cudaStreamCaptureStatus status = cudaStreamCaptureStatusNone;
  require(cudaStreamIsCapturing(cuda::stream_of(queue), &status), "cudaStreamIsCapturing");
  if (status == cudaStreamCaptureStatusNone) return;
  throw std::runtime_error("[cuda] copied from the host while work is being captured");
}

void copy(const CudaQueue& queue, void* to, const void* from, std::size_t bytes,
          cudaMemcpyKind kind) {
  if (bytes == 0) return;  // a graph cannot contain an empty copy
  require(cudaMemcpyAsync(to, from, bytes, kind, cuda::stream_of(queue)), "cudaMemcpyAsync");
}

// Whether a queued copy may still read these bytes of the host: true for memory that is not pinned
// if the GPU reads the host's pages itself. Otherwise the driver has made a copy by then.
bool may_read_later(const void* from) {
  int device = 0;
  int reads_pages = 0;
  require(cudaGetDevice(&device), "cudaGetDevice");
  require(cudaDeviceGetAttribute(&reads_pages, cudaDevAttrPageableMemoryAccess, device),
          "cudaDeviceGetAttribute");
  if (reads_pages == 0) return false;
  cudaPointerAttributes attributes{};
  require(cudaPointerGetAttributes(&attributes, from), "cudaPointerGetAttributes");
  return attributes.type == cudaMemoryTypeUnregistered;
}

// "13.0" for 13000.
std::string version_text(int version) {
  return std::to_string(version / 1000) + "." + std::to_string(version % 1000 / 10);
}

// Without a driver the runtime reports that the driver is too old.
std::string words_for(cudaError_t error) {
  if (error != cudaErrorInsufficientDriver) return cudaGetErrorString(error);
  int driver = 0;
  cudaDriverGetVersion(&driver);
  if (driver == 0) return "no NVIDIA driver was found";
  return "the NVIDIA driver is too old: it knows CUDA " + version_text(driver) +
         ", this build needs " + version_text(CUDART_VERSION);
}

__global__ void probe_kernel() {}

}  // namespace

bool cuda_is_available() { return cuda_device_count() > 0; }

int cuda_device_count() {
  int count = 0;
  return cudaGetDeviceCount(&count) == cudaSuccess ? count : 0;
}

std::string cuda_absence() {
  int count = 0;
  const cudaError_t error = cudaGetDeviceCount(&count);
  return error == cudaSuccess ? "no CUDA device was found" : words_for(error);
}

std::string cuda_device_problem(int index) {
  cudaFuncAttributes attributes{};
  cudaError_t error = cudaSetDevice(index);
  if (error == cudaSuccess) error = cudaFuncGetAttributes(&attributes, probe_kernel);
  if (error == cudaSuccess) return "";
  cudaGetLastError();  // or the next launch would report it again
  std::string words = words_for(error);
  if (error != cudaErrorNoKernelImageForDevice && error != cudaErrorInvalidDeviceFunction &&
      error != cudaErrorUnsupportedPtxVersion) {
    return words;
  }
  int major = 0;
  int minor = 0;
  cudaDeviceGetAttribute(&major, cudaDevAttrComputeCapabilityMajor, index);
  cudaDeviceGetAttribute(&minor, cudaDevAttrComputeCapabilityMinor, index);
  const std::string number = std::to_string(major) + std::to_string(minor);
  return words + ": this build is for other GPUs than one of compute capability " +
         std::to_string(major) + "." + std::to_string(minor) +
         ", build with -DCMAKE_CUDA_ARCHITECTURES=" + number;
}

CudaIdentity cuda_identity(int index) {
  cudaDeviceProp properties{};
  require(cudaGetDeviceProperties(&properties, index), "cudaGetDeviceProperties");
  constexpr const char* kDigits = "0123456789abcdef";
  std::string uuid;
  for (const char byte : properties.uuid.bytes) {
    const auto value = static_cast<unsigned char>(byte);
    uuid += kDigits[value / 16];
    uuid += kDigits[value % 16];
  }
  return {properties.name, uuid};
}

int cuda_selected_device() {
  int index = 0;
  require(cudaGetDevice(&index), "cudaGetDevice");
  return index;
}

void cuda_select_device(int index) {
  if (cuda_selected_device() != index) require(cudaSetDevice(index), "cudaSetDevice");
}

void* cuda_new_stream() {
  cudaStream_t stream = nullptr;
  require(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking), "cudaStreamCreate");
  return stream;
}

void cuda_release_stream(void* stream) noexcept {
  cudaStreamDestroy(static_cast<cudaStream_t>(stream));
}

void cuda_synchronize(const CudaQueue& queue) {
  require(cudaStreamSynchronize(cuda::stream_of(queue)), "cudaStreamSynchronize");
}

void cuda_wait_for(const CudaQueue& queue, const CudaQueue& other) {
  cudaEvent_t reached = nullptr;
  require(cudaEventCreateWithFlags(&reached, cudaEventDisableTiming), "cudaEventCreate");
  cudaError_t error = cudaEventRecord(reached, cuda::stream_of(other));
  if (error == cudaSuccess) error = cudaStreamWaitEvent(cuda::stream_of(queue), reached);
  cudaEventDestroy(reached);  // CUDA keeps it until the wait is over
  require(error, "cudaStreamWaitEvent");
}

void* cuda_allocate(std::size_t bytes) {
  cuda::require_device();
  if (bytes == 0) return nullptr;
  void* memory = nullptr;
  const cudaError_t error = cudaMalloc(&memory, bytes);
  if (error != cudaSuccess) cudaGetLastError();  // or the next launch would report it again
  if (error == cudaErrorMemoryAllocation) return nullptr;
  require(error, "cudaMalloc");
  return memory;
}

void cuda_release(void* memory) noexcept { cudaFree(memory); }

void* cuda_allocate_pinned(std::size_t bytes) {
  void* memory = nullptr;
  const cudaError_t error = cudaMallocHost(&memory, bytes);
  if (error != cudaSuccess) cudaGetLastError();
  if (error == cudaErrorMemoryAllocation) return nullptr;
  require(error, "cudaMallocHost");
  return memory;
}

void cuda_release_pinned(void* memory) noexcept {
  if (memory != nullptr) cudaFreeHost(memory);
}

void cuda_copy_to_device(const CudaQueue& queue, void* to, const void* from, std::size_t bytes) {
  require_not_capturing(queue);
  if (bytes <= cuda::kMostSmallBytes) return cuda::small_copy(queue, to, from, bytes);
  copy(queue, to, from, bytes, cudaMemcpyHostToDevice);
  if (may_read_later(from)) cuda_synchronize(queue);
}

void cuda_copy_to_host(const CudaQueue& queue, void* to, const void* from, std::size_t bytes) {
  copy(queue, to, from, bytes, cudaMemcpyDeviceToHost);
  cuda_synchronize(queue);
}

void cuda_copy_on_device(const CudaQueue& queue, void* to, const void* from, std::size_t bytes) {
  copy(queue, to, from, bytes, cudaMemcpyDeviceToDevice);
}

}  // namespace steelyard::kernels
